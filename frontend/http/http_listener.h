/* frontend/http/http_listener.h - one address on one loop: its connections, and what they share.
 *
 * A listener is owned by its loop's thread. It is created before the loop runs and destroyed after
 * the loop has ended.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_LISTENER_H
#define CN_FRONTEND_HTTP_HTTP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "core/memory/buf.h"
#include "frontend/endpoints/service_envelope.h"
#include "frontend/http/accept.h"
#include "frontend/http/route.h"
#include "frontend/intake/client_addresses.h"
#include "management/api/tokens.h"

struct gnutls_certificate_credentials_st;
struct gnutls_priority_st;
struct cn_cpu_times;
struct cn_feed;
struct cn_recent;
struct cn_http_request;
struct cn_management;
struct cn_ws_hub;
struct cn_ws_site;

/* What all listeners and requests may read. It does not change while loops run. */
struct cn_http_shared {
    struct cn_cpu_times *cpu_times; /* only loop 0 uses it */
    const struct cn_recent *recent; /* only loop 0 uses it */
    struct cn_feed *feed;           /* of the page; only loop 0 uses it */
    const struct cn_server_config *config;
    struct cn_management *management;
    struct cn_loop *const *loops;
    unsigned n_loops;
    enum cn_service_envelope envelope;
    char *known_hosts;         /* names by which clients may manage an open server: "one,two" */
    struct cn_ws_hub *streams; /* the WebSockets of all loops, and their tickets */
    size_t answer_room;        /* CN_HTTP_ANSWER_ROOM, plus the bytes of the CORS headers */
};

/* What one interface serves, on each of its listeners. */
struct cn_http_api {
    const struct cn_route *routes;
    bool counted;  /* its connections are counted in the metrics */
    bool has_keys; /* with token-auth, requests must show a key of `token` */
    enum cn_token_kind token;
    bool checks_hosts; /* requests that manage the server must name a host that is known */
    bool has_streams;  /* it has WebSockets */
    enum cn_address_kind kind;
    uint64_t capacity;    /* of connections; one address gets a part of it */
    bool takes_envelopes; /* exported sequences may be sent: bodies up to max-envelope-size */
    /* another interface at the same address; it gets the paths that this one lacks */
    const struct cn_http_api *next;
};

/* What the folder transport calls for the requests that it reads. */
struct cn_http_calls {
    /* The head is there: checks it, and the announced length. It may answer already. */
    void (*begin)(struct cn_http_request *request);
    /* Takes a part of the body. It may answer already. */
    void (*body)(struct cn_http_request *request, const char *bytes, size_t len);
    /* The next bytes of a body with an announced length were read to body + body_len. It may answer
     * already. */
    void (*took)(struct cn_http_request *request, size_t len);
    /* The request is complete: finds and calls its route's function. If it has no answer after
     * that, it is held, and waits. */
    void (*end)(struct cn_http_request *request);
    /* Refuses a request whose body has bytes that are not allowed, and ends its connection. */
    void (*refuse)(struct cn_http_request *request, int code, const char *message);
    /* The connection is done with the request, successfully or not. Frees it unless it is held. */
    void (*completed)(struct cn_http_request *request);
};

struct cn_http_listener {
    const struct cn_http_shared *shared;
    const struct cn_http_api *api;
    bool is_tls;
    struct cn_loop *loop;
    const struct cn_http_calls *calls;
    struct cn_accept accept;
    struct gnutls_certificate_credentials_st *credentials; /* NULL: without TLS */
    struct gnutls_priority_st *priorities;
    char *in;           /* CN_HTTP_IN_BYTES, into which all connections are read */
    struct cn_buf head; /* in which the heads of answers are written */
    struct cn_list conns;
    struct cn_ws_site *streams; /* its WebSockets; NULL: the interface has none */
    struct cn_list discards;    /* refused clients that still send */
    uint32_t n_conns, n_discards;
    uint32_t n_requests; /* request records not freed yet, some without a connection */
    bool told_full;      /* the log already says that there are too many connections */
    bool leaving;        /* every answer closes its connection */
    bool draining;       /* leaving, and no connection is accepted any more */
};

/* Makes a listener. `listen_fd` is a non-blocking, listening socket; the listener closes it, also
 * when this function fails. With `is_tls` it uses the certificate of access/certificate/tls.h.
 * `shared` and `api` must stay in place. */
int cn_http_listener_create(const struct cn_http_shared *shared, const struct cn_http_api *api,
                            struct cn_loop *loop, int listen_fd, bool is_tls,
                            struct cn_http_listener **out, struct cn_error *err);
/* Lets each answer close its connection, so that clients connect anew, perhaps elsewhere. */
void cn_http_listener_leave(struct cn_http_listener *listener);
/* Stops accepting, closes idle connections, and lets each answer close its own connection. */
void cn_http_listener_drain(struct cn_http_listener *listener);
/* Shuts down the connections that are still open. */
void cn_http_listener_cut(struct cn_http_listener *listener);
/* Are all connections closed and all request records freed? */
bool cn_http_listener_is_empty(const struct cn_http_listener *listener);
/* Stores how many connections and requests are left, for a log line. */
void cn_http_listener_left(const struct cn_http_listener *listener, unsigned *connections,
                           unsigned *requests);
/* Frees the listener, which must be empty. NULL is allowed. */
void cn_http_listener_destroy(struct cn_http_listener *listener);

#endif
