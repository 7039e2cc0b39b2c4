/* scheduler/workers/worker_credit.c - what a worker may get, what it has, and for how long. On the
 * model queue's loop.
 *
 * A worker has credit for 2 x batchSize rows: one batch that its handler runs, and the next one.
 * Rows that stream do not count, because a client that reads slowly would then stop the worker;
 * stream.max bounds those. `in_flight` has the rows that it was sent and has not answered, in the
 * order of sending, and `live` has those of them that stream.
 *
 * Frames are written into the link's buffer, which worker_connection.c sends at the end of the
 * turn. A BATCH frame that is begun is ended in the same turn, and nothing else may be written
 * before that.
 *
 * A worker that has something to do must show progress within responseTimeout. Answers do not move
 * the timer, only `progress_ms`, so a step costs no work on the timer.
 */
#include <stdio.h>

#include "scheduler/queue/job_phases.h"
#include "scheduler/workers/worker_link_priv.h"

/* A BATCH frame that has reached this size is ended, even if the batch has room for more rows. */
#define FRAME_BYTES (16u * 1024 * 1024)

/* Compares the times, because progress does not move the timer, and sets it again if it was
 * early. */
static void
overdue(struct cn_timer *timer)
{
    struct cn_worker_link *link = cn_container_of(timer, struct cn_worker_link, overdue);
    uint64_t deadline_ms = link->progress_ms + link->terms.response_timeout_ms;
    char why[160];

    if (link->credit_phase == CN_CREDIT_OVERDUE || cn_worker_link_quiet(link))
        return;
    if (cn_loop_now_ms(link->loop) < deadline_ms) {
        cn_timer_set(cn_loop_wheel(link->loop), timer, deadline_ms);
        return;
    }
    snprintf(why, sizeof(why),
             "worker %u did not answer for %llu s (responseTimeout), %u rows in flight",
             link->index, (unsigned long long)(link->terms.response_timeout_ms / 1000),
             link->n_in_flight);
    cn_worker_link_credit_to(link, CN_CREDIT_OVERDUE);
    link->ops->on_overdue(link->owner, why);
}

void
cn_worker_link_serve(struct cn_worker_link *link, const struct cn_worker_terms *terms)
{
    cn_worker_link_credit_to(link, CN_CREDIT_SERVING);
    link->terms = *terms;
    cn_timer_init(&link->overdue, overdue);
}

void
cn_worker_link_watch_progress(struct cn_worker_link *link)
{
    cn_timer_set(cn_loop_wheel(link->loop), &link->overdue,
                 link->progress_ms + link->terms.response_timeout_ms);
}

void
cn_worker_link_begins(struct cn_worker_link *link)
{
    if (cn_worker_link_quiet(link))
        link->progress_ms = cn_loop_now_ms(link->loop);
}

/* --- how much it may get */

uint32_t
cn_worker_link_credit(const struct cn_worker_link *link)
{
    uint32_t limit = 2 * link->terms.batch_rows;

    if (link->credit_phase != CN_CREDIT_SERVING || !cn_worker_link_usable(link))
        return 0;
    if (link->n_live >= link->terms.streams || cn_worker_link_rows(link) >= limit)
        return 0;
    return limit - cn_worker_link_rows(link);
}

bool
cn_worker_link_is_free(const struct cn_worker_link *link)
{
    return cn_worker_link_rows(link) == 0 && cn_worker_link_credit(link) > 0;
}

/* --- sending rows */

static void
begin_frame(struct cn_worker_link *link)
{
    if (link->frame_rows > 0)
        return;
    link->frame_begun = cn_frame_begin_batch(&link->out);
    link->frame_borrowed = link->borrowed.bytes;
}

void
cn_worker_link_end_frame(struct cn_worker_link *link)
{
    if (link->frame_rows == 0)
        return;
    cn_frame_end_borrowed_batch(&link->out, link->frame_begun, link->frame_rows,
                                link->borrowed.bytes - link->frame_borrowed);
    link->frame_rows = 0;
}

void
cn_worker_link_put_row(struct cn_worker_link *link, const struct cn_row *row, uint32_t *unsent)
{
    cn_worker_link_share(link, row);
    begin_frame(link);
    cn_frame_lend_row(&link->out, &link->borrowed, link->body_memory, unsent, row);
    link->frame_rows++;
    if (link->frame_rows >= link->terms.batch_rows ||
        link->out.len - link->frame_begun + link->borrowed.bytes - link->frame_borrowed >=
            FRAME_BYTES)
        cn_worker_link_end_frame(link);
}

void
cn_worker_link_put_pad(struct cn_worker_link *link)
{
    const struct cn_row pad = {.flags = CN_ROW_PAD | CN_ROW_JOINED};

    begin_frame(link);
    cn_frame_put_row(&link->out, &pad);
    link->frame_rows++;
    if (link->frame_rows >= link->terms.batch_rows)
        cn_worker_link_end_frame(link);
}

void
cn_worker_link_put_alone(struct cn_worker_link *link, const struct cn_row *row)
{
    cn_worker_link_end_frame(link);
    begin_frame(link);
    cn_frame_put_row(&link->out, row);
    link->frame_rows = 1;
    cn_worker_link_end_frame(link);
}

void
cn_worker_link_took(struct cn_worker_link *link, struct cn_job *job)
{
    cn_worker_link_begins(link);
    cn_list_push_back(&link->in_flight, &job->link);
    link->n_in_flight++;
    link->rows++;
    link->taken++;
}

/* --- the rows in flight */

static struct cn_job *
find_in(struct cn_list *jobs, uint64_t job_id)
{
    struct cn_list *node;

    cn_list_for_each(node, jobs) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        if (job->row.job_id == job_id)
            return job;
    }
    return NULL;
}

/* Workers mostly answer in the order of sending, and streams take turns, so the job is usually the
 * first one of its list. */
struct cn_job *
cn_worker_link_find(struct cn_worker_link *link, uint64_t job_id, bool streams)
{
    struct cn_job *job = streams ? find_in(&link->live, job_id) : NULL;

    return job ? job : find_in(&link->in_flight, job_id);
}

/* A row that was in a worker when it died is sent alone, because it may have been the cause
 * (ALONE). Once it is answered, or its answer streams, the worker gets other rows again. */
static void
suspect_is_over(struct cn_worker_link *link)
{
    if (link->credit_phase == CN_CREDIT_ALONE)
        cn_worker_link_credit_to(link, CN_CREDIT_SERVING);
}

bool
cn_worker_link_streams(struct cn_worker_link *link, struct cn_job *job)
{
    cn_list_remove(&job->link);
    cn_list_push_back(&link->live, &job->link);
    if (cn_job_streams(job))
        return false;
    cn_job_to(job, CN_JOB_STREAMING);
    link->n_live++;
    suspect_is_over(link);
    return true;
}

void
cn_worker_link_answered(struct cn_worker_link *link, struct cn_job *job)
{
    cn_list_remove(&job->link);
    link->n_in_flight--;
    if (cn_job_streams(job))
        link->n_live--;
    else
        suspect_is_over(link);
    link->answers++;
}

/* --- other frames */

void
cn_worker_link_put_cancel(struct cn_worker_link *link, uint64_t job_id, enum cn_stop_reason reason)
{
    cn_frame_put_cancel(&link->out, &(struct cn_cancel){job_id, reason}, 1);
    cn_worker_link_flush_later(link);
}

void
cn_worker_link_put_credit(struct cn_worker_link *link, uint64_t job_id, uint64_t bytes)
{
    cn_frame_put_credit(&link->out, &(struct cn_credit){job_id, bytes}, 1);
    cn_worker_link_flush_later(link);
}

uint32_t
cn_worker_link_in_flight(const struct cn_worker_link *link)
{
    return link->n_in_flight;
}
