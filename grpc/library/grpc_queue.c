/* grpc/library/grpc_queue.c - takes events out of the gRPC library's one queue; see grpc_priv.h.
 *
 * The library moves bytes only while somebody waits on its queue, and only a thread can wait there
 * and be woken. So there is a thread, which passes each event to the mailbox of its call's loop.
 * While the loop is awake, it may borrow the queue (grpc_loan.c).
 */
#include "core/errors/panic.h"
#include "grpc/library/grpc_priv.h"

bool
cn_grpc_take(struct cn_grpc_taker *taker, gpr_timespec until, struct cn_grpc_tag **out, bool *over)
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

/* The thread waits for an event, at first busily if --busy-wait allows it. */
static bool
wait_for_event(struct cn_grpc_taker *taker, struct cn_grpc_tag **tag, bool *over)
{
    bool taken;

    if (taker->loop || !taker->wait.limit_us)
        return cn_grpc_take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), tag, over);
    taken = cn_grpc_take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), tag, over);
    if (taken || *over)
        return taken;
    cn_busy_wait_begin(&taker->wait);
    while (!taken && !*over && cn_busy_wait_again(&taker->wait))
        taken = cn_grpc_take(taker, gpr_inf_past(GPR_CLOCK_REALTIME), tag, over);
    if (!taken && !*over)
        taken = cn_grpc_take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), tag, over);
    cn_busy_wait_end(&taker->wait);
    return taken;
}

static void *
taker_main(void *ctx)
{
    struct cn_grpc_taker *taker = ctx;
    struct cn_grpc_tag *tag = NULL;
    bool is_loaned, over = false;

    pthread_setname_np(pthread_self(), "grpc-queue");
    while (!over) {
        if (!wait_for_event(taker, &tag, &over))
            continue;
        is_loaned = cn_grpc_lend(taker);
        cn_loop_post(tag->loop, &tag->msg);
        if (is_loaned)
            cn_grpc_await_return(taker);
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
    cn_busy_wait_limit(&taker->wait, limits->busy_wait_us);
    pthread_mutex_init(&taker->mutex, NULL);
    pthread_cond_init(&taker->returned, NULL);
    cn_grpc_loan_allow(taker, loops, n_loops);
    rc = pthread_create(&taker->thread, NULL, taker_main, taker);
    if (!rc)
        return 0;
    grpc_completion_queue_shutdown(taker->queue);
    while (!over)
        cn_grpc_take(taker, gpr_inf_future(GPR_CLOCK_REALTIME), &(struct cn_grpc_tag *){NULL},
                     &over);
    cn_grpc_loan_end(taker);
    grpc_completion_queue_destroy(taker->queue);
    pthread_cond_destroy(&taker->returned);
    pthread_mutex_destroy(&taker->mutex);
    return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start gRPC's thread");
}

void
cn_grpc_taker_stop(struct cn_grpc_taker *taker)
{
    cn_grpc_loan_end(taker);
    grpc_completion_queue_shutdown(taker->queue);
    pthread_join(taker->thread, NULL);
    grpc_completion_queue_destroy(taker->queue);
    pthread_cond_destroy(&taker->returned);
    pthread_mutex_destroy(&taker->mutex);
}
