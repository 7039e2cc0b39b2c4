/* store/lmdb/lmdb_rebuild.h - a new LMDB file out of what is whole of a damaged one. The worker's
 * one thread. */
#ifndef CN_STORE_LMDB_LMDB_REBUILD_H
#define CN_STORE_LMDB_LMDB_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "store/lmdb/lmdb_check.h"
#include "store/lmdb/lmdb_store.h"

struct cn_lmdb_rebuilt {
    uint64_t lost;  /* keys without their values */
    bool note_lost; /* a note of the store's (enum cn_lmdb_note) is lost */
};

/* Opens a store in options->dir, which is empty, and writes each entry to it that cn_lmdb_visit
 * shows of the file `fd`. A key whose value is lost stays, with a value of no bytes. On success a
 * write transaction is open in `out`, for what the caller adds; on failure there is no store. */
int cn_lmdb_rebuild(const struct cn_lmdb_options *options, int fd,
                    const struct cn_lmdb_report *report, struct cn_store **out,
                    struct cn_lmdb_rebuilt *rebuilt, struct cn_error *err);

#endif
