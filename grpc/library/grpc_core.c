/* grpc/library/grpc_core.c - starts and stops the gRPC library and its servers, and their TLS
 * identity. grpc_priv.h has the core's rules.
 *
 * There is one library with one queue, and one server for each port. A server is known to all
 * loops: cn_grpc_serve() posts `start` to each of them, and each asks for PREPOSTED calls of every
 * method. The core gives a new call to any loop that has asked for its method; which one does not
 * matter, since a model queue can be reached from every loop.
 *
 * Stopping goes backwards: cn_grpc_server_drain() shuts the server down, so all calls that were
 * only asked for come back not ok, and tells the open calls; cn_grpc_is_empty() is true on each
 * loop when all are gone; only then may cn_grpc_destroy() shut the queue down.
 */
#include "grpc/library/grpc_core.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "grpc/library/grpc_priv.h"

#define PREPOSTED 8 /* calls asked for per method and loop; 1 to 256 measured alike */
#define KEEPALIVE_ANSWER_MS 20000
#define READ_MAX_BYTES (256u << 10) /* what one read of a socket may bring */
#define MIN_PING_INTERVAL_MS 5000   /* clients without calls may ping this often */

/* Writes the core's own messages to the server's log. */
static void
log_line(gpr_log_func_args *args)
{
    char shown[400];

    cn_log(args->severity == GPR_LOG_SEVERITY_ERROR ? CN_LOG_WARN : CN_LOG_DEBUG,
           "event=grpc_library text=%s",
           cn_log_quote(args->message, strlen(args->message), shown, sizeof(shown)));
}

/* Debian builds abseil with its assertions. Each lock that the core takes is then looked up in a
 * graph of all locks, under another lock, in search of deadlocks, which takes a tenth of the core's
 * time. This switches the search off, if the function is there. It is a C++ function, hence the
 * long name. */
static void
stop_deadlock_search(void)
{
    static const char name[] =
        "_ZN4absl7debian329SetMutexDeadlockDetectionModeENS0_15OnDeadlockCycleE";
    void (*set_mode)(int) = NULL;
    void *found = dlsym(RTLD_DEFAULT, name);

    memcpy(&set_mode, &found,
           sizeof(found)); /* ISO C has no cast from void * to a function pointer */
    if (set_mode)
        set_mode(0); /* OnDeadlockCycle::kIgnore */
}

/* Makes the bound on the memory of all servers. When it is reached, the core takes no more
 * connections and ends calls whose clients do not read. */
static grpc_resource_quota *
quota_create(const struct cn_grpc_limits *limits)
{
    grpc_resource_quota *quota = grpc_resource_quota_create("continuo");

    grpc_resource_quota_resize(quota, (size_t)limits->memory_bytes);
    return quota;
}

int
cn_grpc_create(const struct cn_grpc_limits *limits, struct cn_loop *const *loops, unsigned n_loops,
               void *host, struct cn_grpc **out, struct cn_error *err)
{
    struct cn_grpc *grpc = cn_alloc(sizeof(*grpc));
    sigset_t all, before;
    unsigned i;
    int rc;

    gpr_set_log_function(log_line);
    stop_deadlock_search();
    /* Loop 0 reads signals. The threads that start here inherit the mask, so all signals are
     * blocked. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    grpc_init();
    grpc->limits = *limits;
    grpc->quota = quota_create(limits);
    grpc->host = host;
    grpc->n_loops = n_loops;
    pthread_mutex_init(&grpc->identity.mutex, NULL);
    grpc->sites = cn_alloc(n_loops * sizeof(*grpc->sites));
    cn_list_init(&grpc->servers);
    for (i = 0; i < n_loops; i++) {
        struct cn_grpc_site *site = &grpc->sites[i];

        site->grpc = grpc;
        site->loop = loops[i];
        cn_list_init(&site->waiting);
        cn_list_init(&site->live);
    }
    rc = cn_grpc_taker_start(&grpc->taker, limits, loops, n_loops, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        grpc_resource_quota_unref(grpc->quota);
        grpc_shutdown_blocking();
        pthread_mutex_destroy(&grpc->identity.mutex);
        cn_free(grpc->sites);
        cn_free(grpc);
        return rc;
    }
    *out = grpc;
    return 0;
}

static grpc_arg
number(const char *name, uint64_t value)
{
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)name};

    arg.value.integer = value < INT32_MAX ? (int)value : INT32_MAX;
    return arg;
}

/* Makes a server of the core with our limits. */
static grpc_server *
core_create(const struct cn_grpc_limits *limits, grpc_resource_quota *quota)
{
    grpc_arg args[] = {
        {.type = GRPC_ARG_POINTER,
         .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
         .value.pointer = {quota, grpc_resource_quota_arg_vtable()}},
        number(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, limits->message_bytes),
        number(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT32_MAX),
        number(GRPC_ARG_MAX_METADATA_SIZE, limits->metadata_bytes),
        number(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits->streams),
        number(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, limits->handshake_ms),
        number(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, READ_MAX_BYTES),
        number(GRPC_ARG_KEEPALIVE_TIME_MS, limits->keepalive_ms),
        number(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_ANSWER_MS),
        number(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        number(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        number(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, MIN_PING_INTERVAL_MS),
        number(GRPC_ARG_ALLOW_REUSEPORT, 0),
        number(GRPC_ARG_ENABLE_CHANNELZ, 0), /* its traces cost memory for each connection */
    };
    grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};

    return grpc_server_create(&all, NULL);
}

void
cn_grpc_set_identity(struct cn_grpc *grpc, const struct cn_grpc_identity *identity)
{
    struct cn_grpc_keys *own = &grpc->identity;

    pthread_mutex_lock(&own->mutex);
    cn_free(own->certificate);
    cn_free(own->key);
    cn_free(own->client_ca);
    own->certificate = cn_strndup(identity->certificate.ptr, identity->certificate.len);
    own->key = cn_strndup(identity->key.ptr, identity->key.len);
    own->client_ca = identity->client_ca.len
                         ? cn_strndup(identity->client_ca.ptr, identity->client_ca.len)
                         : NULL;
    own->needs_client = identity->needs_client;
    own->generation++;
    pthread_mutex_unlock(&own->mutex);
}

/* The core calls this when a handshake begins, on one of its threads: gives it the identity if it
 * has changed. */
static grpc_ssl_certificate_config_reload_status
fetch_identity(void *ctx, grpc_ssl_server_certificate_config **out)
{
    struct cn_grpc_server *server = ctx;
    struct cn_grpc_keys *own = &server->grpc->identity;
    grpc_ssl_certificate_config_reload_status status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;

    pthread_mutex_lock(&own->mutex);
    if (server->identity_generation != own->generation) {
        grpc_ssl_pem_key_cert_pair pair = {own->key, own->certificate};

        server->identity_generation = own->generation;
        /* The core insists on root certificates, also if clients are not asked for one. */
        *out = grpc_ssl_server_certificate_config_create(
            own->client_ca ? own->client_ca : own->certificate, &pair, 1);
        status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    pthread_mutex_unlock(&own->mutex);
    return status;
}

/* Lets the core listen itself, since it takes connections from outside only without TLS. */
static void
listen_tls(struct cn_grpc_server *server, const char *host, uint16_t *port)
{
    const struct cn_grpc_keys *own = &server->grpc->identity;
    grpc_ssl_client_certificate_request_type asked =
        !own->client_ca     ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
        : own->needs_client ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                            : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    char address[300];

    server->tls = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(asked, fetch_identity,
                                                                        server));
    snprintf(address, sizeof(address), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, *port);
    *port = (uint16_t)grpc_server_add_http2_port(server->core, address, server->tls);
}

/* Runs on each loop: begins to ask for calls. */
static void
start_site(struct cn_msg *msg)
{
    struct cn_grpc_orders *orders = cn_container_of(msg, struct cn_grpc_orders, start);
    struct cn_grpc_server *server = orders->server;
    struct cn_grpc_site *site = orders->site;
    unsigned index, i, n;

    for (index = 0; index <= server->n_methods; index++) {
        if (index < server->n_methods && server->methods[index].home_only &&
            site != &site->grpc->sites[0])
            continue;
        n = index < server->n_methods && server->methods[index].is_rare ? 1 : PREPOSTED;
        for (i = 0; i < n; i++)
            cn_grpc_ask_for_call(site, server, index);
    }
}

/* Runs on each loop: tells its open calls that the server stops. */
static void
drain_site(struct cn_msg *msg)
{
    struct cn_grpc_orders *orders = cn_container_of(msg, struct cn_grpc_orders, drain);
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &orders->site->live) {
        struct cn_grpc_call *call = cn_container_of(node, struct cn_grpc_call, link);

        if (call->server == orders->server && call->method && call->method->on_drain)
            call->method->on_drain(call);
    }
}

static void
ignore(struct cn_msg *msg)
{
    (void)msg;
}

struct cn_grpc_server *
cn_grpc_serve(struct cn_grpc *grpc, const struct cn_grpc_method *methods,
              cn_grpc_authorize_fn authorize, const char *tls_host, uint16_t *tls_port)
{
    struct cn_grpc_server *server = cn_alloc(sizeof(*server));
    unsigned i;

    server->grpc = grpc;
    server->core = core_create(&grpc->limits, grpc->quota);
    server->plain = grpc_insecure_server_credentials_create();
    server->methods = methods;
    server->authorize = authorize;
    while (methods[server->n_methods].path)
        server->n_methods++;
    cn_grpc_tag_init(&server->stopped, grpc->sites[0].loop, ignore);
    server->handles = cn_alloc(server->n_methods * sizeof(*server->handles));
    for (i = 0; i < server->n_methods; i++) {
        server->handles[i] = grpc_server_register_method(
            server->core, methods[i].path, NULL,
            cn_grpc_reads_later(grpc, &methods[i]) ? GRPC_SRM_PAYLOAD_NONE
                                                   : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
            0);
        cn_assert(server->handles[i]);
    }
    grpc_server_register_completion_queue(server->core, grpc->taker.queue, NULL);
    if (tls_host)
        listen_tls(server, tls_host, tls_port);
    grpc_server_start(server->core);
    server->orders = cn_alloc(grpc->n_loops * sizeof(*server->orders));
    for (i = 0; i < grpc->n_loops; i++) {
        server->orders[i] = (struct cn_grpc_orders){
            {NULL, start_site}, {NULL, drain_site}, server, &grpc->sites[i]};
        cn_loop_post(grpc->sites[i].loop, &server->orders[i].start);
    }
    cn_list_push_back(&grpc->servers, &server->link);
    return server;
}

void
cn_grpc_server_connect(struct cn_grpc_server *server, int fd)
{
    grpc_server_add_channel_from_fd(server->core, fd, server->plain);
}

void
cn_grpc_server_drain(struct cn_grpc_server *server)
{
    unsigned i;

    if (server->draining)
        return;
    server->draining = true;
    passes_to_core(&server->stopped);
    grpc_server_shutdown_and_notify(server->core, server->grpc->taker.queue, &server->stopped);
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
    struct cn_list *node;

    cn_list_for_each(node, &grpc->servers)
        grpc_server_cancel_all_calls(cn_container_of(node, struct cn_grpc_server, link)->core);
}

bool
cn_grpc_is_empty(const struct cn_grpc *grpc, unsigned loop)
{
    return grpc->sites[loop].n_live == 0 && grpc->sites[loop].n_waiting == 0;
}

static void
server_destroy(struct cn_grpc_server *server)
{
    cn_list_remove(&server->link);
    grpc_server_destroy(server->core);
    grpc_server_credentials_release(server->plain);
    if (server->tls)
        grpc_server_credentials_release(server->tls);
    cn_free(server->handles);
    cn_free(server->orders);
    cn_free(server);
}

void
cn_grpc_destroy(struct cn_grpc *grpc)
{
    struct cn_list *node, *next;
    unsigned i;

    if (!grpc)
        return;
    cn_list_for_each(node, &grpc->servers) /* for servers that were never drained */
        cn_grpc_server_drain(cn_container_of(node, struct cn_grpc_server, link));
    cn_grpc_cut(grpc);
    cn_grpc_taker_stop(&grpc->taker);
    for (i = 0; i < grpc->n_loops; i++) {
        cn_assert(cn_list_empty(&grpc->sites[i].live));
        while (!cn_list_empty(&grpc->sites[i].waiting))
            cn_grpc_call_destroy(
                cn_container_of(grpc->sites[i].waiting.next, struct cn_grpc_call, link));
    }
    cn_list_for_each_safe(node, next, &grpc->servers)
        server_destroy(cn_container_of(node, struct cn_grpc_server, link));
    grpc_resource_quota_unref(grpc->quota);
    grpc_shutdown_blocking();
    cn_free(grpc->identity.certificate);
    cn_free(grpc->identity.key);
    cn_free(grpc->identity.client_ca);
    pthread_mutex_destroy(&grpc->identity.mutex);
    cn_free(grpc->sites);
    cn_free(grpc);
}
