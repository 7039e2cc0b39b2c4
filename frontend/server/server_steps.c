/* frontend/server/server_steps.c - what the server needs, started step by step and undone in the
 * end. Loop 0's thread.
 *
 * The table `steps` lists everything, in the order of the dependencies: logs before anything that
 * may log, limits before sockets, loops before listeners, threads last. Each step has a start
 * function and, if there is something to undo, a stop function. At the end, and also after a start
 * that failed, the stop functions run backwards from the last step that was tried. So a stop
 * function must accept a step that was started only halfway. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/log/log.h"
#include "core/log/log_files.h"
#include "core/memory/buf.h"
#include "core/memory/large_blocks.h"
#include "core/memory/mem.h"
#include "core/tuning/tuning.h"
#include "frontend/http/access_log.h"
#include "frontend/http/http_checks.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/request_bytes.h"
#include "frontend/intake/sequence_names.h"
#include "frontend/intake/unread.h"
#include "frontend/page/feed.h"
#include "frontend/server/grpc_door.h"
#include "frontend/server/server_priv.h"
#include "frontend/websocket/ws_site.h"
#include "kserve/access.h"
#include "kserve/settings.h"
#include "kserve/shared_memory.h"
#include "management/management.h"
#include "management/workers/bounds.h"
#include "proto/frame.h"
#include "torchserve/metrics/metric_lines.h"
#include "tracing/export/exporter.h"
#include "tracing/slow_steps.h"
#include "tracing/trace_context.h"

#define CORS_VALUE_MAX 256
#define SPARE_FDS 1024 /* descriptors for workers, their pipes and archives, besides connections */

/* --- the process: logs, limits */

static int
start_logs(struct cn_server *server, struct cn_error *err)
{
    const struct cn_server_config *config = &server->config;
    const struct cn_log_options options = {.dir = config->log_dir,
                                           .metrics_dir = config->metrics_log_dir,
                                           .file_bytes = config->log_file_bytes,
                                           .keep = config->log_keep,
                                           .ring_bytes = config->log_buffer_bytes};

    cn_access_log_setup(config);
    cn_ts_setup((enum cn_ts_mode)config->metrics_mode);
    cn_v2_log_setup(config->log_dir);
    cn_shm_setup(&(struct cn_shm_limits){.allowed = config->allow_client_shm,
                                         .max_regions = config->max_shm_regions,
                                         .max_region_bytes = config->max_shm_bytes,
                                         .max_input_bytes = config->max_v2_request_bytes});
    if (cn_v2_access_setup(CN_V2_HTTP, config->http_restricted_api, config->http_forward, err) ||
        cn_v2_access_setup(CN_V2_GRPC, config->grpc_restricted_api, config->grpc_forward, err))
        return err->code;
    return cn_log_files_start(&options, err);
}

/* Is this metric of TorchServe's shown? A metrics file shows only what it names. In that file
 * HandlerTime and PredictionTime belong to the model, while this server counts them itself. */
static bool
is_shown(const char *name, void *ctx)
{
    const struct cn_server *server = ctx;

    if (server->config.disable_system_metrics && cn_is_system_metric(name))
        return false;
    return !server->metrics_file.n ||
           cn_metrics_file_find(&server->metrics_file, cn_str_from(name));
}

static int
start_metrics(struct cn_server *server, struct cn_error *err)
{
    const char *path = server->config.metrics_config;
    int rc = path ? cn_metrics_file_read(path, &server->metrics_file, err) : 0;

    if (rc)
        return rc;
    cn_ts_show(is_shown, server);
    cn_metric_rules_use(path ? &server->metrics_file : NULL, server->config.metrics_auto_detect);
    return 0;
}

static void
stop_metrics(struct cn_server *server)
{
    cn_metric_rules_use(NULL, false);
    cn_metrics_file_fini(&server->metrics_file);
}

static int
start_names(struct cn_server *server, struct cn_error *err)
{
    return cn_sequence_names_use(&server->config, err);
}

/* Raises the limit of open files to what all connections together may need, so that the clients of
 * one port cannot take the descriptors of the others and of the workers. If the system does not
 * allow that many, the limits of the connections are lowered instead. */
static int
start_limits(struct cn_server *server, struct cn_error *err)
{
    struct cn_server_config *config = &server->config;
    uint64_t grpc = (uint64_t)CN_N_GRPC * config->grpc_max_connections;
    uint64_t need = (uint64_t)server->n_loops * config->max_connections + grpc + SPARE_FDS;
    uint64_t fits;
    struct rlimit limit;

    (void)err;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= need)
        return 0;
    limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= need)
        return 0;
    fits = limit.rlim_cur > 2 * SPARE_FDS ? limit.rlim_cur - SPARE_FDS : limit.rlim_cur / 2;
    if (grpc > fits / 4)
        grpc = fits / 4;
    config->grpc_max_connections = (uint32_t)(grpc / CN_N_GRPC);
    config->max_connections = (uint32_t)((fits - grpc) / server->n_loops);
    cn_log(CN_LOG_INFO,
           "event=connections_limited max_connections=%u grpc_max_connections=%u open_files=%llu",
           config->max_connections, config->grpc_max_connections,
           (unsigned long long)limit.rlim_cur);
    return 0;
}

/* Sets the switches of --tuning before the first thread starts; the list was checked when it was
 * read. */
static int
start_tuning(struct cn_server *server, struct cn_error *err)
{
    uint64_t bits;
    int rc = cn_tuning_parse(server->config.tuning, &bits, err);

    if (rc == 0)
        cn_tuning_set(bits);
    return rc;
}

/* Prepares what bounds clients and workers, before there are any. A worker, which may run as the
 * same user, must not read the server's memory and keys. */
static int
start_guard(struct cn_server *server, struct cn_error *err)
{
    if (server->config.worker_walls != CN_WALLS_OFF && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot make the server not dumpable");
    cn_unread_set_limit(server->config.max_unread_bytes);
    cn_request_bytes_set_limit(server->config.max_held_bytes);
    cn_bounds_start(NULL, "/proc/self/cgroup");
    return 0;
}

/* --- loops and their threads */

static int
start_loops(struct cn_server *server, struct cn_error *err)
{
    unsigned i;
    int rc;

    for (i = 0; i < server->n_loops; i++) {
        rc = cn_loop_create(i, &server->loops[i], err);
        if (rc)
            return rc;
        cn_loop_set_busy_wait(server->loops[i], server->config.busy_wait_us);
        server->sites[i].loop = server->loops[i];
    }
    return 0;
}

static void
stop_loops(struct cn_server *server)
{
    unsigned i;

    for (i = 0; i < server->n_loops; i++)
        cn_loop_destroy(server->loops[i]);
}

static void *
thread_main(void *ctx)
{
    struct cn_server_site *site = ctx;
    char name[16];

    snprintf(name, sizeof(name), "loop-%u", cn_loop_index(site->loop));
    pthread_setname_np(pthread_self(), name);
    cn_log_files_join();
    cn_large_blocks_keep();
    cn_loop_run(site->loop);
    return NULL;
}

static int
start_threads(struct cn_server *server, struct cn_error *err)
{
    unsigned i;
    int rc;

    for (i = 1; i < server->n_loops; i++) {
        rc = pthread_create(&server->sites[i].thread, NULL, thread_main, &server->sites[i]);
        if (rc)
            return cn_fail_sys(err, CN_E_UNAVAILABLE, rc, "cannot start the thread of loop %u", i);
        server->sites[i].has_thread = true;
    }
    return 0;
}

static void
stop_threads(struct cn_server *server)
{
    unsigned i;

    for (i = 1; i < server->n_loops; i++) {
        if (!server->sites[i].has_thread)
            continue;
        cn_loop_stop(server->loops[i]);
        pthread_join(server->sites[i].thread, NULL);
    }
}

/* --- models and answers */

/* Imports a Triton model repository (--model-repository): afterwards the imported archives are the
 * model store. */
static int
start_repository(struct cn_server *server, struct cn_error *err)
{
    struct cn_server_config *config = &server->config;

    if (!config->model_repository)
        return 0;
    if (cn_import_all(config, &server->imported, err))
        return err->code;
    config->model_store = server->imported.store;
    config->models = server->imported.models;
    config->n_models = server->imported.n_models;
    return 0;
}

static void
stop_repository(struct cn_server *server)
{
    cn_imported_fini(&server->imported);
}

static int
start_management(struct cn_server *server, struct cn_error *err)
{
    const struct cn_imported *imported = &server->imported;
    int rc = cn_management_create(&server->config, server->loops, server->n_loops,
                                  &server->management, err);

    for (uint32_t i = 0; !rc && i < imported->n_refused; i++)
        cn_management_take_note(server->management, imported->refused[i].model,
                                imported->refused[i].reason);
    server->shared = (struct cn_http_shared){.cpu_times = &server->system_log.times,
                                             .recent = &server->recent,
                                             .config = &server->config,
                                             .management = server->management,
                                             .loops = server->loops,
                                             .n_loops = server->n_loops};
    return rc;
}

static void
stop_management(struct cn_server *server)
{
    if (server->management)
        cn_management_destroy(server->management);
}

/* Returns the names by which clients may manage the server where no key is needed: those that are
 * allowed, the machine's own, and those that the node tells the others. The caller frees it. */
static char *
known_hosts(const struct cn_server_config *config)
{
    const char *const urls[] = {config->advertise, config->advertise_management};
    char own[HOST_NAME_MAX + 1] = "";
    struct cn_address address;
    struct cn_buf names;
    size_t len;

    cn_buf_init(&names, 0);
    cn_buf_puts(&names, config->allowed_hosts ? config->allowed_hosts : "");
    if (gethostname(own, sizeof(own) - 1) == 0)
        cn_buf_printf(&names, ",%s", own);
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        if (urls[i] && cn_address_parse(urls[i], 0, &address, NULL) == 0 && !address.is_unix)
            cn_buf_printf(&names, ",%s", address.host);
    }
    return cn_buf_take(&names, &len);
}

/* Prepares what all answers have in common, and checks options whose value becomes a header of each
 * answer. */
static int
start_answers(struct cn_server *server, struct cn_error *err)
{
    const struct cn_server_config *config = &server->config;
    const struct {
        const char *flag, *value;
    } headers[] = {{"--cors-allowed-origin", config->cors_allowed_origin},
                   {"--cors-allowed-methods", config->cors_allowed_methods},
                   {"--cors-allowed-headers", config->cors_allowed_headers}};

    server->shared.known_hosts = known_hosts(config);
    server->shared.streams = cn_ws_hub_create(server->n_loops);
    server->shared.answer_room = CN_HTTP_ANSWER_ROOM;
    if (config->otlp_endpoint)
        server->shared.answer_room += sizeof("traceparent: \r\n") + CN_TRACEPARENT_LEN;
    if (config->cors_allowed_origin)
        server->shared.answer_room +=
            sizeof("Access-Control-Expose-Headers: \r\n" CN_HTTP_EXPOSED_HEADERS);
    if (config->cors_allowed_origin && config->client_ca)
        server->shared.answer_room += sizeof("Access-Control-Allow-Credentials: true\r\n");
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        struct cn_str value = cn_str_from(headers[i].value);

        if (value.len > CORS_VALUE_MAX || !cn_http_header_is_valid(CN_STR("x"), value))
            return cn_fail(
                err, CN_E_CONFIG,
                "%s must be the value of a header: at most %d bytes without control characters",
                headers[i].flag, CORS_VALUE_MAX);
        if (value.len)
            server->shared.answer_room += value.len + sizeof("Access-Control-Allow-Methods: \r\n");
    }
    return cn_service_envelope_parse(config->service_envelope, &server->shared.envelope, err);
}

static void
stop_answers(struct cn_server *server)
{
    cn_free(server->shared.known_hosts);
    cn_ws_hub_destroy(server->shared.streams);
}

static int
start_feed(struct cn_server *server, struct cn_error *err)
{
    (void)err;
    server->shared.feed = cn_feed_create(&server->shared);
    return 0;
}

static void
stop_feed(struct cn_server *server)
{
    cn_feed_destroy(server->shared.feed);
}

static int
start_grpc(struct cn_server *server, struct cn_error *err)
{
    return cn_grpc_door_create(&server->shared, &server->grpc, err);
}

static void
stop_grpc(struct cn_server *server)
{
    cn_grpc_door_destroy(server->grpc);
}

/* --- what the server reports of itself */

/* Starts the list of slow steps, and the thread that sends traces, which has the blocked signals of
 * this one. */
static int
start_traces(struct cn_server *server, struct cn_error *err)
{
    const struct cn_server_config *config = &server->config;
    char own[HOST_NAME_MAX + 1] = "";

    cn_slow_steps_start(config->slow_steps_kept, 1000 * (uint64_t)config->slow_step_ms);
    if (!config->otlp_endpoint)
        return 0;
    if (!config->node_name && gethostname(own, sizeof(own) - 1) != 0)
        own[0] = '\0';
    return cn_exporter_start(
        &(struct cn_exporter_options){.endpoint = config->otlp_endpoint,
                                      .headers = config->otlp_headers,
                                      .service = config->trace_service,
                                      .instance = config->node_name ? config->node_name : own,
                                      .timeout_ms = config->otlp_timeout_ms,
                                      .interval_ms = config->otlp_interval_ms,
                                      .rate = config->trace_sample_rate,
                                      .queue = config->trace_queue,
                                      .n_loops = server->n_loops},
        &server->exporter, err);
}

static void
stop_traces(struct cn_server *server)
{
    cn_exporter_stop(server->exporter);
    cn_slow_steps_stop();
}

static int
start_system_log(struct cn_server *server, struct cn_error *err)
{
    (void)err;
    cn_system_log_begin(
        &server->system_log, server->loops[0],
        server->config.disable_system_metrics ? 0 : server->config.system_metrics_interval_s);
    return 0;
}

static void
stop_system_log(struct cn_server *server)
{
    cn_system_log_end(&server->system_log);
}

static int
start_recent(struct cn_server *server, struct cn_error *err)
{
    (void)err;
    cn_recent_begin(&server->recent, server->loops, server->n_loops);
    return 0;
}

static void
stop_recent(struct cn_server *server)
{
    cn_recent_end(&server->recent);
}

/* --- all together */

static const struct {
    int (*start)(struct cn_server *server, struct cn_error *err);
    void (*stop)(struct cn_server *server); /* also after a start that failed halfway */
} steps[] = {
    {start_tuning, NULL},
    {start_logs, NULL}, /* ends last, after all that may log */
    {start_metrics, stop_metrics},
    {start_names, NULL},
    {start_limits, NULL},
    {start_guard, NULL},
    {cn_server_block_signals, NULL},
    {start_traces, stop_traces}, /* ends when no loop runs any more */
    {start_loops, stop_loops},
    {cn_server_start_sockets, cn_server_stop_sockets},
    {cn_server_start_tls, cn_server_stop_tls},
    {start_repository, stop_repository},
    {start_management, stop_management},
    {start_answers, stop_answers},
    {start_feed, stop_feed},
    {cn_server_start_listeners, cn_server_stop_listeners},
    {start_grpc, stop_grpc},
    {cn_server_start_signals, cn_server_stop_signals},
    {start_system_log, stop_system_log},
    {start_recent, stop_recent},
    {cn_server_start_memory, cn_server_stop_memory},
    {start_threads, stop_threads},
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

size_t
cn_server_start(struct cn_server *server, struct cn_error *err)
{
    size_t done = 0;

    while (done < N_STEPS && err->code == 0) {
        if (steps[done].start(server, err) == 0)
            err->code = 0;
        done++;
    }
    return done;
}

void
cn_server_undo(struct cn_server *server, size_t done)
{
    while (done-- > 0) {
        if (steps[done].stop)
            steps[done].stop(server);
    }
}
