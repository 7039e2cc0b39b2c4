/* scheduler/batch/slots.c - which sequence gets a worker's slot, and which must be asked for first.
 * On the model queue's loop.
 *
 * The life of a sequence with slots: its first step puts its group into the backlog
 * (aggregator.shared). cn_slots_give() makes a worker with a free slot its home, and from then on
 * its steps go there. The slot is free again when the sequence ends, is idle for too long, or its
 * worker dies; in the last case the sequence goes back to the front of the backlog.
 *
 * What may surprise: a step that must continue a sequence which this server does not know gets no
 * slot before a worker has looked into the store. Otherwise it could wait for a slot for minutes,
 * only to be told that there is no such sequence.
 */
#include "scheduler/batch/slots.h"

#include "scheduler/batch/send.h"
#include "scheduler/queue/model_queue_priv.h"

static struct cn_sequence *
sequence_of(struct cn_job_group *group)
{
    return group->of_job ? NULL : cn_container_of(group, struct cn_sequence, group);
}

static struct cn_job_group *
front(struct cn_list *list)
{
    return cn_list_empty(list) ? NULL : cn_container_of(list->next, struct cn_job_group, ready);
}

void
cn_slots_send_probes(struct cn_model_queue *queue)
{
    struct cn_job_group *group;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        while ((group = front(&queue->aggregator.unknown)) && cn_worker_link_credit(link) > 0) {
            if (group->of_job)
                cn_send_alone(queue, link, group);
            else
                cn_send_probe(queue, link, group);
        }
    }
}

bool
cn_slots_on_probe(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_sequence *sequence = job->sequence;

    if (!(answer->flags & CN_ANSWER_HERE) || job->cancelled)
        return false;
    sequence->known = true;
    sequence->generation = answer->generation;
    job->worker = NULL;
    job->unsent = job->deaths = job->alone_deaths = 0;
    cn_job_group_put_back(&sequence->group, job);
    cn_queue_job_waits(queue, job);
    cn_queue_wake(queue);
    return true;
}

/* The worker with the most free slots; NULL: none has one. `n_free`: free slots of all workers. */
static struct cn_worker_link *
find_slot(struct cn_model_queue *queue, uint64_t *n_free)
{
    struct cn_worker_link *best = NULL;
    struct cn_list *node;

    *n_free = 0;
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (link->credit_phase == CN_CREDIT_RETIRING || !cn_worker_link_usable(link) ||
            link->live_sequences >= queue->policy.slots)
            continue;
        *n_free += queue->policy.slots - link->live_sequences;
        if (!best || cn_worker_link_better(link, best))
            best = link;
    }
    return best;
}

/* Gives free slots to the backlog, longest waiting first. As many slots as there are homeless
 * sequences are kept for those: they live, though they may have nothing to do at this moment. */
void
cn_slots_give(struct cn_model_queue *queue)
{
    struct cn_worker_link *link;
    struct cn_job_group *group;
    uint64_t n_free;

    while ((group = front(&queue->aggregator.shared)) && (link = find_slot(queue, &n_free)) &&
           (cn_ready_is_homeless(queue, group) || n_free > queue->homeless)) {
        cn_ready_unplace(queue, group);
        cn_sequence_set_home(sequence_of(group), link);
        cn_sequence_arrived(sequence_of(group),
                            false); /* the time in the backlog does not count as idle */
        cn_ready_place(queue, group);
    }
}

/* The number of waiting jobs of all groups in a list. */
static uint64_t
count_jobs(struct cn_list *groups)
{
    struct cn_list *node;
    uint64_t jobs = 0;

    cn_list_for_each(node, groups)
        jobs += cn_container_of(node, struct cn_job_group, ready)->waiting;
    return jobs;
}

bool
cn_slots_held_back(struct cn_model_queue *queue)
{
    struct cn_policy_hold *hold = &queue->hold;
    uint64_t jobs = 0;
    struct cn_list *node;

    if (hold->jobs == 0 && hold->backlog == 0)
        return false;
    jobs = queue->policy.slots ? 0 : queue->stats.waiting_jobs;
    cn_list_for_each(node, &queue->links)
        if (queue->policy.slots)
            jobs += count_jobs(&cn_container_of(node, struct cn_worker_link, attached)->ready);
    if (jobs < hold->jobs ||
        (queue->policy.slots && count_jobs(&queue->aggregator.shared) < hold->backlog))
        return true;
    *hold = (struct cn_policy_hold){0, 0};
    return false;
}
