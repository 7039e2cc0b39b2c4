/* grpc/library/grpc_queue.c - takes events out of the gRPC library's one queue; see grpc_priv.h.
 *
 * The library moves bytes only while somebody waits on its queue, and only a thread can wait there
 * and be woken. So there is a thread, which passes each event to the mailbox of its call's loop.
 * But while the loop is awake anyway, the thread costs a switch, or a processor, for each event. So
 * in a server with one loop, the loop asks the queue itself while it is awake, and the thread waits
 * until the loop goes to sleep (docs/decisions/0018). With several loops the thread has enough work
 * of its own and keeps the queue.
 *
 * `loaned` says which of the two takes events. The thread sets it (lend) after it has taken an
 * event and found the loop awake; the loop clears it (give_back) before it sleeps. Only one of them
 * takes events at a time, so events keep their order.
 */
#include "core/errors/panic.h"
#include "grpc/library/grpc_priv.h"

#define ASK_MAX 64 /* most events in one look, so that other work gets its turn */

/* Takes one event. Returns false when the time is up, or, with *over set, when the queue has been
 * shut down and is empty. */
static bool
take(struct cn_grpc_taker *taker, gpr_timespec until, struct cn_grpc_tag **out, bool *over)
{
    grpc_event event = grpc_completion_queue_next(taker->queue, until, NULL);
    struct cn_grpc_tag *tag = event.tag;

    *over = event.type == GRPC_QUEUE_SHUTDOWN;
    if (event.type != GRPC_OP_COMPLETE)
        return false;
    comes_from_core(tag);
    tag->ok = event.success != 0;
    if (tag->taken)
        tag->taken(tag);
    *out = tag;
    return true;
}

/* --- the loop */

/* The loop is awake: takes the events that are there, if the queue is loaned to it. */
static void
ask(struct cn_source *source)
{
    struct cn_grpc_taker *taker = cn_container_of(source, struct cn_grpc_taker, source);
    struct cn_grpc_tag *tag;
    bool over;
    int i;

    if (!atomic_load_explicit(&taker->loaned, memory_order_acquire))
        return;
    for (i = 0; i < ASK_MAX && take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), &tag, &over); i++)
        cn_loop_post(tag->loop, &tag->msg);
}

/* Returns the queue to the thread. `for_good`: the thread must not lend it again. */
static void
give_back(struct cn_grpc_taker *taker, bool for_good)
{
    pthread_mutex_lock(&taker->mutex);
    taker->stopping = for_good;
    atomic_store_explicit(&taker->loaned, false, memory_order_release);
    pthread_cond_signal(&taker->returned);
    pthread_mutex_unlock(&taker->mutex);
}

/* The loop is about to sleep: returns the queue. */
static void
rest(struct cn_source *source)
{
    struct cn_grpc_taker *taker = cn_container_of(source, struct cn_grpc_taker, source);

    if (atomic_load_explicit(&taker->loaned, memory_order_relaxed))
        give_back(taker, false);
}

/* --- the thread */

/* The thread waits for an event, at first busily if --busy-wait allows it. */
static bool
wait_for_event(struct cn_grpc_taker *taker, struct cn_grpc_tag **tag, bool *over)
{
    bool taken;

    if (taker->loop || !taker->wait.limit_us)
        return take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), tag, over);
    taken = take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), tag, over);
    if (taken || *over)
        return taken;
    cn_busy_wait_begin(&taker->wait);
    while (!taken && !*over && cn_busy_wait_again(&taker->wait))
        taken = take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), tag, over);
    if (!taken && !*over)
        taken = take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), tag, over);
    cn_busy_wait_end(&taker->wait);
    return taken;
}

/* Lends the queue to the loop. Must come before the event is posted: the message keeps the loop
 * awake, or wakes it, so the loop finds that it has the queue, and returns it before it sleeps. */
static void
lend(struct cn_grpc_taker *taker)
{
    pthread_mutex_lock(&taker->mutex);
    atomic_store_explicit(&taker->loaned, !taker->stopping, memory_order_release);
    pthread_mutex_unlock(&taker->mutex);
}

static void
wait_until_returned(struct cn_grpc_taker *taker)
{
    pthread_mutex_lock(&taker->mutex);
    while (atomic_load_explicit(&taker->loaned, memory_order_relaxed))
        pthread_cond_wait(&taker->returned, &taker->mutex);
    pthread_mutex_unlock(&taker->mutex);
}

static void *
taker_main(void *ctx)
{
    struct cn_grpc_taker *taker = ctx;
    struct cn_grpc_tag *tag = NULL;
    bool lends, over = false;

    pthread_setname_np(pthread_self(), "grpc-queue");
    while (!over) {
        if (!wait_for_event(taker, &tag, &over))
            continue;
        lends = taker->loop && cn_loop_is_awake(taker->loop);
        if (lends)
            lend(taker);
        cn_loop_post(tag->loop, &tag->msg);
        if (lends)
            wait_until_returned(taker);
    }
    return NULL;
}

int
cn_grpc_taker_start(struct cn_grpc_taker *taker, const struct cn_grpc_limits *limits,
                    struct cn_loop *const *loops, unsigned n_loops, struct cn_error *err)
{
    bool over = false;
    int rc;

    taker->queue = grpc_completion_queue_create_for_next(NULL);
    taker->wait.limit_us = limits->busy_wait_us;
    taker->source = (struct cn_source){ask, rest};
    pthread_mutex_init(&taker->mutex, NULL);
    pthread_cond_init(&taker->returned, NULL);
    /* A loop without busy wait would return the queue after each event, so it does not get it. */
    if (n_loops == 1 && limits->busy_wait_us) {
        taker->loop = loops[0];
        cn_loop_set_source(taker->loop, &taker->source);
    }
    rc = pthread_create(&taker->thread, NULL, taker_main, taker);
    if (!rc)
        return 0;
    grpc_completion_queue_shutdown(taker->queue);
    while (!over)
        take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), &(struct cn_grpc_tag *){NULL}, &over);
    if (taker->loop)
        cn_loop_set_source(taker->loop, NULL);
    grpc_completion_queue_destroy(taker->queue);
    pthread_cond_destroy(&taker->returned);
    pthread_mutex_destroy(&taker->mutex);
    return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start gRPC's thread");
}

void
cn_grpc_taker_stop(struct cn_grpc_taker *taker)
{
    if (taker->loop)
        cn_loop_set_source(taker->loop, NULL);
    give_back(taker, true);
    grpc_completion_queue_shutdown(taker->queue);
    pthread_join(taker->thread, NULL);
    grpc_completion_queue_destroy(taker->queue);
    pthread_cond_destroy(&taker->returned);
    pthread_mutex_destroy(&taker->mutex);
}
