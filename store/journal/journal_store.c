/* store/journal/journal_store.c - the store of `process` and `power`: a folder that all workers of
 * one model version share. A commit is appended to a journal; older values are in LMDB. Owned by
 * the worker's thread. docs/decisions/0017 has the measurements behind this.
 *
 * LMDB copies and writes a page of 4 kB, and the pages above it, for each record that changes. Here
 * a commit is a single write of what changed. There are two journal files, used in turn: while one
 * fills, the content of the full one is moved to LMDB in slices, which is called draining
 * (journal_drain.c).
 *
 * The life of a write: cn_store_begin takes the lock and reads what other processes have appended.
 * cn_store_put collects entries in a buffer. cn_store_commit makes sure that LMDB will have room,
 * appends the buffer to the newer file and its ledger, and releases the lock. Some minutes later a
 * slice of a drain moves the value to LMDB, unless a newer one has replaced it.
 *
 * - The lock is LMDB's write transaction. Every transaction is inside one, reads too. It costs a
 *   fifth of a microsecond, and the kernel releases it when its owner dies.
 * - The append is the commit point. Each process finds out what others appended by looking behind
 *   the end that it knows, whenever it takes the lock; the processes share nothing but the files.
 * - LMDB lists every key, so that a scan is a walk through LMDB. A new key is put there without a
 *   value, and a removed key is removed, in LMDB's transaction, which is committed just after the
 *   append. If a process dies in between, or finds the disk full, the next process that takes the
 *   lock does it (cn_journal_settle), or the drain does.
 * - What the journal still owes LMDB counts against the limit as if it were there already, and
 *   LMDB's file has the pages for it before the append. So a drain always finds room, and the
 *   commit that grows the store too much is the one that is refused. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "store/journal/journal_priv.h"

/* A journal of this size stays in the processor's caches, so a smaller one would only cost more
 * drains. */
#define SMALL_BYTES (1u << 20)
/* A file may grow to this many times the size of its newest entries. Each of those is moved to LMDB
 * at most once for each file. */
#define LIVE_TIMES 8
/* The most slices that one call of cn_store_work_off, and one of cn_store_maintain, does. */
#define DRAIN_SLICES 8
#define MAINTAIN_SLICES 64
/* The transaction's buffer is freed by cn_store_maintain if it is larger than this. */
#define TXN_KEEP_BYTES (4u << 20)
/* The room in LMDB's file besides what is owed, so that small slices of a drain find pages on a
 * full disk. */
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

/* Releases the lock for a moment. LMDB's lock is not fair: without the sleep this process would get
 * it again before those that wait. */
static void
let_others_in(struct cn_journal_store *js)
{
    const struct timespec moment = {.tv_nsec = 100000};

    js->lmdb->ops->abort(js->lmdb);
    nanosleep(&moment, NULL);
}

/* Taking the lock may need several rounds: after a long absence this process reads what others
 * appended in parts and lets them in between; and if the last append may be unfinished in LMDB,
 * that is settled and committed first. */
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
        if ((rc = cn_journal_sync_last(js, err)) != 0) {
            js->lmdb->ops->abort(js->lmdb);
            break;
        }
        js->unsettled = false;
        rc = cn_journal_settle(js, NULL);
        if (rc == 0 && !js->dirty)
            return 0;
        js->dirty = false;
        if (rc == 0)
            rc = js->lmdb->ops->commit(js->lmdb, NULL);
        else
            js->lmdb->ops->abort(js->lmdb);
        js->unlisted = js->unlisted || rc != 0; /* the drain will list the keys */
    }
    return rc;
}

static uint64_t
used_bytes(const struct cn_journal_file *file)
{
    return file->first ? file->tail - CN_JOURNAL_HEADER_BYTES : 0;
}

/* How large the newer file should become: LIVE_TIMES what its newest entries take, so that with few
 * busy sequences it stays small and in the processor's caches. */
static uint64_t
target_bytes(struct cn_journal_store *js)
{
    uint64_t wanted = cn_journal_cur(js)->live_bytes * LIVE_TIMES;

    wanted = wanted < SMALL_BYTES ? SMALL_BYTES : wanted;
    return wanted < js->limit && !js->unlisted ? wanted : js->limit;
}

/* True if the newer file can take no more: it has reached the limit, or the disk had no room for
 * the last append. */
static bool
is_full(struct cn_journal_store *js)
{
    const struct cn_journal_file *cur = cn_journal_cur(js);

    return used_bytes(cur) >= js->limit || (js->crowded && used_bytes(cur) > 0);
}

/* Makes sure that the newer file has room, inside the lock, and changes the files if it is full
 * enough. If both are full, the older one is drained first, while this commit waits. On failure the
 * lock is not held. */
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

/* How much LMDB may still grow. That changes only when LMDB is written to, so it is computed once
 * for each of its versions. */
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

/* Appends the open transaction, after LMDB's file got the pages for it. */
static int
write_all(struct cn_journal_store *js, struct cn_error *err)
{
    int64_t owed = cn_journal_owed(js) + js->growth;
    /* LMDB writes a new value, with its leaf page, before it frees the old one. */
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
    /* The transaction is committed. What goes wrong from here on is repaired later. */
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

/* Drains the older file while the newer one fills: it begins when that is a quarter full, when the
 * busiest sequences have a newer value there, and is done at three quarters. */
static void
js_work_off(struct cn_store *store)
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
        js->drain_pause = used + target / 16; /* the commit that finds no room reports the reason */
        return;
    }
}

int
cn_journal_empty(struct cn_journal_store *js, struct cn_error *err)
{
    int rc = cn_journal_drain_all(js, err);

    if (rc == 0 && (rc = cn_journal_lock(js, err)) == 0) {
        if (!cn_journal_old(js)->first && used_bytes(cn_journal_cur(js)) > 0)
            rc = cn_journal_start(js, 1 - js->cur, err);
        js->lmdb->ops->abort(js->lmdb);
    }
    return rc ? rc : cn_journal_drain_all(js, err);
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
        return done + (cn_journal_empty(js, NULL) == 0);
    }
    for (int i = 0; i < MAINTAIN_SLICES && cn_journal_old(js)->first; i++)
        if (cn_journal_drain_some(js, CN_SLICE_RECORDS, NULL) != 0)
            break;
    return done;
}

static const struct cn_store_ops js_ops;

void
cn_journal_close(struct cn_store *store)
{
    struct cn_journal_store *js = cn_journal_of(store);

    if (js->base.ops == &js_ops)
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
    .close = cn_journal_close,
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
    .work_off = js_work_off,
    .prefetch = cn_journal_prefetch,
};

/* The size of the store's data.mdb; 0 if there is none yet. */
static uint64_t
data_bytes(const char *dir)
{
    struct cn_buf path;
    struct stat stat_of;
    uint64_t bytes = 0;

    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/data.mdb", dir);
    cn_buf_append(&path, "", 1);
    if (stat(path.data, &stat_of) == 0)
        bytes = (uint64_t)stat_of.st_size;
    cn_buf_fini(&path);
    return bytes;
}

int
cn_journal_open(const struct cn_disk_options *options, bool *direct, struct cn_journal_store **out,
                struct cn_error *err)
{
    struct cn_lmdb_options below = {
        .dir = options->dir,
        .max_bytes = options->max_bytes,
        /* A drain writes new states before the pages of the old ones are free. And a store may be
         * larger than the limit, if that was lowered, or is not known because the store is only
         * repaired. */
        .spare_bytes = 8 * options->journal_max_bytes + (64u << 20) + data_bytes(options->dir),
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
    if (rc == 0 && !options->read_only && !options->repair_only)
        rc = cn_journal_choose(js, direct, err);
    if (rc == 0 && (rc = cn_journal_lock(js, err)) == 0 &&
        ((rc = cn_journal_verify(js, &changed, err)) != 0 || !changed))
        js->lmdb->ops->abort(js->lmdb);
    if (rc != 0) {
        cn_journal_close(&js->base);
        return rc;
    }
    *out = js;
    return 0;
}
