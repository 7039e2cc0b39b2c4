/* frontend/websocket/ws_binary.h - the binary messages of continuo.v1.binary (docs/streams.md). Any
 * thread, no state. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_BINARY_H
#define CN_FRONTEND_WEBSOCKET_WS_BINARY_H

#include "frontend/websocket/ws_messages.h"

/* Reads a step. Its tensors point into the message. Returns CN_E_BAD_REQUEST if it does not
 * have the form of one. */
int cn_ws_binary_read(struct cn_str message, struct cn_arena *arena, struct cn_ws_request *out,
                      struct cn_error *err);
/* Writes an answer. Returns an error if the handler's tensors cannot be read. */
int cn_ws_binary_write(const struct cn_ws_piece *piece, struct cn_buf *out, struct cn_error *err);

#endif
