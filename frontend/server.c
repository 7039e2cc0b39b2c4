/* frontend/server.c - a start list, the ready line, and a drain.
 *
 * Loop 0 runs in the main thread and owns what is here; the other loops' threads see their own
 * site only. The start list is undone backwards, at the end as after a failure.
 */
#include "frontend/server.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/panic.h"
#include "frontend/health.h"
#include "frontend/http_listener.h"
#include "frontend/http_socket.h"
#include "frontend/management_http.h"
#include "frontend/metrics_http.h"
#include "frontend/predict.h"
#include "management/management.h"

#define LOOPS_MAX 64
#define SPARE_FDS 1024  /* workers, their pipes and archives, besides connections */
#define FLUSH_MS 2000   /* at the end: time for clients to take the last answers */
#define GIVE_UP_MS 5000 /* at the end: time for cut connections to be gone */
#define FINISH_TICK_MS 10

enum api { INFERENCE, MANAGEMENT, METRICS, N_APIS };

static const struct cn_route inference_routes[] = {
    {CN_HTTP_GET | CN_HTTP_HEAD, "/ping", cn_health_ping},
    {CN_HTTP_GET | CN_HTTP_POST | CN_HTTP_PUT, "/predictions/{}", cn_predict_handle},
    {CN_HTTP_GET | CN_HTTP_POST | CN_HTTP_PUT, "/predictions/{}/{}", cn_predict_handle},
    {0, NULL, NULL},
};
static const struct cn_route management_routes[] = {
    {CN_HTTP_ANY_METHOD, NULL, cn_management_http_handle},
    {0, NULL, NULL},
};
static const struct cn_route metrics_routes[] = {
    {CN_HTTP_GET | CN_HTTP_HEAD, "/metrics", cn_metrics_http_handle},
    {0, NULL, NULL},
};

static const struct {
    const char *flag;
    const struct cn_route *routes;
    uint16_t default_port;
    bool on_all_loops;
} apis[N_APIS] = {
    [INFERENCE] = {"--inference-address", inference_routes, 8080, true},
    [MANAGEMENT] = {"--management-address", management_routes, 8081, false},
    [METRICS] = {"--metrics-address", metrics_routes, 8082, false},
};

struct server;

/* What belongs to one loop. */
struct site {
    struct server *server;
    struct cn_loop *loop;
    pthread_t thread;
    bool has_thread;
    int fds[N_APIS]; /* listening, until their listener takes them; -1: none */
    struct cn_http_listener *listeners[N_APIS];
    struct cn_msg drain, finish;
    struct cn_msg finished; /* to loop 0 */
    struct cn_timer timer;
    uint64_t finish_since_ms;
    bool was_cut, is_stuck;
};

struct server {
    struct cn_server_config config; /* with what the machine does not allow corrected */
    struct cn_http_shared shared;
    struct cn_management *management;
    struct cn_address addresses[N_APIS];
    unsigned n_loops, n_unfinished;
    struct cn_loop *loops[LOOPS_MAX];
    struct site sites[LOOPS_MAX];
    sigset_t signals;
    struct cn_watch signal_watch;
    struct cn_msg start;
    uint64_t began_us;
    bool draining, is_stuck;
};

/* --- the start list */

static int
start_limits(struct server *server, struct cn_error *err)
{
    uint64_t need = (uint64_t)server->n_loops * server->config.max_connections + SPARE_FDS;
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
    server->config.max_connections = (uint32_t)(fits / server->n_loops);
    cn_log(CN_LOG_INFO, "event=connections_limited max_connections=%u open_files=%llu",
           server->config.max_connections, (unsigned long long)limit.rlim_cur);
    return 0;
}

/* Before the first thread, so that all have them blocked. */
static int
start_signals(struct server *server, struct cn_error *err)
{
    (void)err;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&server->signals);
    sigaddset(&server->signals, SIGTERM);
    sigaddset(&server->signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &server->signals, NULL);
    return 0;
}

static int
start_loops(struct server *server, struct cn_error *err)
{
    unsigned i;
    int rc;

    for (i = 0; i < server->n_loops; i++) {
        rc = cn_loop_create(i, &server->loops[i], err);
        if (rc)
            return rc;
        server->sites[i].loop = server->loops[i];
    }
    return 0;
}

static void
stop_loops(struct server *server)
{
    unsigned i;

    for (i = 0; i < server->n_loops; i++)
        cn_loop_destroy(server->loops[i]);
}

/* The first loop's socket finds the port; the others join it. */
static int
open_sockets(struct server *server, enum api api, const char *text, struct cn_error *err)
{
    struct cn_address *address = &server->addresses[api];
    unsigned i, n = apis[api].on_all_loops ? server->n_loops : 1;
    int rc = cn_address_parse(text, apis[api].default_port, address, err);

    if (rc)
        return rc;
    if (address->is_https)
        return cn_fail(err, CN_E_CONFIG, "%s %s: https is not available; use http", apis[api].flag,
                       text);
    if (address->is_unix)
        n = 1;
    if (n > 1 && (rc = cn_http_socket_probe(address, apis[api].flag, err)))
        return rc;
    for (i = 0; i < n; i++) {
        rc = cn_http_socket_listen(address, n > 1, apis[api].flag, &server->sites[i].fds[api], err);
        if (rc)
            return rc;
    }
    return 0;
}

static int
start_sockets(struct server *server, struct cn_error *err)
{
    int rc = open_sockets(server, INFERENCE, server->config.inference_address, err);

    if (!rc)
        rc = open_sockets(server, MANAGEMENT, server->config.management_address, err);
    if (!rc)
        rc = open_sockets(server, METRICS, server->config.metrics_address, err);
    return rc;
}

static void
stop_sockets(struct server *server)
{
    unsigned i, api;

    for (api = 0; api < N_APIS; api++) {
        for (i = 0; i < server->n_loops; i++) {
            if (server->sites[i].fds[api] >= 0)
                close(server->sites[i].fds[api]);
        }
        if (server->sites[0].listeners[api] || server->sites[0].fds[api] >= 0)
            cn_http_socket_forget(&server->addresses[api]);
    }
}

static int
start_management(struct server *server, struct cn_error *err)
{
    int rc = cn_management_create(&server->config, server->loops, server->n_loops,
                                  &server->management, err);

    server->shared = (struct cn_http_shared){&server->config, server->management, server->loops,
                                             server->n_loops};
    return rc;
}

static void
stop_management(struct server *server)
{
    if (server->management)
        cn_management_destroy(server->management);
}

static int
start_listeners(struct server *server, struct cn_error *err)
{
    unsigned i, api;

    for (i = 0; i < server->n_loops; i++) {
        struct site *site = &server->sites[i];

        for (api = 0; api < N_APIS; api++) {
            int fd = site->fds[api], rc;

            if (fd < 0)
                continue;
            site->fds[api] = -1;
            rc = cn_http_listener_create(&server->shared, apis[api].routes, site->loop, fd,
                                         api == INFERENCE, &site->listeners[api], err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static void
stop_listeners(struct server *server)
{
    unsigned i, api;

    for (i = 0; i < server->n_loops; i++) {
        for (api = 0; api < N_APIS; api++)
            cn_http_listener_destroy(server->sites[i].listeners[api]);
    }
}

static void *
thread_main(void *ctx)
{
    struct site *site = ctx;
    char name[16];

    snprintf(name, sizeof(name), "loop-%u", cn_loop_index(site->loop));
    pthread_setname_np(pthread_self(), name);
    cn_loop_run(site->loop);
    return NULL;
}

static int
start_threads(struct server *server, struct cn_error *err)
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
stop_threads(struct server *server)
{
    unsigned i;

    for (i = 1; i < server->n_loops; i++) {
        if (!server->sites[i].has_thread)
            continue;
        cn_loop_stop(server->loops[i]);
        pthread_join(server->sites[i].thread, NULL);
    }
}

/* --- the end: drain inference, then management, then let all connections go */

static void
on_finished(struct cn_msg *msg)
{
    struct site *site = cn_container_of(msg, struct site, finished);
    struct server *server = site->server;

    if (site->is_stuck)
        server->is_stuck = true;
    if (--server->n_unfinished == 0)
        cn_loop_stop(server->loops[0]);
}

static void
check_finished(struct cn_timer *timer)
{
    struct site *site = cn_container_of(timer, struct site, timer);
    uint64_t now_ms = cn_loop_now_ms(site->loop), waited_ms = now_ms - site->finish_since_ms;
    bool is_empty = true;
    unsigned api;

    for (api = 0; api < N_APIS; api++) {
        struct cn_http_listener *listener = site->listeners[api];

        if (!listener || cn_http_listener_is_empty(listener))
            continue;
        is_empty = false;
        if (waited_ms >= FLUSH_MS && !site->was_cut)
            cn_http_listener_cut(listener);
    }
    site->was_cut = waited_ms >= FLUSH_MS;
    if (!is_empty && waited_ms < GIVE_UP_MS) {
        cn_timer_set(cn_loop_wheel(site->loop), timer, now_ms + FINISH_TICK_MS);
        return;
    }
    site->is_stuck = !is_empty;
    cn_loop_post(site->server->loops[0], &site->finished);
}

static void
finish_site(struct cn_msg *msg)
{
    struct site *site = cn_container_of(msg, struct site, finish);
    unsigned api;

    for (api = 0; api < N_APIS; api++) {
        if (site->listeners[api])
            cn_http_listener_drain(site->listeners[api]);
    }
    site->finish_since_ms = cn_loop_now_ms(site->loop);
    check_finished(&site->timer);
}

/* Management and metrics stay, so that one can watch. */
static void
drain_site(struct cn_msg *msg)
{
    struct site *site = cn_container_of(msg, struct site, drain);

    if (site->listeners[INFERENCE])
        cn_http_listener_drain(site->listeners[INFERENCE]);
}

static void
on_drained(void *ctx)
{
    struct server *server = ctx;
    unsigned i;

    server->n_unfinished = server->n_loops;
    for (i = 0; i < server->n_loops; i++)
        cn_loop_post(server->loops[i], &server->sites[i].finish);
}

static void
on_signal(struct cn_watch *watch, uint32_t events)
{
    struct server *server = cn_container_of(watch, struct server, signal_watch);
    struct signalfd_siginfo info;
    unsigned i;

    (void)events;
    if (read(watch->fd, &info, sizeof(info)) != sizeof(info))
        return;
    cn_log(CN_LOG_INFO, "event=%s signal=%s", server->draining ? "stop_hurried" : "stopping",
           info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
    if (!server->draining) {
        for (i = 0; i < server->n_loops; i++)
            cn_loop_post(server->loops[i], &server->sites[i].drain);
    }
    server->draining = true;
    cn_management_drain(server->management, on_drained, server);
}

static int
start_signal_watch(struct server *server, struct cn_error *err)
{
    int fd = signalfd(-1, &server->signals, SFD_CLOEXEC | SFD_NONBLOCK), rc;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot receive signals");
    server->signal_watch.fn = on_signal;
    rc = cn_loop_watch(server->loops[0], &server->signal_watch, fd, EPOLLIN, err);
    if (rc)
        close(fd);
    return rc;
}

static void
stop_signal_watch(struct server *server)
{
    int fd = server->signal_watch.fd;

    if (!server->signal_watch.generation)
        return;
    cn_loop_unwatch(server->loops[0], &server->signal_watch);
    close(fd);
}

/* --- all together */

static const struct {
    int (*start)(struct server *server, struct cn_error *err);
    void (*stop)(struct server *server); /* also after a start that failed halfway */
} steps[] = {
    {start_limits, NULL},
    {start_signals, NULL},
    {start_loops, stop_loops},
    {start_sockets, stop_sockets},
    {start_management, stop_management},
    {start_listeners, stop_listeners},
    {start_signal_watch, stop_signal_watch},
    {start_threads, stop_threads},
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

static void
on_models_up(void *ctx, unsigned failed)
{
    struct server *server = ctx;
    char shown[N_APIS][CN_HTTP_ADDRESS_MAX];
    unsigned api;

    if (server->draining)
        return;
    for (api = 0; api < N_APIS; api++)
        cn_http_address_format(&server->addresses[api], shown[api]);
    if (failed)
        cn_log(CN_LOG_WARN, "event=models_failed count=%u", failed);
    printf("Model server started. inference=%s management=%s metrics=%s pid=%d loops=%u "
           "ready_ms=%llu\n",
           shown[INFERENCE], shown[MANAGEMENT], shown[METRICS], (int)getpid(), server->n_loops,
           (unsigned long long)(cn_now_us() - server->began_us) / 1000);
    fflush(stdout);
}

static void
start_models(struct cn_msg *msg)
{
    struct server *server = cn_container_of(msg, struct server, start);

    cn_management_start(server->management, on_models_up, server);
}

static unsigned
default_loops(void)
{
    cpu_set_t cores;
    unsigned n;

    if (sched_getaffinity(0, sizeof(cores), &cores) < 0)
        return 1;
    n = (unsigned)CPU_COUNT(&cores) / 2; /* the workers need cores too */
    return n < 1 ? 1 : n > 4 ? 4 : n;
}

static struct server *
server_create(const struct cn_server_config *config)
{
    struct server *server = cn_alloc(sizeof(*server));
    unsigned i, api;

    server->began_us = cn_now_us();
    server->config = *config; /* its strings stay the caller's */
    server->n_loops = config->loops ? config->loops : default_loops();
    cn_assert(server->n_loops <= LOOPS_MAX);
    server->start.fn = start_models;
    for (i = 0; i < server->n_loops; i++) {
        struct site *site = &server->sites[i];

        site->server = server;
        site->drain.fn = drain_site;
        site->finish.fn = finish_site;
        site->finished.fn = on_finished;
        cn_timer_init(&site->timer, check_finished);
        for (api = 0; api < N_APIS; api++)
            site->fds[api] = -1;
    }
    return server;
}

int
cn_server_run(const struct cn_server_config *config)
{
    struct server *server = server_create(config);
    struct cn_error err = {0};
    size_t done = 0;

    cn_log_set_program("continuo");
    cn_log_set_level((enum cn_log_level)config->log_level);
    while (done < N_STEPS && err.code == 0) {
        if (steps[done].start(server, &err) == 0)
            err.code = 0;
        done++;
    }
    if (err.code == 0) {
        cn_loop_post(server->loops[0], &server->start);
        cn_loop_run(server->loops[0]);
    } else {
        fprintf(stderr, "continuo: %s\n", err.message);
    }
    if (server->is_stuck) { /* libmicrohttpd would abort on a connection that waits */
        cn_log(CN_LOG_ERROR, "event=stop_incomplete why=\"connections did not end\"");
        _exit(1);
    }
    while (done-- > 0) {
        if (steps[done].stop)
            steps[done].stop(server);
    }
    if (err.code == 0)
        cn_log(CN_LOG_INFO, "event=stopped");
    cn_free(server);
    return err.code ? 1 : 0;
}
