/* store/lmdb/lmdb_rebuild.h - makes a new LMDB file from what is whole in a damaged one. The
 * worker's one thread. */
#ifndef CN_STORE_LMDB_LMDB_REBUILD_H
#define CN_STORE_LMDB_LMDB_REBUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "store/lmdb/lmdb_check.h"
#include "store/lmdb/lmdb_store.h"

struct cn_lmdb_rebuilt {
    uint64_t lost;  /* keys whose value is lost */
    bool note_lost; /* one of the notes (enum cn_lmdb_note) is lost */
};

/* Opens a new store in the empty folder options->dir, and writes to it each entry that
 * cn_lmdb_visit finds in the damaged file `fd`. A key whose value is lost is kept, with a value of
 * no bytes. On success a write transaction is open in `out`, so that the caller can add to it and
 * commit; on failure nothing is open. */
int cn_lmdb_rebuild(const struct cn_lmdb_options *options, int fd,
                    const struct cn_lmdb_report *report, struct cn_store **out,
                    struct cn_lmdb_rebuilt *rebuilt, struct cn_error *err);

#endif
