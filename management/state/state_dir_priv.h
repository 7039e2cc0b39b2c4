/* management/state/state_dir_priv.h - shared by state_dir.c and state_store.c only. */
#ifndef CN_MANAGEMENT_STATE_STATE_DIR_PRIV_H
#define CN_MANAGEMENT_STATE_STATE_DIR_PRIV_H

#include <stddef.h>

#include "core/errors/error.h"

/* "dir/name"; free it with cn_free(). */
char *cn_state_path(const char *dir, const char *name);
/* In the name of what was set aside. No version's folder has it: '~' stands only before a sum, in
 * hexadecimal digits (cn_state_dir_encode). */
#define CN_STATE_BAD "~bad-"
/* In a store's folder: what is wrong with it, until an operator accepts it (store/store.h,
 * CN_STORE_DAMAGED). */
#define CN_STORE_REPORT "DAMAGED"
/* In a store's folder: its data.mdb was checked since the server began to use it
 * (store/store.h). */
#define CN_STORE_CHECKED "CHECKED"

/* Runs the worker program with an option and a store; what it prints to its standard output goes to
 * `said` (NULL: to ours). Returns its wait status, or -1 with the reason in errno. File thread. */
int cn_state_run_worker(const char *worker_program, const char *option, const char *store,
                        char *said, size_t said_bytes);
/* Puts the mark into each store of the state folder. */
int cn_state_mark_stores(const char *state_path, struct cn_error *err);
/* Flushes the files of each store with fsync(). If one fails, the others follow, and CN_E_IO is
 * returned. */
int cn_state_sync_stores(const char *state_path, struct cn_error *err);

#endif
