/* torchserve/errors/torchserve_error.h - gives the errors of predictions in TorchServe's words
 * (--torchserve-errors).
 *
 * By default, our errors say more than TorchServe's: 429 for a full queue, why a handler failed,
 * how a sequence ended. This file is for scripts that look for TorchServe's statuses and sentences.
 * Any thread.
 */
#ifndef CN_TORCHSERVE_ERRORS_TORCHSERVE_ERROR_H
#define CN_TORCHSERVE_ERRORS_TORCHSERVE_ERROR_H

#include "core/memory/arena.h"
#include "core/text/str.h"

struct cn_error_words {
    unsigned status;
    const char *type, *message;
};

/* Replaces `words`, which hold our own error, by TorchServe's. `refused` says that the handler
 * itself refused the request, with a status and a message of its own. `model` and `version` are as
 * the client named them; they may be empty. */
void cn_torchserve_error(int code, bool refused, struct cn_str model, struct cn_str version,
                         struct cn_arena *arena, struct cn_error_words *words);

/* Returns TorchServe's gRPC status for an error of a prediction, or 0 if it is the same as ours. */
int cn_torchserve_grpc_status(int code);

#endif
