/* store/journal/journal_drain.c - moves what a full journal file holds to LMDB, in slices. Owned by
 * the worker's thread.
 *
 * Draining one file goes through three stages, each in small parts so that no step has to wait
 * long:
 * - Collect: read the file from its beginning and note the newest entry of each key (struct
 *   cn_drain_item), COLLECT_BYTES in each call. LMDB is not written to.
 * - Order: sort the items by key, only as far as the next slice needs it. Values are written in the
 *   order of their keys because LMDB copies a whole leaf page for each one that changes; neighbours
 *   share that copy.
 * - Write: each slice is one transaction of LMDB with up to `records` values and a note that says
 *   how far it came.
 *
 * The note is in LMDB itself, so it cannot be ahead of the values. Whichever process continues,
 * also another one after a crash, starts behind the note, and doing a slice twice does no harm. The
 * note is
 *   u64 number of the first transaction that is not completely in LMDB, little-endian
 *   key: of later transactions in the older file, the entries of keys up to this one are in LMDB
 *
 * A key that the newer file has, too, is left out: its newer value comes when that file is drained.
 * So sequences that step all the time are hardly ever written to LMDB, and this is where the
 * journal saves most. When the last slice is committed, the note names the first transaction of the
 * newer file; from then on the older file counts for nothing and can be begun anew. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/system/random.h"
#include "store/journal/journal_priv.h"

/* The bytes of the file that one call collects entries from. */
#define COLLECT_BYTES (128u << 10)
/* One slice leaves out at most this many keys; each costs a look-up in the index. */
#define SKIP_MAX 4096
/* One slice writes about this many bytes of values, because LMDB keeps the old and the new ones
 * until it is committed. */
#define SLICE_BYTES (512u << 10)
/* Ranges of this many items or fewer are sorted at once. */
#define RUN_ITEMS 256
/* Prefetched of an entry that will be written: its head and key, and the whole of a small one. */
#define PREFETCH_BYTES 256

int
cn_journal_read_note(struct cn_journal_store *js, struct cn_error *err)
{
    uint64_t below = 0;
    struct cn_str note;
    int rc;

    if ((rc = cn_lmdb_get_note(js->lmdb, CN_LMDB_NOTE_JOURNAL, &note, err)) != 0)
        return rc;
    if (note.len >= sizeof(below))
        memcpy(&below, note.ptr, sizeof(below));
    if (note.len && (note.len > sizeof(below) + CN_STORE_KEY_MAX || below == 0))
        return cn_fail(err, CN_E_STATE_STORE,
                       "the store %s is damaged (its record of the journal has %zu bytes); move "
                       "the folder aside",
                       js->dir, note.len);
    js->drained_below = note.len ? le64toh(below) : 1;
    js->drained_key_len = note.len ? note.len - sizeof(below) : 0;
    if (js->drained_key_len)
        memcpy(js->drained_key, note.ptr + sizeof(below), js->drained_key_len);
    return cn_journal_read_loss(js, err);
}

int
cn_journal_write_note(struct cn_journal_store *js, uint64_t below, struct cn_str key,
                      struct cn_error *err)
{
    char note[sizeof(below) + CN_STORE_KEY_MAX];

    below = htole64(below);
    memcpy(note, &below, sizeof(below));
    if (key.len)
        memcpy(note + sizeof(below), key.ptr, key.len);
    return cn_lmdb_put_note(js->lmdb, CN_LMDB_NOTE_JOURNAL,
                            (struct cn_str){note, sizeof(below) + key.len}, err);
}

/* --- the order of keys --- */

/* Eight bytes of a key from offset `from` on, as a number that compares like the bytes do. Behind
 * the key's end the bytes are 0. */
static uint64_t
key_word(struct cn_str key, uint64_t from)
{
    unsigned char bytes[8] = {0};
    uint64_t word;

    if (from < key.len)
        memcpy(bytes, key.ptr + from, key.len - from < 8 ? key.len - from : 8);
    memcpy(&word, bytes, sizeof(word));
    return be64toh(word);
}

int
cn_journal_key_compare(struct cn_str a, struct cn_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);

    return order ? order : (a.len > b.len) - (a.len < b.len);
}

/* Compares 16 bytes of the keys first, which are in the items. Only equal ones need the keys in the
 * file. With ids such as "user-000123", `common` skips "user-000", so the 16 bytes nearly always
 * decide. */
static int
item_compare(const void *left, const void *right, void *map)
{
    const struct cn_drain_item *a = left, *b = right;
    struct cn_journal_entry of_a, of_b;

    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    if (a->low != b->low)
        return a->low < b->low ? -1 : 1;
    if (a->at == b->at)
        return 0;
    cn_journal_entry_at((const char *)map + a->at, &of_a);
    cn_journal_entry_at((const char *)map + b->at, &of_b);
    return cn_journal_key_compare(of_a.key, of_b.key);
}

static void
swap(struct cn_drain_item *a, struct cn_drain_item *b)
{
    struct cn_drain_item c = *a;

    *a = *b;
    *b = c;
}

/* Splits items[from, to) around one of them that is chosen at random: smaller ones come before it.
 * Returns its new position. The choice is random because clients choose the ids and could otherwise
 * make it slow. */
static uint32_t
split(struct cn_drain *drain, uint32_t from, uint32_t to, const char *map)
{
    struct cn_drain_item *items = drain->items;
    uint32_t at = from, chosen = from + (uint32_t)(cn_random_u64() % (to - from));

    swap(&items[chosen], &items[to - 1]);
    for (uint32_t i = from; i + 1 < to; i++)
        if (item_compare(&items[i], &items[to - 1], (void *)map) < 0)
            swap(&items[i], &items[at++]);
    swap(&items[at], &items[to - 1]);
    return at;
}

/* Sorts at least the next items, by a quicksort that stops early. Where a range was split, the
 * position of the item in the middle is kept in `pivots`, a stack whose top is the nearest; the
 * next call goes on there. Sorting a file of a million keys at once would hold up a step for a long
 * time. */
static void
order_more(struct cn_drain *drain, const char *map)
{
    const uint32_t pivots_max = sizeof(drain->pivots) / sizeof(*drain->pivots);
    uint32_t end;

    for (;;) {
        end = drain->n_pivots ? drain->pivots[drain->n_pivots - 1] : drain->n;
        if (end == drain->sorted && drain->n_pivots) { /* the pivot is in its place already */
            drain->sorted++;
            drain->n_pivots--;
            continue;
        }
        if (end - drain->sorted <= RUN_ITEMS || drain->n_pivots == pivots_max)
            break;
        drain->pivots[drain->n_pivots++] = split(drain, drain->sorted, end, map);
    }
    qsort_r(drain->items + drain->sorted, end - drain->sorted, sizeof(*drain->items), item_compare,
            (void *)map);
    drain->sorted = end;
}

/* --- slices --- */

static void
drain_begin(struct cn_drain *drain, uint64_t of)
{
    drain->of = of;
    drain->collect_at = CN_JOURNAL_HEADER_BYTES;
    drain->n = drain->at = drain->sorted = drain->n_pivots = 0;
}

static void
item_add(struct cn_drain *drain, struct cn_drain_item item)
{
    if (drain->n == drain->cap) {
        struct cn_drain_item *items;

        drain->cap = drain->cap ? drain->cap * 2 : 1024;
        items = cn_try_realloc(drain->items, sizeof(*items) * drain->cap);
        if (!items)
            cn_panic(__FILE__, __LINE__, "not enough memory for %u entries of a journal",
                     drain->cap);
        drain->items = items;
    }
    drain->items[drain->n++] = item;
}

/* Notes those of the `n` entries at `at` that are the newest of their keys. Returns where the
 * entries end. Their slots are anywhere in the index, so all of them are prefetched first. */
static uint64_t
collect_entries(struct cn_drain *drain, const struct cn_journal_file *old, uint64_t at, uint32_t n)
{
    struct cn_drain_item items[CN_PREFETCH_MAX];
    uint32_t hashes[CN_PREFETCH_MAX];
    struct cn_journal_entry entry;

    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = cn_journal_entry_at(old->map + at, &entry);

        items[i] = (struct cn_drain_item){key_word(entry.key, old->common),
                                          key_word(entry.key, old->common + 8), at};
        hashes[i] = cn_journal_hash(entry.key);
        cn_journal_index_prefetch(&old->index, hashes[i]);
        at += bytes;
    }
    for (uint32_t i = 0; i < n; i++)
        if (cn_journal_index_has(&old->index, hashes[i], items[i].at))
            item_add(drain, items[i]);
    return at;
}

/* Notes the newest entries of the older file, for COLLECT_BYTES of it. */
static void
collect(struct cn_drain *drain, const struct cn_journal_file *old)
{
    const uint64_t stop = drain->collect_at + COLLECT_BYTES;

    while (drain->collect_at < old->tail && drain->collect_at < stop) {
        uint64_t at = drain->collect_at + CN_JOURNAL_TXN_BYTES;
        uint32_t left = cn_journal_txn_entries(old->map + drain->collect_at), n;

        for (; left > 0; left -= n) {
            n = left < CN_PREFETCH_MAX ? left : CN_PREFETCH_MAX;
            at = collect_entries(drain, old, at, n);
        }
        drain->collect_at = at;
    }
}

/* The hashes of the items that come next. In the order of keys their entries and slots are anywhere
 * in memory, so all of them are prefetched at once. */
struct ahead {
    uint32_t hashes[CN_PREFETCH_MAX];
    uint32_t from, to; /* the items that `hashes` covers */
};

static void
look_ahead(struct cn_journal_store *js, struct ahead *ahead)
{
    const struct cn_journal_file *old = cn_journal_old(js), *cur = cn_journal_cur(js);
    const struct cn_drain *drain = &js->drain;
    uint32_t n =
        drain->sorted - drain->at < CN_PREFETCH_MAX ? drain->sorted - drain->at : CN_PREFETCH_MAX;
    struct cn_journal_entry entry;

    ahead->from = drain->at;
    ahead->to = drain->at + n;
    for (uint32_t i = 0; i < n; i++)
        cn_prefetch(old->map + drain->items[drain->at + i].at, PREFETCH_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        cn_journal_entry_at(old->map + drain->items[drain->at + i].at, &entry);
        ahead->hashes[i] = cn_journal_hash(entry.key);
        cn_journal_index_prefetch(&cur->index, ahead->hashes[i]);
    }
}

/* Writes up to `records` of the items to LMDB. `key` gets the last key that was dealt with, and
 * `done` counts the owed bytes that are now paid. */
static int
write_some(struct cn_journal_store *js, uint32_t records, struct cn_str *key,
           struct cn_journal_file *done, struct cn_error *err)
{
    const struct cn_journal_file *old = cn_journal_old(js), *cur = cn_journal_cur(js);
    struct cn_drain *drain = &js->drain;
    struct cn_journal_entry entry;
    struct ahead ahead = {.to = 0};
    uint32_t skipped = 0, hash;
    uint64_t bytes = 0;
    int rc = 0;

    while (rc == 0 && records > 0 && bytes < SLICE_BYTES && skipped < SKIP_MAX &&
           drain->at < drain->n) {
        if (drain->at == drain->sorted)
            order_more(drain, old->map);
        if (drain->at == drain->sorted)
            continue;
        if (drain->at >= ahead.to)
            look_ahead(js, &ahead);
        hash = ahead.hashes[drain->at - ahead.from];
        cn_journal_entry_at(old->map + drain->items[drain->at++].at, &entry);
        if (cn_journal_is_drained(js, entry.key)) {
            skipped++;
            continue;
        }
        *key = entry.key;
        if (cn_journal_index_find(&cur->index, cur->map, hash, entry.key)) {
            skipped++;
            continue;
        }
        records--;
        bytes += entry.value.len;
        cn_journal_count_owed(done, &entry, 1);
        if (entry.flags & CN_JOURNAL_REMOVED)
            rc = js->lmdb->ops->remove(js->lmdb, entry.key, err);
        else
            rc = js->lmdb->ops->put(js->lmdb, entry.key, entry.value, err);
    }
    return rc;
}

/* One slice, inside LMDB's transaction, which it ends. While entries are still being collected
 * there is nothing to commit. With `power`, the newer file is synced before the note says that the
 * older one is finished: its last append may be by a process that died before its own fdatasync. */
static int
slice(struct cn_journal_store *js, uint32_t records, struct cn_error *err)
{
    struct cn_journal_file *old = cn_journal_old(js), *cur = cn_journal_cur(js);
    struct cn_drain *drain = &js->drain;
    struct cn_str key = {js->drained_key,
                         js->drained_below == old->first ? js->drained_key_len : 0};
    struct cn_journal_file done = {0};
    uint32_t from;
    int rc;

    if (drain->of != old->first)
        drain_begin(drain, old->first);
    if (drain->collect_at < old->tail) {
        collect(drain, old);
        js->lmdb->ops->abort(js->lmdb);
        return 0;
    }
    from = drain->at;
    rc = write_some(js, records, &key, &done, err);
    if (rc == 0 && drain->at < drain->n)
        rc = cn_journal_write_note(js, old->first, key, err);
    else if (rc == 0 && js->sync && fdatasync(cur->fd) != 0) /* see above */
        rc = cn_lmdb_fail_errno(js->lmdb, errno, "write the journal", err);
    else if (rc == 0)
        rc = cn_journal_write_note(js, cur->first, (struct cn_str){NULL, 0}, err);
    if (rc != 0) {
        js->lmdb->ops->abort(js->lmdb);
    } else {
        cn_journal_pass(js, CN_STORE_DRAINING);
        rc = js->lmdb->ops->commit(js->lmdb, err);
    }
    if (rc != 0) {
        drain->at = from;
        return rc;
    }
    old->owed -= done.owed;
    old->freed -= done.freed;
    cn_journal_pass(js, CN_STORE_DRAINED);
    return 0;
}

int
cn_journal_drain_some(struct cn_journal_store *js, uint32_t records, struct cn_error *err)
{
    int rc = cn_journal_lock(js, err);

    if (rc != 0)
        return rc;
    if (cn_journal_old(js)->first)
        return slice(js, records, err);
    js->lmdb->ops->abort(js->lmdb);
    return 0;
}

int
cn_journal_drain_all(struct cn_journal_store *js, struct cn_error *err)
{
    uint32_t records = CN_SLICE_RECORDS;
    int rc = 0;

    while (rc == 0 && cn_journal_old(js)->first) {
        rc = cn_journal_drain_some(js, records, err);
        if (rc != 0 &&
            records > 1) { /* a small transaction may find pages where a large one does not */
            records = records > 8 ? records / 8 : 1;
            rc = 0;
        }
        if (rc == 0 &&
            (rc = cn_journal_lock(js, err)) == 0) /* shows whether that was the last slice */
            js->lmdb->ops->abort(js->lmdb);
    }
    return rc;
}

uint32_t
cn_journal_drain_progress(const struct cn_journal_store *js)
{
    const struct cn_journal_file *old = &js->files[1 - js->cur];
    const struct cn_drain *drain = &js->drain;
    const uint64_t collected = CN_DRAIN_ALL / 4, written = CN_DRAIN_ALL - collected - 1;

    if (!old->first)
        return CN_DRAIN_ALL;
    if (drain->of != old->first)
        return 0;
    if (drain->collect_at < old->tail)
        return (uint32_t)(collected * drain->collect_at / old->tail);
    return (uint32_t)(collected + (drain->n ? written * drain->at / drain->n : written));
}
