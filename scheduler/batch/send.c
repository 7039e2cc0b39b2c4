/* scheduler/batch/send.c - sends the next job of a group to a worker. On the model queue's loop.
 *
 * With its job the group leaves its ready list, and the job is in flight until its answer. A
 * sequence without a home gets one here: the worker that runs its step. Which group goes to which
 * worker is decided by the callers: aggregator.c, batch_builder.c, slots.c and spread.c.
 */
#include "scheduler/batch/send.h"

#include "core/time/clock.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"

static struct cn_sequence *
sequence_of(struct cn_job_group *group)
{
    return group->of_job ? NULL : cn_container_of(group, struct cn_sequence, group);
}

/* Writes the row as the worker must see it at this moment. The job keeps what its client sent; what
 * changes between two sendings is computed here: the generation of the sequence, whether the
 * worker's cached state may be stale, and how much of the deadline is left. */
static void
put_row(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
        uint32_t more_flags)
{
    const struct cn_sequence *sequence = job->sequence;
    struct cn_row row = job->row;
    uint64_t now = cn_loop_now_ms(queue->loop), left;

    row.flags |= more_flags;
    if (sequence) {
        /* With a shared store another node may have gone on with the sequence, ended it or begun it
         * anew, so only the store knows its generation. */
        row.generation = queue->shares_store ? 0 : sequence->generation;
        if (sequence->reload)
            row.flags |= CN_ROW_RELOAD;
        if (queue->config.sequence_strict && !(row.flags & CN_ROW_START))
            row.flags |= CN_ROW_MUST_EXIST;
        cn_swap_dress(job, &row);
    } else {
        row.generation = 0;
        row.sequence_id = (struct cn_str){NULL, 0};
    }
    row.deadline_ms = 0;
    if (job->deadline_ms != CN_NEVER) {
        left = job->deadline_ms > now ? job->deadline_ms - now : 1;
        row.deadline_ms = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
    }
    cn_worker_link_put_row(link, &row, &job->unsent);
}

/* Counts the job as in flight, after its row was written into the link's buffer. */
static void
sent(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
     enum cn_job_phase phase)
{
    cn_job_to(job, phase);
    job->worker = link;
    job->sent_ms = cn_loop_now_ms(queue->loop);
    job->times.sent_us = cn_loop_now_us(queue->loop);
    job->times.n_sent++;
    cn_worker_link_took(link, job);
    queue->stats.waiting_jobs--;
    cn_overload_count(queue, job, -1);
    queue->stats.in_flight_jobs++;
}

/* May the link be the home of one more sequence? With slots, only a sequence whose worker died with
 * its step may find no free slot. Its step is sent all the same, alone, and the sequence waits for
 * a slot with its next step. */
static bool
has_slot(const struct cn_model_queue *queue, const struct cn_worker_link *link)
{
    return queue->policy.slots == 0 || link->live_sequences < queue->policy.slots;
}

static void
send_job(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group,
         uint32_t more_flags)
{
    struct cn_sequence *sequence = sequence_of(group);
    struct cn_job *job;

    cn_ready_unplace(queue, group);
    job = cn_job_group_take(group);
    cn_pressure_sent(queue, job->ready_us);
    cn_overload_sent(queue, job);
    if (sequence && cn_sequence_home(sequence) != link && has_slot(queue, link))
        cn_sequence_set_home(sequence, link);
    if (job->row.flags & CN_ROW_REDELIVERED) {
        queue->stats.redispatched++;
        cn_metrics_add(&queue->metrics, CN_M_JOBS_REDISPATCHED, 1);
    } else {
        cn_metrics_observe(&queue->metrics, CN_M_QUEUE_TIME,
                           cn_loop_now_us(queue->loop) - job->arrived_us);
        cn_ts_job_sent(queue, job);
    }
    put_row(queue, link, job, more_flags);
    sent(queue, link, job, CN_JOB_RUNNING);
}

void
cn_send_next(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group,
             bool joined)
{
    send_job(queue, link, group, joined ? CN_ROW_JOINED : 0u);
}

void
cn_send_alone(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group)
{
    send_job(queue, link, group, 0);
    cn_worker_link_end_frame(link);
}

void
cn_send_probe(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group)
{
    static const struct cn_move look = {.op = CN_MOVE_LOOK};
    struct cn_job *job;
    struct cn_row row;

    cn_ready_unplace(queue, group);
    job = cn_job_group_take(group);
    row = (struct cn_row){.job_id = job->row.job_id,
                          .flags = CN_ROW_STATEFUL | CN_ROW_MOVE,
                          .sequence_id = job->row.sequence_id,
                          .move = &look};
    cn_worker_link_put_alone(link, &row);
    sent(queue, link, job, CN_JOB_PROBING);
}
