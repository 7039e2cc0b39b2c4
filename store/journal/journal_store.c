/* store/journal/journal_store.c - a store in a folder that the workers of one model version share:
 * a commit is appended to a journal, and what is not there is in LMDB.
 *
 * Owned by the worker's thread. LMDB copies and writes a page of 4 kB, and those above it, for each
 * record that changes. Here a commit is one write of what changed: to the journal, of which there
 * are two files used in turn. The full one goes to LMDB in slices while the other one fills
 * (journal_drain.c).
 *
 * - The lock is LMDB's write transaction: every transaction here is within one, reads too. It costs
 *   a fifth of a microsecond, and the kernel lets go of it when its owner dies.
 * - The append is the commit point. A process learns what others appended by looking behind what it
 *   knows, at each begin; there is no shared memory besides the files.
 * - LMDB knows every key, so that a scan is a walk through LMDB: a new key is written there without
 *   a value in the commit that brings it, a removed one removed, both just after the append. Who
 *   dies in between, or finds the disk full there, leaves it to who comes next (cn_journal_settle)
 *   or to the drain. A key without a value and without an entry in the journal is none.
 * - What the journal owes LMDB counts against the limit as if it were there, and has its pages in
 *   the file before it is appended, so that a drain finds room.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "store/journal/journal_priv.h"

/* A journal this small stays in the processor's caches, and is not worth more drains. */
#define SMALL_BYTES (1u << 20)
/* It may be so many times what it holds of live entries: each of them goes to LMDB once a file at
 * most. */
#define LIVE_TIMES 8
/* Slices that one call to tend does at most. */
#define DRAIN_SLICES 8
#define MAINTAIN_SLICES 64
/* What the buffer of a transaction keeps when the store is maintained. */
#define TXN_KEEP_BYTES (4u << 20)
/* That LMDB's file has besides what is owed, so that small slices of a drain find pages on a full
 * disk. */
#define SPARE_BYTES (512u << 10)

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
    struct cn_journal_store *js = cn_journal_of(store);
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
    js->n_puts = 0;
    js->growth = 0;
    js->open = js->dirty = false;
}

static void
js_abort(struct cn_store *store)
{
    struct cn_journal_store *js = cn_journal_of(store);

    if (!js->open)
        return;
    js->lmdb->ops->abort(js->lmdb);
    forget_pending(js);
}

static int
write_all(struct cn_journal_store *js, struct cn_error *err)
{
    int64_t owed = cn_journal_owed(js) + js->growth;
    /* LMDB writes a value anew before it lets go of the old one, and its leaf with it. */
    uint64_t spare = SPARE_BYTES + 2 * js->largest;
    int rc;

    if (js->txn.failed)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a commit of %zu bytes",
                       js->txn.len);
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
    struct cn_journal_store *js = cn_journal_of(store);
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

/* --- the rest --- */

static uint64_t
js_count(struct cn_store *store)
{
    struct cn_journal_store *js = cn_journal_of(store);

    return js->lmdb->ops->count(js->lmdb);
}

static uint64_t
js_bytes(struct cn_store *store)
{
    struct cn_journal_store *js = cn_journal_of(store);

    return js->lmdb->ops->bytes(js->lmdb) + used_bytes(&js->files[0]) + used_bytes(&js->files[1]);
}

/* Drains while the file fills that took its place: from its first quarter, when the busiest
 * sequences have left the old file anyway, to its third. */
static void
js_drain_some(struct cn_store *store)
{
    struct cn_journal_store *js = cn_journal_of(store);
    const uint64_t used = used_bytes(cn_journal_cur(js)), target = target_bytes(js);
    struct cn_error err;
    uint64_t due;

    if (js->read_only || !cn_journal_old(js)->first || used <= target / 4 || used < js->drain_pause)
        return;
    due = (used - target / 4) * 2 * CN_DRAIN_ALL / target;
    due = due < CN_DRAIN_ALL ? due : CN_DRAIN_ALL;
    for (int i = 0; i < DRAIN_SLICES && cn_journal_drain_progress(js) < due; i++) {
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
    struct cn_journal_store *js = cn_journal_of(store);
    unsigned done = js->lmdb->ops->maintain(js->lmdb);

    if (js->read_only)
        return done;
    if (!js->open && js->txn.cap > TXN_KEEP_BYTES)
        cn_buf_fini(&js->txn);
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
    struct cn_journal_store *js = cn_journal_of(store);

    js_abort(store);
    cn_store_close(js->lmdb);
    for (unsigned i = 0; i < 2; i++)
        cn_journal_file_close(&js->files[i]);
    cn_journal_index_fini(&js->pending);
    cn_buf_fini(&js->txn);
    cn_buf_fini(&js->ledger);
    cn_buf_fini(&js->told);
    if (js->lock_fd >= 0)
        close(js->lock_fd);
    cn_free(js->drain.items);
    cn_free(js->puts);
    cn_free(js->dir);
    cn_free(js);
}

static const struct cn_store_ops js_ops = {
    .name = "journal",
    .close = js_close,
    .begin = js_begin,
    .get = cn_journal_get,
    .prefix = cn_journal_prefix,
    .next = cn_journal_next,
    .put = cn_journal_put,
    .replace = cn_journal_replace,
    .holds = cn_journal_holds,
    .remove = cn_journal_remove,
    .commit = js_commit,
    .abort = js_abort,
    .count = js_count,
    .bytes = js_bytes,
    .maintain = js_maintain,
    .drain_some = js_drain_some,
    .prefetch = cn_journal_prefetch,
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
    bool changed = false;
    int rc;

    *out = NULL;
    js->base.ops = &js_ops;
    js->dir = cn_strdup(options->dir);
    js->limit = options->journal_max_bytes;
    js->sync = options->sync;
    js->boot = cn_ledger_boot();
    js->read_only = options->read_only;
    js->passing = options->passing;
    js->files[0].fd = js->files[1].fd = -1;
    js->files[0].ledger_fd = js->files[1].ledger_fd = -1;
    cn_buf_init(&js->txn, 0);
    cn_buf_init(&js->ledger, 0);
    cn_buf_init(&js->told, 0);
    rc = cn_journal_guard(options, &js->lock_fd, &js->told, err);
    if (rc == 0)
        rc = cn_lmdb_store_open(&below, &js->lmdb, err);
    for (unsigned i = 0; rc == 0 && i < 2; i++)
        rc = cn_journal_file_open(js, i, err);
    if (rc == 0 && (rc = cn_journal_lock(js, err)) == 0 &&
        ((rc = cn_journal_verify(js, &changed, err)) != 0 || !changed))
        js->lmdb->ops->abort(js->lmdb);
    if (rc != 0) {
        js_close(&js->base);
        return rc;
    }
    *out = &js->base;
    return 0;
}
