/* management/management.h - models, versions and workers, behind an API that knows no transport.
 *
 * All state lives on loop 0. Model queues are spread over all loops, and loop 0 talks to them by
 * messages. Predictions find their model by a view of immutable data on their own loop, without a
 * lock.
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

#define CN_MANAGEMENT_URL_MAX 320

struct cn_credentials;
struct cn_key;
struct cn_management;

/* Makes the management, on the main thread, before the loops run. `loops` (n_loops of them) and
 * `config` are borrowed. Opens and locks the state folder (it waits up to 5 s for the workers of a
 * dead server; then CN_E_CONFLICT names the pid), checks its format version and the model store,
 * and finds the worker program. The caller destroys *out. */
int cn_management_create(const struct cn_server_config *config, struct cn_loop *const *loops,
                         unsigned n_loops, struct cn_management **out, struct cn_error *err);
void cn_management_destroy(struct cn_management *management);
/* Notes why a model of the repository is not served, for the index. Before the server's threads
 * run. */
void cn_management_take_note(struct cn_management *management, const char *model,
                             const char *reason);

/* Loop 0: begins to register the models of the command line. `on_done(ctx, failed)` is called when
 * each of them is up or has failed. Each failure is logged; the caller decides whether the server
 * goes on. */
void cn_management_start(struct cn_management *management,
                         void (*on_done)(void *ctx, unsigned failed), void *ctx);

/* Loop 0: tells the other nodes of a shared store of this one. The addresses are those on which the
 * server listens. Does nothing if the server has no shared store. */
void cn_management_advertise(struct cn_management *management, const char *inference,
                             const char *management_url, const char *metrics);

/* Any loop: returns true if another node is to get the sequence's steps (--redirect-sequences), and
 * the address of its inference API. */
bool cn_management_redirects(struct cn_management *management, struct cn_str sequence,
                             char url[CN_MANAGEMENT_URL_MAX]);

/* Any loop: finds the model queue for a request on the calling loop. An empty `version` means the
 * default one. The pointer is valid until the end of this turn, so submit in this turn. NULL:
 * unknown, with CN_E_MODEL_NOT_FOUND or CN_E_VERSION_NOT_FOUND and TorchServe's message; before the
 * models of the command line are up, CN_E_MODEL_LOADING. */
struct cn_model_queue *cn_management_find(struct cn_management *management, struct cn_str name,
                                          struct cn_str version, struct cn_error *err);
/* Any loop: like cn_management_find(), for the default version of the only model that was loaded at
 * start-up. If there were none or several: NULL with CN_E_BAD_REQUEST and TorchServe's message. */
struct cn_model_queue *cn_management_find_startup(struct cn_management *management,
                                                  struct cn_error *err);
/* Any loop: does the model's default version have a ready worker? Unknown models are an error, as
 * in cn_management_find(). */
int cn_management_is_ready(struct cn_management *management, struct cn_str name, bool *out,
                           struct cn_error *err);
/* Any loop: calls `fn` for every version that is up, by model and age. is_ready: it has a ready
 * worker. */
void cn_management_each(struct cn_management *management,
                        void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready),
                        void *ctx);
/* Any loop: is there no reason against being ready? For /ping. */
bool cn_management_healthy(struct cn_management *management);
/* Any loop: counts for each reason how many models, stores or other things it concerns. */
void cn_management_unready(struct cn_management *management, uint32_t counts[CN_N_UNREADY]);
/* Loop 0: the model of the command line that failed first, and why; empty: all could be loaded. */
const char *cn_management_first_failure(const struct cn_management *management);

/* Any thread: may this caller use the interface, with what it has `shown`? Without keys the answer
 * is 0.
 * With token-auth, `kind` is the key that is needed: CN_E_TOKEN with TorchServe's text.
 * With named keys (keys), the key needs one of `scopes` (CN_SCOPE_...), and `*key` becomes the key:
 * CN_E_KEY_REQUIRED, CN_E_KEY_FORBIDDEN. */
int cn_management_authorize(struct cn_management *management, enum cn_token_kind kind,
                            unsigned scopes, const struct cn_credentials *shown,
                            const struct cn_key **key, struct cn_error *err);
/* Any thread: is the named key of a caller still valid, and does it have one of the scopes? A key
 * of NULL may do everything: no named keys are required. */
int cn_management_check_key(struct cn_management *management, const struct cn_key *key,
                            unsigned scopes, struct cn_error *err);
/* Any thread: may the named key use this model? See cn_keys_check_model; NULL may. */
int cn_management_check_model(struct cn_management *management, const struct cn_key *key,
                              struct cn_str model, struct cn_error *err);
/* Any thread: the owner of the sequences that this key opens; empty: they have none. The text stays
 * until the end of the server. */
struct cn_str cn_management_owner(const struct cn_management *management, const struct cn_key *key);
/* Any thread: the accounts of the named keys (access/account.h), and those of the owners of
 * sequences; NULL: there are none. */
struct cn_accounts *cn_management_accounts(const struct cn_management *management);
struct cn_accounts *cn_management_owners(const struct cn_management *management);
/* Any thread: a client's number for the fairness of queues (struct cn_job): that of its key, or
 * else that of its address. */
uint32_t cn_management_client(const struct cn_key *key, uint32_t address);
/* Loop 0, with named keys only: reads their file again. On failure the keys stay as they are. `*n`:
 * how many keys there are. */
int cn_management_reload_keys(struct cn_management *management, uint32_t *n, struct cn_error *err);

/* Loop 0: from now on the server is unhealthy, because it stops soon. It still serves. */
void cn_management_announce_stop(struct cn_management *management);
/* Loop 0: stops the server. New jobs are refused (CN_E_DRAINING), running and waiting steps finish
 * within drain_timeout_ms, workers stop, and sequences stay in the store. `on_done(ctx)` is called
 * when all is over. A second call hurries: waiting jobs are refused, and workers stop after their
 * current call. */
void cn_management_drain(struct cn_management *management, void (*on_done)(void *ctx), void *ctx);

/* What one model version counts. The versions of a model stand next to each other. */
struct cn_model_counted {
    const char *name, *version;
    const char *labels; /* in the form of struct cn_metrics_of */
    const struct cn_metrics *metrics;
    const struct cn_series_copy *series; /* of the handler's own metrics */
    const struct cn_worker_facts *workers;
    uint32_t n_workers;
};
/* Loop 0: gathers what every model version counts, for /metrics. The order stays the caller's and
 * in place until on_done, which is called once, perhaps from inside the call. The array is borrowed
 * until on_done returns. */
struct cn_metrics_order {
    void (*on_done)(struct cn_metrics_order *order, const struct cn_model_counted *models,
                    unsigned n);
};
void cn_management_metrics(struct cn_management *management, struct cn_metrics_order *order);

/* A request of the management API and its answer, for any transport. Strings are borrowed until
 * on_reply. */
struct cn_api_request {
    struct cn_str method; /* "GET" ... */
    struct cn_str path;   /* percent-decoded, "/models/counter/1.0" */
    uint32_t n_query;
    struct cn_header *query; /* percent-decoded name and value */
    struct cn_str content_type, body;
    struct cn_str authorization; /* value of its Authorization header; used at /token only */
    const struct cn_key *key;    /* the named key that it showed, or NULL */
    /* For an answer that is not JSON: its content type and a name for the file; else NULL. Set
     * before on_reply, and borrowed like `json`. */
    const char *reply_type, *reply_file;
    /* Called once on loop 0, perhaps from inside cn_management_handle(). `json`: the complete body,
     * for errors as well; borrowed until on_reply returns. */
    void (*on_reply)(struct cn_api_request *request, int http_status, struct cn_str json);
    int error_code;    /* set before on_reply: the CN_E_... that `json` reports; 0: success */
    struct cn_msg msg; /* management's */
};
/* Loop 0: handles a request, which stays the caller's and in place until on_reply. */
void cn_management_handle(struct cn_management *management, struct cn_api_request *request);

/* Writes TorchServe's error body: {"code":..,"type":..,"message":..}, indented by two spaces, with
 * a final newline. `http_status`: a status that a handler chose for its refusal; 0: that of the
 * code. */
void cn_error_json(int code, unsigned http_status, const char *message, struct cn_buf *out);
/* Writes the same body with a type of the caller's. `expected_step` is added unless it is 0. */
void cn_error_json_as(unsigned http_status, const char *type, const char *message,
                      uint64_t expected_step, struct cn_buf *out);

#endif
