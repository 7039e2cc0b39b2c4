/* frontend/http/library/http_daemon.c - libmicrohttpd in a loop: its turns and its callbacks. Owned
 * by the loop thread.
 *
 * A request's life, seen from here: on_request() is called with the headers (first_call), once for
 * each part of the body, and once more at the end. If the request has no answer by then, park()
 * lets it wait. The answer is queued by http_response.c, which resumes the connection.
 * on_completed() ends the request, whether its answer was sent or the connection broke.
 *
 * libmicrohttpd 0.9.75 has properties that its manual does not mention. This is what is done about
 * them:
 * - In external mode it has no wake-up of its own: a resumed connection is noticed only in the next
 *   MHD_run. So after a resume outside of the hook the loop does not wait before its next turn
 *   (`resumed`).
 * - The first MHD_run only prepares a resumed connection, and the second one sends. So the daemon
 *   runs twice then.
 * - Right after an answer it reads from the connection, finds nothing, and only then watches it.
 *   That read is left to the next turn, when a busy client's next request is there already.
 * - After an accept() that failed for lack of descriptors, it accepts nobody until one of its
 *   connections has ended. So this server accepts itself (accept.c).
 * - It calls abort() when it is stopped while a connection is suspended. So the server is drained
 *   first.
 * - A suspended connection leaves the daemon's epoll set and comes back with a read that finds
 *   nothing, which costs three system calls per request. So a request that waits for its answer
 *   first lingers: its connection stays in the daemon's list of ready ones, and on_request() is
 *   called for it in each run and does nothing. After LINGER_MS, or if LINGER_MAX requests linger
 *   already, the connection is suspended. While requests linger, the daemon always claims to have
 *   work. It is believed only if a connection made progress and there is an unfinished body or
 *   answer. Otherwise it runs every LINGER_TICK_MS, so a pipelined request waits at most that long.
 * - It treats a TLS handshake that waits for the client as a ready connection, too. So a TLS
 *   connection is handled like a lingering one until its first request.
 * - When it has sent the rest of a WebSocket over TLS, it frees the connection in its next run, and
 *   does not ask for one. So while there are such connections (`n_ending`), each run is followed by
 *   another one. */
#include "frontend/http/library/http_daemon_priv.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "access/certificate/tls.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/time/clock.h"
#include "frontend/guard/library_calls.h"
#include "frontend/http/access_log.h"

/* A request lingers this long before it is suspended. Measured with the counter example and 16
 * connections, lingering takes 5 us less CPU per request than suspending. */
#define LINGER_MS 5
#define LINGER_TICK_MS 2
#define LINGER_MAX 256 /* each run of the daemon looks at all of them */

#define VALUE_BYTES 64 /* libmicrohttpd's record of a header or parameter, without its text */

struct gather {
    struct cn_http_request *request;
    uint32_t room;
    bool has_folded;
};

/* Does the header continue on a second line? Such folded lines are obsolete (RFC 9112, 5.2), and
 * other readers may take them for another header, so they are refused. This library appends the
 * folded text to the header's name. The name and the value of a header on one line are neighbours
 * in the buffer, with only the colon and blanks between them. */
static bool
is_folded(const char *name, size_t name_len, const char *value)
{
    const char *at = name + name_len + 1;

    if ((uintptr_t)value < (uintptr_t)at)
        return true;
    while ((uintptr_t)at < (uintptr_t)value && (*at == ' ' || *at == '\t'))
        at++;
    return at != value;
}

static enum MHD_Result
gather_value(void *ctx, enum MHD_ValueKind kind, const char *name, size_t name_len,
             const char *value, size_t value_len)
{
    struct gather *gather = ctx;
    struct cn_http_request *request = gather->request;
    struct cn_header *header;

    if (request->n_headers + request->n_query == gather->room)
        return MHD_NO;
    if (kind == MHD_HEADER_KIND) {
        gather->has_folded |= value && is_folded(name, name_len, value);
        header = &request->headers[request->n_headers++];
    } else {
        header = request->query - ++request->n_query;
    }
    header->name = (struct cn_str){name, name_len};
    header->value = cn_str_trim((struct cn_str){value, value ? value_len : 0});
    return MHD_YES;
}

/* Collects headers and query parameters in one array: headers from its beginning, parameters from
 * its end, which are then put into their order. Returns true when a header is folded. */
static bool
gather_values(struct cn_http_request *request, struct MHD_Connection *mhd)
{
    const enum MHD_ValueKind kinds = MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND;
    int count = MHD_get_connection_values_n(mhd, kinds, NULL, NULL);
    struct gather gather = {.request = request, .room = count > 0 ? (uint32_t)count : 0};
    uint32_t i;

    request->headers = cn_arena_alloc(&request->arena, sizeof(struct cn_header) * gather.room);
    request->query = request->headers + gather.room;
    MHD_get_connection_values_n(mhd, kinds, gather_value, &gather);
    request->query -= request->n_query;
    for (i = 0; i < request->n_query / 2; i++) {
        struct cn_header other = request->query[i];

        request->query[i] = request->query[request->n_query - 1 - i];
        request->query[request->n_query - 1 - i] = other;
    }
    return gather.has_folded;
}

static struct cn_http_conn *
conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    cn_assert(info);
    return cn_http_conn_cast(info->socket_context);
}

static struct cn_http_request *
first_call(struct MHD_Connection *mhd, const char *url, const char *method, const char *version)
{
    struct cn_http_request *request = cn_http_request_create(conn_of(mhd), mhd);
    const union MHD_ConnectionInfo *info;

    request->method_word = cn_str_from(method);
    request->method = cn_http_method_of(request->method_word);
    request->path = cn_str_from(url);
    request->is_http_1_1 = strcmp(version, MHD_HTTP_VERSION_1_1) == 0;
    request->has_folded = gather_values(request, mhd);
    info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    cn_assert(info);
    request->head_bytes =
        info->header_size + (size_t)VALUE_BYTES * (request->n_headers + request->n_query);
    cn_http_request_begin(request);
    return request;
}

/* Lets a request wait for its answer. At first it lingers in the daemon's list of ready
 * connections; with too many of those it is suspended at once. */
static void
park(struct cn_http_request *request)
{
    struct cn_http_listener *listener = request->listener;

    request->state = CN_REQUEST_PARKED;
    cn_http_conn_enter(request->conn, CN_PHASE_PARKED);
    if (listener->n_lingering == LINGER_MAX) {
        MHD_suspend_connection(request->mhd);
        return;
    }
    request->lingering = true;
    listener->n_lingering++;
}

/* A lingering request is suspended once it has waited for LINGER_MS. */
static void
park_longer(struct cn_http_request *request)
{
    uint64_t now_ms = cn_loop_now_ms(request->listener->loop);

    if (!request->lingering || now_ms - request->conn->phase_ms < LINGER_MS)
        return;
    cn_http_stop_lingering(request);
    MHD_suspend_connection(request->mhd);
}

/* libmicrohttpd's main callback. It is called with the headers (*slot is NULL), with each part of
 * the body (*len > 0), at the end of the request (*len is 0), and in each run while the request
 * lingers. */
static enum MHD_Result
on_request(void *ctx, struct MHD_Connection *mhd, const char *url, const char *method,
           const char *version, const char *bytes, size_t *len, void **slot)
{
    struct cn_http_request *request;

    (void)ctx;
    if (!*slot) {
        *slot = request = first_call(mhd, url, method, version);
        return request->state == CN_REQUEST_BROKEN ? MHD_NO : MHD_YES;
    }
    request = cn_http_request_cast(*slot);
    if (request->state == CN_REQUEST_PARKED) {
        park_longer(request);
        return MHD_YES;
    }
    request->listener->went_on = true;
    if (request->state == CN_REQUEST_BROKEN)
        return MHD_NO;
    if (*len > 0) {
        bool taken = cn_http_request_body(request, bytes, *len);

        *len = 0;
        return taken ? MHD_YES : MHD_NO;
    }
    cn_http_request_end(request);
    if (request->state == CN_REQUEST_HANDLING)
        park(request);
    return request->state == CN_REQUEST_BROKEN ? MHD_NO : MHD_YES;
}

/* libmicrohttpd is done with the request: its answer is sent, or the connection broke. */
static void
on_completed(void *ctx, struct MHD_Connection *mhd, void **slot,
             enum MHD_RequestTerminationCode why)
{
    struct cn_http_request *request;

    (void)ctx, (void)mhd;
    if (!*slot)
        return;
    request = cn_http_request_cast(*slot);
    if (why == MHD_REQUEST_TERMINATED_COMPLETED_OK && request->conn->reader.head_text.len)
        cn_log(CN_LOG_ERROR, "event=answer_without_headers request_id=%s", request->id);
    if (request->lingering)
        cn_http_stop_lingering(request);
    cn_http_conn_enter(request->conn, CN_PHASE_IDLE);
    cn_http_request_completed(request);
    *slot = NULL;
}

/* Notes the client's address for the access log. libmicrohttpd has it from accept(2). */
static void
note_client(struct cn_http_conn *conn, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *from = info ? info->client_addr : NULL;
    char host[INET6_ADDRSTRLEN] = "?";

    if (from && from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(conn->client, sizeof(conn->client), "%s:%u", host, ntohs(in->sin_port));
    } else if (from && from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(conn->client, sizeof(conn->client), "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(conn->client, sizeof(conn->client), "unix");
    }
}

static void
on_connection(void *ctx, struct MHD_Connection *mhd, void **slot,
              enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info;
    int fd;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        cn_http_conn_close(cn_http_conn_cast(*slot));
        return;
    }
    info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    cn_assert(info);
    fd = info->connect_fd; /* libmicrohttpd 1.0 writes what is asked next to the same place */
    info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    *slot = cn_http_conn_open(ctx, fd, info ? info->tls_session : NULL,
                              ((struct cn_http_listener *)ctx)->accepted_from);
    ((struct cn_http_listener *)ctx)->accepted_from = NULL;
    if (cn_access_log_enabled())
        note_client(*slot, mhd);
}

/* libmicrohttpd would decode escapes in place. They are kept as sent, because we check them before
 * we decode them. */
static size_t
keep_escapes(void *ctx, struct MHD_Connection *mhd, char *text)
{
    (void)ctx, (void)mhd;
    return strlen(text);
}

static void
on_ready(struct cn_watch *watch, uint32_t events)
{
    (void)events;
    cn_container_of(watch, struct cn_http_listener, watch)->ready = true;
}

/* Does the daemon say that it has something to do at once? */
static bool
wants_to_run(struct cn_http_listener *listener)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;

    return MHD_get_timeout(listener->daemon, &timeout_ms) == MHD_YES && timeout_ms == 0;
}

/* Does the daemon say that it has work whether or not it has any? The head of this file says
 * why. */
static bool
claims_work(const struct cn_http_listener *listener)
{
    return listener->n_lingering > 0 || listener->n_unproven > 0;
}

/* Runs the daemon. What it reads passes through frontend/guard meanwhile. */
static void
run_daemon(struct cn_http_listener *listener)
{
    cn_library_calls_begin_http(listener->is_tls);
    MHD_run(listener->daemon);
    cn_library_calls_end_http();
    if (!cn_list_empty(&listener->refused))
        cn_http_conn_refuse_all(listener);
}

/* Not inline, because most turns of a loop find nothing to do in run(). */
__attribute__((noinline)) static void
run_now(struct cn_http_listener *listener)
{
    const bool resumed = listener->resumed;
    const bool is_follow_up = listener->follows_up && !listener->ready && !resumed;
    bool wants;

    listener->ready = listener->resumed = listener->went_on = false;
    run_daemon(listener);
    if (resumed)
        run_daemon(listener);
    listener->linger_run_ms = cn_loop_now_ms(listener->loop) + LINGER_TICK_MS;
    wants = (!claims_work(listener) || (listener->went_on && listener->n_active > 0)) &&
            wants_to_run(listener);
    listener->follows_up = !wants && listener->n_ending > 0 && !is_follow_up;
    listener->again = wants || listener->follows_up;
}

/* The loop's hook: runs the daemon if an event came, if a connection was resumed, if it said that
 * it has more to do, or if the time for lingering requests has come. */
static void
run(struct cn_hook *hook)
{
    struct cn_http_listener *listener = cn_container_of(hook, struct cn_http_listener, hook);

    if (listener->ready || listener->resumed || listener->again ||
        (claims_work(listener) && cn_loop_now_ms(listener->loop) >= listener->linger_run_ms))
        run_now(listener);
}

/* How long the loop may wait before it must run the hook again, in milliseconds. */
static uint64_t
run_again_ms(struct cn_hook *hook)
{
    const struct cn_http_listener *listener = cn_container_of(hook, struct cn_http_listener, hook);
    uint64_t now_ms;

    if (listener->again || listener->resumed)
        return 0;
    if (!claims_work(listener))
        return CN_NEVER;
    now_ms = cn_loop_now_ms(listener->loop);
    return listener->linger_run_ms > now_ms ? listener->linger_run_ms - now_ms : 0;
}

/* --- start and end */

static void
on_panic(void *ctx, const char *file, unsigned line, const char *why)
{
    (void)ctx;
    cn_panic(file, (int)line, "libmicrohttpd: %s", why ? why : "?");
}

/* Each daemon belongs to one loop. A newer libmicrohttpd than that of Debian 12 must be told, or it
 * opens a connection some time after MHD_add_connection(), when on_connection() no longer knows the
 * client. */
#if MHD_VERSION >= 0x00097707
#define ONE_THREAD MHD_USE_NO_THREAD_SAFETY
#else
#define ONE_THREAD 0
#endif

static struct MHD_Daemon *
start_daemon(struct cn_http_listener *listener)
{
    const struct cn_server_config *config = listener->shared->config;
    /* libmicrohttpd takes a function by a data pointer, as POSIX lets it. */
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)cn_tls_retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)CN_TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};

    MHD_set_panic_func(on_panic, NULL);
    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE |
            ONE_THREAD | (listener->is_tls ? MHD_USE_TLS : 0),
        0, NULL, NULL, on_request, NULL, MHD_OPTION_CONNECTION_LIMIT,
        config->max_connections + CN_HTTP_SURPLUS_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)config->connection_memory_bytes, MHD_OPTION_CONNECTION_TIMEOUT,
        0u, /* limits idle time only: the deadlines are in http_conn.c */
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, listener, MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_ARRAY,
        listener->is_tls ? tls : none, MHD_OPTION_END);
}

int
cn_http_daemon_start(struct cn_http_listener *listener, struct cn_error *err)
{
    const union MHD_DaemonInfo *info;
    int rc;

    listener->daemon = start_daemon(listener);
    if (!listener->daemon)
        return cn_fail(err, CN_E_UNAVAILABLE, "libmicrohttpd %s could not start a listener",
                       MHD_get_version());
    info = MHD_get_daemon_info(listener->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    cn_assert(info);
    listener->watch.fn = on_ready;
    rc = cn_loop_watch(listener->loop, &listener->watch, info->epoll_fd, EPOLLIN, err);
    if (rc)
        MHD_stop_daemon(listener->daemon);
    return rc;
}

void
cn_http_daemon_go(struct cn_http_listener *listener)
{
    listener->hook.run = run;
    listener->hook.timeout_ms = run_again_ms;
    cn_loop_add_hook(listener->loop, &listener->hook);
}

void
cn_http_daemon_run(struct cn_http_listener *listener)
{
    run_daemon(listener);
}

void
cn_http_daemon_add(struct cn_http_listener *listener, int fd, const struct sockaddr *from,
                   uint32_t from_len)
{
    MHD_add_connection(listener->daemon, fd, from, from_len);
}

void
cn_http_daemon_stop(struct cn_http_listener *listener)
{
    cn_loop_remove_hook(listener->loop, &listener->hook);
    cn_loop_unwatch(listener->loop, &listener->watch);
    MHD_stop_daemon(listener->daemon);
}
