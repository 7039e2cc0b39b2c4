/* scheduler/queue/answers.c - matches a worker's answers to jobs and passes them on. On the queue's
 * loop.
 *
 * A job in flight is in one of two lists of its worker: `in_flight`, and `live` once its handler
 * has begun to stream. A final answer takes it out, settles its group and wakes the queue, so that
 * the next step of the sequence can go. Two kinds of jobs go on after their answer: one that is
 * forwarded to another version (cn_swap_on_answer), and one that only asked whether its sequence
 * lives (cn_slots_on_probe).
 *
 * A step that streams and is committed is DETACHED (job_phases.def): its group was settled at that
 * time, so its sequence goes on while the stream is still open. Such a job no longer changes what
 * is known of the sequence; it only counts in `streams`, which keeps the sequence's memory.
 *
 * A frame that does not fit to any job is the worker's fault: the link is lost, and the worker is
 * killed. Nothing that a worker sends can stop the server.
 */
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "metrics/counters/metrics.h"
#include "scheduler/batch/slots.h"
#include "scheduler/queue/model_queue_priv.h"
#include "torchserve/metrics/metric_lines.h"

/* Prefetches the sequence of the job that will probably be answered next. Among many sequences it
 * has left the processor's caches since its step was sent. */
static void
prefetch_next(const struct cn_worker_link *link, const struct cn_job *job)
{
    const struct cn_list *next = job->link.next;

    if (next != &link->in_flight && next != &link->live)
        cn_prefetch(cn_container_of(next, struct cn_job, link)->sequence,
                    sizeof(struct cn_sequence));
}

/* How much of the body the client has already. After a worker's death the answer comes from its
 * beginning again, and nothing is sent twice. */
static uint64_t
skip_of(struct cn_job *job, const struct cn_answer *answer)
{
    uint64_t skip = job->skip_bytes < answer->body.len ? job->skip_bytes : answer->body.len;

    if (answer->error_code != 0)
        return 0;
    job->skip_bytes -= skip;
    return skip;
}

/* Bytes of a stream that are not passed on count as taken, because nobody will report them. */
static void
pass_over(struct cn_job *job, uint64_t bytes)
{
    if (bytes && cn_job_streams(job))
        cn_worker_link_put_credit(job->worker, job->row.job_id, bytes);
}

static void
forward_piece(struct cn_job *job, const struct cn_answer *answer)
{
    uint64_t skip = skip_of(job, answer);
    struct cn_answer_box *box;

    pass_over(job, skip);
    if (skip > 0 && skip == answer->body.len)
        return;
    box = cn_answer_box_copy(job, answer, skip);
    if (!box) {
        pass_over(job, answer->body.len - skip);
        return;
    }
    job->forwarded_bytes += answer->body.len - skip;
    job->passed_on = true;
    cn_answer_box_deliver(box);
}

/* Tells the worker of a job that has begun to stream what was asked before. It may not know: the
 * client left, or the end was asked for, while the job was at another version, or at a worker that
 * died since. To ask twice does no harm. */
static void
tell_again(struct cn_worker_link *link, const struct cn_job *job)
{
    if (job->cancelled)
        cn_worker_link_put_cancel(link, job->row.job_id, CN_STOP_GONE);
    else if (job->stopped)
        cn_worker_link_put_cancel(link, job->row.job_id, CN_STOP_ENDED);
}

/* The handler yielded. If its step is committed, which happens at most once, the sequence goes on
 * to its next step. */
static void
on_live(struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_sequence *sequence = job->sequence;

    if (!sequence || cn_job_is_detached(job) || !(answer->flags & CN_ANSWER_COMMITTED) ||
        sequence->streams == UINT16_MAX)
        return;
    cn_job_to(job, CN_JOB_DETACHED);
    sequence->streams++;
    cn_job_group_settle(&sequence->group);
    cn_sequence_learn(sequence, answer, job->row.flags & CN_ROW_END);
    cn_sequence_update(sequence);
}

/* Is there anything in the piece for a client? A first yield may have nothing to say. */
static bool
says_something(const struct cn_answer *answer)
{
    return answer->body.len || answer->status || answer->n_headers || answer->content_type.len;
}

/* Makes the box for a final answer. A large body is not copied: the box takes over its memory. */
static struct cn_answer_box *
make_box(struct cn_worker_link *link, struct cn_job *job, const struct cn_answer *answer)
{
    const uint64_t skip = skip_of(job, answer);
    char *read = skip || job->piece_lost ? NULL : cn_worker_link_take_read(link, answer->body);

    return read ? cn_answer_box_keep(job, answer, read) : cn_answer_box_copy(job, answer, skip);
}

static void
finish(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
       const struct cn_answer *answer)
{
    struct cn_answer_box *box;
    struct cn_sequence *sequence = job->sequence;
    /* A forwarded step that only looks asks for nothing (scheduler/swap/version_swap.h), and a
     * question whether the sequence lives does not either. */
    bool asked_end = (job->row.flags & CN_ROW_END) && !(job->row.flags & CN_ROW_MOVE) &&
                     job->phase != CN_JOB_PROBING;
    bool detached = cn_job_is_detached(job);

    cn_worker_link_answered(link, job);
    queue->stats.in_flight_jobs--;
    if ((job->forward || (answer->flags & CN_ANSWER_ELSEWHERE)) &&
        cn_swap_on_answer(queue, job, answer))
        return;
    if (job->phase == CN_JOB_PROBING && cn_slots_on_probe(queue, job, answer))
        return;
    box = make_box(link, job, answer);
    if (answer->flags & CN_ANSWER_REPLAYED) {
        queue->stats.replayed++;
        cn_metrics_add(&queue->metrics, CN_M_JOBS_REPLAYED, 1);
    }
    if (detached)
        sequence->streams--;
    else
        cn_job_group_settle(cn_queue_group_of(job));
    cn_queue_finish(queue, job, box);
    if (sequence && !detached)
        cn_sequence_learn(sequence, answer, asked_end);
    if (sequence)
        cn_sequence_update(sequence);
    cn_queue_wake(queue);
}

/* Did the row only ask about its sequence, or move it? Then no handler runs for it. */
static bool
only_asks(const struct cn_job *job)
{
    return job->phase == CN_JOB_PROBING || (job->row.flags & CN_ROW_MOVE) || cn_swap_imports(job);
}

/* Can a worker that works give this answer to the job? */
static int
check_answer(const struct cn_job *job, const struct cn_answer *answer, struct cn_error *err)
{
    if (!job)
        return cn_fail(err, CN_E_PROTOCOL, "ANSWER for job %llu, which is not in flight there",
                       (unsigned long long)answer->job_id);
    /* The worker cannot know the job yet. And if its answer were passed on, the front end could
     * free bytes that are still to be sent. */
    if (job->unsent)
        return cn_fail(err, CN_E_PROTOCOL, "ANSWER for job %llu, which was not sent in full yet",
                       (unsigned long long)answer->job_id);
    if ((answer->flags & CN_ANSWER_LIVE) && only_asks(job))
        return cn_fail(err, CN_E_PROTOCOL,
                       "ANSWER of a stream for job %llu, for which no handler runs",
                       (unsigned long long)answer->job_id);
    if ((answer->flags & (CN_ANSWER_HERE | CN_ANSWER_ELSEWHERE)) && cn_job_streams(job))
        return cn_fail(err, CN_E_PROTOCOL,
                       "ANSWER about the place of a sequence for job %llu, which streams",
                       (unsigned long long)answer->job_id);
    return 0;
}

static int
on_answer(struct cn_worker_link *link, const struct cn_answer *answer, struct cn_error *err)
{
    struct cn_job *job = cn_worker_link_find(link, answer->job_id, answer->flags & CN_ANSWER_LIVE);
    int rc = check_answer(job, answer, err);

    if (rc < 0)
        return rc;
    link->progress_ms = cn_loop_now_ms(link->loop);
    prefetch_next(link, job);
    cn_infer_job_heard(link, job, answer);
    if (answer->flags & CN_ANSWER_FINAL) {
        finish(link->queue, link, job, answer);
        return 0;
    }
    /* The row counts as a stream from here on, before its client says that it has taken the piece:
     * only streams get credit. */
    if ((answer->flags & CN_ANSWER_LIVE) && cn_worker_link_streams(link, job)) {
        cn_queue_wake(link->queue); /* its place among the rows is free for another one */
        tell_again(link, job);
    }
    /* The piece is passed on first, because what follows may free the sequence if this step was
     * its END. */
    if (!(answer->flags & CN_ANSWER_LIVE) || says_something(answer) || cn_swap_is_forwarded(job))
        forward_piece(job, answer);
    if (answer->flags & CN_ANSWER_LIVE)
        on_live(job, answer);
    return 0;
}

/* Writes the ids of the call's requests with commas between them, for lines of the metrics log, as
 * many as there is room for. A job that was cancelled meanwhile is missing. */
static void
put_request_ids(struct cn_worker_link *link, const struct cn_report *report,
                char out[CN_TS_REQUEST_IDS_MAX])
{
    size_t at = 0;

    for (uint32_t i = 0; i < report->n_jobs; i++) {
        struct cn_job *job = cn_worker_link_find(link, report->job_ids[i], false);
        struct cn_str id;

        if (!job && !(job = cn_worker_link_find(link, report->job_ids[i], true)))
            continue;
        id = job->row.request_id;
        if (at + id.len + 2 > CN_TS_REQUEST_IDS_MAX)
            break;
        if (at > 0)
            out[at++] = ',';
        memcpy(out + at, id.ptr, id.len);
        at += id.len;
    }
    out[at] = '\0';
}

static void
on_stats(struct cn_worker_link *link, const struct cn_worker_stats *stats)
{
    struct cn_model_queue *queue = link->queue;

    /* This comes before the first step of all, so these are the records that an earlier server
     * left. */
    if (queue->stats.jobs == 0 && stats->stored_sequences == 0 && !queue->shares_store)
        queue->may_remember = false;
    cn_metrics_add(&queue->metrics, CN_M_WORKER_BUSY, stats->busy_us);
    if (!stats->store.shared)
        return;
    cn_metrics_merge(&queue->metrics, CN_M_STORE_TRIPS, stats->store.trips);
    cn_metrics_merge(&queue->metrics, CN_M_STORE_COMMITS, stats->store.commits);
    cn_metrics_add(&queue->metrics, CN_M_STORE_CONFLICTS, stats->store.conflicts);
    cn_metrics_add(&queue->metrics, CN_M_STORE_RELOADS, stats->store.reloads);
}

static void
on_report(struct cn_worker_link *link, const struct cn_report *report)
{
    struct cn_metrics *metrics = &link->queue->metrics;
    char request_ids[CN_TS_REQUEST_IDS_MAX];

    put_request_ids(link, report, request_ids);
    if (report->rows > 0) {
        cn_metrics_observe(metrics, CN_M_BATCH_ROWS, report->rows);
        cn_metrics_observe(metrics, CN_M_HANDLER_TIME, report->handler_us);
        cn_ts_batch_done(link->queue, report->handler_us, request_ids);
        cn_infer_call_done(link, report);
    }
    if (report->n_samples > 0)
        cn_ts_samples(link->queue, report, request_ids);
}

const struct cn_worker_frame_ops cn_queue_frame_ops = {
    .on_answer = on_answer,
    .on_closed = cn_queue_on_closed,
    .on_result = cn_queue_on_result,
    .on_report = on_report,
    .on_stats = on_stats,
};
