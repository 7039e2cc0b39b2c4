/* handlers/c/c_open.c - a C handler's items that are answered after run() has returned, and its
 * timers. Worker's thread.
 *
 * continuo_defer gives the handler an item like those that run() gets, but on the heap and with a
 * reply of its own (handlers/open_item.h). The handler may answer it in a later run() or from a
 * timer. That wakes the worker, which runs the original item again, and this takes the answer over.
 *
 * Such an item ends in one of two ways. The handler answers it in full; or the worker must end it
 * (the client has left, the time is over, the model is unloaded). Then the handler's stop function
 * is called once, in which it may still answer, and after which it must not use the item again. So
 * a handler always learns of the end before the item is freed.
 */
#include <math.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/c/c_priv.h"

#define TIMERS_MAX 65536
#define AFTER_MAX_S 86400.0
#define C_TIMER_MAGIC 0x4354494du

/* --- items --- */

struct continuo_item *
cn_c_defer(struct continuo_item *handle, continuo_stop_fn stop, void *arg)
{
    struct c_item *item = cn_c_item(handle);
    struct c_open *open;

    if (cn_c_open_answer(item) < 0)
        return NULL;
    if (!stop || item->open || item->item->stop != CN_STOP_NONE) {
        cn_c_fail(item, !stop        ? "continuo_defer: an end function is required"
                        : item->open ? "continuo_defer: the item is already deferred"
                                     : "continuo_defer: the item has been told to end");
        return NULL;
    }
    if (item->rt->stateful && !item->item->state) /* both items share one state */
        item->item->state = cn_c_state_create();
    if (!item->stream) /* both items share one stream */
        item->stream = cn_c_stream_create();
    open = cn_alloc(sizeof(*open));
    cn_open_item_init(&open->base, &item->rt->base, item->item);
    open->item = (struct c_item){.handle = item->handle,
                                 .magic = C_ITEM_MAGIC,
                                 .rt = item->rt,
                                 .item = &open->base.item,
                                 .fresh = item->fresh,
                                 .stream = item->stream,
                                 .open = open};
    cn_arena_init(&open->item.arena);
    open->stop = stop;
    open->arg = arg;
    open->told = false;
    item->open = open;
    item->answered = true;
    return &open->item.handle;
}

int
cn_c_finish(struct continuo_item *handle)
{
    struct c_item *item = cn_c_item(handle);

    if (cn_c_open_answer(item) < 0)
        return -1;
    item->answered = true;
    return 0;
}

static void
tell(struct c_open *open, const char *reason)
{
    if (open->told || open->item.answered)
        return;
    open->told = true;
    open->stop(&open->item.handle, reason, open->arg);
}

void
cn_c_open_destroy(struct c_open *open)
{
    if (!open)
        return;
    open->base.rt = NULL; /* what the handler answers now must not wake the worker */
    tell(open, "failed");
    json_decref(open->item.json);
    cn_arena_fini(&open->item.arena);
    cn_open_item_fini(&open->base);
    open->item.magic = 0;
    cn_free(open);
}

void
cn_c_run_open(struct c_open *open, const struct cn_item *item)
{
    open->base.item.stop = item->stop;
    open->base.item.deadline_ms = item->deadline_ms;
    if (item->stop != CN_STOP_NONE)
        tell(open, cn_stop_reason_word(item->stop));
}

void
cn_c_settle_open(struct cn_item *item)
{
    struct c_stream *stream = item->resume;
    struct c_open *open = stream->open;

    open->base.over = open->item.answered;
    cn_open_item_take(&open->base, item);
    if (item->reply.more)
        return;
    cn_c_stream_destroy(stream);
    item->resume = NULL;
}

/* --- what an item keeps between two calls --- */

struct c_stream *
cn_c_stream_create(void)
{
    struct c_stream *stream = cn_alloc(sizeof(*stream));

    stream->magic = C_STREAM_MAGIC;
    return stream;
}

void
cn_c_stream_destroy(struct c_stream *stream)
{
    if (!stream)
        return;
    cn_assert(stream->magic == C_STREAM_MAGIC);
    cn_c_open_destroy(stream->open);
    cn_free(stream->data);
    stream->magic = 0;
    cn_free(stream);
}

/* --- timers --- */

struct c_timer {
    struct cn_timer timer;
    struct cn_list link; /* rt->timers */
    uint32_t magic;
    struct c_runtime *rt;
    continuo_timer_fn fn;
    void *arg;
};

static void
free_timer(struct c_timer *timer)
{
    cn_timer_cancel(&timer->timer);
    cn_list_remove(&timer->link);
    timer->rt->n_timers--;
    timer->magic = 0;
    cn_free(timer);
}

static void
time_came(struct cn_timer *base)
{
    struct c_timer *timer = cn_container_of(base, struct c_timer, timer);
    const continuo_timer_fn fn = timer->fn;
    struct c_runtime *rt = timer->rt;
    void *arg = timer->arg;

    cn_assert(timer->magic == C_TIMER_MAGIC);
    free_timer(timer);
    fn(&rt->model.handle, arg);
}

int
cn_c_after(struct continuo_model *model, double seconds, continuo_timer_fn fn, void *arg)
{
    struct c_runtime *rt =
        cn_cast(struct c_runtime, ((struct c_model *)model)->rt, C_RUNTIME_MAGIC);
    struct c_timer *timer;

    if (!rt->base.wheel || !fn || !(seconds >= 0 && seconds <= AFTER_MAX_S) ||
        rt->n_timers >= TIMERS_MAX)
        return -1;
    timer = cn_alloc(sizeof(*timer));
    timer->magic = C_TIMER_MAGIC;
    timer->rt = rt;
    timer->fn = fn;
    timer->arg = arg;
    cn_timer_init(&timer->timer, time_came);
    cn_list_push_back(&rt->timers, &timer->link);
    rt->n_timers++;
    cn_timer_set(rt->base.wheel, &timer->timer, cn_now_ms() + (uint64_t)ceil(seconds * 1000));
    return 0;
}

void
cn_c_drop_timers(struct c_runtime *rt)
{
    while (!cn_list_empty(&rt->timers))
        free_timer(cn_container_of(rt->timers.next, struct c_timer, link));
}
