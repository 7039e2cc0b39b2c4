/* torchserve/errors/torchserve_error.c - applies the rows of torchserve_errors.def. Any thread; it
 * keeps no state. */
#include "torchserve/errors/torchserve_error.h"

#include <stddef.h>
#include <string.h>

#include "core/errors/error.h"

static const struct {
    int code;
    unsigned status;
    int grpc_status;
    const char *type, *message;
} rows[] = {
#define CN_TORCHSERVE_ERROR(code, status, grpc, type, message) {code, status, grpc, type, message},
#include "torchserve/errors/torchserve_errors.def"
#undef CN_TORCHSERVE_ERROR
};

/* If the client named a version, TorchServe's own sentence has one quotation mark too many. It is
 * kept. */
static const char *
no_worker(struct cn_str model, struct cn_str version, struct cn_arena *arena)
{
    const char *name = version.len ? cn_arena_printf(arena, "Model \"%.*s\" Version %.*s\"",
                                                     CN_STR_ARG(model), CN_STR_ARG(version))
                                   : cn_arena_printf(arena, "Model \"%.*s\"", CN_STR_ARG(model));

    return cn_arena_printf(
        arena,
        "%s has no worker to serve inference request. Please use scale workers API to add workers. "
        "If this is a sequence inference, please check if it is closed, or expired; or exceeds "
        "maxSequenceJobQueueSize",
        name);
}

void
cn_torchserve_error(int code, bool refused, struct cn_str model, struct cn_str version,
                    struct cn_arena *arena, struct cn_error_words *words)
{
    if (refused) {
        words->type = "InternalServerException";
        return;
    }
    /* TorchServe takes SIGKILL as a sign that the machine has no memory left. */
    if (code == CN_E_WORKER_DIED && strstr(words->message, "by signal 9 ")) {
        *words = (struct cn_error_words){507, "InternalServerException", "Worker died."};
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].code != code)
            continue;
        words->status = rows[i].status;
        words->type = rows[i].type;
        if (rows[i].message)
            words->message = *rows[i].message ? rows[i].message : no_worker(model, version, arena);
    }
}

int
cn_torchserve_grpc_status(int code)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].code == code)
            return rows[i].grpc_status;
    return 0;
}
