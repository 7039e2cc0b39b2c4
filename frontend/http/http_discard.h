/* frontend/http/http_discard.h - a refused client that still sends may read why it was refused.
 *
 * Closing a socket with unread bytes makes the kernel reset the connection, and the answer may be
 * lost with it. So after an early refusal the socket is kept for a moment and what comes is thrown
 * away. Owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_HTTP_DISCARD_H
#define CN_FRONTEND_HTTP_HTTP_DISCARD_H

struct cn_http_listener;

/* `fd` stays the caller's, to be closed after this; its sending side is shut already. Does nothing
 * when too many discard. */
void cn_http_discard_begin(struct cn_http_listener *listener, int fd);
/* Ends all of them now. */
void cn_http_discard_end_all(struct cn_http_listener *listener);

#endif
