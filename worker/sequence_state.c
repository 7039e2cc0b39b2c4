/* worker/sequence_state.c - the state cache and the store together; expiry, closing and sweeping.
 * Owned by the worker's one thread.
 *
 * A sequence's state exists as bytes in the store, which all workers of the model version share,
 * and as a decoded object in the cache of the workers that ran its last steps. A cached object is
 * valid only if its generation and step are those of the record; batch/resolve.c compares them, and
 * batch/commit.c checks again before it writes. So a worker may drop any cached object at any time,
 * and a crash loses nothing but the work of decoding.
 *
 * Times. Expiry is counted in wall time, because it must go on while the server is down. The wall
 * clock may be set, so each look compares it with the boot clock, which cannot: when the wall clock
 * has jumped ahead by more than load->clock_jump_ms, the idle time of all sequences begins anew at
 * the jump (clock_floor_ms) instead of ending all of them at once.
 *
 * Closing. Normally the server closes sequences: it knows their times and sends CLOSE. After a
 * restart it does not know sequences that nobody has used since; for these a sweep walks through
 * the store, a few records at a time. It waits SWEEP_GRACE_MS longer than the limit, so that it
 * never closes a sequence whose step is waiting in a queue. Closing has three phases: take the
 * cached objects, write the tombstones in one transaction, and only then call on_close with each
 * state. So the handler never learns of an end that was not committed, and none of its code runs
 * while a write transaction holds the store's lock.
 */
#include "worker/sequence_state.h"

#include <string.h>
#include <unistd.h>

#include "config/model/model_config.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/time/clock.h"
#include "core/tuning/tuning.h"
#include "store/disk_store.h"
#include "store/shared_store.h"
#include "store/shared_url.h"
#include "worker/process/kill_point.h"

/* The sweep looks at SWEEP_RECORDS records every SWEEP_EVERY_MS at most. A million records take ten
 * minutes and 0.05 % of a core. */
#define SWEEP_RECORDS 16
#define SWEEP_EVERY_MS 10
#define SWEEP_PAUSE_MS 60000
#define SWEPT_MAX CN_STORE_DUE_MAX /* records that a sweep finds at most, in any store */
/* A shared store is asked for what has expired, and that rarely while nothing has. */
#define SHARED_SWEEP_MS 1000
/* The server closes sequences by its own clock. When it closes one that other nodes may have gone
 * on with, the times in the record decide, and this much is allowed for the two clocks. */
#define CLOCKS_DIFFER_MS 1000
/* The sweep goes on after batches. A worker without batches sweeps by a timer: at fewer moments,
 * but it then looks at more records, so that it looks at as many per second as a busy worker. Each
 * such moment has a limit in time, because a step may come. */
#define SWEEP_IDLE_MS 100
#define SWEEP_IDLE_TIMES 10
#define SWEEP_IDLE_MAX_US 1000
/* The server closes the sequences that it knows on time, and the sweep closes the others. It is
 * late on purpose: it must not close a sequence whose step waits in a queue. */
#define SWEEP_GRACE_MS 60000
/* The bytes that a cached sequence counts for in addition to its state. */
#define SEQUENCE_OVERHEAD_BYTES (sizeof(struct cn_sequence_state) + 64)
#define CLOSE_AGAIN 3
#define STORE_RETRY_US 500000 /* pause before a store that is away is tried again */
#define SCRATCH_KEEP_BYTES (1u << 20)

void
cn_states_warn(const struct cn_states *states, const char *event, const struct cn_error *err)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    cn_log(CN_LOG_WARN, "event=%s model=%s reason=%s", event, states->load->model_name,
           cn_log_quote(err->message, strlen(err->message), quoted, sizeof(quoted)));
}

static void
on_evict(void *ctx, struct cn_lru_entry *entry)
{
    cn_states_free(ctx, cn_container_of(entry, struct cn_sequence_state, lru));
}

static void
store_passes(enum cn_store_point point)
{
    static const enum cn_kill_point points[] = {
        [CN_STORE_APPENDED] = CN_KILL_APPENDED,
        [CN_STORE_SWITCHED] = CN_KILL_JOURNAL_SWITCHED,
        [CN_STORE_DRAINING] = CN_KILL_DRAINING,
        [CN_STORE_DRAINED] = CN_KILL_DRAINED,
    };

    cn_kill_pass(points[point]);
}

/* Opens the store, and tries again for load->store_wait_ms while it is away. */
static int
wait_for_store(struct cn_states *states, const struct cn_shared_options *options,
               struct cn_error *err)
{
    const uint64_t until_ms = cn_now_ms() + states->load->store_wait_ms;

    for (;;) {
        int rc = cn_shared_store_open(options, &states->store, err);

        if (rc != CN_E_STORE_UNREACHABLE || cn_now_ms() >= until_ms)
            return rc;
        cn_states_warn(states, "waits_for_state_store", err);
        usleep(STORE_RETRY_US);
    }
}

/* Opens the store that several nodes share. */
static int
open_shared(struct cn_states *states, const struct cn_load *load, struct cn_error *err)
{
    struct cn_shared_url store;
    int rc = cn_shared_url_read(load->state_store, &store, err);

    if (rc != 0)
        return rc;
    store.options.model = load->model_name;
    store.options.version = load->model_version;
    store.options.timeout_ms = (uint32_t)load->store_timeout_ms;
    store.options.replicas = (uint32_t)load->store_replicas;
    store.options.power = load->durability == CN_DURABILITY_POWER;
    return wait_for_store(states, &store.options, err);
}

static int
open_store(struct cn_states *states, const struct cn_load *load, struct cn_error *err)
{
    struct cn_disk_options options = {
        .dir = load->store_dir,
        .max_bytes = load->store_max_bytes,
        .journal_max_bytes = load->journal_max_bytes,
        .check_max_bytes = load->check_max_bytes,
        .sync = load->durability == CN_DURABILITY_POWER,
        .direct = !load->journal || !cn_tuned(CN_TUNING_JOURNAL),
        .passing = store_passes,
    };

    if (load->durability == CN_DURABILITY_NONE) {
        states->store = cn_mem_store_open(load->store_max_bytes);
        return 0;
    }
    if (load->state_store[0])
        return open_shared(states, load, err);
    return cn_disk_store_open(&options, &states->store, err);
}

int
cn_states_open(struct cn_states *states, const struct cn_load *load, struct cn_runtime *rt,
               struct cn_error *err)
{
    int rc;

    memset(states, 0, sizeof(*states));
    states->load = load;
    states->rt = rt;
    states->clock_floor_ms = load->clock_floor_ms;
    states->clock_offset_ms = (int64_t)(cn_wall_ms() - cn_boot_ms());
    cn_slab_init(&states->sequences, cn_slab_usual(), 0);
    if ((rc = open_store(states, load, err)) != 0)
        return rc;
    states->lru = cn_lru_create(load->cache_entries, load->cache_bytes, on_evict, states);
    cn_buf_init(&states->scratch, 0);
    return 0;
}

void
cn_states_close(struct cn_states *states)
{
    cn_lru_destroy(states->lru);
    cn_slab_fini(&states->sequences);
    cn_store_close(states->store);
    cn_buf_fini(&states->scratch);
    memset(states, 0, sizeof(*states));
}

static size_t
sequence_bytes(size_t id_len)
{
    return sizeof(struct cn_sequence_state) + id_len;
}

struct cn_sequence_state *
cn_states_create(struct cn_states *states, struct cn_str id)
{
    struct cn_sequence_state *seq = cn_slab_alloc(&states->sequences, sequence_bytes(id.len));

    if (!seq)
        cn_panic(__FILE__, __LINE__, "not enough memory for a sequence");
    memset(seq, 0, sizeof(*seq));
    memcpy(seq->id, id.ptr, id.len);
    seq->lru.key = (struct cn_str){seq->id, id.len};
    return seq;
}

struct cn_str
cn_sequence_keys(const struct cn_sequence_state *seq)
{
    return (struct cn_str){(const char *)seq->keys, (size_t)seq->n_keys * CN_KEY_HASH_BYTES};
}

size_t
cn_states_keys_room(const struct cn_states *states)
{
    const uint64_t window = states->load->key_window;

    return (size_t)(window ? window : 1) * CN_KEY_HASH_BYTES;
}

void
cn_sequence_set_keys(struct cn_states *states, struct cn_sequence_state *seq, struct cn_str keys)
{
    const size_t room = cn_states_keys_room(states);
    const size_t len = keys.len < room ? keys.len : room;

    /* This allocates once in a sequence's time in memory, and only for clients that send keys. */
    if (len && !seq->keys)
        seq->keys = cn_alloc(room);
    if (len)
        memmove(seq->keys, keys.ptr, len);
    seq->n_keys = (uint32_t)(len / CN_KEY_HASH_BYTES);
}

/* Tells a shared store which records the batch will read: those of the sequences that are not
 * cached. cn_lru_prefetch cannot say which ones these are, because it does nothing for a small
 * cache. */
static void
announce_reads(struct cn_states *states, const struct cn_str *ids, uint32_t n)
{
    const struct cn_store_hint *hints[CN_PREFETCH_MAX];
    static const struct cn_store_hint cached;

    for (uint32_t i = 0; i < n; i++)
        hints[i] = cn_lru_holds(states->lru, ids[i]) ? &cached : NULL;
    cn_store_prefetch(states->store, ids, hints, n);
}

void
cn_states_prefetch(struct cn_states *states, const struct cn_str *ids, uint32_t n)
{
    struct cn_lru_entry *found[CN_PREFETCH_MAX];
    const struct cn_store_hint *hints[CN_PREFETCH_MAX];

    if (cn_store_is_shared(states->store)) {
        announce_reads(states, ids, n);
        return;
    }
    cn_lru_prefetch(states->lru, ids, n, sizeof(struct cn_sequence_state) + 16, found);
    for (uint32_t i = 0; i < n; i++)
        hints[i] =
            found[i] ? &cn_container_of(found[i], struct cn_sequence_state, lru)->hint : NULL;
    cn_store_prefetch(states->store, ids, hints, n);
}

struct cn_sequence_state *
cn_states_take(struct cn_states *states, struct cn_str id)
{
    struct cn_lru_entry *entry = cn_lru_take(states->lru, id);

    return entry ? cn_container_of(entry, struct cn_sequence_state, lru) : NULL;
}

void
cn_states_put(struct cn_states *states, struct cn_sequence_state *seq, size_t state_bytes)
{
    seq->lru.bytes = SEQUENCE_OVERHEAD_BYTES + seq->lru.key.len + state_bytes +
                     (seq->keys ? cn_states_keys_room(states) : 0);
    cn_lru_put(states->lru, &seq->lru);
}

void
cn_states_free(struct cn_states *states, struct cn_sequence_state *seq)
{
    if (!seq)
        return;
    if (seq->state)
        states->rt->ops->state_free(states->rt, seq->state);
    cn_lru_forget(states->lru, &seq->lru);
    cn_free(seq->keys);
    cn_slab_free(&states->sequences, seq, sequence_bytes(seq->lru.key.len));
}

/* Returns when a limit of `limit_ms` that counts from `from` is reached; CN_NEVER without limit. */
static uint64_t
runs_out(uint64_t from, uint64_t limit_ms)
{
    return limit_ms && from <= UINT64_MAX - limit_ms ? from + limit_ms : CN_NEVER;
}

/* A step before the clock's last jump counts as one at the moment of the jump. */
static uint64_t
after_jump(const struct cn_states *states, uint64_t last_wall_ms)
{
    return last_wall_ms > states->clock_floor_ms ? last_wall_ms : states->clock_floor_ms;
}

void
cn_states_look_at_clock(struct cn_states *states, uint64_t now_wall_ms)
{
    const int64_t offset_ms = (int64_t)(now_wall_ms - cn_boot_ms());
    const int64_t by_ms = offset_ms - states->clock_offset_ms;

    states->clock_offset_ms = offset_ms; /* a clock that drifts slowly does not jump */
    if (states->load->clock_jump_ms && by_ms > (int64_t)states->load->clock_jump_ms)
        states->clock_floor_ms = now_wall_ms;
}

int
cn_states_expired(const struct cn_states *states, uint64_t opened_wall_ms, uint64_t last_wall_ms,
                  uint64_t now_wall_ms)
{
    uint64_t idle = runs_out(after_jump(states, last_wall_ms), states->load->idle_ms);
    uint64_t total = runs_out(opened_wall_ms, states->load->lifetime_ms);

    if (now_wall_ms < idle && now_wall_ms < total)
        return 0;
    return idle <= total ? CN_CLOSE_IDLE : CN_CLOSE_LIFETIME;
}

uint64_t
cn_states_expires_at(const struct cn_states *states, uint64_t opened_wall_ms, uint64_t last_wall_ms)
{
    uint64_t idle = runs_out(after_jump(states, last_wall_ms), states->load->idle_ms);
    uint64_t total = runs_out(opened_wall_ms, states->load->lifetime_ms);
    uint64_t first = idle < total ? idle : total;

    return first == CN_NEVER ? 0 : first;
}

bool
cn_states_forgotten(const struct cn_states *states, const struct cn_record *tombstone,
                    uint64_t now_wall_ms)
{
    return now_wall_ms >= runs_out(tombstone->closed_wall_ms, states->load->tombstone_ms) ||
           states->load->tombstone_ms == 0;
}

void
cn_states_bury(const struct cn_states *states, struct cn_record *record, int reason,
               uint64_t now_wall_ms, bool keep_answer)
{
    record->flags |= CN_RECORD_TOMBSTONE;
    record->flags &= ~(uint32_t)CN_RECORD_HAS_STATE;
    record->state = (struct cn_str){NULL, 0};
    record->close_reason = (uint8_t)reason;
    record->closed_wall_ms = now_wall_ms;
    record->expires_wall_ms = now_wall_ms + states->load->tombstone_ms;
    if (keep_answer)
        return;
    record->flags &= ~(uint32_t)(CN_RECORD_HAS_ANSWER | CN_RECORD_ANSWER_TOO_LARGE);
    cn_record_drop_answer(record);
}

int
cn_states_decode(struct cn_states *states, struct cn_str bytes, uint32_t schema, void **out,
                 struct cn_error *err)
{
    const struct cn_runtime_ops *ops = states->rt->ops;
    int rc;

    *out = NULL;
    rc = ops->state_decode(states->rt, bytes, schema, out, err);
    if (rc == CN_E_OUT_OF_MEMORY && cn_lru_count(states->lru)) {
        cn_lru_clear(states->lru);
        rc = ops->state_decode(states->rt, bytes, schema, out, err);
    }
    return rc;
}

/* A sequence that is being closed. */
struct closing {
    struct cn_sequence_state *cached; /* its decoded state, when it was cached */
    size_t state_at, state_len;       /* otherwise the place of its bytes in `scratch` */
    uint32_t schema;                  /* the schema of those bytes */
    bool has_bytes, live;             /* live: on_close must be called */
    enum cn_store_outcome outcome;    /* what a shared store did with the write */
};

/* Has another node gone on with a sequence that this one takes for expired? */
static bool
lives_elsewhere(const struct cn_states *states, const struct cn_close *close,
                const struct cn_record *record, uint64_t now_wall_ms)
{
    return cn_store_is_shared(states->store) &&
           (close->reason == CN_CLOSE_IDLE || close->reason == CN_CLOSE_LIFETIME) &&
           !cn_states_expired(states, record->opened_wall_ms, record->last_wall_ms,
                              now_wall_ms + CLOCKS_DIFFER_MS);
}

void
cn_states_announce(struct cn_states *states, struct cn_str id)
{
    const struct cn_store_hint *none = NULL;

    if (cn_store_is_shared(states->store))
        cn_store_prefetch(states->store, &id, &none, 1);
}

/* Within the write transaction: replaces a live record by its tombstone, and keeps what on_close
 * needs: the cached object if it is of the record's step, else a copy of the state's bytes. Does
 * nothing for a record that is closed already or of another generation. */
static int
close_one(struct cn_states *states, const struct cn_close *close, struct closing *out,
          uint64_t now_wall_ms, struct cn_error *err)
{
    struct cn_record record;
    struct cn_str bytes;
    size_t at = states->scratch.len;
    int rc;

    rc = cn_store_get(states->store, close->sequence_id, &bytes, err);
    if (rc != CN_E_STATE_DAMAGED && (rc != 0 || !bytes.ptr))
        return rc;
    out->outcome = CN_STORE_FAILED; /* until the commit */
    cn_store_expect(states->store, NULL, &out->outcome);
    if (rc != 0 || cn_record_decode(bytes, &record, NULL) != 0) {
        out->live = true; /* damaged: it is removed, and the handler is informed without a state */
        return cn_store_remove(states->store, close->sequence_id, err);
    }
    if ((record.flags & CN_RECORD_TOMBSTONE) ||
        (close->generation && close->generation != record.generation) ||
        lives_elsewhere(states, close, &record, now_wall_ms)) {
        cn_store_expect(states->store, NULL, NULL); /* nothing is written */
        return 0;
    }
    out->live = true;
    if (out->cached &&
        (out->cached->generation != record.generation || out->cached->step != record.step)) {
        cn_states_free(states, out->cached); /* another worker went on with it */
        out->cached = NULL;
    }
    if (!out->cached && (record.flags & CN_RECORD_HAS_STATE)) {
        if (cn_buf_append_str(&states->scratch, record.state) < 0)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to close sequences");
        *out = (struct closing){.state_at = at,
                                .state_len = record.state.len,
                                .schema = record.schema,
                                .has_bytes = true,
                                .live = true,
                                .outcome = CN_STORE_FAILED};
        at = states->scratch.len;
    }
    /* No job is in flight when the server closes: only a client with a key will ask again. */
    cn_states_bury(states, &record, close->reason, now_wall_ms,
                   (record.flags & CN_RECORD_ASKED) && close->reason != CN_CLOSE_DELETED);
    if ((rc = cn_record_encode(&record, &states->scratch, err)) != 0)
        return rc;
    bytes = (struct cn_str){states->scratch.data + at, states->scratch.len - at};
    rc = cn_store_put(states->store, close->sequence_id, bytes, err);
    states->scratch.len = at; /* the tombstone is in the store, the states stay */
    if (rc > 0) /* the store is full, and the tombstone larger than an old record: remove that */
        rc = cn_store_remove(states->store, close->sequence_id, err);
    return rc;
}

static void
close_tell(struct cn_states *states, const struct cn_close *close, struct closing *closing)
{
    const struct cn_runtime_ops *ops = states->rt->ops;
    struct cn_error err;
    void *state = NULL;

    if (closing->cached) {
        state = closing->cached->state;
    } else if (closing->has_bytes) {
        struct cn_str bytes = {states->scratch.data + closing->state_at, closing->state_len};

        if (cn_states_decode(states, bytes, closing->schema, &state, &err) != 0)
            cn_states_warn(states, "state_unreadable", &err);
    }
    ops->on_close(states->rt, close->sequence_id, state, close->reason);
    if (!closing->cached && state)
        ops->state_free(states->rt, state);
}

/* Has this transaction closed the sequence? A shared store decides about each one by itself. */
static bool
is_closed(const struct cn_states *states, const struct closing *closing, int rc)
{
    if (!closing->live)
        return false;
    return cn_store_is_shared(states->store) ? closing->outcome == CN_STORE_WRITTEN : rc == 0;
}

/* Closes up to CN_CLOSE_BATCH sequences. `again`: how often a sequence may be tried again if
 * another node has changed its record meanwhile. */
static int
close_batch(struct cn_states *states, const struct cn_close *closes, uint32_t n, unsigned again,
            struct cn_error *err)
{
    struct closing closing[CN_CLOSE_BATCH] = {0};
    uint64_t now = cn_wall_ms();
    bool lost = false;
    uint32_t i;
    int rc;

    for (i = 0; i < n; i++) {
        closing[i].cached = cn_states_take(states, closes[i].sequence_id);
        if (closing[i].cached && closes[i].generation &&
            closing[i].cached->generation != closes[i].generation) {
            cn_states_free(states, closing[i].cached); /* rare, and costs its next step one read */
            closing[i].cached = NULL;
        }
    }
    cn_buf_reset(&states->scratch);
    rc = cn_store_begin(states->store, CN_STORE_WRITE, err);
    for (i = 0; rc == 0 && i < n; i++)
        cn_states_announce(states, closes[i].sequence_id);
    for (i = 0; rc == 0 && i < n; i++)
        rc = close_one(states, &closes[i], &closing[i], now, err);
    if (rc == 0)
        rc = cn_store_commit(states->store, err);
    else
        cn_store_abort(states->store);
    for (i = 0; i < n; i++) {
        lost |= closing[i].live && closing[i].outcome == CN_STORE_LOST;
        if (is_closed(states, &closing[i], rc))
            close_tell(states, &closes[i], &closing[i]);
        cn_states_free(states, closing[i].cached);
    }
    cn_buf_reset(&states->scratch);
    if (states->scratch.cap > SCRATCH_KEEP_BYTES)
        cn_buf_fini(&states->scratch);
    for (i = 0; lost && rc == 0 && i < n; i++) {
        if (!closing[i].live || closing[i].outcome != CN_STORE_LOST)
            continue;
        rc = again ? close_batch(states, &closes[i], 1, again - 1, err)
                   : cn_fail(err, CN_E_CONTENDED,
                             "a sequence is not closed, because other nodes go on with it");
    }
    return rc;
}

uint32_t
cn_states_close_some(struct cn_states *states, const struct cn_close *closes, uint32_t n,
                     struct cn_error *err)
{
    uint32_t done = 0, some;

    while (done < n) {
        some = n - done < CN_CLOSE_BATCH ? n - done : CN_CLOSE_BATCH;
        if (close_batch(states, closes + done, some, CLOSE_AGAIN, err) != 0)
            break;
        done += some;
    }
    return done;
}

int
cn_states_touch(struct cn_states *states, struct cn_str id, uint64_t now_wall_ms,
                struct cn_error *err)
{
    struct cn_record record;
    struct cn_str bytes;
    int rc = cn_store_get(states->store, id, &bytes, err);

    if (rc != 0 || !bytes.ptr || cn_record_decode(bytes, &record, NULL) != 0 ||
        (record.flags & CN_RECORD_TOMBSTONE))
        return rc;
    record.last_wall_ms = now_wall_ms;
    record.expires_wall_ms = cn_states_expires_at(states, record.opened_wall_ms, now_wall_ms);
    cn_buf_reset(&states->scratch);
    if ((rc = cn_record_encode(&record, &states->scratch, err)) != 0)
        return rc;
    return cn_store_put(states->store, id, cn_buf_str(&states->scratch), err);
}

/* Removes tombstones whose time is over from the store, in one transaction. If a shared store
 * refuses to remove one, another node has opened the sequence anew, and nothing is left to do. */
static int
forget(struct cn_states *states, const struct cn_str *ids, unsigned n, uint64_t now_wall_ms,
       struct cn_error *err)
{
    enum cn_store_outcome outcomes[SWEPT_MAX]; /* the store needs a place for them */
    struct cn_record record;
    struct cn_str bytes;
    int rc;

    if (n == 0)
        return 0;
    if ((rc = cn_store_begin(states->store, CN_STORE_WRITE, err)) != 0)
        return rc;
    for (unsigned i = 0; i < n; i++)
        cn_states_announce(states, ids[i]);
    for (unsigned i = 0; rc == 0 && i < n; i++) {
        /* It may have been opened again since it was looked at. */
        if ((rc = cn_store_prefix(states->store, ids[i], &bytes, err)) == 0 && bytes.ptr &&
            cn_record_peek(bytes, &record, NULL) == 0 && (record.flags & CN_RECORD_TOMBSTONE) &&
            cn_states_forgotten(states, &record, now_wall_ms)) {
            cn_store_expect(states->store, NULL, &outcomes[i]);
            rc = cn_store_remove(states->store, ids[i], err);
        }
    }
    if (rc == 0)
        return cn_store_commit(states->store, err);
    cn_store_abort(states->store);
    return rc;
}

/* What one turn of the sweep has found. It is collected in a read transaction, and acted on after
 * it, because closing needs a write transaction. */
struct swept {
    struct cn_close expired[SWEPT_MAX];
    struct cn_str old[SWEPT_MAX];
    unsigned n_expired, n_old;
    char ids[SWEPT_MAX][CN_SEQUENCE_ID_MAX];
};

/* Notes in `swept` whether the record has expired or its tombstone can be removed. Returns false if
 * there is nothing to do with it now; then *later is when there may be, 0 for never. */
static bool
sweep_look(struct cn_states *states, struct swept *swept, unsigned i, struct cn_str id,
           struct cn_str value, uint64_t now, uint64_t *later)
{
    uint64_t late = now > SWEEP_GRACE_MS ? now - SWEEP_GRACE_MS : 0;
    struct cn_record record;
    struct cn_str copy = {swept->ids[i], id.len};
    int reason;

    memcpy(swept->ids[i], id.ptr, id.len);
    *later = 0;
    if (cn_record_peek(value, &record, NULL) != 0)
        return false; /* damaged: its next step says so */
    if (record.flags & CN_RECORD_TOMBSTONE) {
        *later = runs_out(record.closed_wall_ms, states->load->tombstone_ms);
        if (!cn_states_forgotten(states, &record, now))
            return false;
        swept->old[swept->n_old++] = copy;
        return true;
    }
    *later = cn_states_expires_at(states, record.opened_wall_ms, record.last_wall_ms);
    reason = cn_states_expired(states, record.opened_wall_ms, record.last_wall_ms, late);
    if (reason)
        swept->expired[swept->n_expired++] =
            (struct cn_close){copy, record.generation, (enum cn_close_reason)reason};
    return reason != 0;
}

static int
sweep_scan(struct cn_states *states, struct swept *swept, uint64_t now, struct cn_error *err)
{
    struct cn_str at = {states->sweep_at, states->sweep_at_len}, id, value;
    uint64_t later;
    int rc;

    if ((rc = cn_store_begin(states->store, CN_STORE_READ, err)) != 0)
        return rc;
    for (unsigned i = 0; i < SWEEP_RECORDS; i++) {
        if ((rc = cn_store_next(states->store, at, &id, &value, err)) != 0)
            break;
        if (!id.ptr) { /* from the start, next time */
            at.len = 0;
            break;
        }
        sweep_look(states, swept, i, id, value, now, &later);
        at = (struct cn_str){swept->ids[i], id.len};
    }
    cn_store_abort(states->store);
    states->sweep_at_len = at.len;
    memmove(states->sweep_at, at.ptr, at.len);
    return rc;
}

/* Asks a shared store what has expired. *more: there may be more of it. */
static int
sweep_due(struct cn_states *states, struct swept *swept, uint64_t now, bool *more,
          struct cn_error *err)
{
    const uint64_t late = now > SWEEP_GRACE_MS ? now - SWEEP_GRACE_MS : 0;
    struct cn_store_due due[CN_STORE_DUE_MAX];
    uint32_t n = 0;
    uint64_t later;
    int rc;

    if ((rc = cn_store_begin(states->store, CN_STORE_READ, err)) != 0)
        return rc;
    rc = cn_store_due(states->store, late, due, CN_STORE_DUE_MAX, &n, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if (!sweep_look(states, swept, i, due[i].key, due[i].prefix, now, &later))
            cn_store_later(states->store, due[i].key, later);
    cn_store_abort(states->store);
    *more = n > 0;
    return rc;
}

/* Looks at the next records and acts on them. Returns false when that failed, or when there are no
 * more for now: the round through the store is over, or a shared store has no more that have
 * expired. */
static bool
sweep(struct cn_states *states)
{
    uint64_t now_ms = cn_now_ms(), now = cn_wall_ms();
    const bool shared = cn_store_is_shared(states->store);
    bool more = false;
    struct cn_error err;
    struct swept swept;
    int rc;

    cn_states_look_at_clock(states, now);
    swept.n_expired = swept.n_old = 0;
    rc = shared ? sweep_due(states, &swept, now, &more, &err)
                : sweep_scan(states, &swept, now, &err);
    states->next_sweep_ms = now_ms + (shared && !more ? SHARED_SWEEP_MS : SWEEP_EVERY_MS);
    if (rc == 0)
        rc = forget(states, swept.old, swept.n_old, now, &err);
    if (rc == 0 &&
        cn_states_close_some(states, swept.expired, swept.n_expired, &err) < swept.n_expired)
        rc = err.code;
    if (rc == 0)
        return more || states->sweep_at_len > 0;
    cn_states_warn(states, "sweep_failed", &err);
    states->next_sweep_ms = now_ms + SWEEP_PAUSE_MS; /* a full disk should not fill the log too */
    return false;
}

void
cn_states_sweep(struct cn_states *states)
{
    if (cn_now_ms() >= states->next_sweep_ms)
        sweep(states);
}

uint64_t
cn_states_sweep_on_ms(const struct cn_states *states)
{
    if (cn_store_is_shared(states->store))
        return states->next_sweep_ms;
    return states->sweep_at_len ? states->next_sweep_ms + SWEEP_IDLE_MS : CN_NEVER;
}

void
cn_states_sweep_on(struct cn_states *states)
{
    uint64_t until = cn_now_us() + SWEEP_IDLE_MAX_US;

    for (unsigned n = 0; n < SWEEP_IDLE_TIMES && sweep(states) && cn_now_us() < until; n++)
        ;
}
