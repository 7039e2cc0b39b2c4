/* grpc/stream_window.c - how many messages of a stream are being worked on. On the call's loop.
 *
 * A client may send messages faster than the model answers. So a stream reads its next message only
 * while fewer than grpc-stream-steps of its messages are unanswered; gRPC's own flow control then
 * stops the client. The stream ends in one of two ways: the client has sent its last message and
 * all are answered, which is success; or the server drains, which ends the stream with an error
 * after the answers that are still due. Every event calls cn_rpc_intake_go_on, which decides what
 * is next. */
#include "grpc/stream_window.h"

#include "config/server/server_config.h"
#include "grpc/error_status.h"
#include "grpc/services.h"

static struct cn_rpc_intake *
intake_of(struct cn_grpc_call *call)
{
    return cn_grpc_call_state(call);
}

void
cn_rpc_intake_open(struct cn_grpc_call *call, const char *stopping)
{
    intake_of(call)->stopping = stopping;
    intake_of(call)->reading = true;
}

void
cn_rpc_intake_take(struct cn_grpc_call *call)
{
    intake_of(call)->reading = false;
    intake_of(call)->n++;
}

void
cn_rpc_intake_go_on(struct cn_grpc_call *call)
{
    const struct cn_rpc_host *host = cn_grpc_call_host(call);
    struct cn_rpc_intake *intake = intake_of(call);
    const struct cn_grpc_status ok = {0};

    if (intake->n == 0 && intake->half_closed) {
        cn_grpc_call_finish(call, NULL, &ok);
    } else if (intake->n == 0 && intake->draining) {
        cn_rpc_fail(call, CN_E_DRAINING, intake->stopping, 0);
    } else if (!intake->reading && !intake->half_closed && !intake->draining &&
               intake->n < host->config->grpc_stream_steps) {
        intake->reading = true;
        cn_grpc_call_read(call);
    }
}

void
cn_rpc_intake_half_close(struct cn_grpc_call *call)
{
    intake_of(call)->reading = false;
    intake_of(call)->half_closed = true;
    cn_rpc_intake_go_on(call);
}

void
cn_rpc_intake_drain(struct cn_grpc_call *call)
{
    intake_of(call)->draining = true;
    cn_rpc_intake_go_on(call);
}
