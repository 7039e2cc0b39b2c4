/* management/worker_pool.c - the model queue and the workers of one model version.
 *
 * Everything here runs on the queue's loop, except the cn_worker_pool_...
 * functions themselves, which loop 0 calls and which only post. */
#include "management/worker_pool.h"

#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/panic.h"
#include "management/call.h"
#include "scheduler/pressure.h"

#define POOL_MAGIC 0x706f6f6cu
#define TICK_LEAST_MS 10 /* between two looks at the load */
#define TICK_MOST_MS 5000

struct slot {
    struct cn_list link;
    struct cn_worker *worker;
};

struct cn_worker_pool {
    uint32_t magic;
    struct cn_pool_spec spec;
    struct cn_worker_spec workers_spec;
    struct cn_error_lines error_lines;
    struct cn_model_queue *queue;
    struct cn_list slots;    /* by age */
    bool unforkable;         /* its zygote has said so */
    struct cn_list scalings; /* struct cn_pool_scale: orders that wait for their outcome */
    uint32_t wanted;         /* workers that should run */
    uint32_t min, max;       /* bounds of that, as last ordered */
    struct cn_autoscale autoscale;
    struct cn_pool_scaling scaling;
    struct cn_timer tick;        /* of scaling by load; armed while there is something to look at */
    bool emptied;                /* closing: no job is left, the workers are stopping */
    struct cn_pool_close *close; /* the order to close; NULL: none yet */
    char last_error[CN_LAST_WORDS_MAX];
    struct cn_deferred check; /* at the end of the turn: numbers changed */
};

static struct slot *
slot_of(struct cn_list *node)
{
    return cn_container_of(node, struct slot, link);
}

/* --- the numbers that others go by */

static uint32_t
count_workers(const struct cn_worker_pool *pool, bool (*counts)(const struct cn_worker *worker))
{
    struct cn_list *node;
    uint32_t n = 0;

    cn_list_for_each(node, &pool->slots)
        n += counts(slot_of(node)->worker);
    return n;
}

static bool
is_ready(const struct cn_worker *worker)
{
    return cn_worker_state(worker) == CN_WORKER_READY;
}

static bool
is_staying(const struct cn_worker *worker)
{
    return cn_worker_state(worker) != CN_WORKER_STOPPING;
}

static bool
is_any(const struct cn_worker *worker)
{
    (void)worker;
    return true;
}

static void
answer_scale(void *ctx)
{
    struct cn_pool_scale *scale = ctx;

    scale->on_done(scale);
}

static void
end_scalings(struct cn_worker_pool *pool, enum cn_scale_outcome outcome, const char *why)
{
    struct cn_pool_scale *scale;
    struct cn_list *node;

    while ((node = cn_list_pop_front(&pool->scalings))) {
        scale = cn_container_of(node, struct cn_pool_scale, link);
        scale->outcome = outcome;
        snprintf(scale->why, sizeof scale->why, "%s", why);
        cn_call_on(pool->spec.home, answer_scale, scale);
    }
}

/* There is no worker, but the next step has one started. */
static bool
is_on_demand(const struct cn_worker_pool *pool)
{
    return pool->scaling.automatic && pool->wanted == 0 && pool->max > 0 && !pool->close;
}

static void
tell_queue(struct cn_worker_pool *pool)
{
    char reason[CN_LAST_WORDS_MAX];
    uint32_t coming = count_workers(pool, cn_worker_is_coming);

    if (is_on_demand(pool))
        coming++;
    if (pool->last_error[0])
        snprintf(reason, sizeof reason, "%s", pool->last_error);
    else /* TorchServe's words */
        snprintf(
            reason, sizeof reason,
            "Model \"%s\" has no worker to serve inference request. Please use scale workers API "
            "to add workers.",
            pool->spec.about->name);
    cn_model_queue_set_expected(pool->queue, coming, reason);
}

static void
answer_close(void *ctx)
{
    struct cn_pool_close *order = ctx;

    order->on_done(order);
}

static void
finish_close(struct cn_worker_pool *pool)
{
    struct cn_pool_close *order = pool->close;

    cn_error_lines_fini(&pool->error_lines);
    cn_model_queue_destroy(pool->queue);
    pool->queue = NULL;
    pool->close = NULL;
    cn_call_on(pool->spec.home, answer_close, order);
}

static void
check_pool(struct cn_deferred *deferred)
{
    struct cn_worker_pool *pool = cn_container_of(deferred, struct cn_worker_pool, check);
    uint32_t ready = count_workers(pool, is_ready);

    if (!pool->queue)
        return;
    tell_queue(pool);
    atomic_store_explicit(&pool->spec.health->ready, ready, memory_order_relaxed);
    if (ready == pool->wanted && count_workers(pool, is_any) == pool->wanted)
        end_scalings(pool, CN_SCALE_DONE, "");
    if (pool->emptied && cn_list_empty(&pool->slots) && !pool->workers_spec.zygote)
        finish_close(pool);
}

static void
check_soon(struct cn_worker_pool *pool)
{
    cn_loop_defer(pool->spec.loop, &pool->check);
}

/* --- the workers */

static void
on_change(void *owner, struct cn_worker *worker)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, POOL_MAGIC);

    if (is_ready(worker))
        pool->last_error[0] = '\0';
    check_soon(pool);
}

static void
on_load_failed(void *owner, struct cn_worker *worker, const char *why)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, POOL_MAGIC);

    (void)worker;
    snprintf(pool->last_error, sizeof pool->last_error, "%s", why);
    end_scalings(pool, CN_SCALE_FAILED, why);
    check_soon(pool);
}

static void
on_gone(void *owner, struct cn_worker *worker)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, POOL_MAGIC);
    struct cn_list *node, *tmp;

    cn_list_for_each_safe(node, tmp, &pool->slots) {
        if (slot_of(node)->worker != worker)
            continue;
        cn_list_remove(node);
        cn_free(slot_of(node));
    }
    cn_worker_destroy(worker);
    check_soon(pool);
}

static const struct cn_worker_ops worker_ops = {
    .on_change = on_change, .on_load_failed = on_load_failed, .on_gone = on_gone};

/* --- the zygote: what goes wrong with it shows in the workers that wait for it */

static void run_zygote(struct cn_worker_pool *pool);

static void
on_zygote_change(void *owner, struct cn_worker *zygote)
{
    (void)owner;
    (void)zygote;
}

static void
on_zygote_failed(void *owner, struct cn_worker *zygote, const char *why)
{
    (void)owner;
    (void)zygote;
    (void)why;
}

static void
on_zygote_gone(void *owner, struct cn_worker *zygote)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, POOL_MAGIC);

    pool->unforkable = cn_worker_declined(zygote);
    pool->workers_spec.zygote = NULL;
    cn_worker_destroy(zygote);
    if (pool->wanted > 0)
        run_zygote(pool); /* it was stopped, but workers are wanted again */
    check_soon(pool);
}

static const struct cn_worker_ops zygote_ops = {
    .on_change = on_zygote_change, .on_load_failed = on_zygote_failed, .on_gone = on_zygote_gone};

static void
run_zygote(struct cn_worker_pool *pool)
{
    struct cn_worker *zygote = pool->workers_spec.zygote;

    if (pool->wanted == 0 && zygote)
        cn_worker_stop(zygote);
    else if (pool->wanted > 0 && !zygote && !pool->unforkable &&
             cn_model_preloads(pool->spec.about))
        pool->workers_spec.zygote = cn_worker_create(&pool->workers_spec, 0, 0, &zygote_ops, pool);
}

/* The smallest number that no worker has: stores and logs show few, small numbers. */
static uint32_t
free_index(const struct cn_worker_pool *pool)
{
    uint32_t index = 1;
    struct cn_list *node = pool->slots.next;

    while (node != &pool->slots) {
        if (cn_worker_index(slot_of(node)->worker) == index) {
            index++;
            node = pool->slots.next;
        } else {
            node = node->next;
        }
    }
    return index;
}

static void
add_worker(struct cn_worker_pool *pool)
{
    struct slot *slot = cn_alloc(sizeof *slot);
    uint32_t id = atomic_fetch_add_explicit(pool->spec.next_worker_id, 1, memory_order_relaxed);

    slot->worker = cn_worker_create(&pool->workers_spec, free_index(pool), id, &worker_ops, pool);
    cn_list_push_back(&pool->slots, &slot->link);
}

static void
stop_youngest(struct cn_worker_pool *pool, uint32_t count)
{
    struct cn_list *node;

    for (node = pool->slots.prev; count > 0 && node != &pool->slots; node = node->prev) {
        if (!is_staying(slot_of(node)->worker))
            continue;
        cn_worker_stop(slot_of(node)->worker);
        count--;
    }
}

static void
tell_health(struct cn_worker_pool *pool)
{
    uint32_t least = pool->wanted < pool->min ? pool->wanted : pool->min;

    atomic_store_explicit(&pool->spec.health->wanted, least, memory_order_relaxed);
    atomic_store_explicit(&pool->spec.health->on_demand, is_on_demand(pool), memory_order_relaxed);
    cn_metrics_set(cn_model_queue_metrics(pool->queue), CN_M_WORKERS_WANTED, pool->wanted);
}

static void
note_scaling(struct cn_worker_pool *pool, uint32_t wanted, enum cn_scale_reason reason)
{
    if (wanted == pool->wanted)
        return;
    pool->scaling.from = pool->wanted;
    pool->scaling.to = wanted;
    pool->scaling.reason = reason;
    pool->scaling.wall_ms = cn_wall_ms();
}

static void
run_workers(struct cn_worker_pool *pool, uint32_t wanted)
{
    uint32_t staying = count_workers(pool, is_staying);

    pool->wanted = wanted;
    tell_health(pool);
    if (wanted == 0)
        pool->last_error[0] = '\0'; /* an operator's wish, no failure */
    if (wanted > 0)
        run_zygote(pool); /* before the workers that order from it */
    for (; staying < wanted; staying++)
        add_worker(pool);
    if (staying > wanted)
        stop_youngest(pool, staying - wanted);
    if (wanted == 0)
        run_zygote(pool); /* after the workers that wait for it */
    tell_queue(pool);     /* now: a job may be right behind the order in the mailbox */
    check_soon(pool);
}

/* --- workers by load */

static void
see(struct cn_worker_pool *pool, struct cn_autoscale_seen *seen)
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
        .settled = count_workers(pool, is_ready) == pool->wanted,
        .wanted = pool->wanted,
        .min = pool->min,
        .max = pool->max,
    };
    if (cn_model_queue_take_wanted(pool->queue))
        seen->waiting = true;
}

/* Often while steps wait, a few times in scaleDownIdleMSec while there is a worker more than need be, else
 * not at all. */
static void
arm_tick(struct cn_worker_pool *pool, const struct cn_autoscale_seen *seen)
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

static void
on_tick(struct cn_timer *timer)
{
    struct cn_worker_pool *pool = cn_container_of(timer, struct cn_worker_pool, tick);
    struct cn_autoscale_seen seen;
    enum cn_scale_reason reason;
    uint32_t wanted;

    if (!pool->queue || pool->close || !pool->scaling.automatic)
        return;
    see(pool, &seen);
    wanted = cn_autoscale_decide(&pool->autoscale, &seen, &reason);
    if (reason != CN_SCALED_NOT) {
        cn_metrics_add(cn_model_queue_metrics(pool->queue),
                       wanted > pool->wanted ? CN_M_SCALE_UPS : CN_M_SCALE_DOWNS, 1);
        cn_log(CN_LOG_INFO,
               "event=workers_scaled model=%s version=%s from=%u to=%u reason=%s wait_ms=%llu",
               pool->spec.about->name, pool->spec.about->version, pool->wanted, wanted,
               cn_scale_reason_word(reason), (unsigned long long)seen.wait_ms);
        end_scalings(pool, CN_SCALE_SUPERSEDED, "the load changed the number of workers");
        note_scaling(pool, wanted, reason);
        run_workers(pool, wanted);
        seen.settled = false;
    }
    arm_tick(pool, &seen);
}

/* The end of a turn that left steps waiting. */
static void
on_wait(void *ctx)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, ctx, POOL_MAGIC);
    uint64_t at_ms = cn_loop_now_ms(pool->spec.loop);

    if (pool->wanted > 0)
        at_ms += pool->autoscale.up_ms / 4 + TICK_LEAST_MS;
    if (!cn_timer_armed(&pool->tick) || pool->tick.deadline_ms > at_ms)
        cn_timer_set(cn_loop_wheel(pool->spec.loop), &pool->tick, at_ms);
}

/* Workers follow the load where the server and the model want it, and the model can. */
static void
begin_scaling(struct cn_worker_pool *pool)
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
        cn_log(CN_LOG_WARN,
               "event=workers_fixed model=%s version=%s workers=%u note=\"maxWorkers starts none: "
               "%s\"",
               pool->spec.about->name, pool->spec.about->version, config->min_workers,
               pool->scaling.fixed_for);
}

/* --- orders, as carried out on the queue's loop */

struct cn_worker_pool *
cn_worker_pool_create(const struct cn_pool_spec *spec)
{
    struct cn_worker_pool *pool = cn_alloc(sizeof *pool);

    pool->magic = POOL_MAGIC;
    pool->spec = *spec;
    cn_list_init(&pool->slots);
    cn_list_init(&pool->scalings);
    cn_list_init(&pool->check.link);
    cn_error_lines_init(&pool->error_lines, spec->loop, spec->about, spec->error_lines);
    pool->check.fn = check_pool;
    cn_timer_init(&pool->tick, on_tick);
    return pool;
}

static void
answer_start(void *ctx)
{
    struct cn_pool_start *start = ctx;

    start->on_done(start);
}

static void
do_start(void *ctx)
{
    struct cn_pool_start *start = ctx;
    struct cn_worker_pool *pool = start->pool;

    pool->queue = cn_model_queue_create(pool->spec.loop, pool->spec.about->name,
                                        pool->spec.about->version, &pool->spec.about->config);
    cn_model_queue_set_family(pool->queue, pool->spec.family);
    pool->workers_spec = (struct cn_worker_spec){
        .loop = pool->spec.loop,
        .queue = pool->queue,
        .about = pool->spec.about,
        .store_dir = pool->spec.store_dir,
        .program = pool->spec.program,
        .lock_fd = pool->spec.lock_fd,
        .max_frame_bytes = pool->spec.max_frame_bytes,
        .error_lines = &pool->error_lines,
    };
    begin_scaling(pool);
    check_soon(pool);
    start->queue = pool->queue;
    cn_call_on(pool->spec.home, answer_start, start);
}

void
cn_worker_pool_start(struct cn_worker_pool *pool, struct cn_pool_start *start)
{
    start->pool = pool;
    cn_call_on(pool->spec.loop, do_start, start);
}

static void
do_scale(void *ctx)
{
    struct cn_pool_scale *scale = ctx;
    struct cn_worker_pool *pool = scale->pool;
    struct cn_autoscale_seen seen;
    uint32_t wanted = pool->wanted;

    end_scalings(pool, CN_SCALE_SUPERSEDED, "another order to scale came");
    cn_list_init(&scale->link);
    cn_list_push_back(&pool->scalings, &scale->link);
    if (pool->close || !pool->queue) {
        end_scalings(pool, CN_SCALE_SUPERSEDED, "the model is being unregistered");
        return;
    }
    if (wanted < scale->min)
        wanted = scale->min;
    if (wanted > scale->max)
        wanted = scale->max;
    pool->min = scale->min;
    pool->max = scale->max;
    note_scaling(pool, wanted, CN_SCALED_ORDER);
    run_workers(pool, wanted);
    if (pool->scaling.automatic) {
        see(pool, &seen);
        cn_autoscale_restart(&pool->autoscale, &seen);
        arm_tick(pool, &seen);
    }
}

void
cn_worker_pool_scale(struct cn_worker_pool *pool, struct cn_pool_scale *scale)
{
    scale->pool = pool;
    cn_call_on(pool->spec.loop, do_scale, scale);
}

static void
answer_facts(void *ctx)
{
    struct cn_pool_facts *facts = ctx;

    facts->on_done(facts);
}

/* The workers of one store all tell its size; without a store each has its own. */
static void
add_worker_gauges(struct cn_pool_facts *facts, bool one_store)
{
    struct cn_worker_stats sum = {0};
    uint32_t i;

    for (i = 0; i < facts->n_workers; i++) {
        const struct cn_worker_stats *stats = &facts->workers[i].stats;

        sum.rss_bytes += stats->rss_bytes;
        sum.cached_sequences += stats->cached_sequences;
        sum.cached_bytes += stats->cached_bytes;
        if (!one_store || stats->stored_sequences > sum.stored_sequences)
            sum.stored_sequences = stats->stored_sequences + (one_store ? 0 : sum.stored_sequences);
        if (!one_store || stats->stored_bytes > sum.stored_bytes)
            sum.stored_bytes = stats->stored_bytes + (one_store ? 0 : sum.stored_bytes);
    }
    cn_metrics_set(&facts->metrics, CN_M_WORKER_BYTES, sum.rss_bytes);
    cn_metrics_set(&facts->metrics, CN_M_STATES_CACHED, sum.cached_sequences);
    cn_metrics_set(&facts->metrics, CN_M_STATE_CACHED_BYTES, sum.cached_bytes);
    cn_metrics_set(&facts->metrics, CN_M_STATES_STORED, sum.stored_sequences);
    cn_metrics_set(&facts->metrics, CN_M_STATE_STORED_BYTES, sum.stored_bytes);
}

static void
take_metrics(struct cn_worker_pool *pool, struct cn_pool_facts *facts)
{
    memset(&facts->metrics, 0, sizeof facts->metrics);
    facts->series = (struct cn_series_copy){0};
    if (!pool->queue)
        return;
    cn_metrics_copy(&facts->metrics, cn_model_queue_metrics(pool->queue));
    cn_metrics_set(&facts->metrics, CN_M_SEQUENCES_LIVE, facts->queue.live_sequences);
    cn_metrics_set(&facts->metrics, CN_M_JOBS_WAITING, facts->queue.waiting_jobs);
    cn_metrics_set(&facts->metrics, CN_M_JOBS_IN_FLIGHT, facts->queue.in_flight_jobs);
    add_worker_gauges(facts, pool->spec.store_dir[0] != '\0');
    if (facts->wants_series)
        cn_handler_metrics_copy(cn_model_queue_handler_metrics(pool->queue), &facts->series);
}

static void
do_facts(void *ctx)
{
    struct cn_pool_facts *facts = ctx;
    struct cn_worker_pool *pool = facts->pool;
    struct cn_list *node;
    uint32_t i = 0;

    facts->n_workers = count_workers(pool, is_any);
    facts->workers = cn_alloc((facts->n_workers + 1) * sizeof *facts->workers);
    cn_list_for_each(node, &pool->slots)
        cn_worker_facts(slot_of(node)->worker, &facts->workers[i++]);
    facts->has_zygote = pool->workers_spec.zygote != NULL;
    if (facts->has_zygote)
        cn_worker_facts(pool->workers_spec.zygote, &facts->zygote);
    facts->queue = (struct cn_model_queue_stats){0};
    if (pool->queue)
        cn_model_queue_stats(pool->queue, &facts->queue);
    facts->scaling = pool->scaling;
    facts->scaling.wanted = pool->wanted;
    take_metrics(pool, facts);
    snprintf(facts->last_error, sizeof facts->last_error, "%s", pool->last_error);
    cn_call_on(pool->spec.home, answer_facts, facts);
}

void
cn_worker_pool_facts(struct cn_worker_pool *pool, struct cn_pool_facts *facts)
{
    facts->pool = pool;
    cn_call_on(pool->spec.loop, do_facts, facts);
}

void
cn_pool_facts_fini(struct cn_pool_facts *facts)
{
    cn_free(facts->workers);
    facts->workers = NULL;
    cn_series_copy_fini(&facts->series);
}

/* --- the end */

static void
on_empty(void *ctx)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, ctx, POOL_MAGIC);

    if (pool->close->close_sequences)
        cn_model_queue_close_sequences(pool->queue, CN_CLOSE_UNLOADED);
    pool->emptied = true;
    cn_timer_cancel(&pool->tick);
    run_workers(pool, 0);
}

static void
do_close(void *ctx)
{
    struct cn_pool_close *order = ctx;
    struct cn_worker_pool *pool = order->pool;

    cn_assert(!pool->close && pool->queue);
    end_scalings(pool, CN_SCALE_SUPERSEDED, order->reason);
    pool->close = order;
    cn_model_queue_close(pool->queue, order->code, order->reason, order->drop_waiting, on_empty,
                         pool);
}

void
cn_worker_pool_close(struct cn_worker_pool *pool, struct cn_pool_close *order)
{
    order->pool = pool;
    cn_call_on(pool->spec.loop, do_close, order);
}

static void
do_hurry(void *ctx)
{
    struct cn_worker_pool *pool = ctx;

    if (pool->close && !pool->emptied)
        cn_model_queue_close(pool->queue, pool->close->code, pool->close->reason, true, on_empty,
                             pool);
}

static void
do_stop_streams(void *ctx)
{
    struct cn_worker_pool *pool = ctx;

    if (pool->close && !pool->emptied)
        cn_model_queue_stop_streams(pool->queue);
}

void
cn_worker_pool_stop_streams(struct cn_worker_pool *pool)
{
    cn_call_on(pool->spec.loop, do_stop_streams, pool);
}

static void
do_kill(void *ctx)
{
    struct cn_worker_pool *pool = ctx;
    struct cn_list *node;

    do_hurry(pool);
    if (!pool->close)
        return;
    cn_list_for_each(node, &pool->slots)
        cn_worker_kill(slot_of(node)->worker);
    if (pool->workers_spec.zygote)
        cn_worker_kill(pool->workers_spec.zygote);
    check_soon(pool);
}

void
cn_worker_pool_hurry(struct cn_worker_pool *pool, bool kill)
{
    cn_call_on(pool->spec.loop, kill ? do_kill : do_hurry, pool);
}

static void
pool_free(struct cn_worker_pool *pool)
{
    cn_list_remove(&pool->check.link);
    cn_timer_cancel(&pool->tick);
    pool->magic = 0;
    cn_free(pool);
}

static void
do_release(void *ctx)
{
    struct cn_pool_close *order = ctx;

    pool_free(cn_cast(struct cn_worker_pool, order->pool, POOL_MAGIC));
    order->pool = NULL;
    cn_call_on(order->home, answer_close, order);
}

void
cn_worker_pool_release(struct cn_pool_close *order)
{
    order->home = order->pool->spec.home;
    cn_call_on(order->pool->spec.loop, do_release, order);
}

void
cn_worker_pool_destroy_at_exit(struct cn_worker_pool *pool)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&pool->slots))) {
        cn_worker_destroy(slot_of(node)->worker);
        cn_free(slot_of(node));
    }
    cn_worker_destroy(pool->workers_spec.zygote);
    cn_error_lines_fini(&pool->error_lines);
    pool_free(pool);
}
