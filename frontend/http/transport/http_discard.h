/* frontend/http/transport/http_discard.h - keeps a refused connection open until its
 * client has read why it was refused.
 *
 * When a socket is closed with unread bytes, the kernel resets the connection, and the answer may
 * be lost with it. So after an early refusal the socket is kept for a moment, and what the client
 * still sends is thrown away. Owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_HTTP_DISCARD_H
#define CN_FRONTEND_HTTP_TRANSPORT_HTTP_DISCARD_H

#include <stdint.h>

struct cn_http_listener;

/* A refused client, also one of a WebSocket, may go on sending for a while, or it could not read
 * why: until it has been silent for CN_REFUSED_SILENCE_MS, and for CN_REFUSED_MAX_MS at most, since
 * a large body may come over a slow network. */
#define CN_REFUSED_SILENCE_MS 2000
#define CN_REFUSED_MAX_MS 30000

/* When that is over, if no further byte comes. All times are the loop's; `heard_ms` is that of the
 * last byte, also of one before the refusal. */
static inline uint64_t
cn_http_refused_until(uint64_t refused_ms, uint64_t heard_ms)
{
    const uint64_t from_ms = heard_ms > refused_ms ? heard_ms : refused_ms;
    const uint64_t latest_ms = refused_ms + CN_REFUSED_MAX_MS;

    return from_ms + CN_REFUSED_SILENCE_MS < latest_ms ? from_ms + CN_REFUSED_SILENCE_MS
                                                       : latest_ms;
}

/* Discards what comes on `fd`, which this function takes over. The caller has shut down the sending
 * side. If too many connections discard already, closes it at once. */
void cn_http_discard_begin(struct cn_http_listener *listener, int fd);
/* Ends all discards of the listener now. */
void cn_http_discard_end_all(struct cn_http_listener *listener);

#endif
