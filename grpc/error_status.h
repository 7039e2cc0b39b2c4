/* grpc/error_status.h - errors as gRPC statuses, with details for programs. On the call's loop. */
#ifndef CN_GRPC_ERROR_STATUS_H
#define CN_GRPC_ERROR_STATUS_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

struct cn_grpc_call;

#define CN_GRPC_PERMISSION_DENIED 7
#define CN_GRPC_INTERNAL 13

/* An error, from any part of the server. */
struct cn_rpc_failure {
    int code;             /* CN_E_... */
    unsigned http_status; /* the status that a handler chose; 0: the code's */
    const char *message;
    uint32_t retry_after_s; /* seconds; 0: one second, if a retry makes sense */
    int grpc_status;        /* TorchServe's, with --torchserve-errors; 0: see the two above */
    uint64_t
        expected_step; /* the right step number, when a step was refused for its number; else 0 */
};

/* Makes a status message, short and in UTF-8, in the arena. `text` is what a handler gave: any
 * bytes. */
const char *cn_rpc_status_text(struct cn_str text, struct cn_arena *arena);

/* Copies an error into the arena, only as large as its text, because there may be many. */
struct cn_error *cn_rpc_keep_error(const struct cn_error *err, struct cn_arena *arena);

/* Packs a google.rpc.Status with ErrorInfo, and with RetryInfo if a retry makes sense; in the
 * arena. */
struct cn_str cn_rpc_status_pack(const struct cn_rpc_failure *failure, struct cn_arena *arena);

/* Ends the call with the error. */
void cn_rpc_fail_with(struct cn_grpc_call *call, const struct cn_rpc_failure *failure);
void cn_rpc_fail(struct cn_grpc_call *call, int code, const char *message, uint32_t retry_after_s);

#endif
