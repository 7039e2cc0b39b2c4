/* store/lmdb/lmdb_store.h - LMDB as a kind of store, and the functions that only the
 * journal above it needs. Only store/ and its tests include it. The worker's one thread. */
#ifndef CN_STORE_LMDB_LMDB_STORE_H
#define CN_STORE_LMDB_LMDB_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct cn_lmdb_options {
    const char *dir;      /* an existing folder, one for each model version */
    uint64_t max_bytes;   /* the limit of the file on disk, for writes that grow it */
    uint64_t spare_bytes; /* by how much writes after cn_lmdb_begin may exceed the limit */
    /* fsync on each commit: a commit survives a power failure, not only a kill */
    bool sync;
    bool read_only; /* no write transactions; the folder must hold a store */
};
/* Opens the store, which cn_store_close frees. CN_E_STATE_STORE: the folder is not writable, is not
 * a store, is damaged, or has another format. Removes readers whose process has died. A process
 * must not open a folder twice, nor fork while it is open. */
int cn_lmdb_store_open(const struct cn_lmdb_options *options, struct cn_store **out,
                       struct cn_error *err);

/* Begins a write transaction that ignores the limit. All processes together have at most one write
 * transaction at a time; if a process dies in one, nothing of it remains. */
int cn_lmdb_begin(struct cn_store *store, struct cn_error *err);
/* The version of LMDB's content, in a transaction: it changes with every commit of any process. */
uint64_t cn_lmdb_version(struct cn_store *store);
/* Notes of the journal, which belong to the store and not to a sequence. Read one in a transaction;
 * `out` is borrowed as in cn_store_get, and len is 0 if there is no such note yet. */
enum cn_lmdb_note {
    CN_LMDB_NOTE_JOURNAL, /* how far the journal is drained (journal_drain.c) */
    CN_LMDB_NOTE_LOSS,    /* what was lost (journal_loss.c) */
};
int cn_lmdb_get_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str *out,
                     struct cn_error *err);
int cn_lmdb_put_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str note,
                     struct cn_error *err);
/* How many bytes writes may still take before the limit; negative if it is exceeded. Outside a
 * transaction. */
int cn_lmdb_room(struct cn_store *store, int64_t *bytes, struct cn_error *err);
/* Extends the file, in a write transaction, so that `bytes` fit besides what is in use. A later
 * write then does not meet a full disk. */
int cn_lmdb_provide(struct cn_store *store, uint64_t bytes, struct cn_error *err);

/* The size of the whole value of `id`, in a transaction. `prefix` is what cn_store_next or
 * cn_store_prefix gave. */
int cn_lmdb_bytes_of(struct cn_store *store, struct cn_str id, struct cn_str prefix, uint64_t *out,
                     struct cn_error *err);
/* About how many bytes of the file a value of this size takes, with the room that pages leave
 * empty; with 0 it is a key alone. */
uint64_t cn_lmdb_cost(uint64_t value_bytes);
/* Sets CN_E_STATE_STORE with the reason why a file of the folder could not be written, and returns
 * it. */
int cn_lmdb_fail_errno(struct cn_store *store, int error, const char *what, struct cn_error *err);
/* Sets the error that goes with cn_store_put's result 1: the store is full. */
int cn_lmdb_fail_full(struct cn_store *store, struct cn_error *err);

#endif
