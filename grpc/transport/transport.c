/* grpc/transport/transport.c - starts and stops gRPC, and hands connections to loops.
 *
 * All runs on loop 0. A connection is handed to its loop by a message, and so are the orders to
 * drain and to cut; messages of one thread arrive in their order, so no order misses a connection
 * that was handed over before it.
 */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/intake/client_addresses.h"
#include "grpc/transport/transport_priv.h"

/* --- orders, on each loop */

static void
drain_site(struct cn_msg *msg)
{
    struct cn_grpc_order *order = cn_container_of(msg, struct cn_grpc_order, drain);
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &order->site->conns) {
        struct cn_grpc_conn *conn = cn_container_of(node, struct cn_grpc_conn, link);

        if (conn->server == order->server)
            cn_grpc_conn_drain(conn);
    }
}

static void
cut_site(struct cn_msg *msg)
{
    struct cn_grpc_site *site = cn_container_of(msg, struct cn_grpc_site, cut);

    while (!cn_list_empty(&site->conns))
        cn_grpc_conn_drop(cn_container_of(site->conns.next, struct cn_grpc_conn, link));
}

/* --- loop 0 */

struct cn_grpc *
cn_grpc_create(const struct cn_grpc_limits *limits, struct cn_loop *const *loops, unsigned n_loops,
               void *host)
{
    struct cn_grpc *grpc = cn_alloc(sizeof(*grpc));
    unsigned i;

    grpc->limits = *limits;
    grpc->h2_limits.resets = limits->resets;
    grpc->host = host;
    grpc->n_loops = n_loops;
    grpc->sites = cn_alloc(n_loops * sizeof(*grpc->sites));
    cn_list_init(&grpc->servers);
    cn_grpc_session_start(grpc);
    cn_grpc_tls_start(grpc);
    for (i = 0; i < n_loops; i++) {
        struct cn_grpc_site *site = &grpc->sites[i];

        site->grpc = grpc;
        site->loop = loops[i];
        site->cut.fn = cut_site;
        site->in = cn_alloc(CN_GRPC_IN_BYTES);
        site->out.copied = cn_alloc(CN_GRPC_OUT_ROOM);
        cn_list_init(&site->conns);
        cn_buf_init(&site->sealed, 0);
        cn_list_init(&site->sent);
    }
    return grpc;
}

struct cn_grpc_server *
cn_grpc_serve(struct cn_grpc *grpc, unsigned port, const struct cn_grpc_method *methods,
              cn_grpc_authorize_fn authorize)
{
    struct cn_grpc_server *server = cn_alloc(sizeof(*server));
    unsigned i;

    server->grpc = grpc;
    server->port = port;
    server->methods = methods;
    server->authorize = authorize;
    for (; methods[server->n_methods].path; server->n_methods++)
        server->at_home |= methods[server->n_methods].home_only;
    server->orders = cn_alloc(grpc->n_loops * sizeof(*server->orders));
    for (i = 0; i < grpc->n_loops; i++)
        server->orders[i] = (struct cn_grpc_order){{NULL, drain_site}, server, &grpc->sites[i]};
    cn_list_push_back(&grpc->servers, &server->link);
    return server;
}

void
cn_grpc_server_connect(struct cn_grpc_server *server, int fd, bool is_tls,
                       struct cn_client_address *from)
{
    struct cn_grpc *grpc = server->grpc;
    struct cn_grpc_conn *conn = cn_alloc(sizeof(*conn));

    conn->server = server;
    conn->fd = fd;
    conn->from = from;
    conn->site = &grpc->sites[server->at_home ? 0 : server->next_site];
    server->next_site = (server->next_site + 1) % grpc->n_loops;
    conn->arrive.fn = cn_grpc_conn_arrive;
    conn->shaking_hands = is_tls && cn_grpc_tls_begin(conn);
    conn->failed = is_tls && !conn->shaking_hands;
    atomic_fetch_add_explicit(&server->n_conns, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->site->n_conns, 1, memory_order_relaxed);
    if (cn_loop_is_here(conn->site->loop))
        cn_grpc_conn_arrive(&conn->arrive);
    else
        cn_loop_post(conn->site->loop, &conn->arrive);
}

uint32_t
cn_grpc_server_open(const struct cn_grpc_server *server)
{
    return atomic_load_explicit(&server->n_conns, memory_order_relaxed);
}

void
cn_grpc_server_drain(struct cn_grpc_server *server)
{
    unsigned i;

    if (server->draining)
        return;
    server->draining = true;
    for (i = 0; i < server->grpc->n_loops; i++)
        cn_loop_post(server->grpc->sites[i].loop, &server->orders[i].drain);
}

const struct cn_grpc_method *
cn_grpc_server_methods(const struct cn_grpc_server *server)
{
    return server->methods;
}

void
cn_grpc_cut(struct cn_grpc *grpc)
{
    unsigned i;

    if (atomic_exchange(&grpc->cut, true))
        return;
    for (i = 0; i < grpc->n_loops; i++)
        cn_loop_post(grpc->sites[i].loop, &grpc->sites[i].cut);
}

bool
cn_grpc_is_empty(const struct cn_grpc *grpc, unsigned loop)
{
    return atomic_load_explicit(&grpc->sites[loop].n_conns, memory_order_relaxed) == 0 &&
           grpc->sites[loop].n_live == 0;
}

void
cn_grpc_destroy(struct cn_grpc *grpc)
{
    struct cn_list *node, *next;
    unsigned i;

    if (!grpc)
        return;
    for (i = 0; i < grpc->n_loops; i++) {
        cut_site(&grpc->sites[i].cut);
        cn_assert(grpc->sites[i].n_live == 0);
        cn_free(grpc->sites[i].in);
        cn_free(grpc->sites[i].out.copied);
        cn_buf_fini(&grpc->sites[i].sealed);
    }
    cn_list_for_each_safe(node, next, &grpc->servers) {
        struct cn_grpc_server *server = cn_container_of(node, struct cn_grpc_server, link);

        cn_free(server->orders);
        cn_free(server);
    }
    cn_grpc_session_stop(grpc);
    cn_grpc_tls_stop(grpc);
    cn_free(grpc->sites);
    cn_free(grpc);
}
