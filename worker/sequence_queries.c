/* worker/sequence_queries.c - answers QUERY: lists and reads stored sequences, and writes one that
 * comes from elsewhere. Owned by the worker's one thread.
 *
 * The server has no access to the store, so the management API asks a worker. A QUERY runs between
 * two batches of this worker; it delays the next batch, so a LIST looks at LOOK_MAX records at most
 * and says where to go on. LIST and READ borrow from a read transaction, which ends after the
 * RESULT was written to the output.
 *
 * WRITE is the import of an exported sequence, or a copy or move. Its record comes from outside and
 * is checked in two ways before anything is changed: the record is decoded, and the handler decodes
 * (and if need be migrates) the state, so that the importing client and not a later step gets the
 * error. Then one transaction replaces what the store holds. The new record's generation is always
 * greater than the old one's, so that late steps of the old sequence do not meet the new state.
 * No handler code runs inside a transaction.
 */
#include <inttypes.h>
#include <string.h>

#include "config/model/model_config.h"
#include "core/time/clock.h"
#include "handlers/state_text.h"
#include "worker/worker_priv.h"

/* The most records that one LIST looks at. That takes a few ms, for which the next batch waits. */
#define LOOK_MAX 2000
/* Room for what a RESULT has besides its sequences and its record. */
#define RESULT_SLACK_BYTES 1024
#define STATE_TEXT_MAX_BYTES (1u << 20)
#define INFO_BYTES 96 /* what a listed sequence takes in the frame, without its id, rounded up */

static void
info_fill(const struct cn_states *states, struct cn_str id, const struct cn_record *record,
          uint64_t state_bytes, uint64_t now, struct cn_sequence_info *out)
{
    *out = (struct cn_sequence_info){
        .id = id,
        .schema = record->schema,
        .generation = record->generation,
        .step = record->step,
        .opened_wall_ms = record->opened_wall_ms,
        .last_wall_ms = record->last_wall_ms,
        .closed_wall_ms = record->closed_wall_ms,
        .expires_wall_ms = record->expires_wall_ms,
        .state_bytes = state_bytes,
        .answer_bytes = record->answer_bytes,
    };
    if (record->flags & CN_RECORD_HAS_STATE)
        out->flags |= CN_INFO_HAS_STATE;
    if (record->flags & CN_RECORD_HAS_ANSWER)
        out->flags |= CN_INFO_HAS_ANSWER;
    if (cn_record_has_key(record))
        out->flags |= CN_INFO_HAS_KEY;
    if (record->flags & CN_RECORD_TOMBSTONE) {
        out->flags |= CN_INFO_CLOSED;
        out->close_reason = record->close_reason;
    } else {
        /* The present limits count, which may differ from those at the sequence's last step. */
        out->expires_wall_ms =
            cn_states_expires_at(states, record->opened_wall_ms, record->last_wall_ms);
        if (cn_states_expired(states, record->opened_wall_ms, record->last_wall_ms, now))
            out->flags |= CN_INFO_EXPIRED;
    }
}

/* --- LIST */

struct listing {
    struct cn_states *states;
    const struct cn_query *query;
    struct cn_query_result *result;
    uint64_t now, bytes;
};

/* Adds the sequence if it is asked for. */
static void
list_look(struct listing *at, struct cn_str id, struct cn_str value)
{
    const struct cn_query *query = at->query;
    struct cn_sequence_info *info = &at->result->sequences[at->result->n_sequences];
    struct cn_record record;
    bool closed;

    if (!cn_str_begins(id, query->prefix) || cn_record_peek(value, &record, NULL) != 0)
        return; /* damaged: its next step reports it */
    closed = record.flags & CN_RECORD_TOMBSTONE;
    if (!(query->flags & (closed ? CN_QUERY_CLOSED : CN_QUERY_OPEN)) ||
        (closed && cn_states_forgotten(at->states, &record, at->now)) ||
        record.last_wall_ms + query->min_idle_ms > at->now)
        return;
    info_fill(at->states, id, &record, cn_record_state_bytes(value), at->now, info);
    at->result->n_sequences++;
    at->bytes += INFO_BYTES + id.len;
}

static int
list_scan(struct listing *at, bool sorted, struct cn_error *err)
{
    const struct cn_query *query = at->query;
    struct cn_query_result *result = at->result;
    struct cn_str after = query->sequence_id, id, value;
    int rc;

    if (sorted && after.len == 0 && query->prefix.len) {
        if ((rc = cn_store_prefix(at->states->store, query->prefix, &value, err)) != 0)
            return rc;
        after = query->prefix;
        if (value.ptr)
            list_look(at, query->prefix, value);
    }
    for (unsigned looked = 0;; looked++) {
        if (after.len && (looked == LOOK_MAX || result->n_sequences == query->limit ||
                          at->bytes + INFO_BYTES + CN_SEQUENCE_ID_MAX > query->max_bytes)) {
            result->next = after;
            return 0;
        }
        if ((rc = cn_store_next(at->states->store, after, &id, &value, err)) != 0)
            return rc;
        if (!id.ptr || (sorted && !cn_str_begins(id, query->prefix)))
            return 0;
        list_look(at, id, value);
        after = id;
    }
}

/* A store in memory keeps no order of ids. There a LIST can go on behind an id only if that still
 * exists. */
static int
list_check_start(struct listing *at, bool sorted, struct cn_error *err)
{
    struct cn_str value = {NULL, 0};
    char shown[128];
    int rc;

    if (sorted || at->query->sequence_id.len == 0)
        return 0;
    rc = cn_store_prefix(at->states->store, at->query->sequence_id, &value, err);
    if (rc == CN_E_STATE_DAMAGED)
        return 0; /* its key is there */
    if (rc != 0)
        return rc;
    return value.ptr ? 0
                     : cn_fail(err, CN_E_CONFLICT,
                               "the list cannot continue after sequence %s, which no longer "
                               "exists; start the list again",
                               cn_id_shown(at->query->sequence_id, shown));
}

/* --- READ */

/* The sequence has expired, but was not closed yet. It is reported as closed at the moment at which
 * it expired. */
static int
fail_expired(struct cn_states *states, struct cn_str id, struct cn_record *record, int reason,
             struct cn_error *err)
{
    record->close_reason = (uint8_t)reason;
    record->closed_wall_ms =
        cn_states_expires_at(states, record->opened_wall_ms, record->last_wall_ms);
    return cn_fail_gone(states, id, record, err);
}

static int
fail_unknown(struct cn_states *states, struct cn_str id, struct cn_error *err)
{
    char shown[128];

    return cn_fail(err, CN_E_SEQUENCE_UNKNOWN,
                   "model %s %s has no sequence %s: it never started, or it ended and was "
                   "forgotten (continuo-ctl seq ls lists the sequences)",
                   states->load->model_name, states->load->model_version, cn_id_shown(id, shown));
}

/* Reads the complete record of an open sequence into the result. */
static int
read_whole(struct cn_states *states, const struct cn_query *query, struct cn_str bytes,
           struct cn_record *record, uint64_t now, struct cn_query_result *result,
           struct cn_error *err)
{
    char shown[128];
    int rc, reason;

    if ((rc = cn_record_decode(bytes, record, err)) != 0)
        return rc;
    if (record->flags & CN_RECORD_TOMBSTONE)
        return cn_fail_gone(states, query->sequence_id, record, err);
    reason = cn_states_expired(states, record->opened_wall_ms, record->last_wall_ms, now);
    if (reason)
        return fail_expired(states, query->sequence_id, record, reason, err);
    if (bytes.len + RESULT_SLACK_BYTES > query->max_bytes)
        return cn_fail(
            err, CN_E_TOO_LARGE,
            "the state and last answer of sequence %s have %zu bytes; the limit is %" PRIu64
            " (--max-envelope-size)",
            cn_id_shown(query->sequence_id, shown), bytes.len,
            query->max_bytes > RESULT_SLACK_BYTES ? query->max_bytes - RESULT_SLACK_BYTES : 0);
    result->record = bytes;
    return 0;
}

/* Makes a text of the sequence's state, in `scratch`. */
static int
read_state(struct cn_states *states, const struct cn_query *query, struct cn_query_result *result,
           struct cn_error *err)
{
    struct cn_record record;
    struct cn_str bytes;
    bool fits;
    int rc = cn_store_get(states->store, query->sequence_id, &bytes, err);

    if (rc != 0 || !bytes.ptr || (rc = cn_record_decode(bytes, &record, err)) != 0 ||
        (record.flags & CN_RECORD_TOMBSTONE) || !(record.flags & CN_RECORD_HAS_STATE))
        return rc;
    cn_buf_reset(&states->scratch);
    states->scratch.max_bytes = STATE_TEXT_MAX_BYTES;
    cn_state_text(states->load->runtime, record.state, &states->scratch);
    fits = !states->scratch.failed;
    states->scratch.max_bytes = 0;
    if (!fits)
        return cn_fail(err, CN_E_TOO_LARGE,
                       "the state has %zu bytes, and its text more than %u: export the sequence "
                       "instead",
                       record.state.len, STATE_TEXT_MAX_BYTES);
    result->record = cn_buf_str(&states->scratch);
    return 0;
}

static int
read_one(struct cn_states *states, const struct cn_query *query, uint64_t now,
         struct cn_query_result *result, struct cn_error *err)
{
    const bool whole = query->flags & CN_QUERY_RECORD;
    struct cn_record record;
    struct cn_str bytes;
    int rc;

    rc = (whole ? cn_store_get : cn_store_prefix)(states->store, query->sequence_id, &bytes, err);
    if (rc != 0)
        return rc;
    if (!bytes.ptr)
        return fail_unknown(states, query->sequence_id, err);
    rc = whole ? read_whole(states, query, bytes, &record, now, result, err)
               : cn_record_peek(bytes, &record, err);
    if (rc != 0)
        return rc;
    if ((record.flags & CN_RECORD_TOMBSTONE) && cn_states_forgotten(states, &record, now))
        return fail_unknown(states, query->sequence_id, err);
    info_fill(states, query->sequence_id, &record, cn_record_state_bytes(bytes), now,
              result->sequences);
    result->n_sequences = 1;
    return query->flags & CN_QUERY_STATE ? read_state(states, query, result, err) : 0;
}

/* --- WRITE */

/* The sequence that a WRITE closes. */
struct replaced {
    bool live;
    int reason;
    uint32_t schema;
    bool has_state;
};

/* Can the handler continue from this record's state? This is checked before anything is changed, so
 * that the client that imports the state gets the error. */
static int
write_check(struct cn_states *states, const struct cn_record *record, struct cn_error *err)
{
    struct cn_error why;
    void *state;
    int rc;

    if (record->flags & CN_RECORD_TOMBSTONE)
        return cn_fail(err, CN_E_BAD_REQUEST, "the record belongs to a closed sequence");
    if (record->state.len > states->load->state_max_bytes)
        return cn_fail(err, CN_E_STATE_TOO_LARGE,
                       "the state has %zu bytes, which exceeds the limit of %" PRIu64
                       " bytes (state.maxBytes)",
                       record->state.len, states->load->state_max_bytes);
    if (!(record->flags & CN_RECORD_HAS_STATE))
        return 0;
    if ((rc = cn_states_decode(states, record->state, record->schema, &state, &why)) != 0)
        return cn_fail(err, rc, "the handler of %s %s cannot read the state (schema %u): %s",
                       states->load->model_name, states->load->model_version, record->schema,
                       why.message);
    states->rt->ops->state_free(states->rt, state);
    return 0;
}

/* Looks at what the store holds under the id, decides whether that may be replaced, and sets the
 * new record's generation. Copies the old state to `scratch`, for on_close. */
static int
write_meet(struct cn_states *states, const struct cn_query *query, struct cn_record *record,
           uint64_t now, struct replaced *replaced, struct cn_error *err)
{
    struct cn_record old;
    struct cn_str bytes;
    char shown[128];
    int rc;

    rc = cn_store_get(states->store, query->sequence_id, &bytes, err);
    if (rc == CN_E_STATE_DAMAGED && (query->flags & CN_QUERY_REPLACE)) {
        bytes = (struct cn_str){NULL, 0};
        rc = 0;
    }
    if (rc != 0)
        return rc;
    if (!(query->flags & CN_QUERY_MOVE) || record->generation == 0)
        record->generation = cn_next_generation(0, now);
    if (!bytes.ptr)
        return 0;
    if ((rc = cn_record_decode(bytes, &old, err)) != 0)
        return query->flags & CN_QUERY_REPLACE ? 0 : rc; /* damaged: nothing to keep */
    if (record->generation <= old.generation)
        record->generation = old.generation + 1;
    if (old.flags & CN_RECORD_TOMBSTONE)
        return 0;
    replaced->reason = cn_states_expired(states, old.opened_wall_ms, old.last_wall_ms, now);
    if (!replaced->reason && !(query->flags & CN_QUERY_REPLACE))
        return cn_fail(err, CN_E_CONFLICT,
                       "sequence %s is open (step %" PRIu64
                       "); choose another id, delete that sequence first, or ask to replace it",
                       cn_id_shown(query->sequence_id, shown), old.step);
    replaced->live = true;
    replaced->reason = replaced->reason ? replaced->reason : CN_CLOSE_DELETED;
    replaced->schema = old.schema;
    replaced->has_state = old.flags & CN_RECORD_HAS_STATE;
    return cn_buf_append_str(&states->scratch, old.state) < 0
               ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to replace a sequence")
               : 0;
}

/* Removes from the record what is valid only where it comes from: times, job, keys, answer. */
static void
write_adapt(const struct cn_states *states, uint32_t flags, uint64_t now, struct cn_record *record)
{
    if (!(flags & CN_QUERY_MOVE)) {
        record->opened_wall_ms = record->last_wall_ms = now;
        record->last_job = 0; /* another server's, or of another sequence */
    }
    if (flags & CN_QUERY_FORK) {
        record->keys.len = 0;
        record->flags &= ~(uint32_t)(CN_RECORD_KEYED | CN_RECORD_ASKED);
    }
    if (!(flags & CN_QUERY_MOVE) &&
        !(record->flags & CN_RECORD_ASKED)) { /* nobody can ask for it */
        record->flags &= ~(uint32_t)(CN_RECORD_HAS_ANSWER | CN_RECORD_ANSWER_TOO_LARGE);
        cn_record_drop_answer(record);
    }
    record->expires_wall_ms =
        cn_states_expires_at(states, record->opened_wall_ms, record->last_wall_ms);
}

/* The part of a WRITE that runs within the write transaction. */
static int
write_put(struct cn_worker *worker, const struct cn_query *query, struct cn_record *record,
          uint64_t now, struct replaced *replaced, struct cn_error *err)
{
    struct cn_states *states = &worker->states;
    struct cn_buf *out = &worker->batch.records; /* free between batches */
    int rc;

    if ((rc = write_meet(states, query, record, now, replaced, err)) != 0)
        return rc;
    write_adapt(states, query->flags, now, record);
    cn_buf_reset(out);
    if ((rc = cn_record_encode(record, out, err)) != 0)
        return rc;
    rc = cn_store_put(states->store, query->sequence_id, cn_buf_str(out), err);
    return rc == 1 ? CN_E_STATE_STORE : rc;
}

static void
write_tell(struct cn_states *states, struct cn_str id, const struct replaced *replaced)
{
    struct cn_error err;
    void *state = NULL;

    if (!replaced->live)
        return;
    if (replaced->has_state &&
        cn_states_decode(states, cn_buf_str(&states->scratch), replaced->schema, &state, &err) != 0)
        cn_states_warn(states, "state_unreadable", &err);
    states->rt->ops->on_close(states->rt, id, state, (enum cn_close_reason)replaced->reason);
    if (state)
        states->rt->ops->state_free(states->rt, state);
}

static int
write_one(struct cn_worker *worker, const struct cn_query *query, uint64_t now,
          struct cn_query_result *result, struct cn_error *err)
{
    struct cn_states *states = &worker->states;
    struct replaced replaced = {0};
    struct cn_record record;
    struct cn_error why;
    int rc;

    if (cn_record_decode(query->record, &record, &why) != 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "%s", why.message);
    if ((rc = write_check(states, &record, err)) != 0)
        return rc;
    cn_buf_reset(&states->scratch);
    if ((rc = cn_store_begin(states->store, CN_STORE_WRITE, err)) != 0)
        return rc;
    rc = write_put(worker, query, &record, now, &replaced, err);
    if (rc != 0)
        cn_store_abort(states->store);
    else
        rc = cn_store_commit(states->store, err);
    if (rc != 0)
        return rc;
    cn_states_free(states, cn_states_take(states, query->sequence_id)); /* of before */
    write_tell(states, query->sequence_id, &replaced);
    cn_buf_fini(&states->scratch);
    info_fill(states, query->sequence_id, &record, record.state.len, now, result->sequences);
    result->n_sequences = 1;
    return 0;
}

/* --- */

/* In a read transaction, in which the result borrows. */
static int
read_some(struct cn_worker *worker, const struct cn_query *query, uint64_t now,
          struct cn_query_result *result, struct cn_error *err)
{
    struct listing at = {&worker->states, query, result, now, RESULT_SLACK_BYTES};
    bool sorted = worker->load.durability != CN_DURABILITY_NONE;
    int rc;

    if (query->op == CN_QUERY_READ)
        return read_one(&worker->states, query, now, result, err);
    if ((rc = list_check_start(&at, sorted, err)) != 0)
        return rc;
    return list_scan(&at, sorted, err);
}

void
cn_worker_answer_query(struct cn_worker *worker, const struct cn_query *query)
{
    struct cn_query_result result = {.query_id = query->query_id};
    uint32_t room = query->op == CN_QUERY_LIST ? query->limit : 1;
    bool reading = false;
    struct cn_arena arena;
    struct cn_error err;
    int rc;

    cn_arena_init(&arena);
    result.sequences = cn_arena_try_alloc(&arena, room * sizeof(*result.sequences));
    if (!worker->stateful)
        rc = cn_fail(&err, CN_E_INTERNAL, "a stateless model got a query for sequences");
    else if (!result.sequences)
        rc =
            cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for a list of %u sequences", room);
    else if (query->op == CN_QUERY_WRITE)
        rc = write_one(worker, query, cn_wall_ms(), &result, &err);
    else if ((rc = cn_store_begin(worker->states.store, CN_STORE_READ, &err)) == 0)
        reading = true;
    if (reading)
        rc = read_some(worker, query, cn_wall_ms(), &result, &err);
    if (rc != 0)
        result = (struct cn_query_result){
            .query_id = query->query_id, .error_code = rc, .message = cn_str_from(err.message)};
    cn_frame_put_result(&worker->channel.out, &result);
    if (reading) {
        cn_store_abort(worker->states.store);
        cn_buf_fini(&worker->states.scratch);
    }
    cn_arena_fini(&arena);
}
