/* frontend/websocket/ws_deflate.h - permessage-deflate (RFC 7692) without context takeover: each
 * message is compressed by itself. On one loop.
 *
 * So all streams of a loop share one decompressor and one compressor for each size of the window,
 * and an idle stream has none. A compressor of its own would take 256 KiB.
 */
#ifndef CN_FRONTEND_WEBSOCKET_WS_DEFLATE_H
#define CN_FRONTEND_WEBSOCKET_WS_DEFLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"

#define CN_WS_WINDOW_MIN 9 /* zlib cannot compress with a window of 2^8 bytes */
#define CN_WS_WINDOW_MAX 15

struct cn_ws_deflate;

struct cn_ws_deflate *cn_ws_deflate_create(void);
void cn_ws_deflate_destroy(struct cn_ws_deflate *deflate);

enum cn_ws_inflate_result { CN_WS_INFLATED, CN_WS_NOT_DEFLATE, CN_WS_INFLATES_TOO_LARGE };
/* Appends the message that was compressed. `max_bytes`: most bytes that `out` may have. */
enum cn_ws_inflate_result cn_ws_inflate(struct cn_ws_deflate *deflate, struct cn_str message,
                                        size_t max_bytes, struct cn_buf *out);
/* Appends the compressed message, for a reader with a window of 2^window_bits bytes. Returns false
 * if there is no memory; then `out` is as before. */
bool cn_ws_deflate(struct cn_ws_deflate *deflate, unsigned window_bits, struct cn_str message,
                   struct cn_buf *out);

#endif
