/* cache/journal_store.c - a store in a folder that the workers of one model version share: a commit is
 * appended to a journal, and what is not there is in LMDB.
 *
 * Owned by the worker's thread. LMDB copies and writes a page of 4 kB, and those above it, for each record
 * that changes. Here a commit is one write of what changed: to the journal, of which there are two files
 * used in turn. The full one goes to LMDB in slices while the other one fills (journal_drain.c).
 *
 * - The lock is LMDB's write transaction: every transaction here is within one, reads too. It costs a
 *   fifth of a microsecond, and the kernel lets go of it when its owner dies.
 * - The append is the commit point. A process learns what others appended by looking behind what it
 *   knows, at each begin; there is no shared memory besides the files.
 * - LMDB knows every key, so that a scan is a walk through LMDB: a new key is written there without a
 *   value in the commit that brings it, a removed one removed, both just after the append. Who dies in
 *   between, or finds the disk full there, leaves it to who comes next (cn_journal_settle) or to the
 *   drain. A key without a value and without an entry in the journal is none.
 * - What the journal owes LMDB counts against the limit as if it were there, and has its pages in the
 *   file before it is appended, so that a drain finds room.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cache/journal_priv.h"
#include "core/list.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/panic.h"

/* A journal this small stays in the processor's caches, and is not worth more drains. */
#define SMALL_BYTES (1u << 20)
/* It may be so many times what it holds of live entries: each of them goes to LMDB once a file at most. */
#define LIVE_TIMES 8
/* Slices that one call to tend does at most. */
#define TEND_SLICES 8
#define MAINTAIN_SLICES 64
#define TXN_KEEP_BYTES (4u << 20)
#define FIRST_PUTS 64u
/* That LMDB's file has besides what is owed, so that small slices of a drain find pages on a full disk. */
#define SPARE_BYTES (512u << 10)

static struct cn_journal_store *
js_of(struct cn_store *store)
{
    return cn_container_of(store, struct cn_journal_store, base);
}

/* --- begin and end --- */

static int
lock_once(struct cn_journal_store *js, bool *more, struct cn_error *err)
{
    int rc = js->read_only ? js->lmdb->ops->begin(js->lmdb, CN_STORE_READ, err)
                           : cn_lmdb_begin(js->lmdb, err);

    if (rc == 0 && (rc = cn_journal_catch_up(js, more, err)) != 0)
        js->lmdb->ops->abort(js->lmdb);
    return rc;
}

/* The lock is not fair: without a moment's sleep whoever lets go of it has it again. */
static void
let_others_in(struct cn_journal_store *js)
{
    const struct timespec moment = {.tv_nsec = 100000};

    js->lmdb->ops->abort(js->lmdb);
    nanosleep(&moment, NULL);
}

int
cn_journal_lock(struct cn_journal_store *js, struct cn_error *err)
{
    bool more;
    int rc;

    while ((rc = lock_once(js, &more, err)) == 0) {
        if (more) {
            let_others_in(js);
            continue;
        }
        if (!js->unsettled || js->read_only)
            return 0;
        js->unsettled = false;
        rc = cn_journal_settle(js, NULL);
        if (rc == 0 && !js->dirty)
            return 0;
        js->dirty = false;
        if (rc == 0)
            rc = js->lmdb->ops->commit(js->lmdb, NULL);
        else
            js->lmdb->ops->abort(js->lmdb);
        js->unlisted = js->unlisted || rc != 0; /* the drain will do it */
    }
    return rc;
}

static uint64_t
used_bytes(const struct cn_journal_file *file)
{
    return file->first ? file->tail - CN_JOURNAL_HEADER_BYTES : 0;
}

/* How large the file that is appended to should become. */
static uint64_t
target_bytes(struct cn_journal_store *js)
{
    uint64_t wanted = cn_journal_cur(js)->live_bytes * LIVE_TIMES;

    wanted = wanted < SMALL_BYTES ? SMALL_BYTES : wanted;
    return wanted < js->limit && !js->unlisted ? wanted : js->limit;
}

static bool
is_full(struct cn_journal_store *js)
{
    const struct cn_journal_file *cur = cn_journal_cur(js);

    return used_bytes(cur) >= js->limit || (js->crowded && used_bytes(cur) > 0);
}

/* In the lock, which stays: the file that is appended to has room. */
static int
switch_file(struct cn_journal_store *js, struct cn_error *err)
{
    const struct cn_journal_file *cur = cn_journal_cur(js), *old = cn_journal_old(js);
    struct cn_error why = {0};
    int rc;

    if (is_full(js) && old->first) {
        js->lmdb->ops->abort(js->lmdb);
        rc = cn_journal_drain_all(js, &why);
        if (cn_journal_lock(js, err) != 0)
            return err ? err->code : CN_E_STATE_STORE;
        if (rc != 0 && used_bytes(cn_journal_cur(js)) >= js->limit) {
            js->lmdb->ops->abort(js->lmdb);
            return cn_fail(err, why.code, "%s", why.message);
        }
        cur = cn_journal_cur(js);
        old = cn_journal_old(js);
    }
    if (old->first || (used_bytes(cur) < target_bytes(js) && !is_full(js) &&
                       !(js->unlisted && used_bytes(cur) > 0)))
        return 0;
    rc = cn_journal_start(js, 1 - js->cur, err);
    if (rc != 0 && used_bytes(cur) >= js->limit) {
        js->lmdb->ops->abort(js->lmdb);
        return rc;
    }
    if (rc != 0)
        return 0;
    js->crowded = js->unlisted = false;
    js->drain_pause = 0;
    return 0;
}

/* What LMDB may still take changes only when it is written to. */
static int
room_look(struct cn_journal_store *js, struct cn_error *err)
{
    if (js->room_version == js->version && js->version != 0)
        return 0;
    js->room_version = js->version;
    return cn_lmdb_room(js->lmdb, &js->room, err);
}

static int
js_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err)
{
    struct cn_journal_store *js = js_of(store);
    int rc;

    cn_assert(!js->open);
    cn_assert(kind == CN_STORE_READ || !js->read_only);
    js->writing = kind == CN_STORE_WRITE;
    if (js->writing && (rc = room_look(js, err)) != 0)
        return rc;
    if ((rc = cn_journal_lock(js, err)) != 0)
        return rc;
    if (js->writing && !cn_journal_cur(js)->first) {
        if ((rc = cn_journal_start(js, js->cur, err)) != 0) {
            js->lmdb->ops->abort(js->lmdb);
            return rc;
        }
    } else if (js->writing && (rc = switch_file(js, err)) != 0) {
        return rc;
    }
    js->open = true;
    if (js->writing)
        cn_journal_begin(&js->txn);
    return 0;
}

static void
forget_pending(struct cn_journal_store *js)
{
    cn_journal_index_reset(&js->pending);
    if (js->txn.cap > TXN_KEEP_BYTES)
        cn_buf_fini(&js->txn);
    js->n_puts = 0;
    js->growth = 0;
    js->open = js->dirty = false;
}

static void
js_abort(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);

    if (!js->open)
        return;
    js->lmdb->ops->abort(js->lmdb);
    forget_pending(js);
}

static int64_t
owed_bytes(const struct cn_journal_store *js)
{
    return js->files[0].owed + js->files[1].owed;
}

static int64_t
freed_bytes(const struct cn_journal_store *js)
{
    return js->files[0].freed + js->files[1].freed;
}

static int
write_all(struct cn_journal_store *js, struct cn_error *err)
{
    int64_t owed = owed_bytes(js) + js->growth;
    /* LMDB writes a value anew before it lets go of the old one, and its leaf with it. */
    uint64_t spare = SPARE_BYTES + 2 * js->largest;
    int rc;

    if (js->txn.failed)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for a commit of %zu bytes", js->txn.len);
    if (js->growth > 0 && owed > 0 &&
        (rc = cn_lmdb_provide(js->lmdb, (uint64_t)owed + spare, err)) != 0) {
        js->crowded = true;
        return rc;
    }
    return cn_journal_append(js, err);
}

static int
js_commit(struct cn_store *store, struct cn_error *err)
{
    struct cn_journal_store *js = js_of(store);
    struct cn_error why;
    int rc = 0;

    cn_assert(js->open);
    if (!js->writing || js->n_puts == 0 || (rc = write_all(js, err)) != 0) {
        js_abort(store);
        return rc;
    }
    cn_journal_pass(js, CN_STORE_APPENDED);
    /* It stands. What goes wrong from here on is made good later. */
    if (js->dirty && js->lmdb->ops->commit(js->lmdb, &why) != 0) {
        js->unlisted = true;
        cn_log(CN_LOG_WARN, "event=store_unlisted reason=\"%s\"", why.message);
    } else if (!js->dirty) {
        js->lmdb->ops->abort(js->lmdb);
    }
    forget_pending(js);
    return 0;
}

/* --- reading --- */

enum place {
    NOWHERE,
    IN_TXN,
    IN_CUR,
    IN_OLD,
};

/* Where in the journal the newest entry of a key is. */
static enum place
find(struct cn_journal_store *js, struct cn_str key, uint32_t hash, struct cn_journal_entry *out)
{
    const struct cn_journal_file *cur = cn_journal_cur(js), *old = cn_journal_old(js);
    uint64_t at;

    if ((at = cn_journal_index_find(&js->pending, js->txn.data, hash, key)) != 0) {
        cn_journal_entry_at(js->txn.data + at, out);
        return IN_TXN;
    }
    if ((at = cn_journal_index_find(&cur->index, cur->map, hash, key)) != 0) {
        cn_journal_entry_at(cur->map + at, out);
        return IN_CUR;
    }
    if ((at = cn_journal_index_find(&old->index, old->map, hash, key)) != 0) {
        cn_journal_entry_at(old->map + at, out);
        return IN_OLD;
    }
    return NOWHERE;
}

/* Of a value with a trace only its place in the index will be touched. */
static void
js_fetch(struct cn_store *store, const struct cn_str *keys,
         const struct cn_store_trace *const *traces, uint32_t n)
{
    struct cn_journal_store *js = js_of(store);
    uint32_t hashes[CN_FETCH_MAX], n_hashes = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (traces[i] && traces[i]->txn && cn_journal_trace_holds(js, traces[i])) {
            cn_journal_index_fetch(&cn_journal_cur(js)->index, traces[i]->hash);
            continue;
        }
        hashes[n_hashes] = cn_journal_hash(keys[i]);
        for (unsigned f = 0; f < 2; f++)
            cn_journal_index_fetch(&js->files[f].index, hashes[n_hashes]);
        n_hashes++;
    }
    for (uint32_t i = 0; i < n_hashes; i++)
        for (unsigned f = 0; f < 2; f++)
            cn_journal_index_fetch_entry(&js->files[f].index, js->files[f].map, hashes[i],
                                         CN_STORE_FETCH_BYTES);
}

/* From the journal, or by `below` from LMDB. */
static int
get_by(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err,
       int (*below)(struct cn_store *, struct cn_str, struct cn_str *, struct cn_error *))
{
    struct cn_journal_store *js = js_of(store);
    struct cn_journal_entry entry;
    int rc;

    cn_assert(js->open);
    if (find(js, key, cn_journal_hash(key), &entry) != NOWHERE) {
        *out = entry.flags & CN_JOURNAL_REMOVED ? (struct cn_str){NULL, 0} : entry.value;
        return 0;
    }
    rc = below(js->lmdb, key, out, err);
    if (out->len == 0)
        out->ptr = NULL;
    return rc;
}

static int
js_get(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    return get_by(store, key, out, err, js_of(store)->lmdb->ops->get);
}

static int
js_front(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err)
{
    return get_by(store, key, out, err, js_of(store)->lmdb->ops->front);
}

static int
js_next(struct cn_store *store, struct cn_str after, struct cn_str *key, struct cn_str *front,
        struct cn_error *err)
{
    struct cn_journal_store *js = js_of(store);
    struct cn_journal_entry entry;
    int rc;

    cn_assert(js->open);
    while ((rc = js->lmdb->ops->next(js->lmdb, after, key, front, err)) == 0 && key->ptr) {
        bool newer = find(js, *key, cn_journal_hash(*key), &entry) != NOWHERE;

        if (newer && !(entry.flags & CN_JOURNAL_REMOVED)) {
            *front = entry.value;
            return 0;
        }
        if (!newer && front->len > 0)
            return 0;
        after = *key; /* in LMDB's pages, where it stays during the transaction */
    }
    return rc;
}

/* --- writing --- */

/* Adds an entry to the open transaction; `was`: of what it replaces, or NULL. Returns its offset there. */
static uint64_t
add(struct cn_journal_store *js, uint32_t hash, const struct cn_journal_entry *entry,
    const struct cn_store_trace *was)
{
    uint64_t at = js->txn.len;

    if (js->n_puts == js->cap_puts) {
        uint32_t cap = js->cap_puts ? js->cap_puts * 2 : FIRST_PUTS;
        struct cn_journal_put *puts = cn_try_realloc(js->puts, cap * sizeof(*puts));

        if (!puts) {
            js->txn.failed = true; /* commit will say so */
            return at;
        }
        js->puts = puts;
        js->cap_puts = cap;
    }
    cn_journal_add(&js->txn, entry);
    if (js->txn.failed)
        return at;
    cn_journal_index_set(&js->pending, js->txn.data, hash, entry->key, at);
    js->puts[js->n_puts] = (struct cn_journal_put){.at = at, .hash = hash};
    if (was)
        js->puts[js->n_puts].was = *was;
    js->n_puts++;
    return at;
}

uint32_t
cn_journal_stored_cost(uint64_t value_bytes)
{
    uint64_t cost = cn_lmdb_cost(value_bytes);

    return cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
}

/* What there is of a key: in `bytes` those of the value that a new one replaces, in `was->stored` what LMDB's
 * takes. In `listed`, does LMDB have the key? */
static int
look_up(struct cn_journal_store *js, struct cn_str key, uint32_t hash, struct cn_journal_entry *was,
        uint64_t *bytes, bool *listed, struct cn_error *err)
{
    enum place place = find(js, key, hash, was);
    struct cn_str front;
    int rc;

    *listed = true;
    if (place != NOWHERE && !(was->flags & CN_JOURNAL_REMOVED)) {
        *bytes = was->value.len;
        if (place == IN_OLD && cn_journal_is_drained(js, key))
            was->stored = cn_journal_stored_cost(*bytes);
        return 0;
    }
    if ((rc = js->lmdb->ops->front(js->lmdb, key, &front, err)) != 0 ||
        (rc = cn_lmdb_bytes_of(js->lmdb, key, front, bytes, err)) != 0)
        return rc;
    *listed = front.ptr != NULL;
    was->stored = *listed ? cn_journal_stored_cost(*bytes) : 0;
    return 0;
}

#ifdef CN_DEBUG
static void
check_recalled(struct cn_journal_store *js, struct cn_str key, uint32_t hash,
               const struct cn_journal_entry *was, uint64_t bytes)
{
    struct cn_journal_entry found = {.stored = 0};
    uint64_t found_bytes;
    bool listed;

    cn_assert(look_up(js, key, hash, &found, &found_bytes, &listed, NULL) != 0 ||
              (listed && found_bytes == bytes && found.stored == was->stored));
}
#endif

/* The same from a trace; false: it doesn't say. */
static bool
recall(struct cn_journal_store *js, struct cn_str key, const struct cn_store_trace *trace,
       struct cn_journal_entry *was, uint64_t *bytes)
{
    /* By this very transaction only who has another trace of the key, against the rule, could have put it. */
    if (trace->txn == 0 || !cn_journal_trace_holds(js, trace) ||
        cn_journal_index_find(&js->pending, js->txn.data, trace->hash, key) != 0)
        return false;
    *bytes = trace->bytes;
    was->stored = cn_journal_trace_stored(js, key, trace);
#ifdef CN_DEBUG
    check_recalled(js, key, trace->hash, was, *bytes);
#endif
    return true;
}

/* `trace`: NULL when the value's owner has none. */
static int
put(struct cn_journal_store *js, struct cn_str key, struct cn_str value,
    struct cn_store_trace *trace, struct cn_error *err)
{
    const uint32_t hash = trace && trace->txn ? trace->hash : cn_journal_hash(key);
    const struct cn_journal_file *cur = cn_journal_cur(js);
    struct cn_journal_entry entry;
    uint64_t had;
    const bool recalled = trace && recall(js, key, trace, &entry, &had);
    bool listed = true;
    int64_t growth;
    uint64_t at;
    int rc;

    cn_assert(js->open && js->writing && value.len > 0);
    if (!recalled && (rc = look_up(js, key, hash, &entry, &had, &listed, err)) != 0)
        return rc;
    growth = (int64_t)cn_lmdb_cost(value.len) - (had ? (int64_t)cn_lmdb_cost(had) : 0);
    if (value.len > had && growth > 0 &&
        growth > js->room - owed_bytes(js) + freed_bytes(js) - js->growth) {
        cn_lmdb_fail_full(js->lmdb, err);
        return 1;
    }
    if (!listed) {
        if ((rc = js->lmdb->ops->put(js->lmdb, key, CN_STR(""), err)) != 0)
            return rc;
        js->dirty = true;
    }
    entry.key = key;
    entry.value = value;
    entry.flags = listed ? 0 : CN_JOURNAL_NEW;
    js->growth += growth;
    js->largest = value.len > js->largest ? value.len : js->largest;
    at = cur->tail + add(js, hash, &entry, recalled ? trace : NULL);
    if (!trace)
        cn_journal_trace_stale(js, hash, cur->next);
    else
        *trace = (struct cn_store_trace){value.len <= UINT32_MAX ? cur->next : 0, hash,
                                         (uint32_t)(at / 8), (uint32_t)value.len, entry.stored};
    return 0;
}

static int
js_put(struct cn_store *store, struct cn_str key, struct cn_str value, struct cn_error *err)
{
    return put(js_of(store), key, value, NULL, err);
}

static int
js_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
           struct cn_store_trace *trace, struct cn_error *err)
{
    return put(js_of(store), key, value, trace, err);
}

static bool
js_holds(struct cn_store *store, const struct cn_store_trace *trace)
{
    cn_assert(js_of(store)->open);
    return cn_journal_trace_holds(js_of(store), trace);
}

static int
js_remove(struct cn_store *store, struct cn_str key, struct cn_error *err)
{
    struct cn_journal_store *js = js_of(store);
    uint32_t hash = cn_journal_hash(key);
    struct cn_journal_entry entry;
    uint64_t had;
    bool listed;
    int rc;

    cn_assert(js->open && js->writing);
    if ((rc = look_up(js, key, hash, &entry, &had, &listed, err)) != 0 || !listed)
        return rc;
    if ((rc = js->lmdb->ops->remove(js->lmdb, key, err)) != 0)
        return rc;
    js->dirty = true;
    entry.key = key;
    js->growth -= had ? (int64_t)cn_lmdb_cost(had) : 0;
    entry.value = (struct cn_str){NULL, 0};
    entry.stored = 0; /* LMDB has room again at once */
    entry.flags = CN_JOURNAL_REMOVED;
    add(js, hash, &entry, NULL);
    cn_journal_trace_stale(js, hash, cn_journal_cur(js)->next);
    return 0;
}

/* --- the rest --- */

static uint64_t
js_count(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);

    return js->lmdb->ops->count(js->lmdb);
}

static uint64_t
js_bytes(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);

    return js->lmdb->ops->bytes(js->lmdb) + used_bytes(&js->files[0]) + used_bytes(&js->files[1]);
}

/* Drains while the file fills that took its place: from its first quarter, when the busiest sequences have
 * left the old file anyway, to its third. */
static void
js_tend(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);
    const uint64_t used = used_bytes(cn_journal_cur(js)), target = target_bytes(js);
    struct cn_error err;
    uint64_t due;

    if (js->read_only || !cn_journal_old(js)->first || used <= target / 4 || used < js->drain_pause)
        return;
    due = (used - target / 4) * 2 * CN_DRAIN_WHOLE / target;
    due = due < CN_DRAIN_WHOLE ? due : CN_DRAIN_WHOLE;
    for (int i = 0; i < TEND_SLICES && cn_journal_drain_progress(js) < due; i++) {
        if (cn_journal_drain_some(js, CN_SLICE_RECORDS, &err) == 0)
            continue;
        js->drain_pause = used + target / 16; /* the commit that finds no room says why */
        return;
    }
}

/* All that the journal has goes to LMDB, where what ended leaves room to what goes on. */
static int
make_room(struct cn_journal_store *js)
{
    int rc = cn_journal_drain_all(js, NULL);

    if (rc == 0 && (rc = cn_journal_lock(js, NULL)) == 0) {
        if (!cn_journal_old(js)->first && used_bytes(cn_journal_cur(js)) > 0)
            rc = cn_journal_start(js, 1 - js->cur, NULL);
        js->lmdb->ops->abort(js->lmdb);
    }
    return rc ? rc : cn_journal_drain_all(js, NULL);
}

static unsigned
js_maintain(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);
    unsigned done = js->lmdb->ops->maintain(js->lmdb);

    if (js->read_only)
        return done;
    if (js->crowded) {
        js->crowded = false;
        return done + (make_room(js) == 0);
    }
    for (int i = 0; i < MAINTAIN_SLICES && cn_journal_old(js)->first; i++)
        if (cn_journal_drain_some(js, CN_SLICE_RECORDS, NULL) != 0)
            break;
    return done;
}

static void
js_close(struct cn_store *store)
{
    struct cn_journal_store *js = js_of(store);

    js_abort(store);
    cn_store_close(js->lmdb);
    for (unsigned i = 0; i < 2; i++)
        cn_journal_file_close(&js->files[i]);
    cn_journal_index_fini(&js->pending);
    cn_buf_fini(&js->txn);
    cn_free(js->drain.items);
    cn_free(js->puts);
    cn_free(js->dir);
    cn_free(js);
}

static const struct cn_store_ops js_ops = {
    .name = "journal",
    .close = js_close,
    .begin = js_begin,
    .get = js_get,
    .front = js_front,
    .next = js_next,
    .put = js_put,
    .replace = js_replace,
    .holds = js_holds,
    .remove = js_remove,
    .commit = js_commit,
    .abort = js_abort,
    .count = js_count,
    .bytes = js_bytes,
    .maintain = js_maintain,
    .tend = js_tend,
    .fetch = js_fetch,
};

int
cn_journal_store_open(const struct cn_journal_options *options, struct cn_store **out,
                      struct cn_error *err)
{
    struct cn_lmdb_options below = {
        .dir = options->dir,
        .max_bytes = options->max_bytes,
        /* A drain writes states anew before the pages of the old ones are free. */
        .spare_bytes = 8 * options->journal_max_bytes + (64u << 20),
        .sync = options->sync,
        .read_only = options->read_only,
    };
    struct cn_journal_store *js = cn_alloc(sizeof(*js));
    int rc;

    *out = NULL;
    js->base.ops = &js_ops;
    js->dir = cn_strdup(options->dir);
    js->limit = options->journal_max_bytes;
    js->sync = options->sync;
    js->read_only = options->read_only;
    js->passing = options->passing;
    js->files[0].fd = js->files[1].fd = -1;
    cn_buf_init(&js->txn, 0);
    rc = cn_lmdb_store_open(&below, &js->lmdb, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++)
        rc = cn_journal_file_open(js, i, err);
    if (rc == 0 && (rc = cn_journal_lock(js, err)) == 0)
        js->lmdb->ops->abort(js->lmdb);
    if (rc != 0) {
        js_close(&js->base);
        return rc;
    }
    *out = &js->base;
    return 0;
}
