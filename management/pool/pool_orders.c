/* management/pool/pool_orders.c - carries out what loop 0 orders: that a pool starts, has a number
 * of workers, or ends.
 *
 * Loop 0 calls cn_worker_pool_...(), which only posts a message to the queue's loop. do_...() is
 * the other end of such a message, and answer_...() the answer, on loop 0 again.
 *
 * A pool ends in this order: the queue takes no more jobs; when it is empty, sequences are closed
 * if that was asked for and all workers are stopped; when the last worker and the zygote are gone,
 * worker_pool.c destroys the queue and answers the order to close.
 */
#include "core/errors/panic.h"
#include "core/loop/loop_call.h"
#include "management/pool/worker_pool_priv.h"

/* --- start and scale */

static void
answer_start(void *ctx)
{
    struct cn_worker_pool_start *start = ctx;

    start->on_done(start);
}

static void
do_start(void *ctx)
{
    struct cn_worker_pool_start *start = ctx;
    struct cn_worker_pool *pool = start->pool;

    pool->queue = cn_model_queue_create(pool->spec.loop, pool->spec.about->name,
                                        pool->spec.about->version, &pool->spec.about->config);
    cn_model_queue_set_family(pool->queue, pool->spec.family);
    cn_model_queue_set_accounts(pool->queue, pool->spec.accounts);
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
    cn_worker_pool_begin_scaling(pool);
    cn_worker_pool_watch_temp(pool);
    cn_worker_pool_check_soon(pool);
    start->queue = pool->queue;
    cn_call_on(pool->spec.home, answer_start, start);
}

void
cn_worker_pool_start(struct cn_worker_pool *pool, struct cn_worker_pool_start *start)
{
    start->pool = pool;
    cn_call_on(pool->spec.loop, do_start, start);
}

/* On the queue's loop: a new order replaces earlier ones. The number of workers changes only if it
 * is outside the new bounds. */
static void
do_scale(void *ctx)
{
    struct cn_worker_pool_scale *scale = ctx;
    struct cn_worker_pool *pool = scale->pool;
    struct cn_autoscale_seen seen;
    uint32_t wanted = pool->wanted;

    cn_worker_pool_end_scalings(pool, CN_SCALE_SUPERSEDED,
                                "another request to scale replaced this one");
    cn_list_init(&scale->link);
    cn_list_push_back(&pool->scalings, &scale->link);
    if (pool->close || !pool->queue) {
        cn_worker_pool_end_scalings(pool, CN_SCALE_SUPERSEDED, "the model is being unregistered");
        return;
    }
    if (wanted < scale->min)
        wanted = scale->min;
    if (wanted > scale->max)
        wanted = scale->max;
    pool->min = scale->min;
    pool->max = scale->max;
    cn_worker_pool_note_scaling(pool, wanted, CN_SCALED_ORDER);
    cn_worker_pool_run_workers(pool, wanted);
    if (pool->scaling.automatic) {
        cn_worker_pool_see(pool, &seen);
        cn_autoscale_restart(&pool->autoscale, &seen);
        cn_worker_pool_arm_tick(pool, &seen);
    }
}

void
cn_worker_pool_scale(struct cn_worker_pool *pool, struct cn_worker_pool_scale *scale)
{
    scale->pool = pool;
    cn_call_on(pool->spec.loop, do_scale, scale);
}

/* --- the end */

static void
on_empty(void *ctx)
{
    struct cn_worker_pool *pool = cn_cast(struct cn_worker_pool, ctx, CN_SLAB_MAGIC);

    /* In a shared store they are not this node's alone: another one may go on with them. */
    if (pool->close->close_sequences &&
        (pool->close->everywhere || !pool->spec.about->config.state_store.url[0]))
        cn_model_queue_close_sequences(pool->queue, CN_CLOSE_UNLOADED);
    pool->emptied = true;
    cn_timer_cancel(&pool->tick);
    cn_worker_pool_run_workers(pool, 0);
}

static void
do_close(void *ctx)
{
    struct cn_worker_pool_close *order = ctx;
    struct cn_worker_pool *pool = order->pool;

    cn_assert(!pool->close && pool->queue);
    cn_worker_pool_end_scalings(pool, CN_SCALE_SUPERSEDED, order->reason);
    pool->close = order;
    cn_model_queue_close(pool->queue, order->code, order->reason, order->drop_waiting, on_empty,
                         pool);
}

void
cn_worker_pool_close(struct cn_worker_pool *pool, struct cn_worker_pool_close *order)
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
    cn_list_for_each(node, &pool->members)
        cn_worker_kill(cn_worker_pool_member_of(node)->worker);
    if (pool->workers_spec.zygote)
        cn_worker_kill(pool->workers_spec.zygote);
    cn_worker_pool_check_soon(pool);
}

void
cn_worker_pool_hurry(struct cn_worker_pool *pool, bool kill)
{
    cn_call_on(pool->spec.loop, kill ? do_kill : do_hurry, pool);
}
