/* management/models/unpacked.h - unpacked archives, kept from one start of the server to the next.
 *
 * Each model version has a folder of its own. A file NAME.whole beside it, written last, says which
 * archive it was made from and how its files looked then. A start takes over a folder whose archive
 * and files have not changed, and all others are removed. After a reboot nothing is taken over,
 * because what was not flushed may be torn.
 *
 * It is opened on the main thread and then used by the file thread alone.
 */
#ifndef CN_MANAGEMENT_MODELS_UNPACKED_H
#define CN_MANAGEMENT_MODELS_UNPACKED_H

#include <stdbool.h>
#include <stdint.h>

struct cn_unpacked;

/* Reads what the last start left. `folder` may be missing. What a killed server left half done is
 * removed. `boot_id`: the machine's; empty: not known, so nothing is kept. */
struct cn_unpacked *cn_unpacked_open(const char *folder, const char *boot_id);
/* Frees the memory; the folders stay. NULL is allowed. */
void cn_unpacked_close(struct cn_unpacked *unpacked);

/* Renames a folder that was made from this archive to `place`, if both are unchanged. `stamp` is
 * the archive's now. False: there is none; a folder made from an older state of the archive is
 * removed then. */
bool cn_unpacked_take(struct cn_unpacked *unpacked, const char *archive, uint64_t stamp,
                      const char *place);
/* Notes that the archive was unpacked into `place`, for the next start. `stamp` is that of the
 * archive before it was opened: it may have been replaced since. */
void cn_unpacked_note(struct cn_unpacked *unpacked, const char *archive, uint64_t stamp,
                      const char *place);
/* Removes the folders that were not taken. False: there were none. */
bool cn_unpacked_remove_rest(struct cn_unpacked *unpacked);

/* Any thread: deletes a folder and its note. */
void cn_unpacked_remove(const char *place);

#endif
