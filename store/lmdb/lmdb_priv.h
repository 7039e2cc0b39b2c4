/* store/lmdb/lmdb_priv.h - what the files of the LMDB store share. The only header that includes
 * lmdb.h. */
#ifndef CN_STORE_LMDB_LMDB_PRIV_H
#define CN_STORE_LMDB_LMDB_PRIV_H

#include <lmdb.h>

#include "core/containers/list.h"
#include "core/memory/arena.h"
#include "store/lmdb/lmdb_store.h"

/* First bytes of keys. */
#define CN_LMDB_FORMAT 0x00
#define CN_LMDB_SEQUENCE 0x01
#define CN_LMDB_PIECES 0x02
/* Of the database whose keys are pieces' ones. */
#define CN_LMDB_PIECES_NAME "\2pieces"
/* Pages that a transaction takes besides those of its values: the path to the root, the free
 * list. */
#define CN_LMDB_OVERHEAD_PAGES 12

struct lmdb_store {
    struct cn_store base;
    char *dir;
    uint64_t max_bytes, spare_bytes;
    bool sync, read_only;
    bool has_note[2]; /* entries that are no sequence's, by enum cn_lmdb_note */
    MDB_env *env;
    MDB_dbi dbi, pieces;
    uint64_t page_bytes;
    MDB_txn *reader;      /* kept and renewed: saves an allocation and a slot search a batch */
    MDB_txn *txn;         /* the open transaction: `reader` or a write; NULL */
    MDB_cursor *cursor;   /* of the open transaction, or NULL */
    MDB_cursor *piecer;   /* the same, of the pieces */
    struct cn_arena got;  /* values that were put together from pieces in the open transaction */
    int64_t budget_pages; /* that a write may still use */
    uint64_t file_pages;  /* that the file has at least */
    bool writing, grown;
    bool at_key; /* the cursor stands on the key that was found last, with nothing written since */
};

static inline struct lmdb_store *
cn_lmdb_of(struct cn_store *store)
{
    return cn_container_of(store, struct lmdb_store, base);
}

/* --- lmdb_store.c --- */

/* Says which limit was hit and what to do about it. */
int cn_lmdb_fail(const struct lmdb_store *lmdb, int rc, const char *what, struct cn_error *err);
uint64_t cn_lmdb_map_bytes(const struct lmdb_store *lmdb);
int cn_lmdb_read_begin(struct lmdb_store *lmdb, struct cn_error *err);
void cn_lmdb_read_end(struct lmdb_store *lmdb);

/* --- lmdb_room.c --- */

/* Pages that writes may still take, of the limit. Outside a transaction. */
int cn_lmdb_pages_left(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err);
/* Before the first write of a transaction. A full disk is no matter here: LMDB meets it itself. */
void cn_lmdb_write_ahead(struct lmdb_store *lmdb);
/* Of a value, with its leaf. */
int64_t cn_lmdb_value_pages(const struct lmdb_store *lmdb, uint64_t bytes);

/* --- lmdb_value.c --- */

int cn_lmdb_get(struct cn_store *store, struct cn_str id, struct cn_str *out, struct cn_error *err);
int cn_lmdb_prefix(struct cn_store *store, struct cn_str id, struct cn_str *out,
                   struct cn_error *err);
int cn_lmdb_next(struct cn_store *store, struct cn_str after, struct cn_str *id,
                 struct cn_str *prefix, struct cn_error *err);
int cn_lmdb_put(struct cn_store *store, struct cn_str id, struct cn_str value,
                struct cn_error *err);
int cn_lmdb_remove(struct cn_store *store, struct cn_str id, struct cn_error *err);
void cn_lmdb_cursors_close(struct lmdb_store *lmdb);
/* Puts an entry of the main database that is not a sequence's. 0 or LMDB's error. */
int cn_lmdb_put_sealed(struct lmdb_store *lmdb, MDB_txn *txn, MDB_val *key, struct cn_str value);
/* What a first piece has when there may be others. */
size_t cn_lmdb_piece_bytes(const struct lmdb_store *lmdb);
/* In a write transaction: removes pieces of values that have no first piece. */
int cn_lmdb_drop_orphans(struct lmdb_store *lmdb, struct cn_error *err);

#endif
