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

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"

void
cn_forward_begin(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_aggregator_unplace(queue, &job->sequence->group);
    cn_job_group_take(&job->sequence->group);
    cn_job_to(job, CN_JOB_AWAY);
    job->worker = NULL;
    job->sent_ms = cn_loop_now_ms(queue->loop);
    queue->stats.waiting_jobs--;
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_sequence_give_slot(job->sequence);
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

void
cn_swap_dress(const struct cn_job *job, struct cn_row *row)
{
    const struct cn_forward *forward = job->forward;

    if (job->any_version)
        row->flags |= CN_ROW_ANY_VERSION;
    if (!forward)
        return;
    if (forward->stage == CN_STAGE_ASK_HERE)
        row->flags |= CN_ROW_ASK;
    if (forward->stage == CN_STAGE_HOME && forward->pass_pending)
        row->flags |= CN_ROW_PASS_PENDING;
    if (forward->stage == CN_STAGE_IMPORT ||
        (forward->stage == CN_STAGE_HOME && forward->move.op == CN_MOVE_TOLD)) {
        row->flags |= CN_ROW_MOVE;
        row->move = &forward->move;
    }
}

bool
cn_swap_imports(const struct cn_job *job)
{
    return job->forward && job->forward->stage == CN_STAGE_IMPORT;
}

void
cn_swap_cancel(struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    cn_assert(forward && !cn_list_empty(&forward->link));
    cn_model_queue_cancel(forward->queue, &forward->forwarded);
}

void
cn_swap_consumed(struct cn_job *job, uint64_t bytes)
{
    if (job->forward && !cn_list_empty(&job->forward->link))
        cn_model_queue_consumed(&job->forward->forwarded, bytes);
}

void
cn_forward_free(struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    if (!forward)
        return;
    job->forward = NULL;
    cn_list_remove(&forward->link);
    cn_answer_box_free(forward->exported);
    cn_free(forward->version);
    cn_free(forward);
}

struct cn_job_group *
cn_forward_group(struct cn_list *node)
{
    return &cn_container_of(node, struct cn_forward, link)->job->sequence->group;
}
