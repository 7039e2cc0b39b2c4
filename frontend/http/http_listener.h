/* frontend/http/http_listener.h - one libmicrohttpd daemon: an address on a loop.
 *
 * Always in external epoll mode: its epoll set is watched by the loop, and it runs in the loop's
 * hook, after what was answered in this turn and before the turn's new work is dispatched.
 * Owned by the loop thread; created before the loop runs, destroyed after.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_LISTENER_H
#define CN_FRONTEND_HTTP_HTTP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "frontend/http/accept.h"
#include "frontend/http/route.h"
#include "frontend/intake/service_envelope.h"
#include "management/api/tokens.h"

struct MHD_Daemon;
struct cn_cpu_times;
struct cn_recent;
struct cn_http_request;
struct cn_management;

/* What all listeners and requests may see; does not change while loops run. */
struct cn_http_shared {
    struct cn_cpu_times *cpu_times; /* loop 0's */
    const struct cn_recent *recent; /* loop 0's, too */
    const struct cn_server_config *config;
    struct cn_management *management;
    struct cn_loop *const *loops;
    unsigned n_loops;
    enum cn_service_envelope envelope;
    size_t answer_room; /* CN_HTTP_ANSWER_ROOM and the headers for other sites' scripts */
};

/* What is served, on each listener of an interface. */
struct cn_http_api {
    const struct cn_route *routes;
    bool counted;  /* its connections and requests are in the metrics */
    bool has_keys; /* with token-auth requests must show a key of `token` */
    enum cn_token_kind token;
    bool takes_envelopes;           /* exported sequences: bodies up to max-envelope-size */
    const struct cn_http_api *next; /* at the same address: gets what this one has no path for */
};

struct cn_http_listener {
    const struct cn_http_shared *shared;
    const struct cn_http_api *api;
    bool is_tls;
    struct cn_loop *loop;
    struct cn_accept accept;
    struct MHD_Daemon *daemon;
    struct cn_watch watch; /* the daemon's epoll set */
    struct cn_hook hook;
    struct cn_list conns;
    struct cn_list discards; /* refused clients that still send */
    uint32_t n_conns, n_discards;
    uint32_t n_requests;    /* records not freed yet, also those whose connection is gone */
    bool told_full;         /* the log has it that there are too many connections */
    bool draining;          /* every answer closes its connection */
    bool ready;             /* its epoll set has something */
    bool resumed;           /* connections were resumed since it ran last */
    bool again;             /* it wants to run without waiting */
    uint32_t n_active;      /* connections in the middle of a body or an answer */
    bool went_on;           /* some connection came a step further in this run */
    uint32_t n_lingering;   /* requests that wait without being suspended */
    uint32_t n_unproven;    /* TLS: connections that have sent no request yet */
    uint64_t linger_run_ms; /* when it must run for those two at the latest */
};

/* `listen_fd`: non-blocking and listening; the listener's from here on, also on failure.
 * `is_tls`: with the identity of frontend/http/tls.h. */
int cn_http_listener_create(const struct cn_http_shared *shared, const struct cn_http_api *api,
                            struct cn_loop *loop, int listen_fd, bool is_tls,
                            struct cn_http_listener **out, struct cn_error *err);
/* Takes no new connections, closes idle ones, and lets each answer close its own. */
void cn_http_listener_drain(struct cn_http_listener *listener);
/* Shuts down the connections that are still open. */
void cn_http_listener_cut(struct cn_http_listener *listener);
/* Is nothing left: no connection, no request? */
bool cn_http_listener_is_empty(const struct cn_http_listener *listener);
/* For a message about what is left. */
void cn_http_listener_left(const struct cn_http_listener *listener, unsigned *connections,
                           unsigned *requests);
/* Must be empty. NULL is allowed. */
void cn_http_listener_destroy(struct cn_http_listener *listener);

/* The request's connection goes on in this turn, or in the next one when the hook is over. */
void cn_http_listener_resume(struct cn_http_request *request);

#endif
