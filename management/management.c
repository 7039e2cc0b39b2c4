/* management/management.c - management begins, answers the other folders, drains and ends. It is
 * created and destroyed on the main thread and otherwise belongs to loop 0; find and healthy run on
 * any loop.
 *
 * The life of a server, as seen here:
 * - cn_management_create() opens the state folder, the tokens and the file threads. No loop runs
 *   yet.
 * - cn_management_start() registers all models that were named. `unreserved` counts those whose
 *   name and version are not in the registry yet, `starting` those that are neither up nor failed.
 *   Until the first is 0, a step without a version may belong to a version that nobody knows yet;
 *   until the second is 0, an unknown model is answered with "is loading" instead of "not found".
 * - Requests find queues by the views of the registry, on every loop, without a lock.
 * - cn_management_drain() closes all versions. It is over when `operations` is 0: each call that
 *   needs more than one turn counts as an operation until it has answered, so nothing is freed
 *   under it.
 * - cn_management_destroy() frees what is left, after the loops have ended.
 */
#include "management/management.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "access/keys.h"
#include "archiver/sign/sign.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "core/system/program_path.h"
#include "management/cluster/cluster.h"
#include "management/management_priv.h"
#include "management/models/download.h"
#include "management/models/lifecycle.h"
#include "management/models/lifecycle_priv.h"
#include "management/models/model_cache.h"
#include "management/models/snapshot.h"
#include "management/models/trial.h"
#include "management/nodes/nodes.h"
#include "management/pool/temp_watch.h"
#include "management/repository/find_archive.h"
#include "management/repository/model_store.h"
#include "management/repository/repository_priv.h"
#include "management/state/clock_watch.h"

#define LOCK_WAIT_MS 5000    /* the workers of a dead server end within milliseconds */
#define DOWNLOADERS 4        /* one slow source must not hold up the others */
#define FIRST_WORKER_ID 9000 /* TorchServe's first port, which is its worker's id */

/* --- begin */

/* Finds the worker program: the one that was asked for, or the one beside this program. The path is
 * absolute, because workers run in the folders of their models. */
static int
find_worker_program(const char *wanted, char **out, struct cn_error *err)
{
    char path[PATH_MAX], *absolute;
    int rc;

    if (!wanted && (rc = cn_program_path("continuo-worker", path, sizeof(path), err)) != 0)
        return rc;
    wanted = wanted ? wanted : path;
    absolute = realpath(wanted, NULL);
    if (!absolute || access(absolute, X_OK) < 0) {
        cn_fail_sys(err, CN_E_CONFIG, errno,
                    "cannot run the worker program %s; name it with --worker", wanted);
        free(absolute);
        return CN_E_CONFIG;
    }
    *out = cn_strdup(absolute);
    free(absolute);
    return 0;
}

static int
create_environments(struct cn_management *management, struct cn_error *err)
{
    char *state = realpath(cn_state_dir_path(management->state), NULL);
    struct cn_buf folder;
    int rc;

    cn_buf_init(&folder, 0);
    cn_buf_printf(&folder, "%s/environments", state ? state : "");
    cn_buf_append(&folder, "", 1);
    free(state);
    rc = cn_environments_create(
        &(struct cn_environments_spec){.loop = management->home,
                                       .folder = folder.data,
                                       .timeout_ms = management->config->install_timeout_ms,
                                       .keep_ms = management->config->environment_keep_ms},
        &management->environments, err);
    cn_buf_fini(&folder);
    return rc;
}

/* Archives of a web server come by way of a cache if it is the model store, or if all nodes load
 * them. */
/* The file is read again for each archive (sign.h), but a mistake in it should stop the start. */
static int
check_trusted_keys(const struct cn_server_config *config, struct cn_error *err)
{
    struct cn_sign_publics *keys = cn_alloc(sizeof *keys);
    int rc = cn_sign_trusted_read(config->trusted_keys, keys, err);

    cn_free(keys);
    if (rc == 0 && config->model_repository)
        rc = cn_fail(err, CN_E_CONFIG,
                     "trusted-keys demands signed archives, and the models of model-repository "
                     "(%.300s) are folders: serve archives from a model store instead "
                     "(continuo-archiver import makes them)",
                     config->model_repository);
    return rc;
}

static int
create_cache(struct cn_management *management, struct cn_error *err)
{
    const struct cn_server_config *config = management->config;
    struct cn_model_cache_spec spec = {
        .dir = config->model_cache,
        .prefix = cn_model_store_is_remote(config->model_store) ? config->model_store : NULL,
        .max_bytes = config->model_cache_bytes,
        .rules = management->url_rules,
        .max_download_bytes = config->max_download_bytes,
        .timeout_ms = config->download_timeout_ms,
        .stopping = &management->draining};
    struct cn_buf folder;
    int rc;

    if (!cn_model_store_is_remote(config->model_store) && !config->cluster_models)
        return 0;
    if (cn_model_store_is_remote(config->model_store) &&
        config->model_control_mode != CN_CONTROL_NONE)
        return cn_fail(err, CN_E_CONFIG,
                       "model-control-mode must be none if the model store is a URL (%.300s); "
                       "explicit and poll need a folder",
                       config->model_store);
    cn_buf_init(&folder, 0);
    cn_buf_printf(&folder, "%s/model-cache", cn_state_dir_path(management->state));
    cn_buf_append(&folder, "", 1);
    if (!spec.dir)
        spec.dir = folder.data;
    rc = cn_model_cache_create(&spec, &management->cache, err);
    cn_buf_fini(&folder);
    return rc;
}

/* In a drain, handlers that stream are asked to end in the last quarter of the time. */
#define STREAMS_END_PART 4

static void on_drain_timer(struct cn_timer *timer);

/* Makes TorchServe's keys, or reads the named ones. */
static int
create_keys(struct cn_management *management, struct cn_error *err)
{
    const struct cn_server_config *config = management->config;

    if (config->keys && config->token_auth)
        return cn_fail(err, CN_E_CONFIG,
                       "keys and token-auth exclude each other: choose the named keys of %s, or "
                       "TorchServe's three keys (the program torchserve has those unless "
                       "disable_token_authorization is true)",
                       config->keys);
    if (config->keys)
        return cn_keys_open(
            config->keys,
            (struct cn_keys_rules){.owners = config->sequence_ownership,
                                   .certificates = cn_server_grpc_client_ca(config) != NULL},
            &management->keys, err);
    return config->token_auth ? cn_tokens_create(config->token_file, config->token_lifetime_ms,
                                                 &management->tokens, err)
                              : 0;
}

int
cn_management_create(const struct cn_server_config *config, struct cn_loop *const *loops,
                     unsigned n_loops, struct cn_management **out, struct cn_error *err)
{
    struct cn_management *management = cn_alloc(sizeof *management);
    int rc = 0;

    cn_assert(n_loops > 0);
    management->config = config;
    management->loops = loops;
    management->n_loops = n_loops;
    management->home = loops[0];
    management->next_worker_id = FIRST_WORKER_ID;
    cn_timer_init(&management->drain_timer, on_drain_timer);
    management->registry = cn_registry_create(loops, n_loops);
    cn_health_init(&management->health);
    cn_list_init(&management->downloads);
    cn_list_init(&management->trials);
    cn_list_init(&management->snapshot_waits);
    cn_list_init(&management->snapshot_waits_next);
    cn_management_set_starting(management, true);
    cn_download_begin(cn_model_store_is_remote(config->model_store) ? NULL : config->model_store);
    if (!cn_model_store_is_remote(config->model_store))
        rc = cn_model_store_check(config->model_store, err);
    if (!rc)
        rc = cn_snapshot_check(config, err);
    if (!rc)
        rc = find_worker_program(config->worker_program, &management->worker_program, err);
    if (!rc)
        rc = cn_state_dir_open(config->state_dir, LOCK_WAIT_MS, &management->state, err);
    if (!rc)
        rc = cn_file_thread_create(management->home, 1, &management->files, err);
    if (!rc && config->install_packages)
        rc = create_environments(management, err);
    if (!rc)
        rc = cn_file_thread_create(management->home, DOWNLOADERS, &management->downloaders, err);
    if (!rc)
        rc = cn_url_rules_create(config->allowed_urls, &management->url_rules, err);
    if (!rc && config->trusted_keys)
        rc = check_trusted_keys(config, err);
    if (!rc)
        rc = create_cache(management, err);
    if (!rc)
        rc = cn_nodes_create(management, &management->nodes, err);
    if (!rc)
        rc = create_keys(management, err);
    if (rc) {
        cn_management_destroy(management);
        return rc;
    }
    if ((rc = cn_cluster_create(management, &management->cluster, err)) != 0) {
        cn_management_destroy(management);
        return rc;
    }
    management->repository = cn_repository_create(management);
    management->stores = cn_stores_create(management);
    cn_clock_watch_begin(cn_state_dir_path(management->state), config);
    *out = management;
    return 0;
}

/* Frees the versions of a server that ends without a drain because it could not start. Their
 * workers are killed. What the kernel gives back anyway is left to it. */
static void
abandon_versions(struct cn_management *management)
{
    struct cn_list *models = cn_registry_models(management->registry), *node;
    struct cn_version *version;

    while (!cn_list_empty(models)) {
        node = cn_container_of(models->next, struct cn_model, link)->versions.next;
        cn_registry_remove(management->registry, cn_container_of(node, struct cn_version, link));
    }
    while ((node = cn_list_pop_front(cn_registry_closing(management->registry)))) {
        version = cn_container_of(node, struct cn_version, link);
        if (version->pool)
            cn_worker_pool_destroy_at_exit(version->pool);
        cn_version_free(version);
    }
}

void
cn_management_destroy(struct cn_management *management)
{
    if (!management)
        return;
    atomic_store(&management->draining, true); /* downloads give up */
    cn_nodes_destroy(management->nodes);
    cn_cluster_destroy(management->cluster);
    cn_file_thread_destroy(management->downloaders);
    cn_file_thread_destroy(management->files);
    abandon_versions(management);
    cn_temp_watch_stop();
    cn_registry_destroy(management->registry);
    cn_environments_destroy(management->environments);
    cn_health_fini(&management->health);
    cn_repository_destroy(management->repository);
    cn_stores_destroy(management->stores);
    cn_clock_watch_end();
    cn_tokens_destroy(management->tokens);
    cn_keys_destroy(management->keys);
    cn_model_cache_destroy(management->cache);
    cn_url_rules_destroy(management->url_rules);
    cn_state_dir_close(management->state, management->drained);
    cn_free(management->worker_program);
    cn_free(management);
}

void
cn_management_take_note(struct cn_management *management, const char *model, const char *reason)
{
    cn_repository_take_note(management->repository, model, NULL, reason);
}

void
cn_management_advertise(struct cn_management *management, const char *inference,
                        const char *management_url, const char *metrics)
{
    cn_nodes_begin(management->nodes, inference, management_url, metrics);
}

/* --- on a request's path */

/* A client must not learn from a server that was just restarted that its model is gone. */
static void
fail_not_known_yet(struct cn_str name, struct cn_error *err)
{
    cn_fail(err, CN_E_MODEL_LOADING,
            "Model \"%.*s\" is not known yet: the server is starting and still loads its models; "
            "try again",
            CN_STR_ARG(name));
}

struct cn_model_queue *
cn_management_find(struct cn_management *management, struct cn_str name, struct cn_str version,
                   struct cn_error *err)
{
    struct cn_model_queue *queue;
    bool started;

    if (atomic_load_explicit(&management->draining, memory_order_relaxed)) {
        cn_fail(err, CN_E_DRAINING, "the server is stopping");
        return NULL;
    }
    started = atomic_load_explicit(&management->started, memory_order_relaxed);
    queue = cn_registry_lookup(management->registry, name, version, err);
    if (!queue && !started)
        fail_not_known_yet(name, err);
    return queue;
}

struct cn_model_queue *
cn_management_find_startup(struct cn_management *management, struct cn_error *err)
{
    if (atomic_load_explicit(&management->draining, memory_order_relaxed)) {
        cn_fail(err, CN_E_DRAINING, "the server is stopping");
        return NULL;
    }
    return cn_registry_lookup_startup(management->registry, err);
}

_Static_assert(CN_MANAGEMENT_URL_MAX == CN_NODE_URL_MAX, "cn_nodes_home writes that many bytes");

bool
cn_management_redirects(struct cn_management *management, struct cn_str sequence,
                        char url[CN_MANAGEMENT_URL_MAX])
{
    return management->config->redirect_sequences &&
           cn_nodes_home(management->nodes, sequence, url);
}

int
cn_management_is_ready(struct cn_management *management, struct cn_str name, bool *out,
                       struct cn_error *err)
{
    bool started = atomic_load_explicit(&management->started, memory_order_relaxed);

    if (cn_registry_is_ready(management->registry, name, out, err) == 0)
        return 0;
    if (!started)
        fail_not_known_yet(name, err);
    return err->code;
}

void
cn_management_each(struct cn_management *management,
                   void (*fn)(void *ctx, struct cn_model_queue *queue, bool is_ready), void *ctx)
{
    cn_registry_each(management->registry, fn, ctx);
}

void
cn_management_unready(struct cn_management *management, uint32_t counts[CN_N_UNREADY])
{
    for (int i = 0; i < CN_N_UNREADY; i++)
        counts[i] = cn_health_count(&management->health, (enum cn_unready)i);
    counts[CN_UNREADY_WORKERS] += cn_registry_count_short(management->registry);
}

const char *
cn_management_first_failure(const struct cn_management *management)
{
    return management->first_failure;
}

int
cn_management_authorize(struct cn_management *management, enum cn_token_kind kind, unsigned scopes,
                        const struct cn_credentials *shown, const struct cn_key **key,
                        struct cn_error *err)
{
    if (management->keys)
        return cn_keys_identify(management->keys, shown, scopes, key, err);
    return management->tokens ? cn_tokens_check(management->tokens, kind, shown->authorization, err)
                              : 0;
}

int
cn_management_check_key(struct cn_management *management, const struct cn_key *key, unsigned scopes,
                        struct cn_error *err)
{
    return key ? cn_keys_check(management->keys, key, scopes, err) : 0;
}

int
cn_management_check_model(struct cn_management *management, const struct cn_key *key,
                          struct cn_str model, struct cn_error *err)
{
    return key ? cn_keys_check_model(management->keys, key, model, err) : 0;
}

struct cn_str
cn_management_owner(const struct cn_management *management, const struct cn_key *key)
{
    return cn_str_from(key && management->config->sequence_ownership ? cn_key_name(key) : "");
}

uint32_t
cn_management_client(const struct cn_key *key, uint32_t address)
{
    return key ? cn_key_number(key) : address;
}

int
cn_management_reload_keys(struct cn_management *management, uint32_t *n, struct cn_error *err)
{
    int rc = cn_keys_reload(management->keys, err);

    *n = cn_keys_count(management->keys);
    return rc;
}

/* --- drain */

static void
hurry_all(struct cn_management *management, bool kill)
{
    struct cn_list *node;
    struct cn_version *version;

    management->hurried = true;
    cn_list_for_each(node, cn_registry_closing(management->registry)) {
        version = cn_container_of(node, struct cn_version, link);
        if (version->pool)
            cn_worker_pool_hurry(version->pool, kill);
    }
}

static void
stop_streams(struct cn_management *management)
{
    struct cn_list *node;

    cn_list_for_each(node, cn_registry_closing(management->registry)) {
        struct cn_version *version = cn_container_of(node, struct cn_version, link);

        if (version->pool)
            cn_worker_pool_stop_streams(version->pool);
    }
}

/* Twice: when streams must end, and when the time is over and workers are killed. */
static void
on_drain_timer(struct cn_timer *timer)
{
    struct cn_management *management = cn_container_of(timer, struct cn_management, drain_timer);

    if (!management->streams_told) {
        management->streams_told = true;
        stop_streams(management);
        cn_timer_set(cn_loop_wheel(management->home), timer, management->drain_end_ms);
        return;
    }
    cn_log(CN_LOG_WARN, "event=drain_timeout drain_timeout_ms=%u note=\"workers are killed\"",
           management->config->drain_timeout_ms);
    hurry_all(management, true);
    /* Once more in a second, in case a worker has started meanwhile. */
    cn_timer_set(cn_loop_wheel(management->home), timer, cn_loop_now_ms(management->home) + 1000);
}

void
cn_management_announce_stop(struct cn_management *management)
{
    cn_assert_on_loop(management->home);
    cn_health_set(&management->health, cn_unready_word(CN_UNREADY_STOPPING), "server",
                  cn_unready_text(CN_UNREADY_STOPPING));
    cn_nodes_changed(management->nodes);
}

void
cn_management_drain(struct cn_management *management, void (*on_done)(void *ctx), void *ctx)
{
    cn_assert_on_loop(management->home);
    if (atomic_load(&management->draining)) {
        hurry_all(management, false);
        return;
    }
    cn_log(CN_LOG_INFO, "event=draining drain_timeout_ms=%u", management->config->drain_timeout_ms);
    management->on_drained = on_done;
    management->drained_ctx = ctx;
    cn_management_announce_stop(management);
    cn_snapshot_stopping(management);
    cn_repository_stop(management->repository);
    cn_cluster_stop(management->cluster);
    atomic_store(&management->draining, true);
    cn_trial_stop_all(management);
    cn_environments_stop(management->environments);
    management->drain_end_ms =
        cn_loop_now_ms(management->home) + management->config->drain_timeout_ms;
    cn_timer_set(cn_loop_wheel(management->home), &management->drain_timer,
                 management->drain_end_ms -
                     management->config->drain_timeout_ms / STREAMS_END_PART);
    cn_lifecycle_close_all(management);
    cn_call_on(management->home, cn_management_check_drained, management);
}
