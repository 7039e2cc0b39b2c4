/* management/pool/pool_scaling.c - the workers of a pool follow the load: when to look at it, and
 * what to do then. autoscale.c decides. On the queue's loop.
 *
 * Nothing runs while there is nothing to look at. The queue wakes the pool at the end of a turn
 * that leaves jobs waiting; from then on a timer looks at the load every quarter of
 * scaleUpQueueMSec. When nothing waits any more but there are more workers than the least number,
 * it looks every quarter of scaleDownIdleMSec instead.
 */
#include "core/log/log.h"
#include "management/pool/worker_pool_priv.h"
#include "scheduler/batch/pressure.h"

#define TICK_LEAST_MS 10 /* least time between two looks at the load */
#define TICK_MOST_MS 5000

void
cn_worker_pool_see(struct cn_worker_pool *pool, struct cn_autoscale_seen *seen)
{
    struct cn_model_queue_stats stats;

    cn_model_queue_stats(pool->queue, &stats);
    *seen = (struct cn_autoscale_seen){
        .now_ms = cn_loop_now_ms(pool->spec.loop),
        .wait_ms = cn_model_queue_take_wait(pool->queue),
        .busy_us = cn_metrics_sum(cn_model_queue_metrics(pool->queue), CN_M_HANDLER_TIME),
        .jobs = stats.jobs,
        .waiting = stats.waiting_jobs > 0,
        .active = stats.in_flight_jobs > 0,
        .settled = cn_worker_pool_count(pool, cn_worker_pool_worker_is_ready) == pool->wanted,
        .wanted = pool->wanted,
        .min = pool->min,
        .max = pool->max,
    };
    if (cn_model_queue_take_wanted(pool->queue))
        seen->waiting = true;
}

void
cn_worker_pool_arm_tick(struct cn_worker_pool *pool, const struct cn_autoscale_seen *seen)
{
    uint64_t delay_ms = pool->autoscale.down_ms / 4;

    if (seen->waiting || !seen->settled)
        delay_ms = pool->autoscale.up_ms / 4;
    else if (pool->wanted <= pool->min || pool->autoscale.down_ms == 0)
        return;
    if (delay_ms < TICK_LEAST_MS)
        delay_ms = TICK_LEAST_MS;
    if (delay_ms > TICK_MOST_MS)
        delay_ms = TICK_MOST_MS;
    cn_timer_set(cn_loop_wheel(pool->spec.loop), &pool->tick, seen->now_ms + delay_ms);
}

void
cn_worker_pool_on_tick(struct cn_timer *timer)
{
    struct cn_worker_pool *pool = cn_container_of(timer, struct cn_worker_pool, tick);
    struct cn_autoscale_seen seen;
    enum cn_scale_reason reason;
    uint32_t wanted;

    if (!pool->queue || pool->close || !pool->scaling.automatic)
        return;
    cn_worker_pool_see(pool, &seen);
    wanted = cn_autoscale_decide(&pool->autoscale, &seen, &reason);
    if (reason != CN_SCALED_NOT) {
        cn_metrics_add(cn_model_queue_metrics(pool->queue),
                       wanted > pool->wanted ? CN_M_SCALE_UPS : CN_M_SCALE_DOWNS, 1);
        cn_log(CN_LOG_INFO,
               "event=workers_scaled model=%s version=%s from=%u to=%u reason=%s wait_ms=%llu",
               pool->spec.about->name, pool->spec.about->version, pool->wanted, wanted,
               cn_scale_reason_word(reason), (unsigned long long)seen.wait_ms);
        cn_worker_pool_end_scalings(pool, CN_SCALE_SUPERSEDED,
                                    "the load changed the number of workers");
        cn_worker_pool_note_scaling(pool, wanted, reason);
        cn_worker_pool_run_workers(pool, wanted);
        seen.settled = false;
    }
    cn_worker_pool_arm_tick(pool, &seen);
}

/* Called by the queue at the end of a turn that left steps waiting. */
static void
on_wait(void *ctx)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, ctx, CN_SLAB_MAGIC);
    uint64_t at_ms = cn_loop_now_ms(pool->spec.loop);

    if (pool->wanted > 0)
        at_ms += pool->autoscale.up_ms / 4 + TICK_LEAST_MS;
    if (!cn_timer_armed(&pool->tick) || pool->tick.deadline_ms > at_ms)
        cn_timer_set(cn_loop_wheel(pool->spec.loop), &pool->tick, at_ms);
}

void
cn_worker_pool_begin_scaling(struct cn_worker_pool *pool)
{
    const struct cn_model_config *config = &pool->spec.about->config;

    pool->autoscale.up_ms = config->scale_up_queue_ms;
    pool->autoscale.down_ms = config->scale_down_idle_ms;
    if (!pool->spec.scales || config->scale_up_queue_ms == 0)
        return;
    pool->scaling.fixed_for = cn_model_queue_fixed_for(pool->queue);
    pool->scaling.automatic = !pool->scaling.fixed_for;
    if (pool->scaling.automatic)
        cn_model_queue_set_pressure(pool->queue, on_wait, pool,
                                    (config->scale_up_queue_ms + 1) / 2);
    else if (config->max_workers > config->min_workers)
        cn_log(
            CN_LOG_WARN,
            "event=workers_fixed model=%s version=%s workers=%u note=\"maxWorkers has no effect: "
            "%s\"",
            pool->spec.about->name, pool->spec.about->version, config->min_workers,
            pool->scaling.fixed_for);
}
