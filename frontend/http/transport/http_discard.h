/* frontend/http/transport/http_discard.h - keeps a refused connection open until its
 * client has read why it was refused.
 *
 * When a socket is closed with unread bytes, the kernel resets the connection, and the answer may
 * be lost with it. So after an early refusal the socket is kept for a moment, and what the client
 * still sends is thrown away. Owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_HTTP_DISCARD_H
#define CN_FRONTEND_HTTP_TRANSPORT_HTTP_DISCARD_H

struct cn_http_listener;

/* Discards what comes on `fd`, which this function takes over. The caller has shut down the sending
 * side. If too many connections discard already, closes it at once. */
void cn_http_discard_begin(struct cn_http_listener *listener, int fd);
/* Ends all discards of the listener now. */
void cn_http_discard_end_all(struct cn_http_listener *listener);

#endif
