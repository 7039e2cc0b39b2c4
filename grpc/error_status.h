/* grpc/error_status.h - our errors as gRPC's statuses, with details for programs. On the call's
 * loop. */
#ifndef CN_GRPC_ERROR_STATUS_H
#define CN_GRPC_ERROR_STATUS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

struct cn_grpc_call;

#define CN_GRPC_PERMISSION_DENIED 7
#define CN_GRPC_INTERNAL 13

/* What went wrong, whoever says so. */
struct cn_rpc_failure {
    int code;             /* CN_E_... */
    unsigned http_status; /* a handler's own choice; 0: the code decides */
    const char *message;
    uint32_t retry_after_s; /* 0: one second, where a retry makes sense */
    int grpc_status;        /* TorchServe's, with --torchserve-errors; 0: that of the two above */
    uint64_t expected_step; /* of a step that was refused for its number; else 0 */
};

/* A status' message: UTF-8 and short, in the arena. `text`: of any bytes, as a handler gave it. */
const char *cn_rpc_status_text(struct cn_str text, struct cn_arena *arena);

/* A copy in the arena, only as large as its text: there may be many. */
struct cn_error *cn_rpc_keep_error(const struct cn_error *err, struct cn_arena *arena);

/* google.rpc.Status with ErrorInfo, and RetryInfo where a retry makes sense; in the arena. */
struct cn_str cn_rpc_status_pack(const struct cn_rpc_failure *failure, struct cn_arena *arena);

/* Ends the call with it. */
void cn_rpc_fail_with(struct cn_grpc_call *call, const struct cn_rpc_failure *failure);
void cn_rpc_fail(struct cn_grpc_call *call, int code, const char *message, uint32_t retry_after_s);

#endif
