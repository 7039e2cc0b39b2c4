/* worker/batch/commit.c - writes the steps of a batch as records, all in one transaction. Owned by
 * the worker's one thread.
 *
 * The work has three parts. First each entry is prepared, outside of any transaction: its answer is
 * checked against the limits, and its record, with the state that the handler left, is encoded
 * behind those of the other entries (commit_record.c). Then all records are written in one
 * transaction; what a batch costs is mostly this one commit. Finally memory follows the store
 * (commit_outcome.c).
 *
 * A row that fails in any part changes nothing: its record stays as it was, and its cached state is
 * dropped, because the handler may have changed it half-way. The other rows of the batch are not
 * affected. Only when the transaction itself fails do all rows of the batch fail.
 *
 * Before a record is written, slot_unchanged compares the stored one with what the row met in
 * resolve.c. Two workers can meet the same sequence after a worker was thought to be dead, or after
 * a move; the one that commits second loses and fails its step with CN_E_CONFLICT. The check is
 * cheap: as a rule a hint shows that the record is still at the place where this worker wrote it.
 *
 * A shared store makes this comparison itself, for each row alone (put_shared), because between a
 * look and a write other nodes may write. A row that loses is not failed at once
 * (commit_outcome.c).
 *
 * In a full store (put_... functions) a step may still succeed if it needs no more room than the
 * one before it, and a sequence can always be ended: otherwise a full store could never be emptied.
 */
#include <inttypes.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "worker/batch/commit_outcome.h"
#include "worker/batch/commit_record.h"
#include "worker/process/kill_point.h"
#include "worker/worker_priv.h"

/* The entry was committed at an earlier yield, so what its handler does now is not written any
 * more.
 */
static void
check_committed(struct cn_batch_entry *entry)
{
    struct cn_reply *reply = &entry->item.reply;

    entry->write = CN_WRITE_NOTHING;
    if (entry->seq)
        entry->seq->state = entry->item.state; /* to be freed, whatever the handler made of it */
    if (reply->error_code == 0 && reply->end_sequence && !entry->ended)
        cn_batch_entry_fail(entry, CN_E_HANDLER_FAILED,
                            "end_sequence was set after the first yield, when the step was already "
                            "committed (continuousBatching)");
}

/* Returns the size of the answer. Fails the entry when that exceeds the limit: nothing of the step
 * is committed then. */
static uint64_t
answer_check(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_reply *reply = &entry->item.reply;
    uint64_t bytes = reply->body.len, limit = worker->load.answer_max_bytes;
    bool failed = reply->body.failed;

    for (uint32_t i = 0; i < reply->n_chunks; i++) {
        bytes += reply->chunks[i].body.len;
        failed = failed || reply->chunks[i].body.failed;
    }
    if (failed || bytes > limit)
        cn_batch_entry_fail(
            entry, CN_E_HANDLER_FAILED,
            "the handler's answer exceeds the limit of %" PRIu64 " bytes (answerMaxBytes)", limit);
    else if (reply->content_type.failed || reply->headers.failed)
        cn_batch_entry_fail(
            entry, CN_E_HANDLER_FAILED,
            "the handler's answer has a content type of more than %zu bytes or headers of "
            "more than %zu bytes",
            reply->content_type.max_bytes, reply->headers.max_bytes);
    return bytes;
}

/* The handler kept the state of a live sequence in the memory of another worker, which is gone. The
 * sequence is closed, because a new beginning without the client's knowledge would be wrong. */
static void
close_lost(struct cn_worker *worker, struct cn_batch_entry *entry, uint64_t now)
{
    struct cn_sequence_state *seq = entry->seq;
    struct cn_error *err = &worker->batch.err;
    char shown[128];
    int code;

    entry->record = (struct cn_record){
        .generation = seq->generation,
        .step = seq->step,
        .last_job = seq->last_job,
        .opened_wall_ms = seq->opened_wall_ms,
        .last_wall_ms = seq->last_wall_ms,
        .schema = worker->rt->ops->state_schema(worker->rt),
        .keys = cn_sequence_keys(seq),
    };
    cn_states_bury(&worker->states, &entry->record, CN_CLOSE_WORKER_LOST, now, false);
    code = cn_fail_gone(&worker->states, entry->row->sequence_id, &entry->record, err);
    cn_batch_entry_fail(entry, code, "%s", err->message);
    cn_log(CN_LOG_WARN, "event=sequence_lost model=%s version=%s sequence=%s reason=worker_lost",
           worker->load.model_name, worker->load.model_version,
           cn_id_shown(entry->row->sequence_id, shown));
    entry->closed_seq = seq;
    entry->closed_reason = CN_CLOSE_WORKER_LOST;
    entry->seq = NULL;
    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE | CN_ANSWER_WORKER_LOST;
    entry->write = CN_WRITE_TOMBSTONE;
}

static bool
is_lost(const struct cn_batch_entry *entry)
{
    return entry->seq && entry->item.reply.error_code != 0 &&
           entry->item.reply.close_reason == CN_CLOSE_WORKER_LOST && entry->had_record &&
           !entry->had_tombstone && !(entry->answer_flags & CN_ANSWER_OPENED);
}

static void
slot_prepare(struct cn_worker *worker, struct cn_batch_entry *entry, uint64_t now)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_error *err = &batch->err;
    const bool ran =
        cn_batch_entry_is(entry, CN_ROW_IS_RAN) || cn_batch_entry_is(entry, CN_ROW_IS_YIELDED);
    uint64_t answer_bytes = 0;
    char shown[128];
    int rc = 0;

    if (cn_batch_entry_is(entry, CN_ROW_IS_ANSWERED)) /* a stored answer, or padding */
        return;
    if (entry->committed) {
        check_committed(entry);
        return;
    }
    if (ran && entry->seq)
        entry->seq->state = entry->item.state;
    if (ran && entry->item.reply.error_code == 0)
        answer_bytes = answer_check(worker, entry);
    if (ran && entry->item.reply.error_code == 0) {
        if (!entry->seq ||
            (cn_batch_entry_is(entry, CN_ROW_IS_YIELDED) && !worker->load.continuous)) {
            entry->write = CN_WRITE_NOTHING;
            return;
        }
        rc = cn_commit_record_step(worker, entry, answer_bytes, now, err);
        entry->write = CN_WRITE_STEP;
    } else if (entry->import && !entry->stream && entry->item.reply.error_code == 0) {
        cn_commit_record_import(worker, entry);
        entry->write = CN_WRITE_IMPORT;
    } else if (is_lost(entry)) {
        close_lost(worker, entry, now);
    } else if (entry->write != CN_WRITE_TOMBSTONE && entry->write != CN_WRITE_CLAIM) {
        cn_commit_drop(worker, entry);
        return;
    }
    if (rc == 0)
        rc = cn_commit_record_write(worker, entry, err);
    if (rc == 0 && entry->write == CN_WRITE_IMPORT)
        entry->answer_flags |= CN_ANSWER_HERE;
    if (rc != 0) {
        cn_batch_entry_fail(entry, rc, "sequence %s: %s",
                            cn_id_shown(entry->row->sequence_id, shown), err->message);
        cn_commit_drop(worker, entry);
    }
    if (entry->write == CN_WRITE_IMPORT) { /* its first step reads it again */
        cn_states_free(&worker->states, entry->seq);
        entry->seq = NULL;
    }
}

/* Is the stored record still the one with which this step began? Returns 1 if so. Returns 0 if not:
 * writing would lose a step or do one twice. Returns the error if the store cannot be read. */
static int
slot_unchanged(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    struct cn_record record;
    struct cn_str bytes;
    int rc;

    if (entry->seq && cn_store_holds(worker->states.store, &entry->seq->hint))
        return 1;
    rc = cn_store_prefix(worker->states.store, entry->row->sequence_id, &bytes, err);
    if (entry->had_damaged && (rc == 0 || rc == CN_E_STATE_DAMAGED))
        return 1;
    if (rc != 0)
        return rc;
    if (!bytes.ptr) /* an old tombstone may have been swept away */
        return !entry->had_record || entry->had_tombstone;
    if (cn_record_peek(bytes, &record, NULL) != 0)
        return 0;
    return (entry->had_record || entry->had_leftover) &&
           record.generation == entry->had_generation && record.step == entry->had_step &&
           !!(record.flags & CN_RECORD_TOMBSTONE) == entry->had_tombstone;
}

/* Gives the row's record to a shared store, with what the row met there. */
static int
put_shared(struct cn_worker *worker, struct cn_store *store, struct cn_batch_entry *entry,
           struct cn_error *err)
{
    const bool found = entry->had_record || entry->had_leftover || entry->had_claim;
    const struct cn_store_seen seen = {
        .what = entry->had_damaged ? CN_SEEN_ANYTHING
                : found            ? CN_SEEN_RECORD
                                   : CN_SEEN_NOTHING,
        .tombstone = entry->had_tombstone || entry->had_claim,
        .generation = entry->had_generation,
        .step = entry->had_step,
        .last_job = entry->had_last_job,
    };

    entry->outcome = CN_STORE_FAILED; /* until the commit */
    cn_store_expect(store, &seen, &entry->outcome);
    return cn_store_put(store, entry->row->sequence_id, cn_commit_record_bytes(worker, entry), err);
}

static int
record_put(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_str value,
           struct cn_error *err)
{
    struct cn_store *store = worker->states.store;

    if (!entry->seq)
        return cn_store_put(store, entry->row->sequence_id, value, err);
    entry->hint = entry->seq->hint;
    return cn_store_replace(store, entry->row->sequence_id, value, &entry->hint, err);
}

/* In a full store: writes the record again without its oldest key and without earlier answers, so
 * that it needs no more room for them than the record before it. Returns 1 when the store has not
 * even that room. */
static int
put_with_less(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    struct cn_record *record = &entry->record;
    size_t least = entry->seq ? cn_sequence_keys(entry->seq).len : 0;
    int rc;

    if (cn_record_has_key(record) && least < CN_KEY_HASH_BYTES)
        least = CN_KEY_HASH_BYTES;
    if (!entry->seq || (record->keys.len <= least && record->earlier.len == 0))
        return 1;
    if (record->keys.len > least)
        record->keys.len = least;
    record->earlier = (struct cn_str){NULL, 0};
    if ((rc = cn_commit_record_write(worker, entry, err)) != 0)
        return rc;
    return record_put(worker, entry, cn_commit_record_bytes(worker, entry), err);
}

/* In a full store: writes a tombstone again without its answer, so that it needs no more room than
 * the sequence had. Returns 1 when the store has not even that room. */
static int
put_without_answer(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    struct cn_record *record = &entry->record;
    int rc;

    if (!(record->flags & CN_RECORD_TOMBSTONE) || !(record->flags & CN_RECORD_HAS_ANSWER))
        return 1;
    record->flags ^= CN_RECORD_HAS_ANSWER | CN_RECORD_ANSWER_TOO_LARGE;
    cn_record_drop_answer(record);
    if ((rc = cn_commit_record_write(worker, entry, err)) != 0)
        return rc;
    return record_put(worker, entry, cn_commit_record_bytes(worker, entry), err);
}

static int
slot_write(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    char shown[128];
    int rc;

    if (cn_store_is_shared(worker->states.store))
        return put_shared(worker, worker->states.store, entry, err);
    if ((rc = slot_unchanged(worker, entry, err)) < 0)
        return rc;
    if (rc == 0) {
        cn_batch_entry_fail(
            entry, CN_E_CONFLICT,
            "another worker changed sequence %s during this step, so the step is not "
            "saved; send it again",
            cn_id_shown(entry->row->sequence_id, shown));
        cn_commit_drop(worker, entry);
        return 0;
    }
    rc = record_put(worker, entry, cn_commit_record_bytes(worker, entry), err);
    if (rc == 1)
        rc = put_with_less(worker, entry, err);
    if (rc == 1)
        rc = put_without_answer(worker, entry, err);
    if (rc == 1) {
        cn_batch_entry_fail(entry, CN_E_STATE_STORE, "the step of sequence %s is not saved: %s",
                            cn_id_shown(entry->row->sequence_id, shown), err->message);
        cn_commit_drop(worker, entry);
        rc = 0;
    }
    return rc;
}

static int
write_all(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_store *store = worker->states.store;
    int rc;

    if ((rc = cn_store_begin(store, CN_STORE_WRITE, err)) != 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < batch->n; i++)
        if (!batch->entries[i].passed && batch->entries[i].write != CN_WRITE_NOTHING)
            rc = slot_write(worker, &batch->entries[i], err);
    if (rc != 0) {
        cn_store_abort(store);
        return rc;
    }
    cn_kill_pass(CN_KILL_BEFORE_COMMIT);
    if ((rc = cn_store_commit(store, err)) == 0)
        cn_kill_pass(CN_KILL_AFTER_COMMIT);
    return rc;
}

/* Writes the records to a shared store, which decides about each row alone. */
static void
commit_shared(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++)
        batch->entries[i].outcome = CN_STORE_FAILED;
    write_all(worker, &batch->err);
    cn_commit_take_outcomes(worker);
}

/* Writes the prepared records, and lets memory follow the store. */
static void
commit_prepared(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_error *err = &batch->err;
    int rc = write_all(worker, err);

    /* A reader that died may have kept LMDB's free pages from being used. If maintenance removes
     * one, there may be room now. */
    if (rc != 0 && cn_store_maintain(worker->states.store) > 0)
        rc = write_all(worker, err);
    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (entry->write == CN_WRITE_NOTHING)
            continue;
        if (rc == 0)
            cn_commit_settle(worker, entry);
        else
            cn_commit_not_saved(worker, entry, err);
    }
}

uint32_t
cn_batch_commit_prepare(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    uint64_t now = worker->stateful ? cn_wall_ms() : 0;
    uint32_t writes = 0;

    cn_buf_reset(&batch->records);
    for (uint32_t i = 0; i < batch->n; i++) {
        if (batch->entries[i].passed)
            continue;
        slot_prepare(worker, &batch->entries[i], now);
        writes += batch->entries[i].write != CN_WRITE_NOTHING;
    }
    return writes;
}

/* The commit is over, except for rows that are lost. Returns how many these are. */
static uint32_t
pass(struct cn_batch *batch)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        lost += entry->lost;
        entry->passed = !entry->lost;
        if (!entry->lost && (cn_batch_entry_is(entry, CN_ROW_IS_RAN) ||
                             cn_batch_entry_is(entry, CN_ROW_IS_DECIDED)))
            cn_row_enter(entry->pending, CN_ROW_IS_SETTLED);
    }
    return lost;
}

uint32_t
cn_batch_commit_write(struct cn_worker *worker, uint32_t writes)
{
    if (writes && cn_store_is_shared(worker->states.store))
        commit_shared(worker);
    else if (writes)
        commit_prepared(worker);
    return pass(&worker->batch);
}

uint32_t
cn_batch_commit(struct cn_worker *worker)
{
    return cn_batch_commit_write(worker, cn_batch_commit_prepare(worker));
}

int
cn_batch_commit_send(struct cn_worker *worker, struct cn_store *store, struct cn_error *err)
{
    struct cn_batch *batch = &worker->batch;
    int rc;

    if ((rc = cn_store_begin(store, CN_STORE_WRITE, err)) != 0)
        return rc;
    for (uint32_t i = 0; rc == 0 && i < batch->n; i++)
        if (batch->entries[i].write != CN_WRITE_NOTHING)
            rc = put_shared(worker, store, &batch->entries[i], err);
    if (rc != 0) {
        cn_store_abort(store);
        return rc;
    }
    cn_kill_pass(CN_KILL_BEFORE_COMMIT);
    cn_store_send(store);
    return 0;
}

uint32_t
cn_batch_commit_take(struct cn_worker *worker, struct cn_store *store, bool *good)
{
    *good = cn_store_commit(store, &worker->batch.err) == 0;
    if (*good)
        cn_kill_pass(CN_KILL_AFTER_COMMIT);
    cn_commit_take_outcomes(worker);
    return pass(&worker->batch);
}
