/* frontend/server/server_priv.h - the server's own structs, for the files of this folder only.
 *
 * Loop 0 owns everything here. The threads of the other loops see only their own site.
 */
#ifndef CN_FRONTEND_SERVER_SERVER_PRIV_H
#define CN_FRONTEND_SERVER_SERVER_PRIV_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/loop/loop.h"
#include "frontend/http/http_listener.h"
#include "management/repository/triton_repository.h"
#include "metrics/page/recent_counters.h"
#include "metrics/page/torchserve_page.h"
#include "torchserve/settings/metrics_file.h"

#define CN_LOOPS_MAX 64

enum cn_server_api { CN_INFERENCE, CN_MANAGEMENT, CN_METRICS, CN_N_APIS };

struct cn_exporter;
struct cn_grpc_door;
struct cn_server;

/* What the server has on one loop. */
struct cn_server_site {
    struct cn_server *server;
    struct cn_loop *loop;
    pthread_t thread;
    bool has_thread;
    int fds[CN_N_APIS]; /* listening sockets until their listener takes them; -1: none */
    struct cn_http_listener *listeners[CN_N_APIS];
    struct cn_msg leave, drain, finish;
    struct cn_msg finished; /* posted to loop 0 */
    struct cn_timer timer;
    uint64_t finish_since_ms;
    bool was_cut, is_stuck;
};

struct cn_server {
    struct cn_server_config config; /* the options, lowered to what the machine allows */
    struct cn_http_shared shared;
    struct cn_imported imported; /* with --model-repository; `config` points into it */
    struct cn_management *management;
    struct cn_grpc_door *grpc;
    struct cn_http_api apis[CN_N_APIS];
    struct cn_address addresses[CN_N_APIS];
    /* it shares the address of an interface before it, which has the listener */
    bool shares_address[CN_N_APIS];
    /* loop 0: the file of its unix socket is removed; one that is there may be another server's */
    bool is_forgotten[CN_N_APIS];
    unsigned n_loops, n_unfinished;
    struct cn_loop *loops[CN_LOOPS_MAX];
    struct cn_server_site sites[CN_LOOPS_MAX];
    sigset_t signals;
    struct cn_watch signal_watch;
    struct cn_system_log system_log;
    struct cn_recent recent;
    struct cn_timer memory;       /* loop 0 */
    struct cn_exporter *exporter; /* NULL: no traces */
    struct cn_metrics_file metrics_file;
    struct cn_msg start;
    uint64_t began_us;
    bool stopping, draining, is_stuck; /* stopping: a signal came; draining: the delay is over */
    struct cn_timer delay;             /* loop 0: ends when the drain begins */
    int exit_code;                     /* the exit code of a clean stop */
    void (*on_ready)(void *ctx);       /* from the caller of cn_server_run; may be NULL */
    void *ready_ctx;
};

/* server_steps.c: starts all that the server needs. Returns the number of steps that were tried,
 * for cn_server_undo; err->code is 0 if none has failed. */
size_t cn_server_start(struct cn_server *server, struct cn_error *err);
void cn_server_undo(struct cn_server *server, size_t done);

/* server_sockets.c: two steps of the start list, from addresses to listening sockets and from those
 * to listeners. The stop functions also undo a start that failed halfway. */
int cn_server_start_sockets(struct cn_server *server, struct cn_error *err);
void cn_server_stop_sockets(struct cn_server *server);
int cn_server_start_listeners(struct cn_server *server, struct cn_error *err);
/* Drains the site's listener of that interface, if there is one. On the site's loop; may be called
 * twice. */
void cn_server_drain_listener(struct cn_server_site *site, enum cn_server_api api);
void cn_server_stop_listeners(struct cn_server *server);

/* server_signals.c. Blocks the signals. Call it before the first thread starts, since threads
 * inherit the mask. */
int cn_server_block_signals(struct cn_server *server, struct cn_error *err);
/* Reads the certificate and key of the https addresses, if there are any. */
int cn_server_start_tls(struct cn_server *server, struct cn_error *err);
void cn_server_stop_tls(struct cn_server *server);
/* Reads the signals on loop 0 from now on. */
int cn_server_start_signals(struct cn_server *server, struct cn_error *err);
void cn_server_stop_signals(struct cn_server *server);

/* server_memory.c: the thread of loop 0 keeps large blocks, and gives back those of all loops. */
int cn_server_start_memory(struct cn_server *server, struct cn_error *err);
void cn_server_stop_memory(struct cn_server *server);

/* server_stop.c: prepares what the stop needs, before any loop runs. */
void cn_server_stop_init(struct cn_server *server);
/* Begins the stop, on loop 0. `signal_number` is SIGTERM or SIGINT, or 0 when the server gives up
 * by itself. A second call makes the stop hurry: it ends the delay before the drain, or it shortens
 * the drain. */
void cn_server_stop_begin(struct cn_server *server, int signal_number);

#endif
