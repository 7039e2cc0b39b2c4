/* scheduler/batch/aggregator.c - gives ready jobs to workers, once a turn. On the model queue's
 * loop.
 *
 * The life of a group here: cn_ready_place() puts it into one list as soon as its next job can run
 * (ready_lists.c), at the end of each turn cn_aggregator_dispatch() sends what workers have credit
 * for (send.c), and with that the group leaves its list. When its job is answered, the group is
 * placed again.
 *
 * Rows leave as soon as there is credit (worker_credit.c), and the worker builds its batch from the
 * rows that have arrived when its handler is free
 * (docs/decisions/0003-the-worker-forms-the-batch.md). So a frame is not a batch: its end only says
 * where a read of the worker may stop. Models whose policy says `forms` are different:
 * batch_builder.c sends them whole batches to idle workers.
 *
 * Calls go one way: from here to slots.c, batch_builder.c and spread.c, which choose, from these to
 * send.c, and from there to ready_lists.c and to the worker link.
 *
 * Invariants:
 * - A sequence has at most one job in flight, so a batch cannot have two rows of one sequence.
 * - While suspects wait, nothing else is sent: see send_suspects().
 * - Each BATCH frame that is begun in a turn is ended in the same turn.
 */
#include "scheduler/batch/aggregator.h"

#include "core/time/clock.h"
#include "scheduler/batch/batch_builder.h"
#include "scheduler/batch/send.h"
#include "scheduler/batch/slots.h"
#include "scheduler/queue/model_queue_priv.h"

static struct cn_job_group *
front(struct cn_list *list)
{
    return cn_list_empty(list) ? NULL : cn_container_of(list->next, struct cn_job_group, ready);
}

/* Sends suspects: jobs that were in flight in a worker that died. Each of them goes alone to an
 * idle worker, so that one more death shows which of them did it. While a suspect waits, no worker
 * gets anything else, so that each worker becomes idle soon. Rows that stream do not count: they
 * are never sent again, so the next death cannot be theirs a second time. Returns true while
 * suspects wait. */
static bool
send_suspects(struct cn_model_queue *queue)
{
    struct cn_list *suspects = &queue->aggregator.suspects, *node;

    if (cn_list_empty(suspects))
        return false;
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_list_empty(suspects))
            break;
        if (cn_worker_link_rows(link) > 0 || cn_worker_link_credit(link) == 0)
            continue;
        cn_send_alone(queue, link, front(suspects));
        cn_worker_link_credit_to(link, CN_CREDIT_ALONE);
    }
    return !cn_list_empty(suspects);
}

/* An idle worker waits for a full batch if the model asks for that (maxBatchDelay). Returns the
 * time at which the waiting ends; 0: it does not wait. */
static uint64_t
held_until(const struct cn_model_queue *queue, struct cn_worker_link *link)
{
    uint32_t ready = link->n_ready + queue->aggregator.n_shared;
    struct cn_job_group *home = front(&link->ready);
    struct cn_job_group *shared = front((struct cn_list *)&queue->aggregator.shared);
    uint64_t oldest = CN_NEVER;

    if (queue->config.max_batch_delay_ms == 0 || link->n_in_flight > 0 || ready == 0 ||
        ready >= queue->config.batch_size)
        return 0;
    if (home)
        oldest = cn_job_group_next(home)->arrived_ms;
    if (shared && cn_job_group_next(shared)->arrived_ms < oldest)
        oldest = cn_job_group_next(shared)->arrived_ms;
    return oldest + queue->config.max_batch_delay_ms;
}

/* Marks the links that wait for a full batch, and sets the timer that ends the waiting. Returns
 * true if one of them waits. */
static bool
hold_links(struct cn_model_queue *queue)
{
    uint64_t now = cn_loop_now_ms(queue->loop), wake = CN_NEVER, until;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        link->taken = 0;
        link->was_idle = link->n_in_flight == 0;
        until = cn_worker_link_credit(link) > 0 ? held_until(queue, link) : 0;
        link->held = until > now;
        if (link->held && until < wake)
            wake = until;
    }
    if (wake != CN_NEVER || cn_timer_armed(&queue->aggregator.delay))
        cn_timer_set(cn_loop_wheel(queue->loop), &queue->aggregator.delay, wake);
    return wake != CN_NEVER;
}

/* Chooses the worker for a shared group; NULL: none can take it now. If one worker is held back
 * until its batch is full, the workers that were busy when this dispatch began get nothing:
 * otherwise they would take the rows that the waiting one waits for. */
static struct cn_worker_link *
choose(struct cn_model_queue *queue, bool any_held)
{
    bool fill = !queue->stateful && queue->config.max_batch_delay_ms > 0;
    struct cn_worker_link *best = NULL;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_worker_link_credit(link) == 0 || link->held || (any_held && !link->was_idle))
            continue;
        if (fill && link->taken > 0 && link->taken < queue->config.batch_size)
            return link; /* it waited for a full batch, so let it be full */
        if (!best || cn_worker_link_better(link, best))
            best = link;
    }
    /* Among equals the first in the list is taken. Moving it to the back lets them take turns. */
    if (best) {
        cn_list_remove(&best->attached);
        cn_list_push_back(&queue->links, &best->attached);
    }
    return best;
}

/* Sends groups without a home. Each is compared with the first group at home where it would go, and
 * the older of the two goes first, so that neither kind can starve the other. */
static void
send_shared(struct cn_model_queue *queue, bool any_held)
{
    struct cn_job_group *group, *home;

    while ((group = front(&queue->aggregator.shared))) {
        struct cn_worker_link *link = choose(queue, any_held);

        if (!link)
            return;
        home = front(&link->ready);
        if (home && cn_job_group_next(home)->row.job_id < cn_job_group_next(group)->row.job_id)
            group = home;
        cn_send_next(queue, link, group, false);
    }
}

static void
send_ready(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_job_group *group;

    while (!link->held && (group = front(&link->ready)) && cn_worker_link_credit(link) > 0)
        cn_send_next(queue, link, group, false);
}

/* Once a turn, in this order: questions and slots, suspects, then shared groups and batches, then
 * what waits at each home. Frames end at last, and the clock of each worker with rows in flight is
 * set. */
void
cn_aggregator_dispatch(struct cn_model_queue *queue)
{
    struct cn_list *node;

    if (queue->policy.slots) {
        cn_slots_send_probes(queue);
        cn_slots_give(queue);
    }
    if (cn_slots_held_back(queue))
        return;
    if (queue->policy.forms) {
        if (!send_suspects(queue))
            cn_batch_builder_dispatch(queue);
    } else if (queue->stats.waiting_jobs > 0 && !send_suspects(queue)) {
        bool any_held = hold_links(queue);

        if (!queue->policy.slots)
            send_shared(queue, any_held);
        if (!any_held)
            cn_pressure_spread(queue);
    }
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_list_empty(&queue->aggregator.suspects) && !queue->policy.forms)
            send_ready(queue, link);
        cn_worker_link_end_frame(link);
        if (link->n_in_flight > 0)
            cn_worker_link_watch_progress(link);
    }
}
