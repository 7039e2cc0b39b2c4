/* management/pool/worker_pool.c - the model queue and the workers of one model version.
 *
 * Everything here runs on the queue's loop, except cn_worker_pool_create(), ..._release() and the
 * answers, which run on loop 0. pool_orders.c has what else loop 0 asks of a pool.
 *
 * A pool knows one number, `wanted`, and cn_worker_pool_run_workers() adds or stops workers until
 * it fits. The workers (supervisor.c) start their processes again by themselves, so a death changes
 * nothing here. check_pool() runs at the end of each turn in which something changed: it tells the
 * queue how many workers may still come, publishes the number of ready ones, and answers orders to
 * scale when exactly `wanted` workers are there and ready.
 *
 * pool_orders.c begins the end of a pool. When the last worker and the zygote are gone, the queue
 * is destroyed here and the order to close is answered. The memory goes last, by
 * cn_worker_pool_release(), because earlier messages to the pool may still be under way.
 */
#include "management/pool/worker_pool_priv.h"

#include <stdatomic.h>
#include <stdio.h>

#include "core/errors/panic.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "scheduler/workers/workers.h"

/* --- the numbers that others go by */

uint32_t
cn_worker_pool_count(const struct cn_worker_pool *pool,
                     bool (*counts)(const struct cn_worker_process *worker))
{
    struct cn_list *node;
    uint32_t n = 0;

    cn_list_for_each(node, &pool->members)
        n += counts(cn_worker_pool_member_of(node)->worker);
    return n;
}

static bool
is_staying(const struct cn_worker_process *worker)
{
    return cn_worker_state(worker) != CN_WORKER_STOPPING;
}

static void
answer_scale(void *ctx)
{
    struct cn_worker_pool_scale *scale = ctx;

    scale->on_done(scale);
}

void
cn_worker_pool_end_scalings(struct cn_worker_pool *pool, enum cn_scale_outcome outcome,
                            const char *why)
{
    struct cn_worker_pool_scale *scale;
    struct cn_list *node;

    while ((node = cn_list_pop_front(&pool->scalings))) {
        scale = cn_container_of(node, struct cn_worker_pool_scale, link);
        scale->outcome = outcome;
        snprintf(scale->why, sizeof scale->why, "%s", why);
        cn_call_on(pool->spec.home, answer_scale, scale);
    }
}

/* Is there no worker because the next step will start one? */
static bool
is_on_demand(const struct cn_worker_pool *pool)
{
    return pool->scaling.automatic && pool->wanted == 0 && pool->max > 0 && !pool->close;
}

static void
tell_queue(struct cn_worker_pool *pool)
{
    char reason[CN_LAST_WORDS_MAX];
    uint32_t coming = cn_worker_pool_count(pool, cn_worker_is_coming);

    if (is_on_demand(pool))
        coming++;
    if (pool->last_error[0])
        snprintf(reason, sizeof reason, "%s", pool->last_error);
    else /* the text is TorchServe's */
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
    struct cn_worker_pool_close *order = ctx;

    order->on_done(order);
}

static void
finish_close(struct cn_worker_pool *pool)
{
    struct cn_worker_pool_close *order = pool->close;

    cn_error_lines_fini(&pool->error_lines);
    cn_worker_pool_unwatch_temp(pool);
    cn_model_queue_destroy(pool->queue);
    pool->queue = NULL;
    pool->close = NULL;
    cn_call_on(pool->spec.home, answer_close, order);
}

static void
check_pool(struct cn_deferred *deferred)
{
    struct cn_worker_pool *pool = cn_container_of(deferred, struct cn_worker_pool, check);
    uint32_t ready = cn_worker_pool_count(pool, cn_worker_pool_worker_is_ready);

    if (!pool->queue)
        return;
    tell_queue(pool);
    atomic_store_explicit(&pool->spec.health->ready, ready, memory_order_relaxed);
    if (ready == pool->wanted &&
        cn_worker_pool_count(pool, cn_worker_pool_worker_is_any) == pool->wanted)
        cn_worker_pool_end_scalings(pool, CN_SCALE_DONE, "");
    cn_worker_pool_empty_temp(pool);
    if (pool->emptied && cn_list_empty(&pool->members) && !pool->workers_spec.zygote)
        finish_close(pool);
}

void
cn_worker_pool_check_soon(struct cn_worker_pool *pool)
{
    cn_loop_defer(pool->spec.loop, &pool->check);
}

/* --- the workers */

static void
on_change(void *owner, struct cn_worker_process *worker)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC);

    if (cn_worker_pool_worker_is_ready(worker))
        pool->last_error[0] = '\0';
    cn_worker_pool_check_soon(pool);
}

static void
on_load_failed(void *owner, struct cn_worker_process *worker, const char *why)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC);

    (void)worker;
    snprintf(pool->last_error, sizeof pool->last_error, "%s", why);
    cn_worker_pool_end_scalings(pool, CN_SCALE_FAILED, why);
    cn_worker_pool_check_soon(pool);
}

static void
on_gone(void *owner, struct cn_worker_process *worker)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC);
    struct cn_list *node, *tmp;

    cn_list_for_each_safe(node, tmp, &pool->members) {
        if (cn_worker_pool_member_of(node)->worker != worker)
            continue;
        cn_list_remove(node);
        cn_free(cn_worker_pool_member_of(node));
    }
    cn_worker_destroy(worker);
    cn_worker_pool_check_soon(pool);
}

static const struct cn_worker_ops worker_ops = {
    .on_change = on_change, .on_load_failed = on_load_failed, .on_gone = on_gone};

/* --- the zygote: what goes wrong with it shows in the workers that wait for it */

static void run_zygote(struct cn_worker_pool *pool);

static void
on_zygote_change(void *owner, struct cn_worker_process *zygote)
{
    (void)zygote;
    cn_worker_pool_check_soon(cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC));
}

static void
on_zygote_failed(void *owner, struct cn_worker_process *zygote, const char *why)
{
    (void)zygote;
    (void)why;
    cn_worker_pool_check_soon(cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC));
}

static void
on_zygote_gone(void *owner, struct cn_worker_process *zygote)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, owner, CN_SLAB_MAGIC);

    pool->unforkable = cn_worker_declined(zygote);
    pool->workers_spec.zygote = NULL;
    cn_worker_destroy(zygote);
    if (pool->wanted > 0)
        run_zygote(pool); /* it was stopped, but workers are wanted again */
    cn_worker_pool_check_soon(pool);
}

static const struct cn_worker_ops zygote_ops = {
    .on_change = on_zygote_change, .on_load_failed = on_zygote_failed, .on_gone = on_zygote_gone};

/* An id that no worker and no other zygote has, because the process's control group is called by it
 * (bounds.h). Workers count up from a small number and show their ids, so zygotes count down. */
static uint32_t
zygote_id(void)
{
    static _Atomic uint32_t next = UINT32_MAX;

    return atomic_fetch_sub_explicit(&next, 1, memory_order_relaxed);
}

static void
run_zygote(struct cn_worker_pool *pool)
{
    struct cn_worker_process *zygote = pool->workers_spec.zygote;

    if (pool->wanted == 0 && zygote)
        cn_worker_stop(zygote);
    else if (pool->wanted > 0 && !zygote && !pool->unforkable &&
             cn_model_preloads(pool->spec.about))
        pool->workers_spec.zygote =
            cn_worker_create(&pool->workers_spec, 0, zygote_id(), &zygote_ops, pool);
}

/* The smallest number that no worker has. Stores and logs then show few, small numbers. */
static uint32_t
free_index(const struct cn_worker_pool *pool)
{
    uint32_t index = 1;
    struct cn_list *node = pool->members.next;

    while (node != &pool->members) {
        if (cn_worker_index(cn_worker_pool_member_of(node)->worker) == index) {
            index++;
            node = pool->members.next;
        } else {
            node = node->next;
        }
    }
    return index;
}

static void
add_worker(struct cn_worker_pool *pool)
{
    struct cn_worker_pool_member *member = cn_alloc(sizeof *member);
    uint32_t id = atomic_fetch_add_explicit(pool->spec.next_worker_id, 1, memory_order_relaxed);

    member->worker = cn_worker_create(&pool->workers_spec, free_index(pool), id, &worker_ops, pool);
    cn_list_push_back(&pool->members, &member->link);
}

/* Stops `count` workers, the youngest first: the oldest ones have the most states in memory. */
static void
stop_youngest(struct cn_worker_pool *pool, uint32_t count)
{
    struct cn_list *node;

    for (node = pool->members.prev; count > 0 && node != &pool->members; node = node->prev) {
        if (!is_staying(cn_worker_pool_member_of(node)->worker))
            continue;
        cn_worker_stop(cn_worker_pool_member_of(node)->worker);
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

void
cn_worker_pool_note_scaling(struct cn_worker_pool *pool, uint32_t wanted,
                            enum cn_scale_reason reason)
{
    if (wanted == pool->wanted)
        return;
    pool->scaling.from = pool->wanted;
    pool->scaling.to = wanted;
    pool->scaling.reason = reason;
    pool->scaling.wall_ms = cn_wall_ms();
}

void
cn_worker_pool_run_workers(struct cn_worker_pool *pool, uint32_t wanted)
{
    uint32_t staying = cn_worker_pool_count(pool, is_staying);

    pool->wanted = wanted;
    tell_health(pool);
    if (wanted == 0)
        pool->last_error[0] = '\0'; /* an operator wants none, so nothing has failed */
    if (wanted > 0)
        run_zygote(pool); /* before the workers, which order their processes from it */
    for (; staying < wanted; staying++)
        add_worker(pool);
    if (staying > wanted)
        stop_youngest(pool, staying - wanted);
    if (wanted == 0)
        run_zygote(pool); /* after the workers, which may wait for it */
    tell_queue(pool);     /* now, because a job may follow the order in the mailbox */
    cn_worker_pool_check_soon(pool);
}

/* --- its life */

struct cn_worker_pool *
cn_worker_pool_create(const struct cn_worker_pool_spec *spec)
{
    struct cn_worker_pool *pool = cn_alloc(sizeof *pool);

    pool->magic = CN_SLAB_MAGIC;
    pool->spec = *spec;
    cn_list_init(&pool->members);
    cn_list_init(&pool->scalings);
    cn_list_init(&pool->check.link);
    cn_error_lines_init(&pool->error_lines, spec->loop, spec->about, spec->error_lines);
    pool->check.fn = check_pool;
    cn_timer_init(&pool->tick, cn_worker_pool_on_tick);
    return pool;
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
    struct cn_worker_pool_close *order = ctx;

    pool_free(cn_cast(struct cn_worker_pool, order->pool, CN_SLAB_MAGIC));
    order->pool = NULL;
    cn_call_on(order->home, answer_close, order);
}

void
cn_worker_pool_release(struct cn_worker_pool_close *order)
{
    order->home = order->pool->spec.home;
    cn_call_on(order->pool->spec.loop, do_release, order);
}

void
cn_worker_pool_destroy_at_exit(struct cn_worker_pool *pool)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&pool->members))) {
        cn_worker_destroy(cn_worker_pool_member_of(node)->worker);
        cn_free(cn_worker_pool_member_of(node));
    }
    cn_worker_destroy(pool->workers_spec.zygote);
    cn_worker_pool_unwatch_temp(pool);
    cn_error_lines_fini(&pool->error_lines);
    pool_free(pool);
}
