/* store/lmdb/lmdb_priv.h - what the source files of the LMDB store share. No other header includes
 * lmdb.h. */
#ifndef CN_STORE_LMDB_LMDB_PRIV_H
#define CN_STORE_LMDB_LMDB_PRIV_H

#include <lmdb.h>

#include "core/containers/list.h"
#include "core/memory/arena.h"
#include "store/lmdb/lmdb_store.h"

/* The first byte of a key: the format and notes, a sequence, a piece of a large value. */
#define CN_LMDB_FORMAT 0x00
#define CN_LMDB_SEQUENCE 0x01
#define CN_LMDB_PIECES 0x02
/* The name of the database of pieces. */
#define CN_LMDB_PIECES_NAME "\2pieces"
/* The pages that a transaction takes besides those of its values: the path to the root and the list
 * of free pages. */
#define CN_LMDB_OVERHEAD_PAGES 12

struct lmdb_store {
    struct cn_store base;
    char *dir;
    uint64_t max_bytes, spare_bytes;
    bool sync, read_only;
    bool has_note[2]; /* which notes (enum cn_lmdb_note) are among the entries */
    MDB_env *env;
    MDB_dbi dbi, pieces;
    uint64_t page_bytes;
    /* kept and renewed, which saves an allocation and a search for a slot in each batch */
    MDB_txn *reader;
    MDB_txn *txn;         /* the open transaction, `reader` or a write transaction; or NULL */
    MDB_cursor *cursor;   /* the cursor of the open transaction, or NULL */
    MDB_cursor *piecer;   /* the cursor in the database of pieces, or NULL */
    struct cn_arena got;  /* large values that were put together in the open transaction */
    int64_t budget_pages; /* pages that the open transaction may still use */
    uint64_t file_pages;  /* the file has at least this many pages */
    bool writing, grown;
    bool at_key; /* the cursor is on the key that was found last, and nothing was written since */
};

static inline struct lmdb_store *
cn_lmdb_of(struct cn_store *store)
{
    return cn_container_of(store, struct lmdb_store, base);
}

/* --- lmdb_store.c --- */

/* Sets CN_E_STATE_STORE for an error of LMDB or an errno, with a message that says which limit was
 * hit and what to do. */
int cn_lmdb_fail(const struct lmdb_store *lmdb, int rc, const char *what, struct cn_error *err);
/* The size of the mapping: the limit, what drains may use over it, and some reserve. */
uint64_t cn_lmdb_map_bytes(const struct lmdb_store *lmdb);
/* Begins and ends a read transaction in lmdb->txn. */
int cn_lmdb_read_begin(struct lmdb_store *lmdb, struct cn_error *err);
void cn_lmdb_read_end(struct lmdb_store *lmdb);

/* --- lmdb_room.c --- */

/* How many pages writes may still take before the limit. Outside a transaction. */
int cn_lmdb_pages_left(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err);
/* Extends the file before the first write of a transaction. If the disk is full, nothing happens
 * here, since LMDB reports it later. */
void cn_lmdb_write_ahead(struct lmdb_store *lmdb);
/* The pages that a value takes, with its leaf. */
int64_t cn_lmdb_value_pages(const struct lmdb_store *lmdb, uint64_t bytes);

/* --- lmdb_value.c --- */

/* Members of struct cn_store_ops, store/store.h. */
int cn_lmdb_get(struct cn_store *store, struct cn_str id, struct cn_str *out, struct cn_error *err);
int cn_lmdb_prefix(struct cn_store *store, struct cn_str id, struct cn_str *out,
                   struct cn_error *err);
int cn_lmdb_next(struct cn_store *store, struct cn_str after, struct cn_str *id,
                 struct cn_str *prefix, struct cn_error *err);
int cn_lmdb_put(struct cn_store *store, struct cn_str id, struct cn_str value,
                struct cn_error *err);
int cn_lmdb_remove(struct cn_store *store, struct cn_str id, struct cn_error *err);
void cn_lmdb_cursors_close(struct lmdb_store *lmdb);
/* Writes an entry of the main database that does not belong to a sequence, with its seal. 0 or
 * LMDB's error. */
int cn_lmdb_put_sealed(struct lmdb_store *lmdb, MDB_txn *txn, MDB_val *key, struct cn_str value);
/* The size of a first piece that may be followed by others. */
size_t cn_lmdb_piece_bytes(const struct lmdb_store *lmdb);
/* Removes pieces of values that have no first piece. In a write transaction. */
int cn_lmdb_drop_orphans(struct lmdb_store *lmdb, struct cn_error *err);

#endif
