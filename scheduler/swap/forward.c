/* scheduler/swap/forward.c - a job leaves its queue for another version's and comes back: what is
 * counted, which job may go next, and what its row says. On the queue's loop.
 *
 * Where a job goes, and why, is the business of version_swap.c. Here is what all ways have in
 * common. While a job is away it is in flight in its group but has no worker, and diverted_jobs
 * counts it. It comes back in one of three ways: cn_forward_return() lets it wait here again,
 * cn_forward_finish() gives the client the other version's answer, and cn_forward_give_up() gives
 * it an error.
 */
#include "scheduler/swap/forward.h"

#include <stdarg.h>
#include <stdio.h>

#include "scheduler/queue/model_queue_priv.h"

void
cn_forward_begin(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_ready_unplace(queue, &job->sequence->group);
    cn_job_group_take(&job->sequence->group);
    cn_job_to(job, CN_JOB_AWAY);
    job->worker = NULL;
    job->sent_ms = cn_loop_now_ms(queue->loop);
    queue->stats.waiting_jobs--;
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_sequence_give_place(job->sequence);
}

void
cn_forward_return(struct cn_model_queue *queue, struct cn_job *job, enum cn_forward_stage stage)
{
    job->forward->stage = stage;
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    cn_job_group_put_back(&job->sequence->group, job);
    cn_queue_job_waits(queue, job);
    cn_queue_wake(queue);
}

void
cn_forward_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_sequence *sequence = job->sequence;

    box->job = job;
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    if (cn_job_is_detached(job))
        sequence->streams--;
    else
        cn_job_group_settle(&sequence->group);
    cn_queue_finish(queue, job, box);
    cn_sequence_update(sequence);
    cn_queue_wake(queue);
}

void
cn_forward_give_up(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt, ...)
{
    struct cn_sequence *sequence = job->sequence;
    struct cn_error err;
    va_list args;

    va_start(args, fmt);
    vsnprintf(err.message, sizeof(err.message), fmt, args);
    va_end(args);
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    cn_job_group_settle(&sequence->group);
    cn_queue_fail(queue, job, code, "%s", err.message);
    cn_sequence_update(sequence);
    cn_queue_wake(queue);
}
