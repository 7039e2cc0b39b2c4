/* frontend/http/transport/http_conn.c - a connection's bytes, phases and requests, for the files
 * that read, answer and send. http_events.c opens and closes connections. Owned by the loop
 * thread. */
#include "frontend/http/transport/http_conn.h"

#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include "access/certificate/tls.h"
#include "core/log/log.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"

void
cn_http_conn_enter(struct cn_http_conn *conn, enum cn_http_phase phase)
{
    conn->phase = (uint8_t)phase;
    conn->phase_ms = cn_loop_now_ms(conn->listener->loop);
}

void
cn_http_conn_cut(struct cn_http_conn *conn, const char *why)
{
    cn_log(CN_LOG_DEBUG, "event=connection_cut fd=%d why=%s", conn->fd, why);
    if (conn->stream) {
        shutdown(conn->fd, SHUT_RDWR); /* the stream sees that, and ends the connection */
        return;
    }
    conn->failed = true;
    cn_http_conn_go_on(conn);
}

void
cn_http_conn_drop(struct cn_http_conn *conn, const char *why)
{
    const struct linger none = {.l_onoff = 1, .l_linger = 0};

    setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    conn->discards = false;
    cn_http_conn_cut(conn, why);
}

void
cn_http_conn_go_on(struct cn_http_conn *conn)
{
    cn_loop_defer(conn->listener->loop, &conn->later);
}

/* --- bytes */

/* GnuTLS also says that it should be called again after a message that is not for us, such as one
 * about new keys. No event comes for what lies behind that, so it must be called at once. */
bool
cn_http_conn_must_go_on(const struct cn_http_conn *conn, ssize_t rc)
{
    return rc == GNUTLS_E_AGAIN && !conn->is_drained && !gnutls_record_get_direction(conn->tls);
}

ssize_t
cn_http_conn_recv(struct cn_http_conn *conn, void *room, size_t len)
{
    unsigned tries = 0;
    ssize_t n;

    if (!conn->tls)
        return recv(conn->fd, room, len, MSG_DONTWAIT);
    do
        n = gnutls_record_recv(conn->tls, room, len);
    while (cn_http_conn_must_go_on(conn, n) && ++tries < CN_HTTP_TLS_TRIES);
    return cn_tls_like_socket(tries < CN_HTTP_TLS_TRIES ? n : GNUTLS_E_INTERRUPTED);
}

ssize_t
cn_http_conn_send(struct cn_http_conn *conn, const void *bytes, size_t len)
{
    ssize_t n;

    if (!conn->tls)
        return send(conn->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    n = conn->is_sending ? gnutls_record_send(conn->tls, NULL, 0)
                         : gnutls_record_send(conn->tls, bytes, len);
    conn->is_sending = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED;
    return cn_tls_like_socket(n);
}

void
cn_http_conn_shut(struct cn_http_conn *conn)
{
    if (conn->tls && !conn->is_sending && !conn->shaking_hands)
        gnutls_bye(conn->tls, GNUTLS_SHUT_WR);
    shutdown(conn->fd, SHUT_WR);
}

/* --- requests */

/* The answer 101 was sent, and the socket belongs to the request's owner. */
static void
hand_over(struct cn_http_conn *conn)
{
    struct cn_http_request *request = conn->request;
    void (*on_upgraded)(struct cn_http_request * request, struct cn_str extra) =
        request->on_upgraded;
    struct cn_buf extra = conn->in;

    request->on_upgraded = NULL;
    cn_buf_init(&conn->in, 0);
    cn_http_conn_enter(conn, CN_PHASE_UPGRADED);
    on_upgraded(request, cn_buf_str(&extra));
    cn_buf_fini(&extra);
}

void
cn_http_conn_answered(struct cn_http_conn *conn)
{
    struct cn_http_request *request = conn->request;
    const bool ends = request->close;

    if (request->on_upgraded) {
        hand_over(conn);
        return;
    }
    cn_http_conn_enter(conn, CN_PHASE_IDLE);
    conn->listener->calls->completed(request);
    if (!ends)
        return;
    conn->failed = true;
    conn->discards |= conn->is_readable || conn->in.len > 0;
}
