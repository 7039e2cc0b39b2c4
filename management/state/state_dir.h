/* management/state/state_dir.h - the state folder: who may write into it, and what lies where.
 *
 *   FORMAT     version of the layout, "1"
 *   lock       flock()ed by the server; the workers inherit the descriptor, so that the lock is free
 *              only when the server and all its workers are gone. Holds the server's pid
 *   boot       boot id of the machine, and "running" or "clean"; written in place
 *   models/<name>/<version>/   one store a model version, names percent-encoded
 *   models/<name>/<version>/UNVERIFIED   the machine stopped without warning: check before use
 *   unpacked/  archives of registered models, and NAME.whole for each (unpacked.h)
 *
 * A folder that was opened once is opened again, and closed, on a disk without a free byte.
 *
 * Opened on the main thread; the functions on stores block and run on the file thread.
 */
#ifndef CN_MANAGEMENT_STATE_STATE_DIR_H
#define CN_MANAGEMENT_STATE_STATE_DIR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"

struct cn_state_dir;
struct cn_unpacked;

/* Creates the folder (mode 0700) where there is none. Waits up to wait_ms for workers of a dead
 * server; then CN_E_CONFLICT naming the pid. A newer layout is CN_E_CONFIG. Marks all stores as
 * unverified when the machine went down while a server ran. */
int cn_state_dir_open(const char *path, uint32_t wait_ms, struct cn_state_dir **out,
                      struct cn_error *err);
/* `clean`: all workers have ended in order: what they wrote is flushed to the disk, and the next
 * start need not check it; where that fails it will. NULL is allowed. */
void cn_state_dir_close(struct cn_state_dir *state, bool clean);

/* Of the lock, for the workers to inherit; stays the state folder's. */
int cn_state_dir_lock_fd(const struct cn_state_dir *state);

/* Where the store of a model version is or will be; cn_free() it. */
char *cn_state_dir_store(const struct cn_state_dir *state, const char *name, const char *version);
/* File thread: what is unpacked already. */
struct cn_unpacked *cn_state_dir_unpacked(struct cn_state_dir *state);
/* A folder that doesn't exist yet, for unpacking; cn_free() it. */
char *cn_state_dir_unpack_place(const struct cn_state_dir *state);

/* The next worker that opens the store while no other one has it open checks its data.mdb. */
void cn_state_dir_recheck_store(const char *store);
/* Makes the store's folder, which its first worker will check; one that is marked after a power cut
 * is checked and mended by `worker_program --mend-store` before, and set aside (renamed to <its
 * name>~bad-<time>, said in the log and in the new store's file DAMAGED) when it cannot be read.
 * `accept`: what it lost is accepted before anybody uses it. */
int cn_state_dir_prepare_store(const char *store, const char *worker_program, bool accept,
                               struct cn_error *err);
/* The worker program forgets what the store lost. A store that it cannot even open is set aside,
 * unless a registered model has it. */
int cn_state_dir_accept_store(const char *store, const char *worker_program, bool in_use,
                              struct cn_error *err);
/* The folder itself. */
const char *cn_state_dir_path(const struct cn_state_dir *state);
/* Deletes the store and, when that was its last version, the model's folder. */
void cn_state_dir_remove_store(const char *store);

/* Text as a file name: bytes but letters, digits, _ and - (and . within) as %XX; what would be over
 * NAME_MAX then ends with a sum of all of it. */
void cn_state_dir_encode(const char *text, struct cn_buf *out);

#endif
