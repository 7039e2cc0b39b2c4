/* scheduler/batch/pressure.c - measures how long jobs wait for workers. On the model queue's loop.
 *
 * The measure is the time that a job which could run waits for a worker
 * (docs/decisions/0025-workers-follow-queue-time.md). It costs two comparisons for each step,
 * because the time at which its group became ready is known when the step is sent. Jobs that still
 * wait are looked at only when the owner of the workers asks, and then only the first of each list,
 * which has waited longest.
 *
 * The time before the last worker came does not count (`since_us`). Otherwise a load that takes a
 * minute would look like a minute of waiting, and one more worker would be started for nothing.
 */
#include "scheduler/batch/pressure.h"

#include "scheduler/queue/model_queue_priv.h"

const char *
cn_model_queue_fixed_for(const struct cn_model_queue *queue)
{
    if (queue->policy.slots > 0)
        return "its sequences have slots in its workers (sequence_batching)";
    if (queue->stateful && queue->config.durability == CN_DURABILITY_NONE)
        return "its states exist only in its workers (durability none)";
    if (queue->config.use_job_ticket)
        return "its requests never wait (useJobTicket)";
    return NULL;
}

void
cn_model_queue_set_pressure(struct cn_model_queue *queue, void (*on_wait)(void *ctx), void *ctx,
                            uint32_t spread_ms)
{
    queue->pressure.on_wait = on_wait;
    queue->pressure.ctx = ctx;
    queue->pressure.spread_us = spread_ms * UINT64_C(1000);
}

/* Returns how long the job has waited, counted from when it could run or from when the last worker
 * came, whichever is later. */
uint64_t
cn_pressure_waited_us(const struct cn_model_queue *queue, uint64_t ready_us)
{
    uint64_t now_us = cn_loop_now_us(queue->loop), from_us = queue->pressure.since_us;

    if (ready_us > from_us)
        from_us = ready_us;
    return now_us > from_us ? now_us - from_us : 0;
}

void
cn_pressure_sent(struct cn_model_queue *queue, uint64_t ready_us)
{
    uint64_t us = cn_pressure_waited_us(queue, ready_us);

    if (us > queue->pressure.longest_us)
        queue->pressure.longest_us = us;
}

void
cn_pressure_worker_came(struct cn_model_queue *queue)
{
    queue->pressure.since_us = cn_loop_now_us(queue->loop);
    queue->pressure.longest_us = 0;
}

static void
look_at_front(struct cn_model_queue *queue, struct cn_list *groups)
{
    if (!cn_list_empty(groups))
        cn_pressure_sent(
            queue,
            cn_job_group_next(cn_container_of(groups->next, struct cn_job_group, ready))->ready_us);
}

uint64_t
cn_model_queue_take_wait(struct cn_model_queue *queue)
{
    uint64_t allowed_us = (queue->config.max_batch_delay_ms + queue->policy.delay_ms) * 1000;
    uint64_t us;
    struct cn_list *node;

    look_at_front(queue, &queue->aggregator.shared);
    for (uint32_t i = 0; queue->aggregator.levels && i <= queue->policy.batching->priority_levels;
         i++) {
        look_at_front(queue, &queue->aggregator.levels[i].ready);
        look_at_front(queue, &queue->aggregator.levels[i].delayed);
    }
    cn_list_for_each(node, &queue->links)
        look_at_front(queue, &cn_container_of(node, struct cn_worker_link, attached)->ready);
    us = queue->pressure.longest_us;
    queue->pressure.longest_us = 0;
    return us > allowed_us ? (us - allowed_us) / 1000 : 0;
}

void
cn_pressure_wanted(struct cn_model_queue *queue)
{
    if (!queue->pressure.on_wait || queue->n_links > 0)
        return;
    queue->pressure.wanted = true;
    cn_queue_wake(queue);
}

void
cn_pressure_turn_end(struct cn_model_queue *queue)
{
    if (!queue->pressure.on_wait || queue->closed ||
        (queue->stats.waiting_jobs == 0 && !queue->pressure.wanted))
        return;
    queue->pressure.on_wait(queue->pressure.ctx);
}

bool
cn_model_queue_take_wanted(struct cn_model_queue *queue)
{
    bool wanted = queue->pressure.wanted;

    queue->pressure.wanted = false;
    return wanted;
}
