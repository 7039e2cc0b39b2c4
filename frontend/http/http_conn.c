/* frontend/http/http_conn.c - deadlines and disconnects of one connection. Owned by the loop
 * thread.
 *
 * Deadlines. A connection goes through phases: HEADERS, BODY, PARKED (the server works), WRITE,
 * IDLE, and HEADERS again. Each phase but PARKED has a limit from the options. A phase change
 * stores only the phase and the time. The connection's one timer looks at both at each tick, which
 * is half of the shortest limit, so a request costs no timer operation, and a client is cut off at
 * most one tick too late. libmicrohttpd does not report that a next request has begun before all of
 * its headers are there. So at a tick an IDLE connection is asked for the time of its last byte
 * (TCP_INFO): if bytes came since the last answer, it is in HEADERS. A client that sends its
 * headers byte by byte would otherwise have the long limit of IDLE. A connection that has become a
 * WebSocket (UPGRADED) has no limit here: frontend/websocket has its own.
 *
 * Disconnects. EPOLLRDHUP says that the client has closed its side. A request that waits for its
 * worker is then reported to its owner, so that work that nobody will read can be cancelled.
 *
 * Plain HTTP on a TLS port. A TLS connection is `unproven` until its first request. GnuTLS reads
 * through pull(), so that we see the first byte before it does: a TLS handshake begins with byte
 * 22, and an HTTP request with a letter. A client that speaks HTTP gets an HTTP answer with the
 * reason; the alert of a failed handshake would tell it nothing.
 */
#include "frontend/http/http_conn.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "access/certificate/tls.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/access/http_certificate.h"
#include "frontend/guard/tcp_progress.h"
#include "frontend/http/http_discard.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/client_addresses.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"

#define CONN_MAGIC 0x434e4343u /* "CNCC" */
#define SLACK_MS 50            /* the kernel's times are rounded to ticks of a few ms */
#define PLAIN_READS 16         /* reads of what an HTTP client sends to a TLS port */

struct cn_http_conn *
cn_http_conn_cast(void *conn)
{
    return cn_cast(struct cn_http_conn, conn, CONN_MAGIC);
}

void
cn_http_conn_cut(struct cn_http_conn *conn, const char *why)
{
    cn_log(CN_LOG_DEBUG, "event=connection_cut fd=%d why=%s", conn->fd, why);
    shutdown(conn->fd, SHUT_RDWR);
}

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

/* Did bytes arrive since the last request ended? Then a next request has begun, which libmicrohttpd
 * does not report before its headers are complete. */
static bool
has_begun_request(const struct cn_http_conn *conn, uint64_t now_ms)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);

    /* With the tests' clock the kernel's times cannot be compared. */
    if (cn_clock_is_test() || getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return false; /* unix sockets have no TCP_INFO */
    return now_ms - info.tcpi_last_data_recv > conn->phase_ms + SLACK_MS;
}

void
cn_http_conn_drop(struct cn_http_conn *conn, const char *why)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    cn_http_conn_cut(conn, why);
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

/* Can the request never become whole? Its client has closed its side in the middle of the body, and
 * all that it sent was read. libmicrohttpd may not have seen the end if it came with bytes. With
 * TLS, GnuTLS may still hold bytes. */
static bool
has_lost_its_body(const struct cn_http_conn *conn)
{
    int unread = 0;

    return conn->peer_closed && conn->phase == CN_PHASE_BODY && !conn->listener->is_tls &&
           ioctl(conn->fd, FIONREAD, &unread) == 0 && unread == 0;
}

static void
on_timer(struct cn_timer *timer)
{
    struct cn_http_conn *conn = cn_container_of(timer, struct cn_http_conn, timer);
    uint64_t now_ms = cn_loop_now_ms(conn->listener->loop);
    uint64_t limit, next_ms = now_ms + tick_ms(conn->listener->shared->config);

    /* libmicrohttpd may not have seen it, see closes() in http_response.c. */
    if ((conn->peer_closed && !conn->request) || has_lost_its_body(conn)) {
        cn_http_conn_cut(conn, "peer-closed");
        return;
    }
    if (conn->phase == CN_PHASE_IDLE && has_begun_request(conn, now_ms))
        cn_http_conn_enter(conn, CN_PHASE_HEADERS);
    limit = limit_ms(conn);
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

/* Formats an answer that libmicrohttpd has no part in. */
static void
format_refusal(int code, const char *message, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(code);
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_error_json(code, 0, message, &body);
    cn_buf_printf(out,
                  "HTTP/1.1 %d Bad Request\r\nContent-Type: application/json\r\n"
                  "Continuo-Error: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
                  info->http_status, info->word, body.len);
    cn_buf_append_str(out, cn_buf_str(&body));
    cn_buf_fini(&body);
}

/* Refuses a client that speaks HTTP to a TLS port, with an HTTP answer that says why. The alert of
 * a failed handshake would not help it. */
static void
refuse_plain(struct cn_http_conn *conn)
{
    struct cn_buf answer;
    char dropped[4096];
    int reads = 0;

    /* Bytes that are left unread would make the kernel reset the connection, and the answer would
     * be lost. */
    while (reads++ < PLAIN_READS && recv(conn->fd, dropped, sizeof(dropped), MSG_DONTWAIT) > 0)
        continue;
    cn_buf_init(&answer, 0);
    format_refusal(CN_E_TLS_REQUIRED, "this port requires TLS: begin the URL with https://",
                   &answer);
    if (send(conn->fd, answer.data, answer.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        cn_log(CN_LOG_DEBUG, "event=plain_refusal_not_sent fd=%d", conn->fd);
    cn_buf_fini(&answer);
    /* Bytes that the client still sends must not reset the connection before it has read the
     * answer. */
    shutdown(conn->fd, SHUT_WR);
    cn_http_discard_begin(conn->listener, conn->fd);
}

static size_t
received(struct cn_http_reader *reader, const char *bytes, size_t len)
{
    struct cn_http_conn *conn = cn_container_of(reader, struct cn_http_conn, reader);
    size_t good = cn_http_strict_feed(&conn->strict, bytes, len);

    if (good < len)
        cn_list_push_back(&conn->listener->refused, &conn->refused_link);
    return good;
}

/* Answers a client whose bytes were refused, and stops sending. libmicrohttpd has sent all earlier
 * answers, because it reads only when it waits for a request. */
static void
tell_refused(struct cn_http_conn *conn)
{
    char message[160];
    struct cn_buf answer;
    ssize_t sent;

    snprintf(message, sizeof(message), "the request has %s; the connection is closed",
             conn->strict.why);
    cn_buf_init(&answer, 0);
    format_refusal(CN_E_BAD_REQUEST, message, &answer);
    sent = conn->reader.tls_session
               ? gnutls_record_send(conn->reader.tls_session, answer.data, answer.len)
               : send(conn->fd, answer.data, answer.len, MSG_DONTWAIT | MSG_NOSIGNAL);
    cn_log(CN_LOG_DEBUG, "event=request_refused fd=%d why=\"%s\" sent=%d", conn->fd,
           conn->strict.why, sent > 0);
    cn_buf_fini(&answer);
    conn->discards = true;
    shutdown(conn->fd, SHUT_RDWR); /* libmicrohttpd then wants to read, and may not */
}

static enum cn_may_read
may_read(struct cn_http_reader *reader)
{
    const struct cn_http_conn *conn = cn_container_of(reader, struct cn_http_conn, reader);

    if (conn->phase == CN_PHASE_UPGRADED)
        return CN_READ_LATER; /* the stream reads the TLS session itself */
    return !conn->strict.why ? CN_READ_ON : conn->told ? CN_READ_NEVER : CN_READ_LATER;
}

/* Has libmicrohttpd answered all requests before the byte that was refused? */
static bool
is_time_to_refuse(const struct cn_http_conn *conn)
{
    return conn->phase == CN_PHASE_BODY ||
           (conn->n_requests == conn->strict.n_heads &&
            (conn->phase == CN_PHASE_HEADERS || conn->phase == CN_PHASE_IDLE));
}

void
cn_http_conn_refuse_all(struct cn_http_listener *listener)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &listener->refused) {
        struct cn_http_conn *conn = cn_container_of(node, struct cn_http_conn, refused_link);

        if (!is_time_to_refuse(conn))
            continue;
        cn_list_remove(&conn->refused_link);
        conn->told = true;
        cn_metrics_add(cn_loop_metrics(listener->loop), CN_M_HTTP_MALFORMED, 1);
        tell_refused(conn);
    }
}

void
cn_http_conn_leave_http(struct cn_http_conn *conn)
{
    conn->strict.is_off = true;
}

/* Looks at the first byte, once. A TLS connection begins with a handshake record (22), HTTP with a
 * letter. */
static void
look_at_first_byte(struct cn_http_conn *conn)
{
    char first;

    if (conn->looked_at || recv(conn->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        return;
    conn->looked_at = true;
    conn->plain = first >= 'A' && first <= 'z';
    if (conn->plain)
        refuse_plain(conn);
}

/* GnuTLS reads the connection's bytes through this function, so none of them reaches it before the
 * first one has been looked at. */
static ssize_t
pull(gnutls_transport_ptr_t ctx, void *out, size_t room)
{
    struct cn_http_conn *conn = ctx;

    look_at_first_byte(conn);
    if (conn->plain) {
        errno = ECONNRESET;
        return -1;
    }
    return recv(conn->fd, out, room, 0);
}

/* Makes the TLS session read through pull(). This is safe until libmicrohttpd reports that the
 * connection is closed, since it reads nothing after that. */
static void
read_through_us(struct cn_http_conn *conn, gnutls_session_t session)
{
    gnutls_transport_ptr_t in, out;

    gnutls_transport_get_ptr2(session, &in, &out);
    gnutls_transport_set_ptr2(session, conn, out);
    gnutls_transport_set_pull_function(session, pull);
}

void
cn_http_conn_proven(struct cn_http_conn *conn)
{
    if (!conn->unproven)
        return;
    conn->unproven = false;
    conn->listener->n_unproven--;
    cn_loop_rewatch(conn->listener->loop, &conn->watch, EPOLLRDHUP | EPOLLET, NULL);
}

/* An event of our own watch: the other side has closed, or, before a TLS handshake, the first bytes
 * are there. */
static void
on_closed(struct cn_watch *watch, uint32_t events)
{
    struct cn_http_conn *conn = cn_container_of(watch, struct cn_http_conn, watch);

    if (conn->unproven)
        look_at_first_byte(conn);
    if (!(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)))
        return;
    conn->peer_closed = true;
    if (conn->request)
        cn_http_request_peer_closed(conn->request);
}

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

struct cn_http_conn *
cn_http_conn_open(struct cn_http_listener *listener, int fd, void *tls_session,
                  struct cn_client_address *from)
{
    const struct cn_server_config *config = listener->shared->config;
    struct cn_http_conn *conn = cn_alloc(sizeof(*conn));
    struct cn_error err;

    conn->magic = CONN_MAGIC;
    conn->fd = fd;
    conn->listener = listener;
    conn->from = from;
    conn->reader.received = received;
    conn->reader.may_read = may_read;
    cn_buf_init(&conn->head_text, 0);
    cn_list_init(&conn->refused_link);
    cn_library_calls_set_http(fd, &conn->reader);
    cn_list_push_back(&listener->conns, &conn->link);
    listener->n_conns++;
    conn->surplus = listener->n_conns > config->max_connections;
    tell_of_fullness(listener);
    if (listener->api->counted)
        cn_metrics_add(cn_loop_metrics(listener->loop), CN_M_HTTP_CONNECTIONS, 1);

    cn_http_conn_enter(conn, CN_PHASE_HEADERS);
    cn_timer_init(&conn->timer, on_timer);
    cn_timer_set(cn_loop_wheel(listener->loop), &conn->timer, conn->phase_ms + tick_ms(config));
    conn->watch.fn = on_closed;
    /* If watching fails, the connection works all the same, but a client that leaves is noticed
     * only when the answer is written. */
    conn->unproven = listener->is_tls;
    listener->n_unproven += conn->unproven;
    if (cn_loop_watch(listener->loop, &conn->watch, fd,
                      EPOLLRDHUP | EPOLLET | (conn->unproven ? EPOLLIN : 0), &err))
        cn_log(CN_LOG_WARN, "event=connection_unwatched why=\"%s\"", err.message);
    if (tls_session) {
        cn_tls_ask_client(tls_session);
        read_through_us(conn, tls_session);
    }
    return conn;
}

void
cn_http_conn_close(struct cn_http_conn *conn)
{
    struct cn_http_listener *listener = conn->listener;

    cn_assert(!conn->request);
    if (conn->discards && !conn->peer_closed)
        cn_http_discard_begin(listener, conn->fd);
    cn_library_calls_set_http(conn->fd, NULL);
    cn_client_address_release(conn->from, listener->api->kind);
    cn_loop_unwatch(listener->loop, &conn->watch);
    cn_timer_cancel(&conn->timer);
    cn_list_remove(&conn->refused_link);
    cn_list_remove(&conn->link);
    listener->n_conns--;
    tell_of_fullness(listener);
    listener->n_unproven -= conn->unproven;
    listener->n_ending -= conn->is_ending;
    if (listener->api->counted)
        cn_metrics_sub(cn_loop_metrics(listener->loop), CN_M_HTTP_CONNECTIONS, 1);
    cn_buf_fini(&conn->head_text);
    cn_http_certificate_forget(conn);
    conn->magic = 0;
    cn_free(conn);
    cn_accept_go_on(&listener->accept);
}

/* May libmicrohttpd have more to do on the connection without a new event of the socket? */
static bool
is_active(uint8_t phase)
{
    return phase == CN_PHASE_BODY || phase == CN_PHASE_WRITE;
}

void
cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase)
{
    struct cn_http_listener *listener = conn->listener;

    listener->n_active += (uint32_t)is_active((uint8_t)phase) - (uint32_t)is_active(conn->phase);
    listener->went_on = true;
    conn->phase = (uint8_t)phase;
    conn->phase_ms = cn_loop_now_ms(listener->loop);
}
