/* frontend/http/http_listener.c - one API on one loop: it is opened, accepts clients, drains, and
 * ends. The folder transport has its connections. Owned by the loop thread. */
#include "frontend/http/http_listener.h"

#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "frontend/http/transport/http_discard.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/client_addresses.h"
#include "frontend/websocket/ws_site.h"
#include "metrics/counters/metrics.h"

static bool
has_room(struct cn_accept *accept)
{
    const struct cn_http_listener *listener =
        cn_container_of(accept, struct cn_http_listener, accept);

    return listener->n_conns < listener->shared->config->max_connections + CN_HTTP_SURPLUS_MAX;
}

static void
on_client(struct cn_accept *accept, int fd, const struct sockaddr *from, uint32_t from_len)
{
    struct cn_http_listener *listener = cn_container_of(accept, struct cn_http_listener, accept);
    const struct cn_server_config *config = listener->shared->config;
    struct cn_client_address *address;

    (void)from_len;
    if (!cn_client_address_take(from, listener->api->kind, config->max_address_connections,
                                listener->api->capacity, &address)) {
        cn_metrics_add(cn_loop_metrics(listener->loop), CN_M_HTTP_REFUSED, 1);
        close(fd);
        return;
    }
    cn_http_conn_open(listener, fd, from, address);
}

/* Frees what the listener has. */
static void
destroy(struct cn_http_listener *listener)
{
    cn_accept_end(&listener->accept);
    cn_http_tls_stop(listener);
    cn_buf_fini(&listener->head);
    cn_free(listener->in);
    cn_free(listener);
}

int
cn_http_listener_create(const struct cn_http_shared *shared, const struct cn_http_api *api,
                        struct cn_loop *loop, int listen_fd, bool is_tls,
                        struct cn_http_listener **out, struct cn_error *err)
{
    struct cn_http_listener *listener = cn_alloc(sizeof(*listener));
    int rc;

    listener->shared = shared;
    listener->api = api;
    listener->loop = loop;
    listener->is_tls = is_tls;
    listener->calls = &cn_http_request_calls;
    cn_list_init(&listener->conns);
    cn_list_init(&listener->discards);
    listener->accept.is_ready = has_room;
    listener->accept.on_client = on_client;
    listener->in = cn_alloc(CN_HTTP_IN_BYTES);
    cn_buf_init(&listener->head, 0);
    rc = cn_accept_begin(&listener->accept, loop, listen_fd, err);
    if (!rc && is_tls)
        rc = cn_http_tls_start(listener, err);
    if (rc) {
        destroy(listener);
        return rc;
    }
    if (api->has_streams)
        listener->streams = cn_ws_site_create(listener);
    if (api->counted)
        cn_metrics_add(cn_loop_metrics(loop), CN_M_HTTP_CONNECTIONS_MAX,
                       shared->config->max_connections);
    *out = listener;
    return 0;
}

void
cn_http_listener_leave(struct cn_http_listener *listener)
{
    listener->leaving = true;
    if (listener->streams)
        cn_ws_site_leave(listener->streams);
}

void
cn_http_listener_drain(struct cn_http_listener *listener)
{
    struct cn_list *node;

    if (listener->draining)
        return;
    listener->leaving = listener->draining = true;
    cn_accept_end(&listener->accept);
    cn_list_for_each(node, &listener->conns) {
        struct cn_http_conn *conn = cn_container_of(node, struct cn_http_conn, link);

        cn_http_conn_drain(conn);
    }
    if (listener->streams)
        cn_ws_site_leave(listener->streams);
}

void
cn_http_listener_cut(struct cn_http_listener *listener)
{
    struct cn_list *node;

    cn_list_for_each(node, &listener->conns)
        cn_http_conn_cut(cn_container_of(node, struct cn_http_conn, link), "stop");
}

bool
cn_http_listener_is_empty(const struct cn_http_listener *listener)
{
    return listener->n_conns == 0 && listener->n_requests == 0;
}

void
cn_http_listener_left(const struct cn_http_listener *listener, unsigned *connections,
                      unsigned *requests)
{
    *connections = (unsigned)listener->n_conns;
    *requests = (unsigned)listener->n_requests;
}

void
cn_http_listener_destroy(struct cn_http_listener *listener)
{
    if (!listener)
        return;
    cn_http_discard_end_all(listener);
    cn_ws_site_destroy(listener->streams);
    cn_assert(cn_http_listener_is_empty(listener));
    destroy(listener);
}
