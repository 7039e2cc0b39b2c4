/* management/state/state_dir.h - the state folder: who may write into it, and where things are.
 *
 *    FORMAT     version of the layout, "1"
 *    lock       the server's pid, for messages; the lock itself is a flock() on the folder
 *    boot       boot id of the machine, and "running" or "clean"; written in place
 *    models/<name>/<version>/   one store for each model version, names percent-encoded
 *    models/<name>/<version>/UNVERIFIED   the machine stopped without warning: check before use
 *    unpacked/  archives of registered models, and NAME.whole for each (unpacked.h)
 *
 * The workers inherit the locked descriptor, so the lock is free only when the server and all of
 * its workers are gone. A folder that was opened once can be opened and closed again on a disk
 * without a free byte.
 *
 * It is opened on the main thread. The functions on stores block, and run on the file thread.
 */
#ifndef CN_MANAGEMENT_STATE_STATE_DIR_H
#define CN_MANAGEMENT_STATE_STATE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_state_dir;
struct cn_unpacked;

/* Opens the folder, and creates it (mode 0700) if it is missing. Waits up to wait_ms for the
 * workers of a dead server; then CN_E_CONFLICT names the pid. CN_E_CONFIG: a newer layout. Marks
 * all stores as unverified if the machine went down while a server ran. */
int cn_state_dir_open(const char *path, uint32_t wait_ms, struct cn_state_dir **out,
                      struct cn_error *err);
/* Closes the folder. `clean`: all workers have ended in order, so what they wrote is flushed to the
 * disk, and the next start need not check it; if the flush fails, it will. NULL is allowed. */
void cn_state_dir_close(struct cn_state_dir *state, bool clean);

/* The descriptor of the lock, for workers to inherit; it stays the state folder's. */
int cn_state_dir_lock_fd(const struct cn_state_dir *state);

/* The folder of a model version's store, which may not exist yet; free it with cn_free(). */
char *cn_state_dir_store(const struct cn_state_dir *state, const char *name, const char *version);
/* The unpacked archives, for the file thread. */
struct cn_unpacked *cn_state_dir_unpacked(struct cn_state_dir *state);
/* A name for a folder to unpack into, which does not exist yet; free it with cn_free(). */
char *cn_state_dir_unpack_place(const struct cn_state_dir *state);

/* Lets the next worker that opens the store alone check its data.mdb first. */
void cn_state_dir_recheck_store(const char *store);
/* Makes the store's folder, which its first worker will check. A store that is marked after a power
 * cut is first checked and mended by `worker_program --mend-store`. If it cannot be read, it is set
 * aside: renamed to <its name>~bad-<time>, which the log and the new store's file DAMAGED say.
 * `accept`: its losses are accepted before it is used. */
int cn_state_dir_prepare_store(const char *store, const char *worker_program, bool accept,
                               struct cn_error *err);
/* Lets the worker program accept what the store lost. A store that it cannot even open is set
 * aside, unless a registered model uses it. */
int cn_state_dir_accept_store(const char *store, const char *worker_program, bool in_use,
                              struct cn_error *err);
/* The path of the state folder. */
const char *cn_state_dir_path(const struct cn_state_dir *state);
/* Deletes the store, and the model's folder if that was its last version. */
void cn_state_dir_remove_store(const char *store);

/* Appends the text as a file name: letters, digits, _ and - (and . except at the beginning) stay,
 * other bytes become %XX. A name that would exceed NAME_MAX is cut, and ends with a checksum of the
 * whole text. */
void cn_state_dir_encode(const char *text, struct cn_buf *out);

#endif
