/* worker/resolve/resolve.c - what a row meets: a live state, a stored answer, a tombstone, nothing.
 * Owned by the worker's one thread.
 *
 * For each row of a batch this file decides between running it, answering it from the store and
 * refusing it. The questions are asked in this order, which is a contract with clients:
 *
 *   0. Has a shared store lost steps that this worker knows? Then the row is refused
 *      (resolve_lost.c).
 *   1. Is the step committed already? The same job (the server's retry after a worker's death), the
 *      same idempotency key or the same step number gets the stored answer. If a shared store
 *      cannot tell any more, because another node has written since, a row without key and number
 *      is refused (resolve_committed.c).
 *   2. Does the row move a sequence between versions? (resolve_move.c)
 *   3. Does it have START? Then a new generation begins, whatever the store holds.
 *   4. Is there a live record? Then the row continues it, unless it has expired or belongs to
 *      another generation than the server thinks.
 *   5. Is there a tombstone? Its reason decides whether a plain step may begin a new sequence.
 *   6. Otherwise the row begins a new sequence, unless it must find one (CN_ROW_MUST_EXIST).
 *
 * Most rows of a busy sequence need none of that: its state is in the cache, and the key and the
 * number show that the row is the next step. Then the store is not asked at all (resolve_one). That
 * is safe although another worker may have committed a step meanwhile: commit.c compares the record
 * again within its write transaction, and fails the step with CN_E_CONFLICT if it has changed.
 *
 * All rows that need the store share one read transaction. States are copied out of it and decoded
 * after it, because a handler may be asked to migrate a state, and none of its code may run within
 * a transaction.
 */
#include <string.h>

#include "core/memory/prefetch.h"
#include "core/time/clock.h"
#include "worker/resolve/resolve_priv.h"

static void
slot_reset(struct cn_batch_entry *entry)
{
    entry->write = CN_WRITE_NOTHING;
    entry->answer_flags = 0;
    entry->seq = entry->closed_seq = NULL;
    entry->generation = entry->opened_wall_ms = 0;
    entry->had_record = entry->had_tombstone = entry->had_damaged = false;
    entry->had_leftover = entry->had_claim = false;
    entry->had_generation = entry->had_step = entry->had_last_job = 0;
    entry->decode = entry->close_decode = false;
    entry->closed_reason = 0;
    entry->import = false;
    entry->item.state = NULL;
    entry->item.step = entry->expected_step = 0;
    entry->item.resume = NULL;
    cn_batch_entry_hash(entry);
}

static void
slot_run(struct cn_batch_entry *entry, struct cn_sequence_state *seq)
{
    cn_row_enter(entry->pending, CN_ROW_IS_READY);
    entry->seq = seq;
    entry->item.state = seq->state;
    entry->item.step = seq->step;
    entry->generation = seq->generation;
    entry->opened_wall_ms = seq->opened_wall_ms;
}

/* Opens a new sequence for the row. `keys` are the idempotency keys of the steps before it, also of
 * another generation, because a late copy of one of those steps may still come. */
static void
slot_open(struct lookup *at, struct cn_batch_entry *entry, uint64_t generation, struct cn_str keys)
{
    struct cn_sequence_state *seq = cn_states_create(&at->worker->states, entry->row->sequence_id);

    seq->generation = generation;
    seq->opened_wall_ms = seq->last_wall_ms = at->now_wall_ms;
    cn_sequence_set_keys(&at->worker->states, seq, keys);
    entry->answer_flags |= CN_ANSWER_OPENED;
    slot_run(entry, seq);
}

uint64_t
cn_next_generation(uint64_t generation, uint64_t now_wall_ms)
{
    return generation < now_wall_ms ? now_wall_ms : generation + 1;
}

/* Makes a sequence object of a stored record. The state's bytes are copied, to be decoded after the
 * transaction. Returns NULL when there is no memory for them. */
static struct cn_sequence_state *
record_take(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record,
            bool *has_state)
{
    struct cn_sequence_state *seq = cn_states_create(&at->worker->states, entry->row->sequence_id);
    char *copy;

    seq->generation = record->generation;
    seq->step = record->step;
    seq->last_job = record->last_job;
    seq->opened_wall_ms = record->opened_wall_ms;
    seq->last_wall_ms = record->last_wall_ms;
    cn_sequence_set_keys(&at->worker->states, seq, record->keys);
    *has_state = record->flags & CN_RECORD_HAS_STATE;
    if (!*has_state)
        return seq;
    copy = cn_arena_try_alloc(&at->worker->batch.arena, record->state.len ? record->state.len : 1);
    if (!copy) {
        cn_states_free(&at->worker->states, seq);
        return NULL;
    }
    if (record->state.len)
        memcpy(copy, record->state.ptr, record->state.len);
    entry->state_bytes = (struct cn_str){copy, record->state.len};
    entry->state_schema = record->schema;
    return seq;
}

bool
cn_resolve_is_cached(const struct cn_sequence_state *seq, const struct cn_record *record)
{
    return seq && seq->generation == record->generation && seq->step == record->step;
}

void
cn_resolve_close_old(struct lookup *at, struct cn_batch_entry *entry,
                     const struct cn_record *record, struct cn_sequence_state *cached, int reason)
{
    entry->closed_reason = reason;
    if (cn_resolve_is_cached(cached, record)) {
        entry->closed_seq = cached;
        return;
    }
    cn_states_free(&at->worker->states, cached);
    entry->closed_seq = record_take(at, entry, record, &entry->close_decode);
}

bool
cn_resolve_left_by_swap(unsigned reason)
{
    return reason == CN_CLOSE_MOVED || reason == CN_CLOSE_RESET;
}

/* Ended, cancelled and unloaded sequences may be begun again by a plain step, because TorchServe's
 * clients use an id again after its end. For the other reasons the client does not know yet that
 * its state is gone, and must learn it. A sequence that a swap took away lives in another version,
 * or has lived there: a row may begin it only if all versions were asked. */
bool
cn_resolve_refuses(const struct cn_row *row, unsigned reason)
{
    if (cn_resolve_left_by_swap(reason))
        return !(row->flags & CN_ROW_ANY_VERSION);
    return reason == CN_CLOSE_IDLE || reason == CN_CLOSE_LIFETIME || reason == CN_CLOSE_DELETED ||
           reason == CN_CLOSE_EVICTED || reason == CN_CLOSE_WORKER_LOST;
}

bool
cn_resolve_restarts(const struct lookup *at, const struct cn_row *row, unsigned reason)
{
    if ((row->flags & CN_ROW_RECALL) ||
        ((row->flags & CN_ROW_NUMBERED) &&
         row->step != 1)) /* the client wants to continue, and must learn that it cannot */
        return false;
    return at->worker->load.restart_expired && !(row->flags & CN_ROW_MUST_EXIST) &&
           (reason == CN_CLOSE_IDLE || reason == CN_CLOSE_LIFETIME);
}

/* Opens a new sequence in place of one that has expired for `reason`. */
static void
slot_restart(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record,
             int reason)
{
    slot_open(at, entry, cn_next_generation(record->generation, at->now_wall_ms), record->keys);
    entry->answer_flags |=
        reason == CN_CLOSE_IDLE ? CN_ANSWER_RESTARTED_IDLE : CN_ANSWER_RESTARTED_LIFETIME;
}

static void
meet_tombstone(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const uint64_t wanted = entry->row->generation;
    const bool closed = cn_resolve_refuses(entry->row, record->close_reason) &&
                        !cn_states_forgotten(&at->worker->states, record, at->now_wall_ms);

    if (wanted && wanted != record->generation)
        cn_resolve_fail_unknown(entry, record->generation);
    else if (!wanted && closed && cn_resolve_restarts(at, entry->row, record->close_reason))
        slot_restart(at, entry, record, record->close_reason);
    else if (wanted || closed)
        cn_resolve_fail_gone(at, entry, record);
    else if (entry->row->flags & CN_ROW_MUST_EXIST)
        cn_resolve_fail_unknown(entry, 0);
    else if (cn_resolve_is_first(entry))
        slot_open(at, entry, cn_next_generation(record->generation, at->now_wall_ms), record->keys);
}

/* The row meets a live record. It continues the sequence, unless that has expired: then the row is
 * refused, or begins a new sequence (sequence.onExpired), and the batch's commit writes the
 * tombstone. Takes `cached`, the worker's own copy, which is used if it is of the record's step. */
void
cn_resolve_live(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
                struct cn_sequence_state *cached)
{
    uint64_t wanted = entry->row->generation;
    int reason;

    if (wanted && wanted != record->generation) {
        cn_states_free(&at->worker->states, cached);
        cn_resolve_fail_unknown(entry, record->generation);
        return;
    }
    /* If the server knows the sequence, it decides about expiry, because it knows when the row
     * arrived. */
    reason = wanted ? 0
                    : cn_states_expired(&at->worker->states, record->opened_wall_ms,
                                        record->last_wall_ms, at->now_wall_ms);
    if (reason) {
        cn_resolve_close_old(at, entry, record, cached, reason);
        if (!cn_resolve_looks(entry->row) &&
            cn_resolve_restarts(at, entry->row, (unsigned)reason)) {
            slot_restart(at, entry, record, reason);
            return;
        }
        cn_states_bury(&at->worker->states, record, reason, at->now_wall_ms, false);
        cn_resolve_fail_gone(at, entry, record);
        /* The tombstone is written when the store's memory with the keys is gone. */
        entry->record = *record;
        entry->record.keys = cn_arena_str(&at->worker->batch.arena, record->keys);
        entry->write = CN_WRITE_TOMBSTONE;
        return;
    }
    if (!cn_resolve_is_cached(cached, record)) {
        at->worker->reloads += cached != NULL;
        cn_states_free(&at->worker->states, cached);
        cached = record_take(at, entry, record, &entry->decode);
    }
    if (cached && entry->row->keep > 1 && record->step && !cached->kept)
        cn_sequence_keep(cached, record);
    if (cached)
        slot_run(entry, cached);
    else
        cn_batch_entry_fail(entry, CN_E_OUT_OF_MEMORY, "not enough memory for a state of %zu bytes",
                            record->state.len);
}

static int
read_record(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
            struct cn_error *err)
{
    struct cn_store *store = at->worker->states.store;
    struct cn_str bytes;
    int rc;

    if (!at->reading && (rc = cn_store_begin(store, CN_STORE_READ, err)) != 0)
        return rc;
    at->reading = true;
    rc = cn_store_get(store, entry->row->sequence_id, &bytes, err);
    entry->had_damaged = rc == CN_E_STATE_DAMAGED;
    if (rc != 0 || !bytes.ptr)
        return rc;
    at->stored = bytes;
    if ((rc = cn_record_decode(bytes, record, err)) != 0) {
        entry->had_damaged = true;
        return rc;
    }
    entry->had_generation = record->generation;
    entry->had_step = record->step;
    entry->had_last_job = record->last_job;
    entry->had_claim = cn_resolve_is_claim(record) && record->step == 0;
    entry->had_tombstone = (record->flags & CN_RECORD_TOMBSTONE) && !entry->had_claim;
    entry->had_leftover = (record->flags & CN_RECORD_PENDING) &&
                          !(record->flags & CN_RECORD_TOMBSTONE) &&
                          (entry->row->flags & CN_ROW_PASS_PENDING);
    entry->had_record = !entry->had_leftover && !entry->had_claim;
    return 0;
}

static bool
has_expired(const struct lookup *at, const struct cn_batch_entry *entry,
            const struct cn_record *record)
{
    return !entry->row->generation && cn_states_expired(&at->worker->states, record->opened_wall_ms,
                                                        record->last_wall_ms, at->now_wall_ms);
}

/* Asks the questions at the head of this file. Takes `cached`, which may be NULL. */
static void
resolve_by_store(struct lookup *at, struct cn_batch_entry *entry, struct cn_sequence_state *cached)
{
    struct cn_states *states = &at->worker->states;
    bool start = entry->row->flags & CN_ROW_START, live;
    struct cn_record record;
    struct cn_error err;
    char shown[128];
    int rc;

    rc = read_record(at, entry, &record, &err);
    if (rc != 0 && !(start && entry->had_damaged)) {
        cn_states_free(states, cached);
        cn_batch_entry_fail(entry, rc, "sequence %s: %s",
                            cn_id_shown(entry->row->sequence_id, shown), err.message);
        return;
    }
    if (rc == 0 && cn_resolve_lost(at, entry, &record, cached)) {
        cn_states_free(states, cached);
        return;
    }
    live = entry->had_record && !entry->had_tombstone;
    if (entry->had_record && cn_resolve_move_of(entry->row) != CN_MOVE_BURY &&
        cn_resolve_move_of(entry->row) != CN_MOVE_IMPORT &&
        cn_resolve_committed(at, entry, &record)) {
        if (live && cn_resolve_is_cached(cached, &record))
            cn_states_put(states, cached, record.state.len);
        else
            cn_states_free(states, cached);
        return;
    }
    if (cn_resolve_move(at, entry, &record, cached)) {
        cn_batch_entry_decide(entry);
        return;
    }
    if (live && !start &&
        (!(entry->row->flags & CN_ROW_RECALL) || has_expired(at, entry, &record))) {
        cn_resolve_live(at, entry, &record, cached);
        return;
    }
    if (entry->row->flags & CN_ROW_RECALL) {
        cn_states_free(states, cached);
        cn_resolve_recall_nothing(at, entry);
        return;
    }
    if (live)
        cn_resolve_close_old(at, entry, &record, cached, CN_CLOSE_ENDED);
    else
        cn_states_free(states, cached);
    if (start)
        slot_open(at, entry, cn_next_generation(entry->had_generation, at->now_wall_ms),
                  entry->had_record ? record.keys : (struct cn_str){NULL, 0});
    else if (entry->had_record)
        meet_tombstone(at, entry, &record);
    else if (entry->row->generation || (entry->row->flags & CN_ROW_MUST_EXIST))
        cn_resolve_fail_unknown(entry, 0);
    else if (cn_resolve_is_first(entry))
        slot_open(at, entry, cn_next_generation(entry->had_generation, at->now_wall_ms),
                  (struct cn_str){NULL, 0});
}

static void
resolve_one(struct lookup *at, struct cn_batch_entry *entry)
{
    struct cn_states *states = &at->worker->states;
    const struct cn_row *row = entry->row;
    struct cn_sequence_state *cached;

    slot_reset(entry);
    if (cn_batch_entry_is_padding(entry)) {
        cn_row_enter(entry->pending, CN_ROW_IS_ANSWERED);
        return;
    }
    if (!(row->flags & CN_ROW_STATEFUL)) {
        cn_row_enter(entry->pending, CN_ROW_IS_READY);
        return;
    }
    if (!at->worker->stateful) {
        cn_batch_entry_fail(entry, CN_E_INTERNAL, "a stateless model got a row with a sequence");
        return;
    }
    cached = cn_states_take(states, row->sequence_id);
    if (cached && (row->flags & CN_ROW_RELOAD)) {
        cn_states_free(states, cached);
        cached = NULL;
    }
    if (cached && !(row->flags & CN_ROW_START) &&
        (cn_resolve_move_of(row) == 0 || cn_resolve_move_of(row) == CN_MOVE_TOLD) &&
        cached->last_job != row->job_id && cn_resolve_follows(entry, cached) &&
        (row->generation ? row->generation == cached->generation
                         : !cn_states_expired(states, cached->opened_wall_ms, cached->last_wall_ms,
                                              at->now_wall_ms))) {
        entry->had_record = true;
        entry->had_generation = cached->generation;
        entry->had_step = cached->step;
        entry->had_last_job = cached->last_job;
        slot_run(entry, cached);
        return;
    }
    resolve_by_store(at, entry, cached);
}

/* Decodes the states that an entry has copied out of the store. It is called after the transaction,
 * because a handler may be asked to migrate a state. */
static void
decode_one(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_states *states = &worker->states;
    char shown[128];
    int rc;

    if (entry->close_decode && entry->closed_seq) {
        if (cn_states_decode(states, entry->state_bytes, entry->state_schema,
                             &entry->closed_seq->state, &worker->batch.err) != 0)
            cn_states_warn(states, "state_unreadable", &worker->batch.err);
        entry->close_decode = false;
    }
    if (!entry->decode)
        return;
    entry->decode = false;
    if (entry->import) /* the handler's migrate may ask for it */
        worker->rt->from_version =
            cn_arena_str(&worker->batch.arena, entry->row->move->version).ptr;
    worker->rt->decodes_for_row = true;
    rc = cn_states_decode(states, entry->state_bytes, entry->state_schema, &entry->seq->state,
                          &worker->batch.err);
    worker->rt->decodes_for_row = false;
    worker->rt->from_version = NULL;
    if (rc == 0) {
        entry->item.state = entry->seq->state;
        return;
    }
    cn_batch_entry_fail(entry, worker->batch.err.code, "sequence %s: %s",
                        cn_id_shown(entry->row->sequence_id, shown), worker->batch.err.message);
    cn_states_free(states, entry->seq);
    entry->seq = NULL;
}

/* With many sequences, nearly all memory that a row's look-ups touch is in no cache of the
 * processor, and each look-up would wait for it several times. So the memory of all rows is
 * prefetched at once (decision 0019). */
static void
prefetch(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_str keys[CN_PREFETCH_MAX];
    uint32_t n = 0;

    if (!worker->stateful)
        return;
    for (uint32_t i = 0; i < batch->n; i++) {
        if (!batch->entries[i].stream && !cn_batch_entry_is_padding(&batch->entries[i]) &&
            (batch->entries[i].row->flags & CN_ROW_STATEFUL))
            keys[n++] = batch->entries[i].row->sequence_id;
        if (n < 2 || (n < CN_PREFETCH_MAX && i + 1 < batch->n))
            continue;
        cn_states_prefetch(&worker->states, keys, n);
        n = 0;
    }
}

void
cn_batch_resolve(struct cn_worker *worker)
{
    struct lookup at = {.worker = worker, .now_wall_ms = worker->stateful ? cn_wall_ms() : 0};
    struct cn_batch *batch = &worker->batch;

    if (worker->stateful)
        cn_states_look_at_clock(&worker->states, at.now_wall_ms);
    prefetch(worker);
    for (uint32_t i = 0; i < batch->n; i++) {
        if (batch->entries[i].stream)
            continue;
        resolve_one(&at, &batch->entries[i]);
        cn_resolve_tell_moved(&batch->entries[i]);
    }
    if (!at.reading)
        return;
    cn_store_abort(worker->states.store);
    for (uint32_t i = 0; i < batch->n; i++)
        decode_one(worker, &batch->entries[i]);
}

void
cn_batch_resolve_lost(struct cn_worker *worker)
{
    struct lookup at = {.worker = worker, .now_wall_ms = cn_wall_ms()};
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++)
        if (batch->entries[i].lost)
            cn_states_announce(&worker->states, batch->entries[i].row->sequence_id);
    for (uint32_t i = 0; i < batch->n; i++) {
        if (!batch->entries[i].lost)
            continue;
        resolve_one(&at, &batch->entries[i]);
        cn_resolve_tell_moved(&batch->entries[i]);
    }
    if (at.reading)
        cn_store_abort(worker->states.store);
    for (uint32_t i = 0; i < batch->n; i++) {
        if (batch->entries[i].lost)
            decode_one(worker, &batch->entries[i]);
        batch->entries[i].lost = false;
    }
}

void
cn_batch_resolve_again(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct lookup at = {.worker = worker, .now_wall_ms = cn_wall_ms()};

    resolve_one(&at, entry);
    cn_resolve_tell_moved(entry);
    if (at.reading)
        cn_store_abort(worker->states.store);
    decode_one(worker, entry);
}
