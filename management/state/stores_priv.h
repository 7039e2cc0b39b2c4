/* management/state/stores_priv.h - what the watch of the stores and the calls for them share. */
#ifndef CN_MANAGEMENT_STATE_STORES_PRIV_H
#define CN_MANAGEMENT_STATE_STORES_PRIV_H

#include "core/containers/table.h"
#include "management/management_priv.h"
#include "management/state/store_scan.h"
#include "management/state/stores.h"

#define WATCH_EVERY_MS 2000

struct cn_stores {
    struct cn_management *management;
    struct cn_timer timer;
    struct cn_file_task task; /* the watch's visit to the file thread */
    struct cn_store_scan watched;
    uint64_t state_inode; /* inode of the state folder at the start */
    bool watching;
};

/* Calls `fn` for each version, also those that close. */
void cn_stores_each_version(struct cn_management *management,
                            void (*fn)(void *ctx, const struct cn_version *version), void *ctx);
/* Makes a table of the versions, also of those that close, by the paths of their stores. With a
 * search through all versions for each store, 10,000 models would occupy the loop. */
struct cn_table *cn_stores_users(const struct cn_stores *stores);
/* The version that uses the store at `path`; NULL: none. */
struct cn_version *cn_stores_user(const struct cn_table *users, const char *path);
/* The end of a store's path, "model/version", by which an operator names the store. */
const char *cn_stores_name(const char *path);

#endif
