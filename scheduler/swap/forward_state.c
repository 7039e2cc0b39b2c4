/* scheduler/swap/forward_state.c - what a job keeps of its way through the versions: its memory,
 * and what its row says of it to our own worker. On the queue's loop.
 */
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/swap/forward.h"

/* In a shared store another node may have moved the sequence away, also if our own worker ran its
 * last step. */
static bool
may_have_left(const struct cn_job *job)
{
    return job->queue->shares_store && !(job->row.flags & CN_ROW_START) &&
           cn_swap_may_leave(job->queue, job);
}

void
cn_swap_dress(const struct cn_job *job, struct cn_row *row)
{
    const struct cn_forward *forward = job->forward;

    if (job->any_version)
        row->flags |= CN_ROW_ANY_VERSION;
    if (!forward) {
        if (may_have_left(job))
            row->flags |= CN_ROW_ASK;
        return;
    }
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

struct cn_job *
cn_forward_job(struct cn_list *node)
{
    return cn_container_of(node, struct cn_forward, link)->job;
}
