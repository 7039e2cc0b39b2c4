/* torchserve/errors/torchserve_error.h - errors of predictions in TorchServe's words
 * (--torchserve-errors).
 *
 * By default our answers say more: 429 for a full queue, why a handler failed, how a sequence
 * ended. Scripts that look for TorchServe's statuses and sentences get them with this. Any thread.
 */
#ifndef CN_TORCHSERVE_ERRORS_TORCHSERVE_ERROR_H
#define CN_TORCHSERVE_ERRORS_TORCHSERVE_ERROR_H

#include "core/memory/arena.h"
#include "core/text/str.h"

struct cn_error_words {
    unsigned status;
    const char *type, *message;
};

/* Rewrites `words`, which hold what we would say. `refused`: the handler refused the request with a
 * status and a message of its own. `model` and `version` as the client named them; may be empty. */
void cn_torchserve_error(int code, bool refused, struct cn_str model, struct cn_str version,
                         struct cn_arena *arena, struct cn_error_words *words);

/* TorchServe's gRPC status for an error of a prediction; 0: the same as ours. */
int cn_torchserve_grpc_status(int code);

#endif
