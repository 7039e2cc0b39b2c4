/* frontend/server/server.c - runs the server: starts it, loads the models, prints the ready line,
 * and undoes the start at the end.
 *
 * What is started, and in which order, is in server_steps.c. Loop 0 runs in the main thread and
 * owns everything here; the threads of the other loops see only their own struct cn_server_site.
 * Signals are in server_signals.c. Models are loaded after the loops have started. When they are
 * up, the ready line is printed to stdout; scripts wait for it. */
#include "frontend/server/server.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/log/log_files.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/http/http_socket.h"
#include "frontend/server/grpc_door.h"
#include "frontend/server/server_priv.h"
#include "management/management.h"

/* Ends the server because a model named at start cannot be loaded (--exit-on-model-failure). The
 * message goes to stderr, too, where whoever started the server looks first. */
static void
give_up(struct cn_server *server, unsigned failed)
{
    char more[64] = "";

    if (failed > 1)
        snprintf(more, sizeof(more), " (and %u more, see event=model_failed)", failed - 1);
    fprintf(stderr,
            "continuo: cannot load a model named at start: %s%s; --exit-on-model-failure=false "
            "starts the server without it\n",
            cn_management_first_failure(server->management), more);
    cn_log(CN_LOG_ERROR, "event=start_failed models=%u", failed);
    /* Nothing was served that could drain. Lines about that would only hide the reason. */
    if (server->config.log_level == CN_LOG_INFO)
        cn_log_set_level(CN_LOG_WARN);
    server->exit_code = 1;
    cn_server_stop_begin(server, 0);
}

/* All models are loaded or have failed: prints the ready line, which scripts wait for. */
static void
on_models_up(void *ctx, unsigned failed)
{
    struct cn_server *server = ctx;
    char shown[CN_N_APIS][CN_HTTP_ADDRESS_MAX], grpc[CN_N_GRPC][CN_HTTP_ADDRESS_MAX];
    unsigned api;

    if (server->stopping)
        return;
    if (failed && server->config.exit_on_model_failure) {
        give_up(server, failed);
        return;
    }
    for (api = 0; api < CN_N_APIS; api++)
        cn_http_address_format(&server->addresses[api], shown[api]);
    for (api = 0; api < CN_N_GRPC; api++)
        cn_grpc_door_format(server->grpc, (enum cn_grpc_port)api, grpc[api]);
    if (failed)
        cn_log(CN_LOG_WARN, "event=models_failed count=%u", failed);
    printf("Model server started. inference=%s management=%s metrics=%s grpc=%s grpc_admin=%s "
           "pid=%d loops=%u ready_ms=%llu\n",
           shown[CN_INFERENCE], shown[CN_MANAGEMENT], shown[CN_METRICS], grpc[CN_GRPC_INFERENCE],
           grpc[CN_GRPC_MANAGEMENT], (int)getpid(), server->n_loops,
           (unsigned long long)(cn_now_us() - server->began_us) / 1000);
    fflush(stdout);
    if (server->on_ready)
        server->on_ready(server->ready_ctx);
}

static void
start_models(struct cn_msg *msg)
{
    struct cn_server *server = cn_container_of(msg, struct cn_server, start);
    char shown[CN_N_APIS][CN_HTTP_ADDRESS_MAX];

    for (unsigned api = 0; api < CN_N_APIS; api++)
        cn_http_address_format(&server->addresses[api], shown[api]);
    cn_management_advertise(server->management, shown[CN_INFERENCE], shown[CN_MANAGEMENT],
                            shown[CN_METRICS]);
    cn_management_start(server->management, on_models_up, server);
}

/* Half of the processors, from 1 to 4: the workers need processors, too. */
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

static struct cn_server *
server_create(const struct cn_server_config *config)
{
    struct cn_server *server = cn_alloc(sizeof(*server));
    unsigned i, api;

    server->began_us = cn_now_us();
    server->config = *config; /* its strings stay the caller's */
    server->n_loops = config->loops ? config->loops : default_loops();
    cn_assert(server->n_loops <= CN_LOOPS_MAX);
    server->start.fn = start_models;
    for (i = 0; i < server->n_loops; i++) {
        struct cn_server_site *site = &server->sites[i];

        site->server = server;
        for (api = 0; api < CN_N_APIS; api++)
            site->fds[api] = -1;
    }
    cn_server_stop_init(server);
    return server;
}

int
cn_server_run(const struct cn_server_config *config, void (*on_ready)(void *ctx), void *ctx)
{
    struct cn_server *server = server_create(config);
    struct cn_error err = {0};
    size_t done;
    int exit_code;

    server->on_ready = on_ready;
    server->ready_ctx = ctx;
    cn_log_set_program("continuo");
    cn_log_set_level((enum cn_log_level)config->log_level);
    cn_log_set_json(config->log_format == 1);
    done = cn_server_start(server, &err);
    if (err.code == 0) {
        cn_loop_post(server->loops[0], &server->start);
        cn_loop_run(server->loops[0]);
    } else {
        fprintf(stderr, "continuo: %s\n", err.message);
    }
    if (server->is_stuck) { /* what is left still belongs to its listener */
        cn_log(CN_LOG_ERROR, "event=stop_incomplete why=\"connections did not end\"");
        cn_log_files_stop();
        _exit(1);
    }
    cn_server_undo(server, done);
    if (err.code == 0)
        cn_log(CN_LOG_INFO, "event=stopped");
    exit_code = server->exit_code;
    cn_log_files_stop();
    cn_free(server);
    return err.code ? 1 : exit_code;
}
