/* management/models/unpacked.h - unpacked archives, kept from one start of the server to the next.
 *
 * Each model version has a folder of its own; a file NAME.whole beside it, written last, says of
 * which archive it was made and how its files looked then. A start takes over a folder whose
 * archive and files are as they were; all others are removed. Behind a reboot nothing is taken
 * over: what was not flushed may be torn.
 *
 * Opened on the main thread, then used by the file thread alone.
 */
#ifndef CN_MANAGEMENT_MODELS_UNPACKED_H
#define CN_MANAGEMENT_MODELS_UNPACKED_H

#include <stdbool.h>

struct cn_unpacked;

/* `folder` need not be there. What a killed server left half done is removed. `boot_id`: of the
 * machine; empty: not known, nothing is kept. */
struct cn_unpacked *cn_unpacked_open(const char *folder, const char *boot_id);
/* The folders stay. NULL is allowed. */
void cn_unpacked_close(struct cn_unpacked *unpacked);

/* A folder that was made of this archive, as both are now, becomes `place`. False: there is none;
 * what was made of an older state of the archive is gone then. */
bool cn_unpacked_take(struct cn_unpacked *unpacked, const char *archive, const char *place);
/* The archive was unpacked into `place`, and is to be found there at the next start. */
void cn_unpacked_note(struct cn_unpacked *unpacked, const char *archive, const char *place);
/* Removes what nobody took. False: there was nothing. */
bool cn_unpacked_remove_rest(struct cn_unpacked *unpacked);

/* Any thread: deletes a place and what is said of it. */
void cn_unpacked_remove(const char *place);

#endif
