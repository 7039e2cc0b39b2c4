/* frontend/websocket/ws_socket.h - reads and writes the connection of a stream, with or without
 * TLS. Owned by the loop, outside of libmicrohttpd's runs.
 *
 * Over TLS, libmicrohttpd offers one end of a socket pair, and passes on what it decrypts and
 * encrypts. Debian 12's version does that four bytes at a time, because it has given all memory of
 * the connection to the head of its answer by then. So a stream uses the TLS session itself, and
 * libmicrohttpd is told that there is nothing to read (cn_http_conn.may_read). */
#ifndef CN_FRONTEND_WEBSOCKET_WS_SOCKET_H
#define CN_FRONTEND_WEBSOCKET_WS_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct cn_http_conn;

/* Works like recv() with MSG_DONTWAIT, and sets errno. `room` has at least 16 KiB, the most that
 * one record of TLS can hold: if the session kept decrypted bytes, libmicrohttpd would take
 * them. */
ssize_t cn_ws_socket_recv(struct cn_http_conn *conn, void *room, size_t len);
/* Works like send() with MSG_DONTWAIT, and sets errno. After EAGAIN or EINTR, TLS keeps the bytes
 * that it has encrypted. The next call sends those, whatever its arguments are, and returns how
 * many of the earlier bytes they were. */
ssize_t cn_ws_socket_send(struct cn_http_conn *conn, const void *bytes, size_t len);
/* Tells the client that nothing more comes. */
void cn_ws_socket_shut(struct cn_http_conn *conn);

#endif
