/* frontend/server/grpc_door.c - the gRPC ports: listens, and hands connections to grpc/. Loop 0.
 *
 * A connection without TLS waits in the lobby for its first bytes; one with TLS has its handshake
 * in grpc/, which has its own time limit. What gRPC needs is made for the first client, because
 * most servers never have one.
 */
#include "frontend/server/grpc_door.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/server/server_config.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "frontend/http/accept.h"
#include "frontend/http/http_listener.h"
#include "frontend/intake/client_addresses.h"
#include "frontend/server/grpc_lobby.h"
#include "metrics/counters/metrics.h"

#define TELL_MS 10000

struct port {
    struct cn_grpc_door *door;
    struct cn_address address;
    bool is_open;
    struct cn_accept accept;
    struct cn_grpc_lobby lobby;
    uint64_t told_ms; /* when the log last said that all seats are taken */
};

struct cn_grpc_door {
    const struct cn_http_shared *shared;
    struct cn_loop *loop;
    struct port ports[CN_N_GRPC];
    bool draining;
    struct cn_rpc *rpc; /* NULL: no client has come yet */
};

static const struct {
    const char *flag;
    uint16_t default_port;
} ports[CN_N_GRPC] = {
    [CN_GRPC_INFERENCE] = {"--grpc-inference-address", 7070},
    [CN_GRPC_MANAGEMENT] = {"--grpc-management-address", 7071},
};

static void
close_port(struct port *port)
{
    if (port->accept.fd < 0)
        return;
    cn_http_socket_forget(&port->address); /* first: a file that comes later is another server's */
    cn_accept_end(&port->accept);
    cn_grpc_lobby_fini(&port->lobby);
}

/* --- connections */

/* accept.c's question whether a client may be accepted. */
static bool
is_ready(struct cn_accept *accept)
{
    (void)accept;
    return true;
}

static struct cn_rpc *
rpc_of(struct cn_grpc_door *door)
{
    const struct cn_http_shared *shared = door->shared;
    const struct cn_rpc_host host = {
        .config = shared->config,
        .management = shared->management,
        .loops = shared->loops,
        .n_loops = shared->n_loops,
    };

    if (!door->rpc)
        door->rpc = cn_rpc_create(&host);
    return door->rpc;
}

static void
tell_full(struct port *port, uint32_t max)
{
    uint64_t now_ms = cn_loop_now_ms(port->door->loop);

    if (port->told_ms && now_ms < port->told_ms + TELL_MS)
        return;
    port->told_ms = now_ms;
    cn_log(CN_LOG_WARN,
           "event=grpc_connections_full port=%s max=%u note=\"further connections are closed\"",
           port == &port->door->ports[CN_GRPC_INFERENCE] ? "inference" : "management", max);
}

static void
count_refused(struct port *port)
{
    cn_metrics_add(cn_loop_metrics(port->door->loop), CN_M_GRPC_REFUSED, 1);
}

static void
on_lobby_closed(struct cn_grpc_lobby *lobby)
{
    count_refused(cn_container_of(lobby, struct port, lobby));
}

/* Hands a connection to grpc/, if there is room. */
static void
hand_over(struct port *port, int fd, struct cn_client_address *from)
{
    struct cn_grpc_door *door = port->door;
    const enum cn_grpc_port index = (enum cn_grpc_port)(port - door->ports);
    uint32_t max = door->shared->config->grpc_max_connections;

    if (!door->draining && cn_rpc_n_open(rpc_of(door), index) < max) {
        cn_rpc_connect(door->rpc, index, fd, port->address.is_https, from);
        return;
    }
    if (!door->draining)
        tell_full(port, max);
    count_refused(port);
    cn_client_address_release(from, port->lobby.kind);
    close(fd);
}

/* The client has begun to speak HTTP/2. */
static void
on_lobby_ready(struct cn_grpc_lobby *lobby, int fd, struct cn_client_address *from)
{
    hand_over(cn_container_of(lobby, struct port, lobby), fd, from);
}

static void
on_client(struct cn_accept *accept, int fd, const struct sockaddr *from, uint32_t from_len)
{
    struct port *port = cn_container_of(accept, struct port, accept);
    const struct cn_server_config *config = port->door->shared->config;
    struct cn_client_address *address;
    int one = 1;

    (void)from_len;
    if (!cn_client_address_take(from, port->lobby.kind, config->max_address_connections,
                                config->grpc_max_connections, &address)) {
        count_refused(port);
        close(fd);
        return;
    }
    if (!port->address.is_unix)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (port->address.is_https)
        hand_over(port, fd, address);
    else
        cn_grpc_lobby_add(&port->lobby, fd, address);
}

/* --- the door */

static int
open_port(struct port *port, const char *text, unsigned index, struct cn_error *err)
{
    int fd, rc;

    if (strcmp(text, "none") == 0)
        return 0;
    rc = cn_address_parse(text, ports[index].default_port, &port->address, err);
    if (rc)
        return rc;
    if (port->door->shared->config->require_tls && !port->address.is_https &&
        !port->address.is_unix)
        return cn_fail(
            err, CN_E_CONFIG,
            "%s %s is plain http, which require-tls forbids; write https://, unix:/PATH, or none",
            ports[index].flag, text);
    port->is_open = true;
    rc = cn_http_socket_listen(&port->address, false, ports[index].flag, &fd, err);
    if (rc)
        return rc;
    rc = cn_accept_begin(&port->accept, port->door->loop, fd, err);
    if (rc)
        cn_http_socket_forget(&port->address);
    return rc;
}

int
cn_grpc_door_create(const struct cn_http_shared *shared, struct cn_grpc_door **out,
                    struct cn_error *err)
{
    struct cn_grpc_door *door = cn_alloc(sizeof(*door));
    unsigned i;
    int rc;

    door->shared = shared;
    door->loop = shared->loops[0];
    for (i = 0; i < CN_N_GRPC; i++) {
        door->ports[i].door = door;
        door->ports[i].accept.fd = -1;
        door->ports[i].accept.is_ready = is_ready;
        door->ports[i].accept.on_client = on_client;
        door->ports[i].lobby.on_ready = on_lobby_ready;
        door->ports[i].lobby.on_closed = on_lobby_closed;
        cn_grpc_lobby_init(&door->ports[i].lobby, door->loop, shared->config->header_timeout_ms,
                           CN_ADDRESS_GRPC + i);
    }
    *out = door;
    rc = open_port(&door->ports[CN_GRPC_INFERENCE], shared->config->grpc_inference_address,
                   CN_GRPC_INFERENCE, err);
    return rc ? rc
              : open_port(&door->ports[CN_GRPC_MANAGEMENT], shared->config->grpc_management_address,
                          CN_GRPC_MANAGEMENT, err);
}

void
cn_grpc_door_format(const struct cn_grpc_door *door, enum cn_grpc_port port,
                    char out[CN_HTTP_ADDRESS_MAX])
{
    const struct cn_address *address = &door->ports[port].address;
    char url[CN_HTTP_ADDRESS_MAX];

    cn_http_address_format(address, url);
    if (!door->ports[port].is_open)
        strcpy(out, "none");
    else
        strcpy(out, address->is_unix ? url : strstr(url, "//") + 2);
}

void
cn_grpc_door_drain(struct cn_grpc_door *door, enum cn_grpc_port port)
{
    door->draining = true;
    close_port(&door->ports[port]);
    if (door->rpc)
        cn_rpc_drain(door->rpc, port);
}

bool
cn_grpc_door_is_empty(const struct cn_grpc_door *door, unsigned loop)
{
    return !door->rpc || cn_rpc_is_empty(door->rpc, loop); /* not set any more once it drains */
}

void
cn_grpc_door_cut(struct cn_grpc_door *door)
{
    if (door->rpc)
        cn_rpc_cut(door->rpc);
}

void
cn_grpc_door_destroy(struct cn_grpc_door *door)
{
    unsigned i;

    if (!door)
        return;
    for (i = 0; i < CN_N_GRPC; i++) {
        close_port(&door->ports[i]);
        cn_grpc_lobby_fini(&door->ports[i].lobby);
    }
    cn_rpc_destroy(door->rpc);
    cn_free(door);
}
