/* store/lmdb/lmdb_room.c - how much LMDB's file may still grow, and the pages that it gets before
 * they are needed. Owned by the worker's thread.
 *
 * LMDB copies what it changes, so even a deletion needs free pages, and a mapping that is really
 * full could never be emptied again. The mapping is therefore larger than the limit by a reserve,
 * and the limit (state.storeMaxBytes) is enforced here: what is left is the limit minus the pages
 * in use. Free pages inside the file count as left. Counting them means reading LMDB's list of free
 * pages, so it is only done near the limit.
 *
 * The file is extended with zeros ahead of use for two reasons: a full disk is then met by the
 * commit that grows the store and not by a drain, and small writes keep the file system's folios
 * small (extend_file). */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/lmdb/lmdb_priv.h"

/* While at least this much of the limit was never used, the list of free pages is not read. */
#define NEAR_LIMIT_BYTES (256ull << 20)
/* The file gets this many pages more than are in use. */
#define AHEAD_PAGES 256

/* Counts the pages in the list of free pages, which is LMDB's database 0; each value in it begins
 * with its number of pages. Only a read transaction may read it. */
static int
count_free_pages(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    size_t pages;
    int rc;

    *out = 0;
    if ((rc = cn_lmdb_read_begin(lmdb, err)) != 0)
        return rc;
    if ((rc = mdb_cursor_open(lmdb->txn, 0, &cursor)) == 0) {
        while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
            memcpy(&pages, value.mv_data, sizeof(pages));
            *out += (int64_t)pages;
        }
        mdb_cursor_close(cursor);
    }
    cn_lmdb_read_end(lmdb);
    return rc && rc != MDB_NOTFOUND ? cn_lmdb_fail(lmdb, rc, "free list", err) : 0;
}

int
cn_lmdb_pages_left(struct lmdb_store *lmdb, int64_t *out, struct cn_error *err)
{
    MDB_envinfo info;
    int64_t free_pages;
    int rc;

    *out = INT64_MAX;
    if (!lmdb->env) /* begin opens it again or reports why it cannot */
        return 0;
    mdb_env_info(lmdb->env, &info);
    *out = (int64_t)(lmdb->max_bytes / lmdb->page_bytes) - (int64_t)(info.me_last_pgno + 1) -
           CN_LMDB_OVERHEAD_PAGES;
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
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    int rc = cn_lmdb_pages_left(lmdb, bytes, err);

    *bytes = *bytes == INT64_MAX ? INT64_MAX / 4 : *bytes * (int64_t)lmdb->page_bytes;
    return rc;
}

/* Extends the file to `ahead` pages more than are in use, if fewer than `least` are left. 0 or an
 * errno. LMDB writes new pages by dozens at once. A file system with large folios (ext4 since Linux
 * 6.16) keeps such a write as one folio, and then looks at all its pages whenever one of them is
 * written, which was half the cost of a step among a million sequences. So the file gets its pages
 * one by one in advance. Called in a write transaction, so that no other process extends the file.
 */
static int
extend_file(struct lmdb_store *lmdb, uint64_t least, uint64_t ahead)
{
    static const char zeros[65536];
    uint64_t end, limit = cn_lmdb_map_bytes(lmdb) / lmdb->page_bytes;
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
    struct lmdb_store *lmdb = cn_lmdb_of(store);
    uint64_t pages = bytes / lmdb->page_bytes + 1;
    MDB_txn *txn = lmdb->txn;
    MDB_envinfo info;
    int64_t free_pages;
    int rc;

    mdb_env_info(lmdb->env, &info);
    if (info.me_last_pgno + 1 + pages < lmdb->file_pages)
        return 0;
    /* Free pages inside the file can be used again. Counting them needs a read transaction beside
     * the open write transaction; it is over at once. */
    if (count_free_pages(lmdb, &free_pages, NULL) == 0)
        pages -= pages < (uint64_t)free_pages ? pages : (uint64_t)free_pages;
    lmdb->txn = txn;
    rc = extend_file(lmdb, pages, pages + AHEAD_PAGES / 4);
    return rc ? cn_lmdb_fail(lmdb, rc, "write", err) : 0;
}

void
cn_lmdb_write_ahead(struct lmdb_store *lmdb)
{
    if (!lmdb->grown)
        extend_file(lmdb, AHEAD_PAGES / 2, AHEAD_PAGES);
    lmdb->grown = true;
}

/* Counts the pages that a value costs: one for the copy of a leaf, which is all that a small value
 * needs, and those of a large value. */
int64_t
cn_lmdb_value_pages(const struct lmdb_store *lmdb, uint64_t bytes)
{
    return 1 + (int64_t)(bytes / lmdb->page_bytes);
}

uint64_t
cn_lmdb_cost(uint64_t value_bytes)
{
    /* Leaves that are written to at random are two thirds full on average. A value of half a page
     * or more has pages of its own and an entry for each. Pages have 4 kB on nearly all machines.
     */
    return value_bytes < 1992 ? (value_bytes + 40) * 3 / 2 : (value_bytes / 4072 + 1) * (4096 + 96);
}
