/* frontend/websocket/ws_socket.c - see ws_socket.h. */
#include "frontend/websocket/ws_socket.h"

#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include "access/certificate/tls.h"
#include "frontend/http/http_conn.h"

ssize_t
cn_ws_socket_recv(struct cn_http_conn *conn, void *room, size_t len)
{
    if (!conn->reader.tls_session)
        return recv(conn->fd, room, len, MSG_DONTWAIT);
    return cn_tls_like_socket(gnutls_record_recv(conn->reader.tls_session, room, len));
}

ssize_t
cn_ws_socket_send(struct cn_http_conn *conn, const void *bytes, size_t len)
{
    ssize_t n;

    if (!conn->reader.tls_session)
        return send(conn->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    n = conn->is_sending ? gnutls_record_send(conn->reader.tls_session, NULL, 0)
                         : gnutls_record_send(conn->reader.tls_session, bytes, len);
    conn->is_sending = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED;
    return cn_tls_like_socket(n);
}

void
cn_ws_socket_shut(struct cn_http_conn *conn)
{
    if (conn->reader.tls_session && !conn->is_sending)
        gnutls_bye(conn->reader.tls_session, GNUTLS_SHUT_WR);
    shutdown(conn->fd, SHUT_WR);
}
