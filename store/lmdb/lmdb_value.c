/* store/lmdb/lmdb_value.c - values in LMDB: in one entry if they fit into a page, else in pieces of
 * a page. Owned by the worker's thread.
 *
 * For a value larger than a page, LMDB needs consecutive free pages. A file that was filled and
 * emptied many times has enough free pages, but not consecutive ones, and grows far beyond its
 * limit. So nothing here is larger than a page. The first piece of a larger value is under the
 * sequence's key; the others are in a database of their own, under the key
 *   02  u16 bytes of the id  id  u32 number of the piece, from 1
 * in which numbers have their most significant byte first, so that the pieces of one value are
 * neighbours in their order.
 *
 * A first piece that fills its page exactly says that there may be others. The size of such a value
 * is found by its last piece: all pieces before that are full. Writing a shorter value therefore
 * has to remove the pieces that are left over.
 *
 * Each value and each piece has its seal behind it (lmdb_seal.h). cn_lmdb_check compares it when
 * the store is opened; a look-up does not, because a record has a checksum of its own.
 *
 * A look-up is mostly followed by a write of the same key, so the cursor stays where it is
 * (`at_key`), and the write need not descend from the root again. */
#include <endian.h>
#include <string.h>

#include "core/errors/panic.h"
#include "store/lmdb/lmdb_priv.h"
#include "store/lmdb/lmdb_seal.h"

/* The head of an overflow page, which holds nothing else but one value. */
#define PAGE_HEADER_BYTES 16
#define PIECE_KEY_MAX (3 + CN_STORE_KEY_MAX + 4)

/* Makes the key of a sequence in the caller's bytes. */
static MDB_val
key_of(struct cn_str id, char bytes[CN_STORE_KEY_MAX + 1])
{
    bytes[0] = CN_LMDB_SEQUENCE;
    if (id.len)
        memcpy(bytes + 1, id.ptr, id.len);
    return (MDB_val){id.len + 1, bytes};
}

/* Opens the cursor of the open transaction if it is not open. */
static int
cursor_open(struct lmdb_store *lmdb)
{
    lmdb->at_key = false;
    return lmdb->cursor ? 0 : mdb_cursor_open(lmdb->txn, lmdb->dbi, &lmdb->cursor);
}

/* Finds a key. Among a million sequences each way from the root to a leaf costs several cache
 * misses, so a write uses the leaf that the read before it found. */
static int
seek(struct lmdb_store *lmdb, MDB_val *key, MDB_val *value)
{
    MDB_val found;
    int rc;

    if (lmdb->at_key && mdb_cursor_get(lmdb->cursor, &found, value, MDB_GET_CURRENT) == 0 &&
        found.mv_size == key->mv_size && memcmp(found.mv_data, key->mv_data, key->mv_size) == 0)
        return 0;
    if ((rc = cursor_open(lmdb)) != 0)
        return rc;
    rc = mdb_cursor_get(lmdb->cursor, key, value, MDB_SET);
    lmdb->at_key = rc == 0;
    return rc;
}

/* --- seals --- */

static int
unseal(const struct lmdb_store *lmdb, const MDB_val *data, struct cn_str *out, struct cn_error *err)
{
    if (data->mv_size < CN_LMDB_SEAL_BYTES)
        return cn_lmdb_fail(lmdb, MDB_CORRUPTED, "read", err);
    *out = (struct cn_str){data->mv_data, data->mv_size - CN_LMDB_SEAL_BYTES};
    return 0;
}

static size_t
unsealed_bytes(const MDB_val *data)
{
    return data->mv_size < CN_LMDB_SEAL_BYTES ? 0 : data->mv_size - CN_LMDB_SEAL_BYTES;
}

/* Copies value and seal into the room that LMDB reserved in the page, because they do not lie side
 * by side in memory. */
static void
fill_sealed(const MDB_val *key, struct cn_str value, const MDB_val *data)
{
    if (value.len)
        memcpy(data->mv_data, value.ptr, value.len);
    cn_lmdb_seal((struct cn_str){key->mv_data, key->mv_size}, value,
                 (char *)data->mv_data + value.len);
}

static int
put_sealed(MDB_cursor *cursor, MDB_val *key, struct cn_str value, unsigned flags)
{
    const MDB_val ours = *key;
    MDB_val data = {value.len + CN_LMDB_SEAL_BYTES, NULL};
    int rc = mdb_cursor_put(cursor, key, &data, flags | MDB_RESERVE);

    if (rc == 0)
        fill_sealed(&ours, value, &data);
    return rc;
}

/* --- pieces --- */

size_t
cn_lmdb_piece_bytes(const struct lmdb_store *lmdb)
{
    return lmdb->page_bytes - PAGE_HEADER_BYTES - CN_LMDB_SEAL_BYTES;
}

/* Makes the key of a piece in the caller's bytes. */
static MDB_val
piece_key(struct cn_str id, uint32_t number, char bytes[PIECE_KEY_MAX])
{
    const uint16_t len = htobe16((uint16_t)id.len);

    number = htobe32(number);
    bytes[0] = CN_LMDB_PIECES;
    memcpy(bytes + 1, &len, sizeof(len));
    memcpy(bytes + 3, id.ptr, id.len);
    memcpy(bytes + 3 + id.len, &number, sizeof(number));
    return (MDB_val){3 + id.len + sizeof(number), bytes};
}

/* The number of the piece that has this key; 0 if it belongs to another sequence. */
static uint32_t
piece_number(struct cn_str id, const MDB_val *key)
{
    char bytes[PIECE_KEY_MAX];
    const MDB_val ours = piece_key(id, 0, bytes);
    const size_t before = ours.mv_size - sizeof(uint32_t);
    uint32_t number;

    if (key->mv_size != ours.mv_size || memcmp(key->mv_data, bytes, before) != 0)
        return 0;
    memcpy(&number, (const char *)key->mv_data + before, sizeof(number));
    return be32toh(number);
}

static int
piecer_open(struct lmdb_store *lmdb)
{
    return lmdb->piecer ? 0 : mdb_cursor_open(lmdb->txn, lmdb->pieces, &lmdb->piecer);
}

/* Finds the last piece behind the first one; *number is 0 if there is none. It looks for the
 * highest possible number and takes the entry before that place. */
static int
last_piece(struct lmdb_store *lmdb, struct cn_str id, uint32_t *number, size_t *len)
{
    char bytes[PIECE_KEY_MAX];
    MDB_val key = piece_key(id, UINT32_MAX, bytes), data;
    int rc;

    *number = 0;
    if ((rc = piecer_open(lmdb)) != 0)
        return rc;
    rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_SET_RANGE);
    if (rc == 0)
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_PREV);
    else if (rc == MDB_NOTFOUND)
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_LAST);
    if (rc == 0) {
        *number = piece_number(id, &key);
        *len = unsealed_bytes(&data);
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* The size of the whole value whose first piece has `prefix` bytes. */
static int
value_bytes(struct lmdb_store *lmdb, struct cn_str id, size_t prefix, uint64_t *out)
{
    const size_t piece = cn_lmdb_piece_bytes(lmdb);
    uint32_t last = 0;
    size_t len;
    int rc;

    *out = prefix;
    if (prefix == piece && (rc = last_piece(lmdb, id, &last, &len)) != 0)
        return rc;
    if (last > 0)
        *out = (uint64_t)last * piece + len;
    return 0;
}

/* Puts a value together from its pieces. If one is missing, the value ends there, and the record's
 * checksum shows that it is damaged. */
static int
collect(struct lmdb_store *lmdb, struct cn_str id, struct cn_str prefix, uint64_t bytes,
        struct cn_str *out, struct cn_error *err)
{
    char key_bytes[PIECE_KEY_MAX], *whole = cn_arena_try_alloc(&lmdb->got, bytes);
    MDB_val key = piece_key(id, 1, key_bytes), data;
    uint64_t at = prefix.len;
    uint32_t number = 1;
    int rc;

    if (!whole)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a value of %llu bytes",
                       (unsigned long long)bytes);
    memcpy(whole, prefix.ptr, prefix.len);
    rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_SET_RANGE);
    while (rc == 0 && piece_number(id, &key) == number++ && unsealed_bytes(&data) <= bytes - at) {
        memcpy(whole + at, data.mv_data, unsealed_bytes(&data));
        at += unsealed_bytes(&data);
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_NEXT);
    }
    *out = (struct cn_str){whole, at};
    return rc == MDB_NOTFOUND ? 0 : rc ? cn_lmdb_fail(lmdb, rc, "read", err) : 0;
}

/* Removes the pieces from this number on. */
static int
cut_pieces(struct lmdb_store *lmdb, struct cn_str id, uint32_t from)
{
    char bytes[PIECE_KEY_MAX];
    MDB_val key, data;
    int rc;

    if ((rc = piecer_open(lmdb)) != 0)
        return rc;
    for (;;) { /* a deletion leaves the cursor on what follows, or behind the end of a leaf */
        key = piece_key(id, from, bytes);
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_SET_RANGE);
        if (rc != 0 || piece_number(id, &key) == 0)
            return rc == MDB_NOTFOUND ? 0 : rc;
        if ((rc = mdb_cursor_del(lmdb->piecer, 0)) != 0)
            return rc;
    }
}

/* Writes all but the first piece. */
static int
put_pieces(struct lmdb_store *lmdb, struct cn_str id, struct cn_str value, uint32_t *next)
{
    const size_t piece = cn_lmdb_piece_bytes(lmdb);
    char bytes[PIECE_KEY_MAX];
    int rc = value.len > piece ? piecer_open(lmdb) : 0;

    *next = 1;
    for (size_t at = piece; rc == 0 && at < value.len; at += piece, ++*next) {
        MDB_val key = piece_key(id, *next, bytes);
        const size_t len = value.len - at < piece ? value.len - at : piece;

        rc = put_sealed(lmdb->piecer, &key, (struct cn_str){value.ptr + at, len}, 0);
    }
    return rc;
}

/* --- values --- */

int
cn_lmdb_prefix(struct cn_store *store, struct cn_str id, struct cn_str *out, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), value;
    int rc;

    cn_assert(lmdb->txn);
    *out = (struct cn_str){NULL, 0};
    rc = seek(lmdb, &key, &value);
    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc != 0)
        return cn_lmdb_fail(lmdb, rc, "read", err);
    return unseal(lmdb, &value, out, err);
}

int
cn_lmdb_get(struct cn_store *store, struct cn_str id, struct cn_str *out, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    uint64_t bytes;
    int rc;

    if ((rc = cn_lmdb_prefix(store, id, out, err)) != 0 || out->len != cn_lmdb_piece_bytes(lmdb))
        return rc;
    if ((rc = value_bytes(lmdb, id, out->len, &bytes)) != 0)
        return cn_lmdb_fail(lmdb, rc, "read", err);
    return bytes > out->len ? collect(lmdb, id, *out, bytes, out, err) : 0;
}

int
cn_lmdb_bytes_of(struct cn_store *store, struct cn_str id, struct cn_str prefix, uint64_t *out,
                 struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    int rc = value_bytes(lmdb, id, prefix.len, out);

    return rc ? cn_lmdb_fail(lmdb, rc, "read", err) : 0;
}

int
cn_lmdb_next(struct cn_store *store, struct cn_str after, struct cn_str *id, struct cn_str *prefix,
             struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val wanted = key_of(after, bytes), key = wanted, data;
    int rc;

    cn_assert(lmdb->txn);
    *id = *prefix = (struct cn_str){NULL, 0};
    if ((rc = cursor_open(lmdb)) != 0)
        return cn_lmdb_fail(lmdb, rc, "scan", err);
    rc = mdb_cursor_get(lmdb->cursor, &key, &data, MDB_SET_RANGE);
    if (rc == 0 && key.mv_size == wanted.mv_size &&
        memcmp(key.mv_data, wanted.mv_data, wanted.mv_size) == 0)
        rc = mdb_cursor_get(lmdb->cursor, &key, &data, MDB_NEXT);
    if (rc == MDB_NOTFOUND || (rc == 0 && *(char *)key.mv_data == CN_LMDB_PIECES))
        return 0;
    if (rc != 0)
        return cn_lmdb_fail(lmdb, rc, "scan", err);
    if (key.mv_size < 2 || key.mv_size > CN_STORE_KEY_MAX + 1 ||
        *(char *)key.mv_data != CN_LMDB_SEQUENCE)
        return cn_fail(err, CN_E_STATE_STORE, "store %s holds a key that is not a sequence id",
                       lmdb->dir);
    *id = (struct cn_str){(char *)key.mv_data + 1, key.mv_size - 1};
    return unseal(lmdb, &data, prefix, err);
}

/* Writes the value's pieces. `shrinks`: the old value may have had more of them. */
static int
write_value(struct lmdb_store *lmdb, MDB_val *key, struct cn_str id, struct cn_str value,
            unsigned flags, bool shrinks)
{
    const size_t piece = cn_lmdb_piece_bytes(lmdb);
    const struct cn_str prefix = {value.ptr, value.len < piece ? value.len : piece};
    uint32_t next;
    int rc;

    if ((rc = put_sealed(lmdb->cursor, key, prefix, flags)) == 0 &&
        (rc = put_pieces(lmdb, id, value, &next)) == 0 && shrinks)
        rc = cut_pieces(lmdb, id, next);
    return rc;
}

int
cn_lmdb_put(struct cn_store *store, struct cn_str id, struct cn_str value, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), old;
    int64_t growth = cn_lmdb_value_pages(lmdb, value.len);
    uint64_t old_bytes = 0;
    unsigned flags = 0;
    int rc;

    cn_assert(lmdb->txn && lmdb->writing);
    rc = seek(lmdb, &key, &old);
    if (rc == 0) {
        flags = MDB_CURRENT;
        if ((rc = value_bytes(lmdb, id, unsealed_bytes(&old), &old_bytes)) == 0)
            growth -= cn_lmdb_value_pages(lmdb, old_bytes);
    } else if (rc == MDB_NOTFOUND) {
        rc = 0;
    }
    if (rc != 0)
        return cn_lmdb_fail(lmdb, rc, "write", err);
    if (growth > 0 && growth > lmdb->budget_pages) {
        cn_lmdb_fail(lmdb, MDB_MAP_FULL, "write", err);
        return 1;
    }
    lmdb->budget_pages -= growth > 0 ? growth : 0;
    cn_lmdb_write_ahead(lmdb);
    rc = write_value(lmdb, &key, id, value, flags,
                     old_bytes > value.len && old_bytes > cn_lmdb_piece_bytes(lmdb));
    lmdb->at_key = false;
    return rc ? cn_lmdb_fail(lmdb, rc, "write", err) : 0;
}

int
cn_lmdb_remove(struct cn_store *store, struct cn_str id, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), old;
    int rc;

    cn_assert(lmdb->txn && lmdb->writing);
    rc = seek(lmdb, &key, &old);
    if (rc == 0 && unsealed_bytes(&old) == cn_lmdb_piece_bytes(lmdb))
        rc = cut_pieces(lmdb, id, 1);
    if (rc == 0)
        rc = mdb_cursor_del(lmdb->cursor, 0);
    lmdb->at_key = false;
    return rc && rc != MDB_NOTFOUND ? cn_lmdb_fail(lmdb, rc, "delete", err) : 0;
}

/* --- pieces that belong to nothing --- */

/* Is this a piece of an id that has no full first piece? */
static bool
is_orphan(struct lmdb_store *lmdb, struct cn_str id)
{
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), value;

    return seek(lmdb, &key, &value) != 0 || unsealed_bytes(&value) != cn_lmdb_piece_bytes(lmdb);
}

int
cn_lmdb_drop_orphans(struct lmdb_store *lmdb, struct cn_error *err)
{
    char bytes[PIECE_KEY_MAX], id_bytes[CN_STORE_KEY_MAX];
    MDB_val key, data;
    int rc = piecer_open(lmdb);

    if (rc == 0)
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_FIRST);
    while (rc == 0) {
        struct cn_str id = {id_bytes, key.mv_size - 7};

        memcpy(id_bytes, (char *)key.mv_data + 3, id.len);
        if (is_orphan(lmdb, id) && (rc = cut_pieces(lmdb, id, 1)) != 0)
            break;
        key = piece_key(id, UINT32_MAX, bytes);
        rc = mdb_cursor_get(lmdb->piecer, &key, &data, MDB_SET_RANGE);
    }
    return rc == MDB_NOTFOUND ? 0 : rc ? cn_lmdb_fail(lmdb, rc, "read", err) : 0;
}

/* --- notes --- */

int
cn_lmdb_put_sealed(struct lmdb_store *lmdb, MDB_txn *txn, MDB_val *key, struct cn_str value)
{
    MDB_val data = {value.len + CN_LMDB_SEAL_BYTES, NULL};
    int rc = mdb_put(txn, lmdb->dbi, key, &data, MDB_RESERVE);

    if (rc == 0)
        fill_sealed(key, value, &data);
    return rc;
}

static MDB_val
note_key(enum cn_lmdb_note which)
{
    static char journal[] = "\0journal", loss[] = "\0loss"; /* CN_LMDB_FORMAT's kind */

    return which == CN_LMDB_NOTE_JOURNAL ? (MDB_val){sizeof(journal) - 1, journal}
                                         : (MDB_val){sizeof(loss) - 1, loss};
}

int
cn_lmdb_get_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str *out,
                 struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    MDB_val key = note_key(which), value;
    int rc = mdb_get(lmdb->txn, lmdb->dbi, &key, &value);

    *out = (struct cn_str){NULL, 0};
    lmdb->has_note[which] = rc == 0;
    if (rc == 0)
        return unseal(lmdb, &value, out, err);
    return rc != MDB_NOTFOUND ? cn_lmdb_fail(lmdb, rc, "read", err) : 0;
}

int
cn_lmdb_put_note(struct cn_store *store, enum cn_lmdb_note which, struct cn_str note,
                 struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    MDB_val key = note_key(which);
    int rc = cn_lmdb_put_sealed(lmdb, lmdb->txn, &key, note);

    lmdb->at_key = false;
    lmdb->has_note[which] = lmdb->has_note[which] || rc == 0;
    return rc ? cn_lmdb_fail(lmdb, rc, "write", err) : 0;
}

void
cn_lmdb_cursors_close(struct lmdb_store *lmdb)
{
    if (lmdb->cursor)
        mdb_cursor_close(lmdb->cursor);
    if (lmdb->piecer)
        mdb_cursor_close(lmdb->piecer);
    lmdb->cursor = lmdb->piecer = NULL;
    lmdb->at_key = false;
    cn_arena_fini(&lmdb->got);
}
