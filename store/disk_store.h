/* store/disk_store.h - opens the store of a folder: LMDB with a journal above it, or, with
 * `direct`, LMDB alone (state.journal: off). Both use the same files, so the setting may change
 * from one start to the next. store/store.h says what can be done with a store.
 *
 * LMDB alone writes more for each commit, but keeps everything in one file, which LMDB's own tools
 * can read while no value waits in a journal. One thread. */
#ifndef CN_STORE_DISK_STORE_H
#define CN_STORE_DISK_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "store/store.h"

/* Points at which a test is informed, so that it can kill the process there. */
enum cn_store_point {
    CN_STORE_APPENDED, /* the transaction is in the journal; LMDB does not have its new keys yet */
    CN_STORE_SWITCHED, /* from now on commits are appended to the other file */
    CN_STORE_DRAINING, /* a slice of the journal is written to LMDB and not committed */
    CN_STORE_DRAINED,  /* that slice is committed */
};

struct cn_disk_options {
    const char *dir; /* an existing folder, one for each model version */
    /* the limit of LMDB's file; bytes that the journal still has to move there count as well */
    uint64_t max_bytes;
    /* when one of the two journal files is this large, commits go to the other one */
    uint64_t journal_max_bytes;
    bool sync; /* fdatasync on each commit: a commit survives a power failure, not only a kill */
    /* no write transactions; the folder must hold a store, which no process may be writing to */
    bool read_only;
    /* commits go straight to LMDB, and the journal stays empty. All processes that have the store
     * open do the same as the first one: if that uses a journal, this setting is ignored, and if it
     * uses none, a process without the setting uses none either. */
    bool direct;
    bool repair_only; /* the caller puts no values, so it does not matter who uses a journal */
    uint64_t check_max_bytes; /* data.mdb up to this size is checked before it is used */
    /* check even when the file CHECKED is there; read_only always does so */
    bool recheck;
    void (*passing)(enum cn_store_point point); /* for tests, or NULL */
};
/* Opens the store in options->dir, which cn_store_close frees, and creates its files if they are
 * missing. Damage is repaired as far as possible and reported in the file DAMAGED.
 * CN_E_STATE_STORE: the folder is not writable, is not a store, cannot be repaired, or has another
 * format. Removes LMDB's readers whose process has died. A process must not open a folder twice,
 * nor fork while it is open: LMDB's locks and its memory mapping belong to one process. */
int cn_disk_store_open(const struct cn_disk_options *options, struct cn_store **out,
                       struct cn_error *err);

/* The name of a file that lies in the folder of a damaged store until an operator accepts the loss.
 * Its first line is "lost N", the number of sequences whose newest state is lost. The second is
 * "suspect 0" or "suspect 1"; 1 means that it cannot be known which sequences are affected. The
 * other lines say what is wrong, one sentence each. */
#define CN_STORE_DAMAGED "DAMAGED"

/* The name of a file that lies in a store's folder if data.mdb was checked since the server began
 * to use the store. */
#define CN_STORE_CHECKED "CHECKED"

/* Accepts the loss after damage: removes the keys of lost sequences and the file DAMAGED, so that
 * their ids can begin anew without an error. Call it outside a transaction, on a journal store that
 * is open for writing. `dropped` gets the number of removed keys. CN_E_STATE_STORE: LMDB or the
 * folder cannot be written. */
int cn_store_accept_loss(struct cn_store *store, uint64_t *dropped, struct cn_error *err);

#endif
