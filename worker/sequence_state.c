/* worker/sequence_state.c - the state cache and the store together, and when sequences expire.
 * Owned by the worker's one thread.
 *
 * A sequence's state exists as bytes in the store, which all workers of the model version share,
 * and as a decoded object in the cache of the workers that ran its last steps. A cached object is
 * valid only if its generation and step are those of the record; resolve.c compares them, and
 * commit.c checks again before it writes. So a worker may drop any cached object at any time,
 * and a crash loses nothing but the work of decoding.
 *
 * Times. Expiry is counted in wall time, because it must go on while the server is down. The wall
 * clock may be set, so each look compares it with the boot clock, which cannot: when the wall clock
 * has jumped ahead by more than load->clock_jump_ms, the idle time of all sequences begins anew at
 * the jump (clock_floor_ms) instead of ending all of them at once.
 *
 * state_closing.c closes sequences, and state_sweep.c finds those that have expired.
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
#include "worker/batch/kept_answers.h"
#include "worker/process/kill_point.h"
#include "worker/stream_input/cutter.h"

/* The bytes that a cached sequence counts for in addition to its state. */
#define SEQUENCE_OVERHEAD_BYTES (sizeof(struct cn_sequence_state) + 64)
#define STORE_RETRY_US 500000 /* pause before a store that is away is tried again */

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

static int
shared_options(const struct cn_load *load, struct cn_shared_url *store, struct cn_error *err)
{
    int rc = cn_shared_url_read(load->state_store, store, err);

    store->options.model = load->model_name;
    store->options.version = load->model_version;
    store->options.timeout_ms = (uint32_t)load->store_timeout_ms;
    store->options.replicas = (uint32_t)load->store_replicas;
    store->options.power = load->durability == CN_DURABILITY_POWER;
    return rc;
}

/* Opens the store that several nodes share. */
static int
open_shared(struct cn_states *states, const struct cn_load *load, struct cn_error *err)
{
    struct cn_shared_url store;
    int rc = shared_options(load, &store, err);

    return rc != 0 ? rc : wait_for_store(states, &store.options, err);
}

int
cn_states_open_further(struct cn_states *states, struct cn_store **out, struct cn_error *err)
{
    struct cn_shared_url store;
    int rc = shared_options(states->load, &store, err);

    *out = NULL;
    store.options.beside = states->store;
    return rc != 0 ? rc : cn_shared_store_open(&store.options, out, err);
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

void
cn_sequence_keep(struct cn_sequence_state *seq, const struct cn_record *record)
{
    struct cn_buf list;

    cn_free(seq->kept);
    seq->kept = NULL;
    seq->kept_len = 0;
    if (!record)
        return;
    cn_buf_init(&list, 0);
    cn_kept_append(record, &list);
    if (!list.failed)
        seq->kept = cn_buf_take(&list, &seq->kept_len);
    cn_buf_fini(&list);
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
                     (seq->keys ? cn_states_keys_room(states) : 0) + seq->kept_len;
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
    cn_free(seq->kept);
    cn_slab_free(&states->sequences, seq, sequence_bytes(seq->lru.key.len));
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
    if (states->clock_floor_ms > now_wall_ms) /* the clock was set back: idle clocks run again */
        states->clock_floor_ms = now_wall_ms;
}

int
cn_states_expired(const struct cn_states *states, uint64_t opened_wall_ms, uint64_t last_wall_ms,
                  uint64_t now_wall_ms)
{
    uint64_t idle = cn_states_runs_out(after_jump(states, last_wall_ms), states->load->idle_ms);
    uint64_t total = cn_states_runs_out(opened_wall_ms, states->load->lifetime_ms);

    if (now_wall_ms < idle && now_wall_ms < total)
        return 0;
    return idle <= total ? CN_CLOSE_IDLE : CN_CLOSE_LIFETIME;
}

uint64_t
cn_states_expires_at(const struct cn_states *states, uint64_t opened_wall_ms, uint64_t last_wall_ms)
{
    uint64_t idle = cn_states_runs_out(after_jump(states, last_wall_ms), states->load->idle_ms);
    uint64_t total = cn_states_runs_out(opened_wall_ms, states->load->lifetime_ms);
    uint64_t first = idle < total ? idle : total;

    return first == CN_NEVER ? 0 : first;
}

bool
cn_states_forgotten(const struct cn_states *states, const struct cn_record *tombstone,
                    uint64_t now_wall_ms)
{
    return now_wall_ms >=
               cn_states_runs_out(tombstone->closed_wall_ms, states->load->tombstone_ms) ||
           states->load->tombstone_ms == 0;
}

void
cn_states_bury(const struct cn_states *states, struct cn_record *record, int reason,
               uint64_t now_wall_ms, bool keep_answer)
{
    record->flags |= CN_RECORD_TOMBSTONE;
    record->flags &= ~(uint32_t)(CN_RECORD_HAS_STATE | CN_RECORD_PENDING);
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
    /* It may have come from a version of the model with stream.input. */
    if (!states->rt->stream_layer && !cn_stream_rest_skip(&bytes))
        return 0;
    rc = ops->state_decode(states->rt, bytes, schema, out, err);
    if (rc == CN_E_OUT_OF_MEMORY && cn_lru_count(states->lru)) {
        cn_lru_clear(states->lru);
        rc = ops->state_decode(states->rt, bytes, schema, out, err);
    }
    return rc;
}

void
cn_states_announce(struct cn_states *states, struct cn_str id)
{
    const struct cn_store_hint *none = NULL;

    if (cn_store_is_shared(states->store))
        cn_store_prefetch(states->store, &id, &none, 1);
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
