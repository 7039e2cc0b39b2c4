/* scheduler/batch/spread.c - moves sequences from a busy worker to one with room. On the model
 * queue's loop.
 *
 * Sequences stay with the worker that has their state in memory. If a step has waited too long
 * there while another worker has room, it is sent to that one, which reads the state from the store
 * and is the sequence's home from then on (docs/decisions/0025-workers-follow-queue-time.md).
 */
#include "scheduler/batch/pressure.h"
#include "scheduler/batch/send.h"
#include "scheduler/queue/model_queue_priv.h"

/* A worker that has at most half of the rows of `busy` and takes more; NULL: there is none. */
static struct cn_worker_link *
find_room(struct cn_model_queue *queue, const struct cn_worker_link *busy)
{
    struct cn_worker_link *best = NULL;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (link == busy || link->n_ready > 0 || cn_worker_link_credit(link) == 0 ||
            2 * cn_worker_link_rows(link) > cn_worker_link_rows(busy))
            continue;
        if (!best || cn_worker_link_rows(link) < cn_worker_link_rows(best))
            best = link;
    }
    return best;
}

/* The oldest group of a link without credit, if it has waited too long; else NULL. A sequence whose
 * earlier step still streams stays where that stream is. */
static struct cn_job_group *
find_stuck(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_job_group *group;

    if (cn_list_empty(&link->ready) || cn_worker_link_credit(link) > 0)
        return NULL;
    group = cn_container_of(link->ready.next, struct cn_job_group, ready);
    if (cn_container_of(group, struct cn_sequence, group)->streams > 0 ||
        cn_pressure_waited_us(queue, cn_job_group_next(group)->ready_us) <
            queue->pressure.spread_us)
        return NULL;
    return group;
}

void
cn_pressure_spread(struct cn_model_queue *queue)
{
    struct cn_job_group *group;
    struct cn_worker_link *to;
    struct cn_list *node;

    if (queue->pressure.spread_us == 0 || queue->n_links < 2)
        return;
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        while ((group = find_stuck(queue, link)) && (to = find_room(queue, link)))
            cn_send_next(queue, to, group, false);
    }
}
