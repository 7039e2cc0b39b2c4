/* management/api/kill_worker.c - DELETE /models/{m}/{v}/workers/{index} kills one worker, so that
 * an operator can see that its sequences go on. Loop 0.
 *
 * The kill happens on the loop of the version's pool, which alone knows whether the process still
 * is the worker's: a process id from an earlier answer may belong to somebody else by now. */
#include "management/api/kill_worker.h"

#include <stdlib.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"

#define INDEX_MAX 1024

struct killing {
    struct cn_api_call *call;
    struct cn_worker_pool_strike strike;
};

static void
on_done(struct cn_worker_pool_strike *strike)
{
    struct killing *killing = cn_container_of(strike, struct killing, strike);
    struct cn_api_call *call = killing->call;
    struct cn_management *management = call->management;
    char text[160];

    if (strike->pid) {
        cn_log(CN_LOG_WARN, "event=worker_killed_by_operator worker=%u pid=%d", strike->index,
               (int)strike->pid);
        snprintf(text, sizeof text,
                 "Worker %u (pid %d) was killed. Its steps are sent again, and the server starts "
                 "another process.",
                 strike->index, (int)strike->pid);
        cn_api_answer(call, 200, json_pack("{s:s}", "status", text));
    } else {
        snprintf(text, sizeof text,
                 "worker %u does not exist or has no process now; GET /models/... lists the "
                 "workers",
                 strike->index);
        cn_api_fail(call, CN_E_NOT_FOUND, text);
    }
    cn_free(killing);
    cn_management_op_end(management);
}

void
cn_api_kill_worker(struct cn_api_call *call)
{
    const char *text = call->parts[4];
    const unsigned long index = strtoul(text, NULL, 10);
    struct cn_version *version;
    struct killing *killing;
    struct cn_error err;

    if (strspn(text, "0123456789") != strlen(text) || index == 0 || index > INDEX_MAX) {
        cn_api_fail(call, CN_E_BAD_REQUEST,
                    "the index of a worker is a number from 1; GET /models/... shows it");
        return;
    }
    version = cn_management_find_version(call->management, call->parts[1], call->parts[2], &err);
    if (!version) {
        cn_api_fail(call, err.code, err.message);
        return;
    }
    killing = cn_alloc(sizeof *killing);
    killing->call = call;
    killing->strike.index = (uint32_t)index;
    killing->strike.on_done = on_done;
    cn_management_op_begin(call->management);
    cn_worker_pool_strike(version->pool, &killing->strike);
}
