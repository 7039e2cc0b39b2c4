/* cache/lmdb_store.c - a store in an LMDB folder that the workers of one model version share.
 *
 * Owned by the worker's thread; the only file that knows LMDB. The main database holds
 *   00 "format"        u32, little-endian: CN_STORE_FORMAT, or an older one that nobody wrote to since
 *   00 "journal"       how far the journal is in the records below (cache/journal_store.c)
 *   01 sequence id     a record (cache/record.h), or nothing yet: the journal has it
 * Never MDB_WRITEMAP: a stray pointer of a handler could write into the store. MDB_NOSYNC unless
 * each commit must survive the machine: what was committed survives kill -9 either way, since it
 * is in the kernel's page cache.
 *
 * LMDB copies what it changes, so even a deletion needs free pages, and a map that is really full
 * could never be emptied. The map is therefore larger than the limit by a reserve, and the limit is
 * kept here: a write transaction has a budget of pages, charged for values that grow only.
 */
#include "cache/lmdb_store.h"

#include <errno.h>
#include <inttypes.h>
#include <lmdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/list.h"
#include "core/mem.h"
#include "core/panic.h"

#define KEY_FORMAT 0x00
#define KEY_SEQUENCE 0x01
/* Workers of one version and readers such as management. LMDB's own default is 126. */
#define MAX_READERS 1200
/* While this much of the limit was never used, the list of free pages isn't looked at. */
#define NEAR_LIMIT_BYTES (256ull << 20)
/* Pages that a transaction takes besides those of its values: the path to the root, the free list. */
#define OVERHEAD_PAGES 12
/* So many pages the file is made to have beyond those in use. */
#define AHEAD_PAGES 256

struct lmdb_store {
    struct cn_store base;
    char *dir;
    uint64_t max_bytes, spare_bytes;
    bool sync, read_only;
    bool has_note; /* an entry that is no sequence's */
    MDB_env *env;
    MDB_dbi dbi;
    uint64_t page_bytes;
    MDB_txn *reader;      /* kept and renewed: saves an allocation and a slot search a batch */
    MDB_txn *txn;         /* the open transaction: `reader` or a write; NULL */
    MDB_cursor *cursor;   /* of the open transaction, or NULL */
    int64_t budget_pages; /* that a write may still use */
    uint64_t file_pages;  /* that the file has at least */
    bool writing, grown;
    bool at_key; /* the cursor stands on the key that was found last, with nothing written since */
};

static struct lmdb_store *
lmdb_of(struct cn_store *store)
{
    return cn_container_of(store, struct lmdb_store, base);
}

/* Says which limit was hit and what to do about it. */
static int
lmdb_fail(const struct lmdb_store *lmdb, int rc, const char *what, struct cn_error *err)
{
    struct statvfs fs;

    switch (rc) {
    case MDB_MAP_FULL:
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s: the store %s is full (state.storeMaxBytes: %" PRIu64
                       "); end sequences or raise the limit",
                       what, lmdb->dir, lmdb->max_bytes);
    case MDB_VERSION_MISMATCH:
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s: the store %s was written by another version of LMDB; move the folder "
                       "aside or use the program that wrote it",
                       what, lmdb->dir);
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s: the store %s is damaged or not a store (%s); move the folder aside",
                       what, lmdb->dir, mdb_strerror(rc));
    case MDB_READERS_FULL:
        return cn_fail(err, CN_E_STATE_STORE, "%s: over %d processes use the store %s", what,
                       MAX_READERS, lmdb->dir);
    case ENOSPC:
    case EDQUOT:
    case EIO: /* LMDB's word for a short write, too */
        if (statvfs(lmdb->dir, &fs) == 0)
            return cn_fail(err, CN_E_STATE_STORE,
                           "%s: cannot write to the file system of %s: %s (%" PRIu64
                           " bytes free); make room and try again",
                           what, lmdb->dir, strerror(fs.f_bavail == 0 ? ENOSPC : rc),
                           (uint64_t)fs.f_bavail * fs.f_frsize);
        break;
    default:
        break;
    }
    return cn_fail(err, CN_E_STATE_STORE, "%s: store %s: %s", what, lmdb->dir, mdb_strerror(rc));
}

static uint64_t
map_bytes(const struct lmdb_store *lmdb)
{
    uint64_t bytes = lmdb->max_bytes + lmdb->max_bytes / 8 + lmdb->spare_bytes + (1u << 20);

    return (bytes + 65535) & ~65535ull; /* whole pages of any size */
}

/* Reads the format, or writes it into a store that is new or was an older program's: that one must not
 * come back to it. */
static int
format_check(struct lmdb_store *lmdb, struct cn_error *err)
{
    char key_bytes[] = "\0format"; /* KEY_FORMAT */
    unsigned char found[4], ours[4] = {CN_STORE_FORMAT & 0xff, CN_STORE_FORMAT >> 8, 0, 0};
    MDB_val key = {sizeof(key_bytes) - 1, key_bytes}, value;
    MDB_txn *txn;
    uint32_t format = 0;
    int rc;

    rc = mdb_txn_begin(lmdb->env, NULL, lmdb->read_only ? MDB_RDONLY : 0, &txn);
    if (rc != 0)
        return lmdb_fail(lmdb, rc, "open", err);
    if ((rc = mdb_dbi_open(txn, NULL, 0, &lmdb->dbi)) != 0)
        goto failed;
    rc = mdb_get(txn, lmdb->dbi, &key, &value);
    if (rc == 0 && value.mv_size == sizeof(found)) {
        memcpy(found, value.mv_data, sizeof(found));
        format = found[0] | (uint32_t)found[1] << 8 | (uint32_t)found[2] << 16 |
                 (uint32_t)found[3] << 24;
    }
    if (format == 0 && (rc != MDB_NOTFOUND || lmdb->read_only)) {
        rc = cn_fail(err, CN_E_STATE_STORE, "%s is an LMDB folder but not a store of Continuo",
                     lmdb->dir);
        goto abort;
    }
    if (format < CN_STORE_FORMAT && !lmdb->read_only) {
        value = (MDB_val){sizeof(ours), ours};
        if ((rc = mdb_put(txn, lmdb->dbi, &key, &value, 0)) != 0)
            goto failed;
    }
    if (format > CN_STORE_FORMAT) {
        rc = cn_fail(err, CN_E_STATE_STORE,
                     "store %s has format %u, written by a newer Continuo; this one knows format "
                     "%d: upgrade, or move the folder aside",
                     lmdb->dir, format, CN_STORE_FORMAT);
        goto abort;
    }
    /* A handle of the main database opened here stays valid once the transaction commits. */
    rc = mdb_txn_commit(txn);
    return rc ? lmdb_fail(lmdb, rc, "open", err) : 0;

failed:
    rc = lmdb_fail(lmdb, rc, "open", err);
abort:
    mdb_txn_abort(txn);
    return rc;
}

static void
env_close(struct lmdb_store *lmdb)
{
    if (lmdb->reader)
        mdb_txn_abort(lmdb->reader);
    lmdb->reader = NULL;
    if (lmdb->env)
        mdb_env_close(lmdb->env);
    lmdb->env = NULL;
}

static int
env_open(struct lmdb_store *lmdb, struct cn_error *err)
{
    unsigned flags = lmdb->read_only ? MDB_RDONLY : MDB_NORDAHEAD | (lmdb->sync ? 0 : MDB_NOSYNC);
    MDB_stat stat;
    int rc, dead;

    if ((rc = mdb_env_create(&lmdb->env)) != 0)
        return lmdb_fail(lmdb, rc, "open", err);
    if ((rc = mdb_env_set_maxreaders(lmdb->env, MAX_READERS)) != 0 ||
        (!lmdb->read_only && (rc = mdb_env_set_mapsize(lmdb->env, map_bytes(lmdb))) != 0) ||
        (rc = mdb_env_open(lmdb->env, lmdb->dir, flags, 0600)) != 0) {
        rc = rc == ENOENT && lmdb->read_only
                 ? cn_fail(err, CN_E_STATE_STORE, "%s holds no store", lmdb->dir)
                 : lmdb_fail(lmdb, rc, "open", err);
        goto close;
    }
    mdb_reader_check(lmdb->env, &dead);
    if ((rc = format_check(lmdb, err)) != 0)
        goto close;
    mdb_env_stat(lmdb->env, &stat);
    lmdb->page_bytes = stat.ms_psize;
    return 0;

close:
    env_close(lmdb);
    return rc;
}

/* Another process may have grown the map; a failed write of a meta page makes the environment
 * refuse all until it is opened anew. Both are mended once. */
static int
txn_begin(struct lmdb_store *lmdb, unsigned flags, MDB_txn **out, struct cn_error *err)
{
    int rc = lmdb->env ? mdb_txn_begin(lmdb->env, NULL, flags, out) : MDB_PANIC;

    if (rc == MDB_MAP_RESIZED && mdb_env_set_mapsize(lmdb->env, 0) == 0)
        rc = mdb_txn_begin(lmdb->env, NULL, flags, out);
    if (rc == MDB_PANIC) {
        env_close(lmdb);
        if ((rc = env_open(lmdb, err)) != 0)
            return rc;
        rc = mdb_txn_begin(lmdb->env, NULL, flags, out);
    }
    return rc ? lmdb_fail(lmdb, rc, "begin", err) : 0;
}

static int
read_begin(struct lmdb_store *lmdb, struct cn_error *err)
{
    int rc;

    if (lmdb->reader) {
        if (mdb_txn_renew(lmdb->reader) == 0) {
            lmdb->txn = lmdb->reader;
            return 0;
        }
        mdb_txn_abort(lmdb->reader);
        lmdb->reader = NULL;
    }
    rc = txn_begin(lmdb, MDB_RDONLY, &lmdb->reader, err);
    lmdb->txn = rc ? NULL : lmdb->reader;
    return rc;
}

static void
read_end(struct lmdb_store *lmdb)
{
    mdb_txn_reset(lmdb->reader);
    lmdb->txn = NULL;
}

/* Pages in the list of free ones: database 0, each value a list that begins with its length. Only
 * a read transaction may look at it. */
static int
count_free_pages(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    size_t pages;
    int rc;

    *out = 0;
    if ((rc = read_begin(lmdb, err)) != 0)
        return rc;
    if ((rc = mdb_cursor_open(lmdb->txn, 0, &cursor)) == 0) {
        while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
            memcpy(&pages, value.mv_data, sizeof(pages));
            *out += (int64_t)pages;
        }
        mdb_cursor_close(cursor);
    }
    read_end(lmdb);
    return rc && rc != MDB_NOTFOUND ? lmdb_fail(lmdb, rc, "free list", err) : 0;
}

/* Pages that writes may still take, of the limit. Outside a transaction. */
static int
pages_left(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err)
{
    MDB_envinfo info;
    int64_t free_pages;
    int rc;

    *out = INT64_MAX;
    if (!lmdb->env) /* begin opens it again or says why not */
        return 0;
    mdb_env_info(lmdb->env, &info);
    *out = (int64_t)(lmdb->max_bytes / lmdb->page_bytes) - (int64_t)(info.me_last_pgno + 1) -
           OVERHEAD_PAGES;
    if (*out > (int64_t)(NEAR_LIMIT_BYTES / lmdb->page_bytes))
        return 0;
    if ((rc = count_free_pages(lmdb, &free_pages, err)) != 0)
        return rc;
    *out += free_pages;
    return 0;
}

int
cn_lmdb_room(struct cn_store *store, int64_t *bytes, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    int rc = pages_left(lmdb, bytes, err);

    *bytes = *bytes == INT64_MAX ? INT64_MAX / 4 : *bytes * (int64_t)lmdb->page_bytes;
    return rc;
}

/* Gives the file `ahead` pages over those in use, whenever less than `least` are left. 0 or an errno.
 * LMDB writes new pages by dozens at once. A file system with large folios (ext4 since Linux 6.16) keeps
 * such a write as one folio, and from then on looks at all its pages whenever one of them is written:
 * half the cost of a step among a million sequences. So the file gets its pages one by one before.
 * In a write transaction, so nobody else writes. */
static int
extend_file(struct lmdb_store *lmdb, uint64_t least, uint64_t ahead)
{
    static const char zeros[65536];
    uint64_t end, limit = map_bytes(lmdb) / lmdb->page_bytes;
    struct stat stat;
    MDB_envinfo info;
    ssize_t n;
    int fd;

    mdb_env_info(lmdb->env, &info);
    end = info.me_last_pgno + 1;
    if (end + least < lmdb->file_pages || lmdb->page_bytes > sizeof(zeros))
        return 0;
    if (mdb_env_get_fd(lmdb->env, &fd) != 0 || fstat(fd, &stat) != 0)
        return errno;
    lmdb->file_pages = (uint64_t)stat.st_size / lmdb->page_bytes;
    while (lmdb->file_pages < end + ahead && lmdb->file_pages < limit) {
        n = pwrite(fd, zeros, lmdb->page_bytes, (off_t)(lmdb->file_pages * lmdb->page_bytes));
        if (n != (ssize_t)lmdb->page_bytes)
            return end + least <= lmdb->file_pages ? 0 : n < 0 ? errno : ENOSPC;
        lmdb->file_pages++;
    }
    return 0;
}

int
cn_lmdb_provide(struct cn_store *store, uint64_t bytes, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    uint64_t pages = bytes / lmdb->page_bytes + 1;
    MDB_txn *txn = lmdb->txn;
    MDB_envinfo info;
    int64_t free_pages;
    int rc;

    mdb_env_info(lmdb->env, &info);
    if (info.me_last_pgno + 1 + pages < lmdb->file_pages)
        return 0;
    /* What LMDB will use again need not be there twice. The two transactions of this thread don't meet:
     * one looks only, and is over at once. */
    if (count_free_pages(lmdb, &free_pages, NULL) == 0)
        pages -= pages < (uint64_t)free_pages ? pages : (uint64_t)free_pages;
    lmdb->txn = txn;
    rc = extend_file(lmdb, pages, pages + AHEAD_PAGES / 4);
    return rc ? lmdb_fail(lmdb, rc, "write", err) : 0;
}

static int
lmdb_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    int64_t left;
    int rc;

    cn_assert(!lmdb->txn);
    cn_assert(kind == CN_STORE_READ || !lmdb->read_only);
    lmdb->writing = kind == CN_STORE_WRITE;
    if (!lmdb->writing)
        return read_begin(lmdb, err);
    if ((rc = pages_left(lmdb, &left, err)) != 0 || (rc = cn_lmdb_begin(store, err)) != 0)
        return rc;
    lmdb->budget_pages = left;
    return 0;
}

int
cn_lmdb_begin(struct cn_store *store, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    int rc;

    cn_assert(!lmdb->txn && !lmdb->read_only);
    lmdb->writing = true;
    lmdb->grown = false;
    lmdb->budget_pages = INT64_MAX;
    rc = txn_begin(lmdb, 0, &lmdb->txn, err);
    if (rc)
        lmdb->txn = NULL;
    return rc;
}

uint64_t
cn_lmdb_version(struct cn_store *store)
{
    return mdb_txn_id(lmdb_of(store)->txn);
}

/* The key of a sequence, in the caller's bytes. */
static MDB_val
key_of(struct cn_str id, char bytes[CN_STORE_KEY_MAX + 1])
{
    bytes[0] = KEY_SEQUENCE;
    if (id.len)
        memcpy(bytes + 1, id.ptr, id.len);
    return (MDB_val){id.len + 1, bytes};
}

/* Of one transaction, whichever reads and writes it does. */
static int
cursor_open(struct lmdb_store *lmdb)
{
    lmdb->at_key = false;
    return lmdb->cursor ? 0 : mdb_cursor_open(lmdb->txn, lmdb->dbi, &lmdb->cursor);
}

/* Among a million sequences each way from the root to a leaf is several misses of the processor's
 * caches, so a write stays with the leaf that the read before it found. */
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

static int
lmdb_get(struct cn_store *store, struct cn_str id, struct cn_str *out, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), value;
    int rc;

    cn_assert(lmdb->txn);
    *out = (struct cn_str){NULL, 0};
    rc = seek(lmdb, &key, &value);
    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc != 0)
        return lmdb_fail(lmdb, rc, "read", err);
    *out = (struct cn_str){value.mv_data, value.mv_size};
    return 0;
}

static int
lmdb_next(struct cn_store *store, struct cn_str after, struct cn_str *id, struct cn_str *value,
          struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val wanted = key_of(after, bytes), key = wanted, data;
    int rc;

    cn_assert(lmdb->txn);
    *id = *value = (struct cn_str){NULL, 0};
    if ((rc = cursor_open(lmdb)) != 0)
        return lmdb_fail(lmdb, rc, "scan", err);
    rc = mdb_cursor_get(lmdb->cursor, &key, &data, MDB_SET_RANGE);
    if (rc == 0 && key.mv_size == wanted.mv_size &&
        memcmp(key.mv_data, wanted.mv_data, wanted.mv_size) == 0)
        rc = mdb_cursor_get(lmdb->cursor, &key, &data, MDB_NEXT);
    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc != 0)
        return lmdb_fail(lmdb, rc, "scan", err);
    if (key.mv_size < 2 || key.mv_size > CN_STORE_KEY_MAX + 1 ||
        *(char *)key.mv_data != KEY_SEQUENCE)
        return cn_fail(err, CN_E_STATE_STORE, "store %s holds a key that is no sequence's",
                       lmdb->dir);
    *id = (struct cn_str){(char *)key.mv_data + 1, key.mv_size - 1};
    *value = (struct cn_str){data.mv_data, data.mv_size};
    return 0;
}

/* Before the first write of a transaction. A full disk is no matter here: LMDB meets it itself. */
static void
write_ahead(struct lmdb_store *lmdb)
{
    if (!lmdb->grown)
        extend_file(lmdb, AHEAD_PAGES / 2, AHEAD_PAGES);
    lmdb->grown = true;
}

/* A small value costs its leaf at most; a large one has pages of its own besides. */
static int64_t
value_pages(const struct lmdb_store *lmdb, size_t bytes)
{
    return 1 + (int64_t)(bytes / lmdb->page_bytes);
}

static int
lmdb_put(struct cn_store *store, struct cn_str id, struct cn_str value, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), data = {value.len, (char *)value.ptr}, old;
    int64_t growth = value_pages(lmdb, value.len);
    unsigned flags = 0;
    int rc;

    cn_assert(lmdb->txn && lmdb->writing);
    rc = seek(lmdb, &key, &old);
    if (rc == 0) {
        flags = MDB_CURRENT;
        growth -= value_pages(lmdb, old.mv_size);
    } else if (rc != MDB_NOTFOUND) {
        return lmdb_fail(lmdb, rc, "write", err);
    }
    if (growth > 0 && growth > lmdb->budget_pages) {
        lmdb_fail(lmdb, MDB_MAP_FULL, "write", err);
        return 1;
    }
    lmdb->budget_pages -= growth > 0 ? growth : 0;
    write_ahead(lmdb);
    rc = mdb_cursor_put(lmdb->cursor, &key, &data, flags);
    lmdb->at_key = false;
    return rc ? lmdb_fail(lmdb, rc, "write", err) : 0;
}

static int
lmdb_remove(struct cn_store *store, struct cn_str id, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    char bytes[CN_STORE_KEY_MAX + 1];
    MDB_val key = key_of(id, bytes), old;
    int rc;

    cn_assert(lmdb->txn && lmdb->writing);
    rc = seek(lmdb, &key, &old);
    if (rc == 0)
        rc = mdb_cursor_del(lmdb->cursor, 0);
    lmdb->at_key = false;
    return rc && rc != MDB_NOTFOUND ? lmdb_fail(lmdb, rc, "delete", err) : 0;
}

static MDB_val
note_key(void)
{
    static char bytes[] = "\0journal"; /* KEY_FORMAT's kind */

    return (MDB_val){sizeof(bytes) - 1, bytes};
}

int
cn_lmdb_get_note(struct cn_store *store, struct cn_str *out, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    MDB_val key = note_key(), value;
    int rc = mdb_get(lmdb->txn, lmdb->dbi, &key, &value);

    *out = (struct cn_str){NULL, 0};
    lmdb->has_note = rc == 0;
    if (rc == 0)
        *out = (struct cn_str){value.mv_data, value.mv_size};
    return rc && rc != MDB_NOTFOUND ? lmdb_fail(lmdb, rc, "read", err) : 0;
}

int
cn_lmdb_put_note(struct cn_store *store, struct cn_str note, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    MDB_val key = note_key(), value = {note.len, (char *)note.ptr};
    int rc = mdb_put(lmdb->txn, lmdb->dbi, &key, &value, 0);

    lmdb->at_key = false;
    lmdb->has_note = lmdb->has_note || rc == 0;
    return rc ? lmdb_fail(lmdb, rc, "write", err) : 0;
}

uint64_t
cn_lmdb_cost(uint64_t value_bytes)
{
    /* Leaves that are written to at random are two thirds full; a value of half a page has pages of its
     * own, of 4 kB nearly everywhere. */
    return value_bytes < 2000 ? (value_bytes + 32) * 3 / 2 : (value_bytes / 4096 + 1) * 4096 + 32;
}

int
cn_lmdb_fail_errno(struct cn_store *store, int error, const char *what, struct cn_error *err)
{
    return lmdb_fail(lmdb_of(store), error, what, err);
}

int
cn_lmdb_fail_full(struct cn_store *store, struct cn_error *err)
{
    return lmdb_fail(lmdb_of(store), MDB_MAP_FULL, "write", err);
}

static void
cursor_close(struct lmdb_store *lmdb)
{
    if (lmdb->cursor)
        mdb_cursor_close(lmdb->cursor);
    lmdb->cursor = NULL;
    lmdb->at_key = false;
}

static void
lmdb_abort(struct cn_store *store)
{
    struct lmdb_store *lmdb = lmdb_of(store);

    cursor_close(lmdb);
    if (!lmdb->txn)
        return;
    if (!lmdb->writing) {
        read_end(lmdb);
        return;
    }
    mdb_txn_abort(lmdb->txn);
    lmdb->txn = NULL;
}

static int
lmdb_commit(struct cn_store *store, struct cn_error *err)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    MDB_txn *txn = lmdb->txn;
    int rc;

    cn_assert(txn);
    if (!lmdb->writing) {
        lmdb_abort(store);
        return 0;
    }
    cursor_close(lmdb);
    lmdb->txn = NULL;
    rc = mdb_txn_commit(txn); /* frees it in any case */
    return rc ? lmdb_fail(lmdb, rc, "commit", err) : 0;
}

static uint64_t
lmdb_count(struct cn_store *store)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    MDB_stat stat;

    cn_assert(!lmdb->txn);
    if (!lmdb->env || mdb_env_stat(lmdb->env, &stat) != 0 || stat.ms_entries == 0)
        return 0;
    return stat.ms_entries - 1 - lmdb->has_note; /* 1: the format */
}

static uint64_t
lmdb_bytes(struct cn_store *store)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    MDB_stat stat;

    cn_assert(!lmdb->txn);
    if (!lmdb->env || mdb_env_stat(lmdb->env, &stat) != 0)
        return 0;
    return (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) *
           (uint64_t)stat.ms_psize;
}

static unsigned
lmdb_maintain(struct cn_store *store)
{
    struct lmdb_store *lmdb = lmdb_of(store);
    int dead = 0;

    if (lmdb->env)
        mdb_reader_check(lmdb->env, &dead);
    return dead > 0 ? (unsigned)dead : 0;
}

static void
lmdb_close(struct cn_store *store)
{
    struct lmdb_store *lmdb = lmdb_of(store);

    lmdb_abort(store);
    env_close(lmdb);
    cn_free(lmdb->dir);
    cn_free(lmdb);
}

static const struct cn_store_ops lmdb_ops = {
    .name = "lmdb",
    .close = lmdb_close,
    .begin = lmdb_begin,
    .get = lmdb_get,
    .next = lmdb_next,
    .put = lmdb_put,
    .remove = lmdb_remove,
    .commit = lmdb_commit,
    .abort = lmdb_abort,
    .count = lmdb_count,
    .bytes = lmdb_bytes,
    .maintain = lmdb_maintain,
};

int
cn_lmdb_store_open(const struct cn_lmdb_options *options, struct cn_store **out,
                   struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_alloc(sizeof(*lmdb));
    int rc;

    *out = NULL;
    lmdb->base.ops = &lmdb_ops;
    lmdb->dir = cn_strdup(options->dir);
    lmdb->max_bytes = options->max_bytes;
    lmdb->spare_bytes = options->spare_bytes;
    lmdb->sync = options->sync;
    lmdb->read_only = options->read_only;
    if ((rc = env_open(lmdb, err)) != 0) {
        lmdb_close(&lmdb->base);
        return rc;
    }
    *out = &lmdb->base;
    return 0;
}
