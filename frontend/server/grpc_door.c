/* frontend/server/grpc_door.c - the gRPC ports, and loading the gRPC module when it is needed. Loop
 * 0.
 *
 * gRPC costs memory and start time, so it is in a module of its own
 * (docs/decisions/0008), which is loaded when the first client connects. Loading takes some
 * milliseconds, in which the loop must not stand still, so a thread does it. The sequence is: a
 * client connects; is_ready() starts the thread and returns false, so accept.c stops accepting and
 * the client waits in the kernel; the thread posts `loaded`; on_loaded() starts the module and lets
 * accept.c go on; on_client() takes the connection. One without TLS waits in the lobby for its first
 * bytes before the module gets it; one with TLS has its handshake in the module.
 *
 * If a port has TLS, the module is loaded at the start of the server, so that a certificate that
 * cannot be used is an error of the start.
 */
#include "frontend/server/grpc_door.h"

#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/server/server_config.h"
#include "core/containers/list.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/system/program_path.h"
#include "frontend/guard/client_addresses.h"
#include "frontend/http/accept.h"
#include "frontend/http/http_listener.h"
#include "frontend/server/grpc_lobby.h"
#include "metrics/counters/metrics.h"

#define MODULE_FILE "continuo-grpc.so"
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
    char path[4096];
    bool is_loading, draining;
    pthread_t thread; /* runs while the module is loading */
    struct cn_msg loaded;
    struct cn_error err;                 /* why loading failed */
    const struct cn_grpc_module *module; /* NULL: not loaded yet */
    struct cn_rpc *rpc;
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
    cn_accept_end(&port->accept);
    cn_grpc_lobby_fini(&port->lobby);
    cn_http_socket_forget(&port->address);
}

/* --- loading */

/* Loads the module's library and checks that it belongs to this build. Any thread. */
static int
load(struct cn_grpc_door *door)
{
    const struct cn_grpc_module *module = NULL;
    void *library = dlopen(door->path, RTLD_NOW | RTLD_LOCAL);

    if (library)
        module = dlsym(library, CN_GRPC_MODULE_SYMBOL);
    if (!module)
        return cn_fail(&door->err, CN_E_UNAVAILABLE, "%s", dlerror());
    if (strcmp(module->version, CN_VERSION) != 0)
        return cn_fail(
            &door->err, CN_E_UNAVAILABLE,
            "%s has version %s, but the server has version %s; install both from one build",
            door->path, module->version, CN_VERSION);
    door->module = module;
    return 0;
}

/* The main function of the thread that loads the module. */
static void *
load_main(void *ctx)
{
    struct cn_grpc_door *door = ctx;

    load(door);
    cn_loop_post(door->loop, &door->loaded);
    return NULL;
}

static bool
has_tls(const struct cn_grpc_door *door)
{
    return door->ports[CN_GRPC_INFERENCE].address.is_https ||
           door->ports[CN_GRPC_MANAGEMENT].address.is_https;
}

static int
start_module(struct cn_grpc_door *door)
{
    const struct cn_http_shared *shared = door->shared;
    const struct cn_rpc_host host = {
        .config = shared->config,
        .management = shared->management,
        .loops = shared->loops,
        .n_loops = shared->n_loops,
    };
    int rc = door->module->create(&host, has_tls(door), &door->rpc, &door->err);

    if (!rc)
        cn_log(CN_LOG_INFO, "event=grpc_loaded module=%s", door->path);
    return rc;
}

/* The module cannot be loaded or started: closes the ports, so that clients see a refused
 * connection and do not wait. */
static void
give_up(struct cn_grpc_door *door)
{
    unsigned i;

    cn_log(CN_LOG_ERROR, "event=grpc_failed why=\"%s\"", door->err.message);
    for (i = 0; i < CN_N_GRPC; i++)
        close_port(&door->ports[i]);
}

static void
on_loaded(struct cn_msg *msg)
{
    struct cn_grpc_door *door = cn_container_of(msg, struct cn_grpc_door, loaded);
    unsigned i;

    pthread_join(door->thread, NULL);
    door->is_loading = false;
    if (door->draining)
        return;
    if (door->err.code || start_module(door)) {
        give_up(door);
        return;
    }
    for (i = 0; i < CN_N_GRPC; i++)
        cn_accept_go_on(&door->ports[i].accept);
}

static void
begin_loading(struct cn_grpc_door *door)
{
    int rc;

    door->err.code = 0;
    rc = pthread_create(&door->thread, NULL, load_main, door);
    if (rc) {
        cn_fail_sys(&door->err, CN_E_UNAVAILABLE, rc, "cannot start a thread");
        give_up(door);
        return;
    }
    door->is_loading = true;
}

/* --- connections */

/* accept.c's question whether a client may be accepted: only once the module runs. The first client
 * makes it load. */
static bool
is_ready(struct cn_accept *accept)
{
    struct cn_grpc_door *door = cn_container_of(accept, struct port, accept)->door;

    if (!door->rpc && !door->is_loading && !door->draining)
        begin_loading(door);
    return door->rpc != NULL;
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

/* Hands a connection to the module, if there is room. */
static void
hand_over(struct port *port, int fd, struct cn_client_address *from)
{
    struct cn_grpc_door *door = port->door;
    const enum cn_grpc_port index = (enum cn_grpc_port)(port - door->ports);
    uint32_t max = door->shared->config->grpc_max_connections;

    if (!door->draining && door->module->n_open(door->rpc, index) < max) {
        door->module->connect(door->rpc, index, fd, port->address.is_https, from);
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

/* Finds the module's file: the one of --grpc-module, or the one beside the program. */
static int
find_module(struct cn_grpc_door *door, struct cn_error *err)
{
    const char *given = door->shared->config->grpc_module;
    int rc;

    if (given)
        snprintf(door->path, sizeof(door->path), "%s", given);
    else if ((rc = cn_program_path(MODULE_FILE, door->path, sizeof(door->path), err)) != 0)
        return rc;
    if (access(door->path, R_OK) < 0)
        return cn_fail_sys(
            err, CN_E_UNAVAILABLE, errno,
            "gRPC needs %s; install it, name it with --grpc-module, or switch gRPC off "
            "(--grpc-inference-address none --grpc-management-address none)",
            door->path);
    return 0;
}

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

/* Opens both ports. */
static int
open_door(struct cn_grpc_door *door, struct cn_error *err)
{
    const struct cn_server_config *config = door->shared->config;
    struct port *all = door->ports;
    int rc =
        open_port(&all[CN_GRPC_INFERENCE], config->grpc_inference_address, CN_GRPC_INFERENCE, err);

    if (!rc)
        rc = open_port(&all[CN_GRPC_MANAGEMENT], config->grpc_management_address,
                       CN_GRPC_MANAGEMENT, err);
    if (!rc && (all[CN_GRPC_INFERENCE].is_open || all[CN_GRPC_MANAGEMENT].is_open))
        rc = find_module(door, err);
    if (rc)
        return rc;
    if (has_tls(door)) {
        rc = load(door);
        if (!rc)
            rc = start_module(door);
        if (rc)
            return cn_fail(err, rc, "%s", door->err.message);
    }
    return 0;
}

int
cn_grpc_door_create(const struct cn_http_shared *shared, struct cn_grpc_door **out,
                    struct cn_error *err)
{
    struct cn_grpc_door *door = cn_alloc(sizeof(*door));
    unsigned i;

    door->shared = shared;
    door->loop = shared->loops[0];
    door->loaded.fn = on_loaded;
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
    return open_door(door, err);
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

int
cn_grpc_door_reload(struct cn_grpc_door *door, struct cn_error *err)
{
    if (!has_tls(door))
        return 0;
    return door->module->reload(door->rpc, err);
}

void
cn_grpc_door_drain(struct cn_grpc_door *door, enum cn_grpc_port port)
{
    door->draining = true;
    close_port(&door->ports[port]);
    if (door->rpc)
        door->module->drain(door->rpc, port);
}

bool
cn_grpc_door_is_empty(const struct cn_grpc_door *door, unsigned loop)
{
    if (loop == 0 && door->is_loading)
        return false;
    return !door->rpc ||
           door->module->is_empty(door->rpc, loop); /* not set any more once it drains */
}

void
cn_grpc_door_cut(struct cn_grpc_door *door)
{
    if (door->rpc)
        door->module->cut(door->rpc);
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
    if (door->rpc)
        door->module->destroy(door->rpc);
    cn_free(door);
}
