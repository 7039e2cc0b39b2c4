/* frontend/server/server_sockets.c - the addresses, sockets and listeners of the three HTTP
 * interfaces. Runs before the loops start and after they have ended.
 *
 * The inference interface has a socket and a listener on each loop, all at one port (SO_REUSEPORT),
 * so the kernel spreads its connections over the loops. Management and metrics have one listener,
 * on loop 0, where their data live. Two interfaces with the same address share a listener: it asks
 * the first one for a route, and the next one if the first has none.
 */
#include <string.h>
#include <unistd.h>

#include "frontend/endpoints/routes.h"
#include "frontend/http/http_socket.h"
#include "frontend/server/server_priv.h"
#include "kserve/access.h"
#include "management/repository/repository.h"

static const struct {
    const char *flag;
    uint16_t default_port, default_tls_port;
    bool on_all_loops;
    struct cn_http_api http;
} apis[CN_N_APIS] = {
    [CN_INFERENCE] = {"--inference-address",
                      8080,
                      443,
                      true,
                      {.routes = cn_inference_routes,
                       .counted = true,
                       .has_keys = true,
                       .has_streams = true,
                       .token = CN_TOKEN_INFERENCE,
                       .kind = CN_ADDRESS_INFERENCE}},
    [CN_MANAGEMENT] = {"--management-address",
                       8081,
                       8444,
                       false,
                       {.routes = cn_management_routes,
                        .has_keys = true,
                        .token = CN_TOKEN_MANAGEMENT,
                        .takes_envelopes = true,
                        .kind = CN_ADDRESS_MANAGEMENT}},
    [CN_METRICS] = {"--metrics-address",
                    8082,
                    8445,
                    false,
                    {.routes = cn_metrics_routes, .kind = CN_ADDRESS_METRICS}},
};

static int
parse_address(struct cn_server *server, enum cn_server_api api, const char *text,
              struct cn_error *err)
{
    struct cn_address *address = &server->addresses[api];
    bool is_https = strncmp(text, "https://", 8) == 0;
    int rc = cn_address_parse(text, is_https ? apis[api].default_tls_port : apis[api].default_port,
                              address, err);

    if (!rc && server->config.require_tls && !address->is_https && !address->is_unix)
        rc = cn_fail(err, CN_E_CONFIG,
                     "%s %s is plain http, which require-tls forbids; write https:// or unix:/PATH",
                     apis[api].flag, text);
    return rc;
}

static bool
is_same_address(const struct cn_address *a, const struct cn_address *b)
{
    return a->is_unix == b->is_unix && a->is_https == b->is_https && a->port == b->port &&
           (a->is_unix || a->port != 0) && strcmp(a->host, b->host) == 0;
}

/* Finds interfaces with the same address, which one listener serves. Management answers every path,
 * so it is asked last. */
static void
join_addresses(struct cn_server *server)
{
    static const enum cn_server_api order[] = {CN_INFERENCE, CN_METRICS, CN_MANAGEMENT};
    unsigned i, k;

    for (i = 1; i < CN_N_APIS; i++) {
        for (k = i; k-- > 0 && !server->shares_address[order[i]];) {
            if (!is_same_address(&server->addresses[order[k]], &server->addresses[order[i]]))
                continue;
            server->apis[order[k]].next = &server->apis[order[i]];
            server->shares_address[order[i]] = true;
        }
    }
}

/* Is a request refused if its Host header has a foreign name? Somebody who gives a name of their
 * own this server's address (DNS rebinding) can make a browser send requests to it. That helps them
 * only where requests need neither a key nor a certificate for the name. TorchServe's users may
 * reach an open management interface by any name. */
static bool
checks_hosts(const struct cn_server *server, enum cn_server_api api)
{
    const struct cn_server_config *config = &server->config;
    const struct cn_address *address = &server->addresses[api];

    return !cn_server_needs_keys(config) && !address->is_https && !address->is_unix &&
           (config->dialect != CN_DIALECT_TORCHSERVE || cn_address_is_loopback(address));
}

/* Can other machines use the address without a certificate that a `client_ca` has signed? */
static bool
is_reached(const struct cn_server_config *config, const struct cn_address *address,
           const char *client_ca)
{
    return !cn_address_is_loopback(address) &&
           !(address->is_https && client_ca && config->require_client_certificate);
}

/* Management runs any code that a client sends, so an address that other machines reach needs keys
 * or a certificate of each client. */
static int
check_management(const struct cn_server *server, struct cn_error *err)
{
    const struct cn_server_config *config = &server->config;
    const struct cn_address *address = &server->addresses[CN_MANAGEMENT];
    struct cn_address grpc = {0};
    const char *flag = "--management-address", *text = config->management_address;
    bool is_open = is_reached(config, address, config->client_ca);

    if (cn_server_needs_keys(config) || config->insecure_management)
        return 0;
    if (!is_open && strcmp(config->grpc_management_address, "none") != 0 &&
        cn_address_parse(config->grpc_management_address, 7071, &grpc, NULL) == 0) {
        is_open = is_reached(config, &grpc, cn_server_grpc_client_ca(config));
        flag = "--grpc-management-address";
        text = config->grpc_management_address;
    }
    if (!is_open)
        return 0;
    return cn_fail(
        err, CN_E_CONFIG,
        "%s %s is an address that other machines reach, and whoever reaches management "
        "can run code on this machine: require keys (--keys FILE, or --token-auth%s) or, on an "
        "https address, a certificate of each client (--client-ca FILE), or let "
        "management listen on 127.0.0.1 or a unix socket; --insecure-management starts "
        "the server all the same",
        flag, text,
        config->dialect == CN_DIALECT_TORCHSERVE
            ? ", that is, remove disable_token_authorization=true"
            : "");
}

/* With --model-control-mode explicit, clients of the inference interfaces load and unload models,
 * which is management. An address that other machines reach then needs keys, or a header that
 * only the operator knows. */
static int
check_model_control(const struct cn_server *server, struct cn_error *err)
{
    const struct cn_server_config *config = &server->config;
    struct cn_address grpc = {0};
    const char *flag = "--inference-address", *text = config->inference_address;
    const char *restrict_flag = "--http-restricted-api";
    bool is_open;

    if (config->model_control_mode != CN_CONTROL_EXPLICIT || !config->model_api ||
        cn_server_needs_keys(config) || config->insecure_management)
        return 0;
    is_open = is_reached(config, &server->addresses[CN_INFERENCE], config->client_ca) &&
              !cn_v2_access_is_restricted(CN_V2_HTTP, CN_V2_MODEL_REPOSITORY);
    if (!is_open && strcmp(config->grpc_inference_address, "none") != 0 &&
        !cn_v2_access_is_restricted(CN_V2_GRPC, CN_V2_MODEL_REPOSITORY) &&
        cn_address_parse(config->grpc_inference_address, 7070, &grpc, NULL) == 0) {
        is_open = is_reached(config, &grpc, cn_server_grpc_client_ca(config));
        flag = "--grpc-inference-address";
        restrict_flag = "--grpc-restricted-protocol";
        text = config->grpc_inference_address;
    }
    if (!is_open)
        return 0;
    return cn_fail(
        err, CN_E_CONFIG,
        "%s %s is an address that other machines reach, and with --model-control-mode "
        "explicit everybody who reaches it could load and unload models: require a "
        "header that only you know (%s model-repository:NAME=SECRET) or keys "
        "(--keys FILE, or --token-auth); --insecure-management starts the server all the same",
        flag, text, restrict_flag);
}

/* On how many loops is the interface served? One that shares its address with management is served
 * only on loop 0, because management lives there. */
static unsigned
loops_of(const struct cn_server *server, enum cn_server_api api)
{
    bool on_all_loops =
        apis[api].on_all_loops && !server->apis[api].next && !server->addresses[api].is_unix;

    return on_all_loops ? server->n_loops : 1;
}

/* Opens the sockets of an interface. The first loop's socket finds the port (port 0), and the
 * others join it. */
static int
open_sockets(struct cn_server *server, enum cn_server_api api, struct cn_error *err)
{
    struct cn_address *address = &server->addresses[api];
    unsigned i, n = loops_of(server, api);
    int rc;

    if (server->shares_address[api])
        return 0;
    if (n > 1 && (rc = cn_http_socket_probe(address, apis[api].flag, err)))
        return rc;
    for (i = 0; i < n; i++) {
        rc = cn_http_socket_listen(address, n > 1, apis[api].flag, &server->sites[i].fds[api], err);
        if (rc)
            return rc;
    }
    return 0;
}

int
cn_server_start_sockets(struct cn_server *server, struct cn_error *err)
{
    int rc = parse_address(server, CN_INFERENCE, server->config.inference_address, err);
    unsigned api;

    for (api = 0; api < CN_N_APIS; api++)
        server->apis[api] = apis[api].http;
    if (!rc)
        rc = parse_address(server, CN_MANAGEMENT, server->config.management_address, err);
    if (!rc)
        rc = parse_address(server, CN_METRICS, server->config.metrics_address, err);
    if (!rc)
        rc = check_management(server, err);
    if (!rc)
        rc = check_model_control(server, err);
    for (api = 0; !rc && api < CN_N_APIS; api++)
        server->apis[api].checks_hosts = checks_hosts(server, api);
    if (!rc)
        join_addresses(server);
    for (api = 0; !rc && api < CN_N_APIS; api++)
        server->apis[api].capacity =
            (uint64_t)server->config.max_connections * loops_of(server, api);
    for (api = 0; !rc && api < CN_N_APIS; api++)
        rc = open_sockets(server, api, err);
    return rc;
}

/* Removes the file of a unix socket, once. */
static void
forget(struct cn_server *server, enum cn_server_api api)
{
    if (!server->is_forgotten[api])
        cn_http_socket_forget(&server->addresses[api]);
    server->is_forgotten[api] = true;
}

void
cn_server_stop_sockets(struct cn_server *server)
{
    unsigned i, api;

    for (api = 0; api < CN_N_APIS; api++) {
        for (i = 0; i < server->n_loops; i++) {
            if (server->sites[i].fds[api] >= 0)
                close(server->sites[i].fds[api]);
        }
        if (server->sites[0].listeners[api] || server->sites[0].fds[api] >= 0)
            forget(server, api);
    }
}

int
cn_server_start_listeners(struct cn_server *server, struct cn_error *err)
{
    unsigned i, api;

    for (i = 0; i < server->n_loops; i++) {
        struct cn_server_site *site = &server->sites[i];

        for (api = 0; api < CN_N_APIS; api++) {
            int fd = site->fds[api], rc;

            if (fd < 0)
                continue;
            site->fds[api] = -1;
            rc = cn_http_listener_create(&server->shared, &server->apis[api], site->loop, fd,
                                         server->addresses[api].is_https, &site->listeners[api],
                                         err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

/* The file of a unix socket is removed while the socket still listens. As soon as it is closed,
 * another server may put a socket of its own there, which must stay. */
void
cn_server_drain_listener(struct cn_server_site *site, enum cn_server_api api)
{
    if (!site->listeners[api])
        return;
    if (cn_loop_index(site->loop) == 0)
        forget(site->server, api);
    cn_http_listener_drain(site->listeners[api]);
}

void
cn_server_stop_listeners(struct cn_server *server)
{
    unsigned i, api;

    for (i = 0; i < server->n_loops; i++) {
        for (api = 0; api < CN_N_APIS; api++)
            cn_http_listener_destroy(server->sites[i].listeners[api]);
    }
}
