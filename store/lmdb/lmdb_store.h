/* store/lmdb/lmdb_store.h - LMDB as a kind of store of its own, and what the journal above it needs
 * besides. Only cache/ and its tests include it. The worker's one thread. */
#ifndef CN_STORE_LMDB_LMDB_STORE_H
#define CN_STORE_LMDB_LMDB_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct cn_lmdb_options {
    const char *dir;      /* exists; one per model version */
    uint64_t max_bytes;   /* of the file on disk; limits writes that grow it */
    uint64_t spare_bytes; /* that cn_lmdb_begin may write over the limit */
    bool sync;            /* fsync on each commit: survives the machine, not only the process */
    bool read_only;       /* no write transaction; the folder must hold a store already */
};
/* CN_E_STATE_STORE: folder not writable, not a store, damaged, or from a newer version.
 * Removes readers that died. Never open one folder twice in a process, nor fork with it open. */
int cn_lmdb_store_open(const struct cn_lmdb_options *options, struct cn_store **out,
                       struct cn_error *err);

/* A write transaction that no limit holds up. All processes have at most one of them, or of any
 * other write transaction, at a time; who dies in one leaves nothing of it behind. */
int cn_lmdb_begin(struct cn_store *store, struct cn_error *err);
/* In a transaction: changes whenever one was committed, by whichever process. */
uint64_t cn_lmdb_version(struct cn_store *store);
/* Notes that belong to the store and are no sequence's: in a transaction, borrowed as with get; len
 * 0 before the first one. */
enum cn_lmdb_note {
    CN_LMDB_NOTE_JOURNAL, /* how far the journal is in LMDB */
    CN_LMDB_NOTE_LOSS,    /* what was lost of the journal */
};
int cn_lmdb_get_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str *out,
                     struct cn_error *err);
int cn_lmdb_put_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str note,
                     struct cn_error *err);
/* Outside a transaction: bytes that writes may still take, of the limit. Negative: it is passed. */
int cn_lmdb_room(struct cn_store *store, int64_t *bytes, struct cn_error *err);
/* In a write transaction: gives the file as many pages as `bytes` take over those in use, so that
 * no full disk meets them later. */
int cn_lmdb_provide(struct cn_store *store, uint64_t bytes, struct cn_error *err);

/* In a transaction: bytes of the whole value of `id`, of which `front` is what next or front
 * said. */
int cn_lmdb_bytes_of(struct cn_store *store, struct cn_str id, struct cn_str prefix, uint64_t *out,
                     struct cn_error *err);
/* What the value of a key takes, about, with what pages leave empty; 0 bytes are a key alone. */
uint64_t cn_lmdb_cost(uint64_t value_bytes);
/* Why a write to a file of the folder failed, as the store says it: sets CN_E_STATE_STORE. */
int cn_lmdb_fail_errno(struct cn_store *store, int error, const char *what, struct cn_error *err);
/* As `1` of cn_store_put says it. */
int cn_lmdb_fail_full(struct cn_store *store, struct cn_error *err);

#endif
