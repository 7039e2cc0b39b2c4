/* frontend/websocket/ws_endpoint.h - opens WebSocket streams, and makes the tickets for them. On
 * the loop of the request. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_ENDPOINT_H
#define CN_FRONTEND_WEBSOCKET_WS_ENDPOINT_H

#include <stdbool.h>

#include "core/errors/error.h"

struct cn_credentials;
struct cn_http_request;

/* Route functions. The arguments of the first one's path are the model, perhaps its version, and
 * the sequence id. */
void cn_streams_handle(struct cn_http_request *request);
void cn_streams_handle_tickets(struct cn_http_request *request);

/* Does the request open a stream? Then its key may be elsewhere than in the Authorization
 * header. */
bool cn_streams_is_handshake(const struct cn_http_request *request);
/* Checks the key or the ticket of such a request, or else what it has `shown` as any request does.
 * If it has no right one, returns CN_E_TOKEN (--token-auth), or CN_E_KEY_REQUIRED or
 * CN_E_KEY_FORBIDDEN (--keys). */
int cn_streams_authorize(struct cn_http_request *request, const struct cn_credentials *shown,
                         struct cn_error *err);

#endif
