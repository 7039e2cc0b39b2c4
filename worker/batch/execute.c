/* worker/batch/execute.c - one batch: choose rows, look up, run the handler, commit, answer. Owned
 * by the worker's one thread.
 *
 * cn_worker_begin_batch and cn_worker_end_batch are the heart of the worker. A batch has these
 * phases, in this order:
 *
 *   choose    waiting rows get entries, at most one row of each sequence
 *   resolve   each row meets what the store holds: a state, a stored answer, a tombstone
 *             (resolve.c); rows that are not to be run have an answer or an error after it
 *   run       the handler gets all rows that are to be run, in one call (run.c)
 *   commit    the records of the steps that succeeded are written in one transaction (commit.c).
 *             With a shared store that is far away, the batch is put aside when its commit was
 *             sent, and others run until the store has decided (worker/commits_away.c)
 *   answer    only now do the answers leave
 *   close     on_close is called for sequences that have ended
 *
 * This order is the server's promise: no final answer of a step leaves before its commit. A worker
 * that dies before the commit has changed nothing, and the step is done again by another one; if it
 * dies after the commit, the repeated step meets its own record and gets the stored answer. The
 * kill points between the phases let tests/e2e/test_kill.py show this.
 *
 * A row whose handler yields leaves the batch after its turn and comes back in a later one
 * (yielded_rows.c). So a batch is one iteration and never waits for a stream's end.
 */
#include <inttypes.h>
#include <string.h>

#include "config/model/batching.h"
#include "core/time/clock.h"
#include "proto/tensor.h"
#include "worker/batch/run.h"
#include "worker/process/kill_point.h"
#include "worker/worker_priv.h"

/* Finds the place of this sequence in the table of those in the batch. Returns true if it is there;
 * else the place is free. */
static bool
seen_at(const struct cn_batch *batch, const struct cn_pending *pending, uint32_t *at)
{
    uint32_t i = pending->id_hash & batch->seen_mask;

    for (; batch->seen[i].stamp == batch->stamp; i = (i + 1) & batch->seen_mask) {
        const struct cn_batch_entry *entry = &batch->entries[batch->seen[i].entry];

        if (batch->seen[i].hash == pending->id_hash &&
            cn_str_eq(entry->row->sequence_id, pending->row->sequence_id))
            return true;
    }
    *at = i;
    return false;
}

/* Is a step of the row's sequence on its way to the store? */
static bool
is_away(const struct cn_commits_away *all, const struct cn_pending *pending)
{
    uint32_t at;

    for (uint32_t i = 0; all->n && i < CN_COMMITS_AWAY_MAX; i++)
        if (all->list[i].away && seen_at(&all->list[i].batch, pending, &at))
            return true;
    return false;
}

/* Is a row of this sequence in the batch already? If not, notes that the next entry will be. */
static bool
seen_before(struct cn_batch *batch, const struct cn_pending *pending)
{
    uint32_t i;

    if (seen_at(batch, pending, &i))
        return true;
    batch->seen[i].stamp = batch->stamp;
    batch->seen[i].hash = pending->id_hash;
    batch->seen[i].entry = batch->n;
    return false;
}

static void
slot_fill(struct cn_worker *worker, struct cn_pending *pending)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_batch_entry *entry = &batch->entries[batch->n];

    if (batch->n == batch->n_ready) {
        cn_reply_init(&entry->item.reply, worker->load.answer_max_bytes);
        batch->n_ready++;
    }
    batch->n++;
    cn_buf_set_allocator(&entry->item.reply.body,
                         cn_body_memory_allocator(worker->channel.body_memory));
    if (pending->stream) {
        cn_stream_join(pending->stream, entry);
        return;
    }
    entry->pending = pending;
    entry->row = entry->item.row = pending->row;
    entry->ended = entry->committed = entry->lost = entry->unsure = entry->passed = false;
    entry->losses = 0;
    entry->known.generation = 0;
    entry->stream = NULL;
    entry->item.deadline_ms = pending->deadline_ms;
    entry->item.stop = CN_STOP_NONE;
    entry->item.resume = NULL;
}

/* Fills the entries with waiting rows in order of arrival. Some rules make this more than a loop:
 * - At most one row of each sequence is in a batch; its next one waits for the next batch.
 * - A CLOSE or a QUERY is a fence: rows before it run first, rows behind it later.
 * - Rows with CN_ROW_JOINED belong to a batch that the server built. It is run as the server built
 *   it: alone, complete, with each row in its place. If its last row has not arrived, nothing is
 *   run yet (batch->incomplete).
 * - Rows whose client is gone are refused here, except in a batch that the server built. */
static void
choose(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    const uint32_t wanted = cn_lockstep_rows(worker);
    struct cn_list *link, *next;
    bool joined = false;

    batch->n = 0;
    if (++batch->stamp == 0) { /* wrapped: old stamps would look new */
        memset(batch->seen, 0, (batch->seen_mask + 1ull) * sizeof(*batch->seen));
        batch->stamp = 1;
    }
    cn_list_for_each_safe(link, next, &worker->pending) {
        struct cn_pending *pending = cn_container_of(link, struct cn_pending, link);
        bool in_formed = joined;

        if (!pending->row || batch->n == (in_formed ? worker->load.batch_size : wanted))
            break;
        if (in_formed && pending->stream)
            continue; /* it could go on only after that batch had begun to arrive */
        joined = !pending->stream && (pending->row->flags & CN_ROW_JOINED);
        if (joined && !in_formed && batch->n > 0) {
            joined = false; /* a batch that the server built is run alone: it will be the next */
            break;
        }
        in_formed |= joined;
        if (pending->stop == CN_STOP_GONE && !pending->stream && !in_formed) {
            cn_worker_refuse(worker, pending->row->job_id, CN_E_CANCELLED,
                             "the client disconnected before the step ran");
            cn_row_enter(pending, CN_ROW_IS_ANSWERED);
            cn_worker_release(worker, pending);
            continue;
        }
        if ((pending->row->flags & CN_ROW_STATEFUL) && !pending->stream &&
            (is_away(&worker->commits_away, pending) || seen_before(batch, pending)))
            continue;
        slot_fill(worker, pending);
        if (in_formed && !joined)
            break;
    }
    batch->incomplete = joined && batch->n < worker->load.batch_size;
    if (batch->incomplete) /* the other rows are on their way */
        batch->n = 0;
    batch->formed = batch->n > 1 && (batch->entries[0].row->flags & CN_ROW_JOINED);
    for (uint32_t i = 0; i < batch->n; i++)
        if (!batch->entries[i].stream)
            cn_row_enter(batch->entries[i].pending, CN_ROW_IS_CHOSEN);
}

/* Lets the handler describe itself for the rows that ask for it, one at a time, because they are
 * rare. */
static void
describe(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (!cn_batch_entry_is_describe(entry) || !cn_batch_entry_is(entry, CN_ROW_IS_READY))
            continue;
        worker->rt->ops->metadata(worker->rt, &entry->item);
        cn_row_enter(entry->pending, CN_ROW_IS_RAN);
    }
}

/* Calls on_close for the sequences that have ended: after the commit, so that the handler is never
 * informed of an end that did not happen, and after the answers, which need not wait for it. */
static void
tell_closed(struct cn_worker *worker)
{
    const struct cn_runtime_ops *ops = worker->rt->ops;
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (cn_batch_entry_is(entry, CN_ROW_IS_YIELDED) && !entry->committed)
            continue;
        if (entry->closed_seq) {
            ops->on_close(worker->rt, entry->row->sequence_id, entry->closed_seq->state,
                          (enum cn_close_reason)entry->closed_reason);
            cn_states_free(&worker->states, entry->closed_seq);
            entry->closed_seq = NULL;
        }
        if (entry->ended && !cn_batch_entry_is(entry, CN_ROW_IS_YIELDED)) {
            ops->on_close(worker->rt, entry->row->sequence_id, entry->seq->state, CN_CLOSE_ENDED);
            cn_states_free(&worker->states, entry->seq);
            entry->seq = NULL;
        }
    }
}

static void
clean_up(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (cn_batch_entry_is(entry, CN_ROW_IS_YIELDED)) {
            cn_stream_park(worker, entry);
            continue;
        }
        if (entry->stream)
            cn_stream_end(worker, entry);
        worker->rows += !cn_batch_entry_is_padding(entry);
        cn_worker_release(worker, entry->pending);
        cn_batch_empty_reply(&entry->item.reply, worker->load.answer_max_bytes);
    }
    cn_arena_clear(&batch->arena);
}

/* A committed step may end other streams of its sequence: because the sequence has ended or begun
 * anew, or because the handler said so (stop_streams). */
static void
stop_streams(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    if (cn_streams_count(&worker->streams) == 0)
        return;
    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (entry->write != CN_WRITE_STEP)
            continue;
        if (entry->answer_flags & (CN_ANSWER_ENDED | CN_ANSWER_OPENED))
            cn_streams_stop(worker, entry->row->sequence_id, entry->pending, CN_STOP_ENDED);
        else if (entry->item.reply.stop_streams)
            cn_streams_stop(worker, entry->row->sequence_id, entry->pending, CN_STOP_CANCELLED);
    }
}

/* Notes in the report which jobs the handler has got. */
static void
name_jobs(struct cn_worker *worker, struct cn_report *report)
{
    struct cn_batch *batch = &worker->batch;

    if (!worker->load.report_jobs)
        return;
    report->job_ids = cn_arena_alloc(&batch->arena, batch->n * sizeof(*report->job_ids));
    for (uint32_t i = 0; i < batch->n; i++)
        if (cn_batch_entry_is(&batch->entries[i], CN_ROW_IS_RAN) &&
            !cn_batch_entry_is_describe(&batch->entries[i]))
            report->job_ids[report->n_jobs++] = batch->entries[i].row->job_id;
}

/* Appends the REPORT of a call, with what the handler measured since the last one. */
static void
put_report(struct cn_worker *worker, struct cn_report *report)
{
    struct cn_samples *samples = &worker->rt->samples;

    report->n_samples = samples->n;
    report->samples = samples->list;
    cn_frame_put_report(&worker->channel.out, report);
    if (samples->n)
        cn_samples_clear(samples);
}

/* Returns for how many requests the run counts: the sum of the rows' batch dimensions. Rows mostly
 * have the same shape, whose text is then read only once. */
static uint32_t
count_requests(const struct cn_worker *worker, uint32_t n)
{
    struct cn_str before = {NULL, 0};
    uint32_t each = 1, rows = 0;

    if (worker->load.max_batch_size == 0)
        return n;
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_row *row = worker->batch.items[i]->row;
        struct cn_str type = row->n_parts ? row->parts[0].content_type : CN_STR("");

        if (type.len == 0 || !cn_str_eq(type, before))
            each = cn_tensor_batch(row, worker->load.max_batch_size);
        before = type;
        rows += each;
    }
    return rows;
}

int
cn_worker_end_batch(struct cn_worker *worker, uint32_t lost, struct cn_batch_ran *ran,
                    struct cn_error *err)
{
    struct cn_batch *batch = &worker->batch;
    int rc;

    if (lost > 0)
        cn_batch_run_again_lost(worker);
    cn_batch_drop_failed(worker);
    stop_streams(worker);
    if (ran->report.rows) {
        ran->report.after_us = cn_now_us() - ran->done_us;
        put_report(worker, &ran->report);
    }
    for (uint32_t i = 0; i < batch->n; i++)
        if (!cn_batch_entry_is(&batch->entries[i], CN_ROW_IS_ANSWERED))
            cn_batch_entry_answer(worker, &batch->entries[i]);
    worker->channel.out_answers = true;
    rc = cn_channel_flush(&worker->channel, err);
    if (rc == 0)
        cn_kill_pass(CN_KILL_ANSWERS_WRITTEN);
    tell_closed(worker);
    worker->batches++;
    worker->stats_due = true;
    clean_up(worker);
    if (rc == 0 && worker->rt->worn_out)
        return cn_fail(err, CN_E_OUT_OF_MEMORY,
                       "the handler does not free its memory (handler.limits.memoryBytes: %" PRIu64
                       "), so another worker takes its place",
                       worker->load.memory_max_bytes);
    return rc;
}

int
cn_worker_begin_batch(struct cn_worker *worker, struct cn_batch_ran *out, struct cn_error *err)
{
    struct cn_batch *batch = &worker->batch;
    uint64_t begun_us = cn_now_us(), run_us;
    uint32_t n;

    *out = (struct cn_batch_ran){0};
    choose(worker);
    worker->commits_away.blocked =
        batch->n == 0 && !batch->incomplete && !cn_list_empty(&worker->pending);
    if (batch->n == 0)
        return cn_channel_flush(&worker->channel, err);
    cn_kill_pass(CN_KILL_BATCH_READ);
    cn_batch_resolve(worker);
    cn_batch_add_controls(worker);
    describe(worker);
    n = cn_batch_collect(worker);
    if (n) {
        out->report.rows = n;
        out->report.batch = count_requests(worker, n);
        run_us = cn_now_us();
        cn_batch_run(worker, n);
        cn_batch_run_again_after_memory(worker);
        out->done_us = cn_now_us();
        out->report.before_us = run_us - begun_us;
        out->report.handler_us = out->done_us - run_us;
        cn_batch_drop_pads(worker);
        name_jobs(worker, &out->report);
        cn_batch_note_yields(worker);
        cn_kill_pass(CN_KILL_HANDLER_DONE);
    }
    out->writes = cn_batch_commit_prepare(worker);
    return 0;
}
