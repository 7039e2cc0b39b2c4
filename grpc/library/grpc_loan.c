/* grpc/library/grpc_loan.c - lends the gRPC library's queue to the loop while that is awake
 * (decision 0018). Switched by the tuning `grpc-loan`.
 *
 * A thread waits for the library's events (grpc_queue.c). While the loop is awake anyway, that
 * thread costs a switch, or a processor, for each event. So in a server with one loop, the loop
 * asks the queue itself while it is awake, and the thread waits until the loop goes to sleep. With
 * several loops the thread has enough work of its own and keeps the queue.
 *
 * `loaned` says which of the two takes events. The thread sets it after it has taken an event and
 * found the loop awake; the loop clears it before it sleeps. Only one of them takes events at a
 * time, so events keep their order.
 */
#include "core/tuning/tuning.h"
#include "grpc/library/grpc_priv.h"

#define ASK_MAX 64 /* most events in one look, so that other work gets its turn */

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
    for (i = 0; i < ASK_MAX && cn_grpc_take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), &tag, &over);
         i++)
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

void
cn_grpc_loan_allow(struct cn_grpc_taker *taker, struct cn_loop *const *loops, unsigned n_loops)
{
    taker->source = (struct cn_source){ask, rest};
    /* A loop without busy wait would return the queue after each event, so it does not get it. */
    if (n_loops != 1 || !taker->wait.limit_us || !cn_tuned(CN_TUNING_GRPC_LOAN))
        return;
    taker->loop = loops[0];
    cn_loop_set_source(taker->loop, &taker->source);
}

void
cn_grpc_loan_end(struct cn_grpc_taker *taker)
{
    if (taker->loop)
        cn_loop_set_source(taker->loop, NULL);
    give_back(taker, true);
}

/* --- the thread */

/* Must come before the event is posted: the message keeps the loop
 * awake, or wakes it, so the loop finds that it has the queue, and returns it before it sleeps. */
bool
cn_grpc_lend(struct cn_grpc_taker *taker)
{
    if (!taker->loop || !cn_loop_is_awake(taker->loop))
        return false;
    pthread_mutex_lock(&taker->mutex);
    atomic_store_explicit(&taker->loaned, !taker->stopping, memory_order_release);
    pthread_mutex_unlock(&taker->mutex);
    return true;
}

void
cn_grpc_await_return(struct cn_grpc_taker *taker)
{
    pthread_mutex_lock(&taker->mutex);
    while (atomic_load_explicit(&taker->loaned, memory_order_relaxed))
        pthread_cond_wait(&taker->returned, &taker->mutex);
    pthread_mutex_unlock(&taker->mutex);
}
