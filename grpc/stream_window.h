/* grpc/stream_window.h - limits how many messages of a stream are under way, for StreamPredictions2
 * and ModelStreamInfer. On the call's loop.
 *
 * At most grpc-stream-steps messages are under way. Further messages wait in the client's
 * flow-control window. The state of such a call begins with struct cn_rpc_intake.
 */
#ifndef CN_GRPC_STREAM_WINDOW_H
#define CN_GRPC_STREAM_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "grpc/transport/grpc_call.h"

struct cn_rpc_intake {
    const char *stopping; /* the message for the client when the server stops */
    uint32_t n;           /* messages without their final answer; counted by the owner */
    bool reading, half_closed, draining;
};

/* Call it when the call is opened, before the first message is asked for. */
void cn_rpc_intake_open(struct cn_grpc_call *call, const char *stopping);
/* A message has come. */
void cn_rpc_intake_take(struct cn_grpc_call *call);
/* Asks for the next message, or ends the call when nothing is left to answer. */
void cn_rpc_intake_go_on(struct cn_grpc_call *call);
/* These are called for the call's events. */
void cn_rpc_intake_half_close(struct cn_grpc_call *call);
void cn_rpc_intake_drain(struct cn_grpc_call *call);

#endif
