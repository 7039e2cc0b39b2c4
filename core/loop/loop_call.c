/* core/loop/loop_call.c - calls a function on another loop, by a message that frees itself before
 * the call. Any thread. */
#include "core/loop/loop_call.h"

#include "core/memory/mem.h"

struct call {
    struct cn_msg msg;
    void (*fn)(void *ctx);
    void *ctx;
};

static void
call_run(struct cn_msg *msg)
{
    struct call *call = cn_container_of(msg, struct call, msg);
    void (*fn)(void *ctx) = call->fn;
    void *ctx = call->ctx;

    cn_free(call);
    fn(ctx);
}

void
cn_call_on(struct cn_loop *loop, void (*fn)(void *ctx), void *ctx)
{
    struct call *call = cn_alloc(sizeof *call);

    call->msg.fn = call_run;
    call->fn = fn;
    call->ctx = ctx;
    cn_loop_post(loop, &call->msg);
}
