/* store/lmdb/lmdb_store.c - a store in an LMDB folder that the workers of one model version share.
 * Owned by the worker's thread.
 *
 * Only the files of this folder know LMDB. Its main database holds
 *   00 "format"        u32, little-endian: CN_STORE_FORMAT
 *   00 "journal"       how far the journal is drained (store/journal/journal_drain.c)
 *   00 "loss"          what was lost (store/journal/salvage/journal_loss.c)
 *   01 sequence id     a record (store/record/record.h); empty while only the journal has it
 *   02 "pieces"        the database of the further pieces of large records (lmdb_value.c)
 * and each value but the last one has a seal of 8 bytes behind it (lmdb_seal.h).
 *
 * - MDB_WRITEMAP is never used: with it, a handler's stray pointer could write into the store.
 * - MDB_NOSYNC is used unless commits must survive a power failure. What was committed survives
 *   kill -9 in either case, because it is in the kernel's page cache.
 * - LMDB reads and writes through mappings, so a file that is too short, or a disk without room for
 *   the table of readers, would be a SIGBUS. Both are checked before LMDB can meet them
 *   (check_length, reserve_lock_file).
 * - A process that dies in a read transaction leaves its slot in the table of readers, which keeps
 *   old pages from being used again. mdb_reader_check frees such slots, when a store is opened and
 *   when it is maintained. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "store/lmdb/lmdb_priv.h"
#include "store/record/little_endian.h"

/* The most processes that may have the store open: workers of one version, and readers such as the
 * management. LMDB's own default is 126. */
#define MAX_READERS 1200
/* The size of lock.mdb: a header and 64 bytes for each reader. */
#define LOCK_FILE_BYTES (256 + 64 * MAX_READERS)

/* Notes the errno with the error. LMDB's own errors are negative. */
static int
fail_with(struct cn_error *err, int rc)
{
    if (err && rc > 0)
        err->sys_errno = rc;
    return CN_E_STATE_STORE;
}

int
cn_lmdb_fail(const struct lmdb_store *lmdb, int rc, const char *what, struct cn_error *err)
{
    struct statvfs fs;

    switch (rc) {
    case MDB_MAP_FULL:
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s: the store %s is full (state.storeMaxBytes: %" PRIu64
                       "); raise the limit, or end sequences (each leaves a tombstone for "
                       "sequence.tombstoneMSec)",
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
        return cn_fail(err, CN_E_STATE_STORE,
                       "%s: more than %d processes use the store %s; run fewer workers", what,
                       MAX_READERS, lmdb->dir);
    case ENOSPC:
    case EDQUOT:
    case EIO: /* LMDB also returns it for a short write */
        if (statvfs(lmdb->dir, &fs) != 0)
            break;
        rc = fs.f_bavail == 0 ? ENOSPC : rc;
        cn_fail(err, CN_E_STATE_STORE,
                "%s: cannot write to the file system of %s: %s (%" PRIu64
                " bytes free); free some space and try again",
                what, lmdb->dir, strerror(rc), (uint64_t)fs.f_bavail * fs.f_frsize);
        return fail_with(err, rc);
    default:
        break;
    }
    cn_fail(err, CN_E_STATE_STORE, "%s: store %s: %s", what, lmdb->dir, mdb_strerror(rc));
    return fail_with(err, rc);
}

uint64_t
cn_lmdb_map_bytes(const struct lmdb_store *lmdb)
{
    uint64_t bytes = lmdb->max_bytes + lmdb->max_bytes / 8 + lmdb->spare_bytes + (1u << 20);

    return (bytes + 65535) & ~65535ull; /* whole pages of any size */
}

/* The store is whole, which ENOTSUP tells a caller that looks for damage. */
static int
refuse_format(const struct lmdb_store *lmdb, uint32_t format, struct cn_error *err)
{
    if (format > CN_STORE_FORMAT)
        cn_fail(err, CN_E_STATE_STORE,
                "store %s has format %u, written by a newer Continuo; this one knows format %d: "
                "upgrade, or move the folder aside",
                lmdb->dir, format, CN_STORE_FORMAT);
    else
        cn_fail(err, CN_E_STATE_STORE,
                "store %s has format %u, written by an older Continuo; this one knows format %d: "
                "use the program that wrote it, or move the folder aside",
                lmdb->dir, format, CN_STORE_FORMAT);
    return fail_with(err, ENOTSUP);
}

/* Reads the format, or writes it into a store that is new. */
static int
format_check(struct lmdb_store *lmdb, struct cn_error *err)
{
    char key_bytes[] = "\0format"; /* CN_LMDB_FORMAT */
    unsigned char ours[4];
    MDB_val key = {sizeof(key_bytes) - 1, key_bytes}, value;
    MDB_txn *txn;
    uint32_t format = 0;
    int rc;

    rc = mdb_txn_begin(lmdb->env, NULL, lmdb->read_only ? MDB_RDONLY : 0, &txn);
    if (rc != 0)
        return cn_lmdb_fail(lmdb, rc, "open", err);
    if ((rc = mdb_dbi_open(txn, NULL, 0, &lmdb->dbi)) != 0)
        goto failed;
    rc = mdb_get(txn, lmdb->dbi, &key, &value);
    if (rc == 0 && value.mv_size >= sizeof(ours)) /* older formats have no seal behind it */
        format = get32(value.mv_data);
    if (format == 0 && (rc != MDB_NOTFOUND || lmdb->read_only)) {
        rc = cn_fail(err, CN_E_STATE_STORE, "%s is an LMDB folder but not a store of Continuo",
                     lmdb->dir);
        goto abort;
    }
    if (format == 0) {
        put32(ours, CN_STORE_FORMAT);
        rc = cn_lmdb_put_sealed(lmdb, txn, &key, (struct cn_str){(char *)ours, sizeof(ours)});
        if (rc != 0)
            goto failed;
    } else if (format != CN_STORE_FORMAT) {
        rc = refuse_format(lmdb, format, err);
        goto abort;
    }
    rc = mdb_dbi_open(txn, CN_LMDB_PIECES_NAME, lmdb->read_only ? 0 : MDB_CREATE, &lmdb->pieces);
    if (rc != 0)
        goto failed;
    /* Handles opened here stay valid once the transaction commits. */
    rc = mdb_txn_commit(txn);
    return rc ? cn_lmdb_fail(lmdb, rc, "open", err) : 0;

failed:
    rc = cn_lmdb_fail(lmdb, rc, "open", err);
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

/* Reserves the room of lock.mdb on the disk. LMDB maps this table of readers and writes to it,
 * which is a SIGBUS if the disk has no room for it. A table that was there before has the part that
 * is in use. This runs before the environment is open, because closing a descriptor of the file
 * releases its locks. 0 or an errno. */
static int
reserve_lock_file(const struct lmdb_store *lmdb)
{
    const int flags = O_RDWR | O_CLOEXEC | (lmdb->read_only ? 0 : O_CREAT);
    char path[PATH_MAX];
    struct stat stat;
    int fd, rc = 0;

    if (snprintf(path, sizeof(path), "%s/lock.mdb", lmdb->dir) >= (int)sizeof(path) ||
        (fd = open(path, flags, 0600)) < 0)
        return 0; /* LMDB will report the reason */
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, LOCK_FILE_BYTES) < 0 && errno == ENOSPC &&
        fstat(fd, &stat) == 0 && stat.st_blocks == 0)
        rc = ENOSPC;
    close(fd);
    return rc;
}

/* The number of bytes by which the file is shorter than its meta page says; 0 if it is not. */
static uint64_t
missing_bytes(const struct lmdb_store *lmdb, int fd, uint64_t *wanted)
{
    MDB_envinfo info;
    MDB_stat stat;
    struct stat file;

    if (mdb_env_info(lmdb->env, &info) != 0 || mdb_env_stat(lmdb->env, &stat) != 0 ||
        fstat(fd, &file) != 0)
        return 0;
    *wanted = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
    if ((uint64_t)file.st_size >= *wanted || *wanted > info.me_mapsize)
        return 0;
    return *wanted - (uint64_t)file.st_size;
}

/* Reading a page behind the end of the file is a SIGBUS. A file that was truncated gets the length
 * that its meta page says, filled with zeros, which LMDB recognises as damage where it expects a
 * page. That is done inside the lock, because another process may be extending the file at this
 * moment. 0, an errno or LMDB's error. */
static int
check_length(const struct lmdb_store *lmdb)
{
    uint64_t wanted;
    MDB_txn *txn;
    int fd, rc;

    if (mdb_env_get_fd(lmdb->env, &fd) != 0 || missing_bytes(lmdb, fd, &wanted) == 0)
        return 0;
    if (lmdb->read_only)
        return MDB_CORRUPTED;
    if ((rc = mdb_txn_begin(lmdb->env, NULL, 0, &txn)) != 0)
        return rc;
    if (missing_bytes(lmdb, fd, &wanted) > 0 && ftruncate(fd, (off_t)wanted) != 0)
        rc = errno;
    mdb_txn_abort(txn);
    return rc;
}

static int
env_open(struct lmdb_store *lmdb, struct cn_error *err)
{
    unsigned flags = lmdb->read_only ? MDB_RDONLY : MDB_NORDAHEAD | (lmdb->sync ? 0 : MDB_NOSYNC);
    MDB_stat stat;
    int rc, dead;

    if ((rc = reserve_lock_file(lmdb)) != 0 || (rc = mdb_env_create(&lmdb->env)) != 0)
        return cn_lmdb_fail(lmdb, rc, "open", err);
    if ((rc = mdb_env_set_maxreaders(lmdb->env, MAX_READERS)) != 0 ||
        (rc = mdb_env_set_maxdbs(lmdb->env, 1)) != 0 ||
        (!lmdb->read_only && (rc = mdb_env_set_mapsize(lmdb->env, cn_lmdb_map_bytes(lmdb))) != 0) ||
        (rc = mdb_env_open(lmdb->env, lmdb->dir, flags, 0600)) != 0) {
        rc = rc == ENOENT && lmdb->read_only
                 ? cn_fail(err, CN_E_STATE_STORE, "%s holds no store", lmdb->dir)
                 : cn_lmdb_fail(lmdb, rc, "open", err);
        goto close;
    }
    mdb_reader_check(lmdb->env, &dead);
    if ((rc = check_length(lmdb)) != 0) {
        rc = cn_lmdb_fail(lmdb, rc, "open", err);
        goto close;
    }
    if ((rc = format_check(lmdb, err)) != 0)
        goto close;
    mdb_env_stat(lmdb->env, &stat);
    lmdb->page_bytes = stat.ms_psize;
    return 0;

close:
    env_close(lmdb);
    return rc;
}

/* Begins a transaction and repairs two things once: another process may have enlarged the mapping;
 * and after a failed write of a meta page the environment refuses everything until it is opened
 * again. */
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
    return rc ? cn_lmdb_fail(lmdb, rc, "begin", err) : 0;
}

int
cn_lmdb_read_begin(struct lmdb_store *lmdb, struct cn_error *err)
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

void
cn_lmdb_read_end(struct lmdb_store *lmdb)
{
    mdb_txn_reset(lmdb->reader);
    lmdb->txn = NULL;
}

static int
lmdb_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    int64_t left;
    int rc;

    cn_assert(!lmdb->txn);
    cn_assert(kind == CN_STORE_READ || !lmdb->read_only);
    lmdb->writing = kind == CN_STORE_WRITE;
    if (!lmdb->writing)
        return cn_lmdb_read_begin(lmdb, err);
    if ((rc = cn_lmdb_pages_left(lmdb, &left, err)) != 0 || (rc = cn_lmdb_begin(store, err)) != 0)
        return rc;
    lmdb->budget_pages = left;
    return 0;
}

int
cn_lmdb_begin(struct cn_store *store, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
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
    return mdb_txn_id(cn_lmdb_of(store)->txn);
}

int
cn_lmdb_fail_errno(struct cn_store *store, int error, const char *what, struct cn_error *err)
{
    return cn_lmdb_fail(cn_lmdb_of(store), error, what, err);
}

int
cn_lmdb_fail_full(struct cn_store *store, struct cn_error *err)
{
    return cn_lmdb_fail(cn_lmdb_of(store), MDB_MAP_FULL, "write", err);
}

static void
lmdb_abort(struct cn_store *store)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);

    cn_lmdb_cursors_close(lmdb);
    if (!lmdb->txn)
        return;
    if (!lmdb->writing) {
        cn_lmdb_read_end(lmdb);
        return;
    }
    mdb_txn_abort(lmdb->txn);
    lmdb->txn = NULL;
}

static int
lmdb_commit(struct cn_store *store, struct cn_error *err)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    MDB_txn *txn = lmdb->txn;
    int rc;

    cn_assert(txn);
    if (!lmdb->writing) {
        lmdb_abort(store);
        return 0;
    }
    cn_lmdb_cursors_close(lmdb);
    lmdb->txn = NULL;
    rc = mdb_txn_commit(txn); /* frees the transaction in any case */
    return rc ? cn_lmdb_fail(lmdb, rc, "commit", err) : 0;
}

static uint64_t
lmdb_count(struct cn_store *store)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    MDB_stat stat;

    cn_assert(!lmdb->txn);
    if (!lmdb->env || mdb_env_stat(lmdb->env, &stat) != 0 || stat.ms_entries == 0)
        return 0;
    return stat.ms_entries - 1 /* the format */ - lmdb->has_note[CN_LMDB_NOTE_JOURNAL] -
           lmdb->has_note[CN_LMDB_NOTE_LOSS] - 1; /* and the database of pieces */
}

static uint64_t
stat_bytes(const MDB_stat *stat)
{
    return (stat->ms_branch_pages + stat->ms_leaf_pages + stat->ms_overflow_pages) *
           (uint64_t)stat->ms_psize;
}

static uint64_t
lmdb_bytes(struct cn_store *store)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    MDB_stat main = {0}, pieces = {0};

    cn_assert(!lmdb->txn);
    if (!lmdb->env || cn_lmdb_read_begin(lmdb, NULL) != 0)
        return 0;
    mdb_stat(lmdb->txn, lmdb->dbi, &main);
    mdb_stat(lmdb->txn, lmdb->pieces, &pieces);
    cn_lmdb_read_end(lmdb);
    return stat_bytes(&main) + stat_bytes(&pieces);
}

static unsigned
lmdb_maintain(struct cn_store *store)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    int dead = 0;

    if (lmdb->env)
        mdb_reader_check(lmdb->env, &dead);
    return dead > 0 ? (unsigned)dead : 0;
}

static void
lmdb_close(struct cn_store *store)
{
    struct lmdb_store *lmdb = cn_lmdb_of(store);

    lmdb_abort(store);
    env_close(lmdb);
    cn_free(lmdb->dir);
    cn_free(lmdb);
}

static const struct cn_store_ops lmdb_ops = {
    .name = "lmdb",
    .close = lmdb_close,
    .begin = lmdb_begin,
    .get = cn_lmdb_get,
    .prefix = cn_lmdb_prefix,
    .next = cn_lmdb_next,
    .put = cn_lmdb_put,
    .remove = cn_lmdb_remove,
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
    cn_arena_init(&lmdb->got);
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
