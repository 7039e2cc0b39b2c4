/* frontend/websocket/ws_handshake.h - reads the opening handshake of a WebSocket (RFC 6455, 4.2).
 * Any thread, no state. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_HANDSHAKE_H
#define CN_FRONTEND_WEBSOCKET_WS_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/message.h"

/* What messages look like. */
enum cn_ws_form { CN_WS_PLAIN, CN_WS_JSON, CN_WS_BINARY };

#define CN_WS_ACCEPT_BYTES 29 /* 20 bytes in base64, with a NUL */
#define CN_WS_KEY_PROTOCOL "continuo.key."

struct cn_ws_handshake {
    char accept[CN_WS_ACCEPT_BYTES]; /* value of Sec-WebSocket-Accept */
    enum cn_ws_form form;
    const char *protocol;   /* value of Sec-WebSocket-Protocol for the answer; NULL: none */
    struct cn_str key;      /* the key among the subprotocols; empty: none */
    unsigned window_bits;   /* of the client's window; 0: permessage-deflate is not agreed on */
    const char *extensions; /* value of Sec-WebSocket-Extensions; NULL: none; in the arena */
};

/* Finds the key among the subprotocols: "continuo.key.KEY". A `ptr` of NULL: there is none. */
struct cn_str cn_ws_find_key(const struct cn_header *headers, uint32_t n);
/* Reads the handshake. CN_E_BAD_REQUEST says what is wrong: the request is not a handshake, its
 * version is not 13, or no subprotocol is known. */
int cn_ws_handshake_read(const struct cn_header *headers, uint32_t n, bool is_http_1_1,
                         struct cn_arena *arena, struct cn_ws_handshake *out, struct cn_error *err);

#endif
