/* management/state_dir_priv.h - shared by state_dir.c and state_store.c only. */
#ifndef CN_MANAGEMENT_STATE_DIR_PRIV_H
#define CN_MANAGEMENT_STATE_DIR_PRIV_H

#include "core/error.h"

/* "dir/name"; cn_free() it. */
char *cn_state_path(const char *dir, const char *name);
/* Deletes all in a folder, which stays; links are deleted, not followed. Harmless where there is none. */
void cn_state_empty_tree(const char *path);
/* Puts the mark into each store of the state folder. */
int cn_state_mark_stores(const char *state_path, struct cn_error *err);
/* fsyncs the files of each store; all of them, also when one can't be: then CN_E_IO. */
int cn_state_sync_stores(const char *state_path, struct cn_error *err);

#endif
