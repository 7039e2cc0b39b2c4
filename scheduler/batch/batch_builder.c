/* scheduler/batch/batch_builder.c - which rows make a worker's next batch, for models whose batches
 * the server builds (policy.h). On the model queue's loop.
 *
 * In each turn, each free worker gets one batch or nothing. There are two ways to build a batch.
 * With fixed rows (`direct`) the slot of a sequence is its row: every slot up to the last one with
 * work gets a row, and slots without work get padding. Otherwise rows are taken in the order of
 * their arrival, or of their priority, until the batch is full or the next row has another shape.
 *
 * Both ways may decide to wait, because a better batch may come. Then they return the time at which
 * waiting ends, and one timer for the whole queue wakes it at the earliest of these times. All rows
 * of a batch but the last one are sent with CN_ROW_JOINED, by which the worker knows where it ends.
 */
#include "scheduler/batch/batch_builder.h"

#include "core/time/clock.h"
#include "scheduler/batch/send.h"
#include "scheduler/queue/model_queue_priv.h"

/* --- by slots: a sequence's slot is its row, and rows without work are padding --- */

static struct cn_job *
ready_in(const struct cn_worker_link *link, uint32_t slot)
{
    struct cn_sequence *sequence = link->slots[slot];

    return sequence && sequence->group.place == CN_PLACE_HOME ? cn_job_group_next(&sequence->group)
                                                              : NULL;
}

/* Sends one batch by slots. The first row with work decides about the shape; rows of another shape
 * wait for the next batch, and padding goes in their place. */
static void
send_slots(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    const struct cn_model_io *io = queue->config.io;
    const struct cn_job *first = NULL;
    uint32_t end = 0;

    for (uint32_t slot = 0; slot < queue->policy.slots; slot++) {
        const struct cn_job *job = ready_in(link, slot);

        if (!job || (first && !cn_policy_fits(io, &first->row, &job->row)))
            continue;
        first = first ? first : job;
        end = slot + 1;
    }
    for (uint32_t slot = 0; slot < end; slot++) {
        const struct cn_job *job = ready_in(link, slot);

        if (job && cn_policy_fits(io, &first->row, &job->row))
            cn_send_next(queue, link, &link->slots[slot]->group, slot + 1 < end);
        else
            cn_worker_link_put_pad(link);
    }
}

/* Builds a batch by slots. Returns when to look again; CN_NEVER: not before something happens. */
static uint64_t
form_by_slots(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    uint64_t now = cn_loop_now_ms(queue->loop), oldest = CN_NEVER;
    uint32_t ready = 0;

    for (uint32_t slot = 0; link->n_ready && slot < queue->policy.slots; slot++) {
        const struct cn_job *job = ready_in(link, slot);

        if (!job)
            continue;
        ready++;
        oldest = job->arrived_ms < oldest ? job->arrived_ms : oldest;
    }
    if (ready == 0)
        return CN_NEVER;
    if (!cn_policy_utilized(&queue->policy, ready, oldest, now))
        return oldest + queue->policy.delay_ms;
    send_slots(queue, link);
    return CN_NEVER;
}

/* --- first come, first served --- */

/* A walk over the lists from which a link's next batch comes, in the order of serving. */
struct walk {
    struct cn_list *lists[2 * (CN_PRIORITY_LEVELS_MAX + 1)], *at;
    uint32_t n_lists, list;
};

static void
walk_begin(struct walk *walk, struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_level *levels = queue->aggregator.levels;

    walk->n_lists = walk->list = 0;
    if (!levels)
        walk->lists[walk->n_lists++] = &link->ready;
    for (uint32_t i = 0; levels && i <= queue->policy.batching->priority_levels; i++) {
        if (levels[i].n == 0)
            continue;
        walk->lists[walk->n_lists++] = &levels[i].ready;
        walk->lists[walk->n_lists++] = &levels[i].delayed;
    }
    walk->at = walk->n_lists ? walk->lists[0]->next : NULL;
}

/* Returns the next group; NULL at the end. The caller may take a group out of its list before it
 * asks for the next one. */
static struct cn_job_group *
walk_next(struct walk *walk)
{
    struct cn_list *node;

    while (walk->list < walk->n_lists && walk->at == walk->lists[walk->list])
        if (++walk->list < walk->n_lists)
            walk->at = walk->lists[walk->list]->next;
    if (walk->list >= walk->n_lists)
        return NULL;
    node = walk->at;
    walk->at = node->next;
    return cn_container_of(node, struct cn_job_group, ready);
}

/* Walks over the ready groups twice: once to see how many jobs go together, and, if they are to go
 * now, once more to send them. Returns when to look again, as form_by_slots() does. */
static uint64_t
form_in_order(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    const struct cn_model_io *io = queue->config.io;
    const struct cn_job *first = NULL;
    uint64_t now = cn_loop_now_ms(queue->loop), oldest = CN_NEVER;
    struct cn_policy_fill fill = {.n = 0};
    struct cn_job_group *group;
    struct walk walk;
    uint32_t n;

    walk_begin(&walk, queue, link);
    while (!fill.full && (group = walk_next(&walk))) {
        const struct cn_job *job = cn_job_group_next(group);

        if (first && !cn_policy_fits(io, &first->row, &job->row)) {
            fill.full = true;
            break;
        }
        if (!cn_policy_add(&queue->policy, &fill, job->rows))
            break;
        first = first ? first : job;
        oldest = job->arrived_ms < oldest ? job->arrived_ms : oldest;
    }
    if (fill.n == 0)
        return CN_NEVER;
    n = cn_policy_take(&queue->policy, &fill, oldest, now);
    if (n == 0)
        return oldest + queue->policy.delay_ms;
    walk_begin(&walk, queue, link);
    for (uint32_t i = 0; i < n; i++)
        cn_send_next(queue, link, walk_next(&walk), i + 1 < n);
    return CN_NEVER;
}

void
cn_batch_builder_dispatch(struct cn_model_queue *queue)
{
    uint64_t wake = CN_NEVER, again;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (!cn_worker_link_is_free(link))
            continue;
        again = queue->policy.fixed_rows ? form_by_slots(queue, link) : form_in_order(queue, link);
        wake = again < wake ? again : wake;
    }
    if (wake != CN_NEVER || cn_timer_armed(&queue->aggregator.delay))
        cn_timer_set(cn_loop_wheel(queue->loop), &queue->aggregator.delay, wake);
}
