/* grpc/library/grpc_watch.c - when the server begins to watch for the end of a call's client. On
 * the call's loop, except where a function says otherwise. Switched by the tuning `grpc-watch`.
 *
 * The library reports that a client has left by completing an operation that was started for this
 * purpose. That operation costs a tenth of a short call. Most unary calls are answered within
 * WATCH_AFTER_MS, so it is started after that time, or together with the end of the call. */
#include "core/tuning/tuning.h"
#include "grpc/library/grpc_priv.h"

#define WATCH_AFTER_MS 20 /* a longer unary call is told when its client leaves */

grpc_op
cn_grpc_watch_op(struct cn_grpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    call->watched = true;
    cn_timer_cancel(&call->watch_timer);
    return op;
}

void
cn_grpc_watch_on_timer(struct cn_timer *timer)
{
    struct cn_grpc_call *call = cn_container_of(timer, struct cn_grpc_call, watch_timer);
    grpc_op op = cn_grpc_watch_op(call);

    cn_grpc_start_batch(call, &op, 1, &call->closed);
}

/* Runs on the taker's thread, before the call's loop knows of the call. If there are several loops,
 * it starts to watch a unary step at once, because of this case: the client cancels its step, asks
 * its sequence what became of the step, and another loop answers that question while the loop of
 * the cancelled call is still busy. Events are taken in the order in which the bytes came. So if
 * the taker notes the cancellation itself (cn_grpc_watch_closed), it has noted it before it takes
 * the question, and the answer is right (scheduler/queue/departed.c reads the note). A stream is
 * watched before its first message anyway. */
void
cn_grpc_watch_accepted(struct cn_grpc_tag *tag)
{
    struct cn_grpc_call *call = cn_container_of(tag, struct cn_grpc_call, accepted);

    if (tag->ok && call->site->grpc->n_loops > 1 && call->method && call->method->is_step &&
        !call->method->client_streams)
        cn_grpc_watch_on_timer(&call->watch_timer);
}

/* Runs on the taker's thread: notes that the client has left. */
void
cn_grpc_watch_closed(struct cn_grpc_tag *tag)
{
    struct cn_grpc_call *call = cn_container_of(tag, struct cn_grpc_call, closed);

    if (call->was_cancelled)
        atomic_store_explicit(&call->left, true, memory_order_release);
}

/* Starts to watch for the client's end: at once for a stream, later for a unary call. Watching
 * costs a tenth of a short call, which is usually answered before that. */
void
cn_grpc_watch_begin(struct cn_grpc_call *call)
{
    if (call->watched)
        return;
    if (call->method && !call->method->client_streams && cn_tuned(CN_TUNING_GRPC_WATCH))
        cn_timer_set(cn_loop_wheel(call->site->loop), &call->watch_timer,
                     cn_loop_now_ms(call->site->loop) + WATCH_AFTER_MS);
    else
        cn_grpc_watch_on_timer(&call->watch_timer);
}
