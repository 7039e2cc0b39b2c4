/* store/lmdb/lmdb_rebuild.c - fills a new store with the certain entries of a damaged file. Owned
 * by the worker's thread.
 *
 * cn_lmdb_visit shows some entries twice, and lost ones as keys alone.
 * They are copied with their seals, so that a byte that changes on the way would be noticed later.
 * Then three passes over the new store follow: pieces without a first piece are removed; large
 * values are decoded, because a piece in the middle may be missing although each other piece is
 * whole; and keys without a value are counted. */
#include "store/lmdb/lmdb_rebuild.h"

#include <string.h>

#include "store/lmdb/lmdb_priv.h"
#include "store/lmdb/lmdb_seal.h"
#include "store/record/record.h"

struct filling {
    struct lmdb_store *lmdb;
    struct cn_lmdb_rebuilt *rebuilt;
    int rc; /* the first error of LMDB */
};

/* Writes a key without a value, which means that its value is lost. */
static void
put_lost(struct filling *filling, MDB_val *key)
{
    struct lmdb_store *lmdb = filling->lmdb;

    filling->rc = cn_lmdb_put_sealed(lmdb, lmdb->txn, key, CN_STR(""));
}

/* Writes a sequence's value. If the key is there with another value, they cannot both be the
 * newest, so neither is used. */
static void
put_sequence(struct filling *filling, MDB_val *key, MDB_val *sealed)
{
    struct lmdb_store *lmdb = filling->lmdb;
    MDB_val there = *sealed;

    filling->rc = mdb_put(lmdb->txn, lmdb->dbi, key, &there, MDB_NOOVERWRITE);
    if (filling->rc != MDB_KEYEXIST)
        return;
    filling->rc = 0;
    if (there.mv_size != sealed->mv_size ||
        memcmp(there.mv_data, sealed->mv_data, sealed->mv_size) != 0)
        put_lost(filling, key);
}

static bool
is_format(struct cn_str key)
{
    static const struct cn_str format = CN_STR("\0format");

    return cn_str_eq(key, format);
}

/* The receiver: copies one entry to where it belongs. The format's entry is left out, since the new
 * store has its own. */
static void
take_entry(void *ctx, bool pieces, struct cn_str key, struct cn_str value)
{
    struct filling *filling = ctx;
    struct lmdb_store *lmdb = filling->lmdb;
    MDB_val at = {key.len, (char *)key.ptr}, sealed = {value.len, (char *)value.ptr};

    if (filling->rc != 0 || (pieces && !value.ptr) || is_format(key))
        return;
    cn_lmdb_write_ahead(lmdb);
    if (pieces)
        filling->rc = mdb_put(lmdb->txn, lmdb->pieces, &at, &sealed, 0);
    else if (key.ptr[0] == CN_LMDB_FORMAT && !value.ptr)
        filling->rebuilt->note_lost = true;
    else if (key.ptr[0] == CN_LMDB_FORMAT)
        filling->rc = mdb_put(lmdb->txn, lmdb->dbi, &at, &sealed, 0);
    else if (value.ptr)
        put_sequence(filling, &at, &sealed);
    else
        put_lost(filling, &at);
}

/* Marks large values as lost if a piece is missing. A value of this size is always a record, whose
 * checksum tells. */
static int
check_large(struct cn_store *store, struct cn_error *err)
{
    struct cn_record record;
    char at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, id, prefix, value;
    int rc;

    while ((rc = store->ops->next(store, after, &id, &prefix, err)) == 0 && id.ptr) {
        memcpy(at, id.ptr, id.len);
        after.len = id.len;
        if (prefix.len < cn_lmdb_piece_bytes(cn_lmdb_of(store)))
            continue;
        if ((rc = store->ops->get(store, after, &value, err)) != 0)
            break;
        if (cn_record_decode(value, &record, NULL) != 0 &&
            (rc = store->ops->put(store, after, CN_STR(""), err)) != 0)
            break;
    }
    return rc;
}

static int
count_lost(struct cn_store *store, uint64_t *lost, struct cn_error *err)
{
    char at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, id, prefix;
    int rc;

    while ((rc = store->ops->next(store, after, &id, &prefix, err)) == 0 && id.ptr) {
        memcpy(at, id.ptr, id.len);
        after.len = id.len;
        *lost += prefix.len == 0;
    }
    return rc;
}

int
cn_lmdb_rebuild(const struct cn_lmdb_options *options, int fd, const struct cn_lmdb_report *report,
                struct cn_store **out, struct cn_lmdb_rebuilt *rebuilt, struct cn_error *err)
{
    struct filling filling = {.rebuilt = rebuilt};
    const struct cn_lmdb_receiver receiver = {take_entry, &filling};
    struct cn_store *store;
    int rc;

    *out = NULL;
    *rebuilt = (struct cn_lmdb_rebuilt){0};
    if ((rc = cn_lmdb_store_open(options, &store, err)) != 0)
        return rc;
    filling.lmdb = cn_lmdb_of(store);
    if ((rc = cn_lmdb_begin(store, err)) == 0)
        rc = cn_lmdb_visit(fd, report, &receiver, err);
    if (rc == 0 && filling.rc != 0)
        rc = cn_lmdb_fail(filling.lmdb, filling.rc, "rebuild", err);
    if (rc == 0)
        rc = cn_lmdb_drop_orphans(filling.lmdb, err);
    if (rc == 0)
        rc = check_large(store, err);
    if (rc == 0)
        rc = count_lost(store, &rebuilt->lost, err);
    if (rc != 0) {
        cn_store_close(store);
        return rc;
    }
    *out = store;
    return 0;
}
