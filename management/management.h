/* management/management.h - models, versions and workers, behind a transport-neutral API.
 *
 * All state lives on loop 0. Model queues live on all loops in turn; what concerns
 * one is done by messages. Predictions find their model through a per-loop view
 * of immutable data, without a lock.
 */
#ifndef CN_MANAGEMENT_MANAGEMENT_H
#define CN_MANAGEMENT_MANAGEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "core/memory/buf.h"
#include "management/api/tokens.h"
#include "management/workers/supervisor.h"
#include "metrics/counters/metrics.h"
#include "metrics/counters/unready.h"
#include "scheduler/queue/model_queue.h"

struct cn_management;

/* On the main thread, before the loops run. `loops`: n_loops of them, borrowed. Opens and locks the
 * state folder (waits up to 5 s for the workers of a dead server; then CN_E_CONFLICT naming the
 * pid), checks its format version, checks the model store, finds the worker program. */
int cn_management_create(const struct cn_server_config *config, struct cn_loop *const *loops,
                         unsigned n_loops, struct cn_management **out, struct cn_error *err);
void cn_management_destroy(struct cn_management *management);
/* Why a model of the repository is not served, for the index. Before the server's threads. */
void cn_management_take_note(struct cn_management *management, const char *model,
                             const char *reason);

/* Loop 0: begins to register the models of the command line; `on_done(ctx, failed)` when each is up
 * or has failed. Each failure is logged; the caller decides whether the server goes on. */
void cn_management_start(struct cn_management *management,
                         void (*on_done)(void *ctx, unsigned failed), void *ctx);

/* Any loop: the model queue for a request on the calling loop. `version` empty: the default one.
 * The pointer is good until the end of this turn: submit in it. Unknown: NULL with
 * CN_E_MODEL_NOT_FOUND / CN_E_VERSION_NOT_FOUND and TorchServe's message; before the models of the
 * command line are up, CN_E_MODEL_LOADING. */
struct cn_model_queue *cn_management_find(struct cn_management *management, struct cn_str name,
                                          struct cn_str version, struct cn_error *err);
/* Any loop: the default version of the one model that was loaded at start-up, as above. With none
 * or several of them: NULL with CN_E_BAD_REQUEST and TorchServe's message. */
struct cn_model_queue *cn_management_find_startup(struct cn_management *management,
                                                  struct cn_error *err);
/* Any loop: has the model's default version a worker that is ready? Unknown: an error, as above. */
int cn_management_is_ready(struct cn_management *management, struct cn_str name, bool *out,
                           struct cn_error *err);
/* Any loop: every version that is up, by model and age; is_ready: it has a worker that is. */
void cn_management_each(struct cn_management *management,
                        void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready),
                        void *ctx);
/* Any loop: for /ping: is there no reason not to be ready? */
bool cn_management_healthy(struct cn_management *management);
/* Any loop: how many models, stores or other things each reason concerns. */
void cn_management_unready(struct cn_management *management, uint32_t counts[CN_N_UNREADY]);
/* Loop 0: which model of the command line could not be loaded first, and why; empty: all could. */
const char *cn_management_first_failure(const struct cn_management *management);

/* Any thread: may this caller use the interface? `authorization`: the value of its Authorization
 * header or metadata, empty without one. 0 also where no keys are asked for (token-auth); else
 * CN_E_TOKEN with TorchServe's words. */
int cn_management_authorize(struct cn_management *management, enum cn_token_kind kind,
                            struct cn_str authorization, struct cn_error *err);

/* Loop 0: stop. New jobs are refused (CN_E_DRAINING), running and waiting steps finish within
 * drain_timeout_ms, workers stop, sequences stay in the store; `on_done(ctx)` when all is over.
 * A second call hurries: waiting jobs are refused and workers killed after their current call. */
void cn_management_drain(struct cn_management *management, void (*on_done)(void *ctx), void *ctx);

/* One model version; the versions of a model stand side by side. */
struct cn_model_counted {
    const char *name, *version;
    const char *labels; /* as struct cn_metrics_of has them */
    const struct cn_metrics *metrics;
    const struct cn_series_copy *series; /* of the handler's own metrics */
    const struct cn_worker_facts *workers;
    uint32_t n_workers;
};
/* Loop 0: what every model version counts, for /metrics. The order stays the caller's and valid
 * until on_done, once, maybe from inside the call; the array is borrowed until that returns. */
struct cn_metrics_order {
    void (*on_done)(struct cn_metrics_order *order, const struct cn_model_counted *models,
                    unsigned n);
};
void cn_management_metrics(struct cn_management *management, struct cn_metrics_order *order);

/* A management request and its answer, whatever it came by. Strings are borrowed until on_reply. */
struct cn_api_request {
    struct cn_str method; /* "GET" ... */
    struct cn_str path;   /* percent-decoded, "/models/counter/1.0" */
    uint32_t n_query;
    struct cn_header *query; /* percent-decoded name and value */
    struct cn_str content_type, body;
    struct cn_str authorization; /* of its header; management asks for it at /token only */
    /* Of an answer that is no JSON: its type and a name for its file. Else NULL. Set before
     * on_reply and borrowed as `json`. */
    const char *reply_type, *reply_file;
    /* Once, on loop 0, maybe from inside cn_management_handle. `json`: complete body (also for
     * errors), borrowed until return. */
    void (*on_reply)(struct cn_api_request *request, int http_status, struct cn_str json);
    int error_code;    /* set before on_reply: CN_E_... that `json` tells of, 0 with a success */
    struct cn_msg msg; /* management's */
};
/* Loop 0. The request stays the caller's and valid until on_reply. */
void cn_management_handle(struct cn_management *management, struct cn_api_request *request);

/* TorchServe's error body: {"code":..,"type":..,"message":..}, two-space indented, final newline.
 * `http_status`: a handler's own choice for its refusal; 0: the code's. */
void cn_error_json(int code, unsigned http_status, const char *message, struct cn_buf *out);
/* The same in other words than the code's. */
void cn_error_json_as(unsigned http_status, const char *type, const char *message,
                      uint64_t expected_step, struct cn_buf *out);

#endif
