/* scheduler/swap/forwarded_step.c - a step that another version has forwarded comes to this one:
 * may it wait in its group, or is it answered at once? On the queue's loop.
 *
 * version_swap.c is the other side: it sends the step and gets the answer. A forwarded step usually
 * waits in the job group of its sequence like any other job. It is answered at once if it would
 * wait for a job that itself waits for the version that sent the step, or if this version's queue
 * knows that the sequence is not here. With a shared store no queue knows that, only the store.
 */
#include "scheduler/swap/forwarded_step.h"

#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/swap/forward.h"

/* Is the sequence of this job about to come here? Then no version can use it yet. */
static bool
on_its_way(const struct cn_forward *forward)
{
    return forward && (forward->stage == CN_STAGE_IMPORT || forward->stage == CN_STAGE_BURY ||
                       forward->source);
}

/* Does a job of ours look for the sequence in other versions? Then it is not known to be here. If a
 * forwarded step waited for that job, while the job waits for a forwarded step of its own, both
 * would wait for ever. A job that still asks our own worker waits for no other version: the
 * sequence may be here, so a forwarded step waits for that answer. */
static bool
is_looked_for(const struct cn_forward *forward)
{
    return forward && forward->stage != CN_STAGE_HOME && forward->stage != CN_STAGE_ASK_HERE;
}

bool
cn_swap_send_back(struct cn_model_queue *queue, struct cn_job *forwarded)
{
    static const struct cn_move look = {.op = CN_MOVE_LOOK};
    struct cn_sequence *sequence = cn_table_find(queue->sequences, forwarded->row.sequence_id);
    const struct cn_job *first = NULL;
    struct cn_answer_box *box;

    if (queue->closed && queue->close_code == CN_E_DRAINING)
        return false;
    if (atomic_load_explicit(&queue->retired, memory_order_relaxed) &&
        (forwarded->row.flags & CN_ROW_ASK)) { /* a retired version runs no step */
        forwarded->row.flags &= ~(uint32_t)CN_ROW_ASK;
        forwarded->row.flags |= CN_ROW_MOVE;
        forwarded->row.move = &look;
    }
    if (sequence && sequence->group.in_flight)
        first = sequence->group.in_flight;
    else if (sequence)
        first = cn_job_group_next(&sequence->group);
    if (first &&
        (on_its_way(first->forward) || (queue->shares_store && is_looked_for(first->forward)))) {
        cn_queue_fail(queue, forwarded, CN_E_CONFLICT,
                      "sequence %.*s is being moved to version %s, or looked for by it; send the "
                      "step again",
                      CN_STR_ARG(forwarded->row.sequence_id), queue->version);
        return true;
    }
    if (!queue->closed && !(first && is_looked_for(first->forward))) {
        if (sequence && (sequence->known || sequence->closing || first))
            return false;
        /* Other nodes move sequences in a shared store, too, so only the store knows. */
        if (queue->shares_store || (!(sequence && cn_sequence_away(sequence)) &&
                                    queue->may_remember && cn_queue_has_hope(queue)))
            return false;
    }
    box = cn_answer_box_error(forwarded, CN_E_SEQUENCE_UNKNOWN,
                              "the sequence does not live in this version", 0);
    box->answer.flags |= CN_ANSWER_ELSEWHERE;
    cn_queue_finish(queue, forwarded, box);
    return true;
}
