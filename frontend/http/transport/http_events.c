/* frontend/http/transport/http_events.c - what happens to a connection: it is opened, goes on,
 * keeps its deadlines, and ends. Owned by the loop thread.
 *
 * Deadlines. A connection goes through phases: HEADERS, BODY, PARKED (the server works), WRITE,
 * IDLE, and HEADERS again. Each phase but PARKED has a limit from the options. A phase change
 * stores only the phase and the time. The connection's one timer looks at both at each tick, which
 * is half of the shortest limit, so a request costs no timer operation, and a client is cut off at
 * most one tick too late. A connection that has become a WebSocket (UPGRADED) has no limit here:
 * frontend/websocket has its own.
 *
 * Disconnects. EPOLLRDHUP says that the client has closed its side. A request that waits for its
 * worker is then reported to its owner, so that work that nobody will read can be cancelled; an
 * answer is still written.
 *
 * The end. A connection is closed only by the loop itself: by an event, a timer, or at the end of
 * the turn (on_later). So whoever gives an answer may use the request afterwards.
 */
#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/access/http_certificate.h"
#include "frontend/http/access_log.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_discard.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/http/transport/tcp_progress.h"
#include "frontend/intake/client_addresses.h"
#include "metrics/counters/metrics.h"

/* --- deadlines */

/* How often the timer looks at the connection: half of the shortest limit. */
static uint64_t
tick_ms(const struct cn_server_config *config)
{
    uint64_t least = config->header_timeout_ms;

    if (config->body_timeout_ms < least)
        least = config->body_timeout_ms;
    if (config->write_timeout_ms < least)
        least = config->write_timeout_ms;
    return least / 2 + 1;
}

/* How long the present phase may last; CN_NEVER: without limit. */
static uint64_t
limit_ms(const struct cn_http_conn *conn)
{
    const struct cn_server_config *config = conn->listener->shared->config;

    switch ((enum cn_http_phase)conn->phase) {
    case CN_PHASE_HEADERS:
        return config->header_timeout_ms;
    case CN_PHASE_BODY:
        return config->body_timeout_ms;
    case CN_PHASE_PARKED:
        return CN_NEVER;
    case CN_PHASE_WRITE:
        return config->write_timeout_ms;
    case CN_PHASE_IDLE:
        return config->keepalive_timeout_ms;
    case CN_PHASE_UPGRADED:
        return CN_NEVER;
    }
    cn_unreachable();
}

static const char *
phase_word(const struct cn_http_conn *conn)
{
    static const char *const words[] = {"header-timeout", "body-timeout",      "parked",
                                        "write-timeout",  "keepalive-timeout", "upgraded"};

    return words[conn->phase];
}

/* Cuts a client that did not keep a limit. */
static void
cut_late(struct cn_http_conn *conn, const char *why)
{
    cn_metrics_add(cn_loop_metrics(conn->listener->loop), CN_M_HTTP_CUT, 1);
    if (conn->phase == CN_PHASE_WRITE)
        cn_http_conn_drop(conn, why);
    else
        cn_http_conn_cut(conn, why);
}

/* Has the client sent its body, or read its answer, more slowly than --min-rate since the timer
 * last looked? A rate is measured over a quarter of the phase's time limit at least. An answer
 * counts only while bytes of it wait for the client, so a handler may be as slow as it likes. */
static bool
is_too_slow(struct cn_http_conn *conn, uint64_t now_ms)
{
    const struct cn_server_config *config = conn->listener->shared->config;
    bool is_reading = conn->phase == CN_PHASE_BODY, is_slow;
    uint64_t since_ms = conn->looked_ms, bytes;
    struct cn_tcp_progress progress;

    if (config->min_rate == 0 || (!is_reading && conn->phase != CN_PHASE_WRITE) ||
        (since_ms != 0 && conn->rate_phase != conn->phase)) {
        conn->looked_ms = 0;
        return false;
    }
    if (is_reading && conn->phase_ms > since_ms)
        since_ms = 0; /* it looked at another request's body */
    if ((since_ms != 0 && now_ms < since_ms + limit_ms(conn) / 4) ||
        !cn_tcp_progress_get(conn->fd, &progress))
        return false;
    bytes = is_reading ? progress.received : progress.taken;
    is_slow = since_ms != 0 && conn->was_waiting && (is_reading || progress.has_unsent) &&
              bytes - conn->counted < config->min_rate * (now_ms - since_ms) / 1000;
    conn->looked_ms = now_ms;
    conn->counted = bytes;
    conn->rate_phase = conn->phase;
    conn->was_waiting = is_reading || progress.has_unsent;
    return is_slow;
}

static void
on_timer(struct cn_timer *timer)
{
    struct cn_http_conn *conn = cn_container_of(timer, struct cn_http_conn, timer);
    uint64_t now_ms = cn_loop_now_ms(conn->listener->loop);
    uint64_t limit = limit_ms(conn), next_ms = now_ms + tick_ms(conn->listener->shared->config);

    if (limit != CN_NEVER && now_ms >= conn->phase_ms + limit) {
        cut_late(conn, phase_word(conn));
        return;
    }
    if (is_too_slow(conn, now_ms)) {
        cut_late(conn, "slow");
        return;
    }
    if (limit != CN_NEVER && conn->phase_ms + limit < next_ms)
        next_ms = conn->phase_ms + limit;
    cn_timer_set(cn_loop_wheel(conn->listener->loop), timer, next_ms);
}

/* --- the end */

/* Logs once that --max-connections is reached, and again only after a quarter of the connections
 * has gone in between. */
static void
tell_of_fullness(struct cn_http_listener *listener)
{
    uint32_t max = listener->shared->config->max_connections;

    if (listener->n_conns > max && !listener->told_full) {
        cn_log(CN_LOG_WARN,
               "event=connections_full max_connections=%u note=\"the limit of this loop and "
               "address; further clients wait or get 503\"",
               max);
        listener->told_full = true;
    } else if (listener->n_conns <= max - max / 4) {
        listener->told_full = false;
    }
}

/* The client may still be reading an answer. If bytes of it are left unread, the kernel would reset
 * the connection, and the answer would be lost. So these are dropped for a moment. */
static void
give_up_socket(struct cn_http_conn *conn)
{
    if (!conn->discards || (conn->peer_closed && !conn->is_readable)) {
        close(conn->fd);
        return;
    }
    cn_http_conn_shut(conn);
    cn_http_discard_begin(conn->listener, conn->fd);
}

static void
destroy(struct cn_http_conn *conn)
{
    struct cn_http_listener *listener = conn->listener;

    if (conn->request)
        listener->calls->completed(conn->request);
    cn_loop_unwatch(listener->loop, &conn->watch);
    cn_timer_cancel(&conn->timer);
    cn_list_remove(&conn->later.link);
    cn_list_remove(&conn->link);
    cn_http_certificate_forget(conn);
    give_up_socket(conn);
    if (conn->tls)
        gnutls_deinit(conn->tls);
    cn_buf_fini(&conn->in);
    cn_buf_fini(&conn->out.kept);
    cn_client_address_release(conn->from, listener->api->kind);
    listener->n_conns--;
    tell_of_fullness(listener);
    if (listener->api->counted)
        cn_metrics_sub(cn_loop_metrics(listener->loop), CN_M_HTTP_CONNECTIONS, 1);
    cn_free(conn);
    cn_accept_go_on(&listener->accept);
}

/* --- the way of a connection */

/* Goes on with everything that is possible. */
static void
run(struct cn_http_conn *conn)
{
    if (conn->shaking_hands && !conn->failed)
        cn_http_tls_shake(conn);
    if (conn->shaking_hands || conn->failed)
        return;
    cn_http_out_run(conn);
    cn_http_input_run(conn);
}

void
cn_http_conn_drain(struct cn_http_conn *conn)
{
    if (conn->phase != CN_PHASE_IDLE && conn->phase != CN_PHASE_HEADERS)
        return;
    if (!conn->failed && !conn->shaking_hands) {
        conn->is_readable = true;
        cn_http_input_run(conn);
    }
    if (!conn->request || conn->failed)
        cn_http_conn_cut(conn, "drain");
    else
        cn_http_conn_go_on(conn);
}

/* Ends the connection if it has failed. If its client has left, a request that waits is reported,
 * also one that has begun to wait only now. */
static void
after_run(struct cn_http_conn *conn)
{
    if (conn->failed)
        destroy(conn);
    else if (conn->peer_closed && conn->request)
        cn_http_request_peer_closed(conn->request);
}

static void
on_later(struct cn_deferred *later)
{
    struct cn_http_conn *conn = cn_container_of(later, struct cn_http_conn, later);

    if (conn->phase != CN_PHASE_UPGRADED)
        run(conn);
    after_run(conn);
}

/* Does a request wait for its answer, or for its client to take it? Nothing is read then. */
static bool
is_waiting(const struct cn_http_conn *conn)
{
    return conn->request && conn->request->state != CN_REQUEST_BODY;
}

static void
on_events(struct cn_watch *watch, uint32_t events)
{
    struct cn_http_conn *conn = cn_container_of(watch, struct cn_http_conn, watch);

    conn->is_readable |= (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0;
    conn->peer_closed |= (events & (EPOLLRDHUP | EPOLLHUP)) != 0;
    /* The client of a unix socket may have sent a request before it closed, which is still read. */
    conn->failed |= (events & EPOLLERR) || ((events & EPOLLHUP) && is_waiting(conn));
    run(conn);
    after_run(conn);
}

/* Lets the kernel send each answer and each piece of a stream at once. It would otherwise hold back
 * a small one until the client has confirmed the one before, which may take 40 ms. */
static void
send_at_once(int fd, const struct sockaddr *address)
{
    const int on = 1;

    if (address->sa_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Notes the client's address for the access log. */
static void
note_client(struct cn_http_conn *conn, const struct sockaddr *from)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(conn->client, sizeof(conn->client), "%s:%u", host, ntohs(in->sin_port));
    } else if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)from;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(conn->client, sizeof(conn->client), "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        snprintf(conn->client, sizeof(conn->client), "unix");
    }
}

void
cn_http_conn_open(struct cn_http_listener *listener, int fd, const struct sockaddr *address,
                  struct cn_client_address *from)
{
    const struct cn_server_config *config = listener->shared->config;
    struct cn_http_conn *conn = cn_alloc(sizeof(*conn));

    conn->fd = fd;
    conn->listener = listener;
    conn->from = from;
    conn->later.fn = on_later;
    conn->watch.fn = on_events;
    cn_list_init(&conn->later.link);
    cn_buf_init(&conn->in, 0);
    cn_buf_init(&conn->out.kept, 0);
    cn_list_push_back(&listener->conns, &conn->link);
    listener->n_conns++;
    conn->surplus = listener->n_conns > config->max_connections;
    tell_of_fullness(listener);
    if (listener->api->counted)
        cn_metrics_add(cn_loop_metrics(listener->loop), CN_M_HTTP_CONNECTIONS, 1);
    send_at_once(fd, address);
    if (cn_access_log_enabled())
        note_client(conn, address);
    cn_http_conn_enter(conn, CN_PHASE_HEADERS);
    cn_timer_init(&conn->timer, on_timer);
    cn_timer_set(cn_loop_wheel(listener->loop), &conn->timer, conn->phase_ms + tick_ms(config));
    /* If the first request is there already, there is an event for it, which also says whether the
     * client has left since. */
    if ((listener->is_tls && !cn_http_tls_begin(conn)) ||
        cn_loop_watch(listener->loop, &conn->watch, fd, CN_HTTP_EVENTS, NULL)) {
        conn->failed = true;
        cn_http_conn_go_on(conn);
    }
}
