/* frontend/websocket/ws_frames.h - turns the bytes of a connection into WebSocket messages, and
 * messages into bytes (RFC 6455), with wslay. On one loop.
 *
 * It has no socket: its caller passes what it has read to cn_ws_frames_take(), and sends what is in
 * `out`. */
#ifndef CN_FRONTEND_WEBSOCKET_WS_FRAMES_H
#define CN_FRONTEND_WEBSOCKET_WS_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "frontend/intake/request_bytes.h"

struct cn_ws_deflate;
struct cn_ws_frames;
struct wslay_event_context;

/* Codes of a close frame. docs/streams.md says what clients make of them. */
enum cn_ws_close {
    CN_WS_CLOSE_NORMAL = 1000,
    CN_WS_CLOSE_PROTOCOL = 1002,
    CN_WS_CLOSE_INVALID = 1007,
    CN_WS_CLOSE_SLOW = 1008,
    CN_WS_CLOSE_TOO_LARGE = 1009,
    CN_WS_CLOSE_FAILED = 1011,
    CN_WS_CLOSE_RESTART = 1012,
    CN_WS_CLOSE_TRY_AGAIN = 1013,
    CN_WS_CLOSE_TAKEN_OVER = 4001,
    CN_WS_CLOSE_CANNOT_RESUME = 4004,
};

/* The reason of a close because of --max-held-requests. */
#define CN_WS_NO_ROOM "the server holds too many bytes of requests (max-held-requests)"

/* A complete message has come. `message` is borrowed until the function returns. */
typedef void (*cn_ws_message_fn)(struct cn_ws_frames *frames, bool is_text, struct cn_str message);

struct cn_ws_frames {
    struct wslay_event_context *wslay;
    cn_ws_message_fn on_message;
    /* shared by the loop; NULL: permessage-deflate is not agreed on */
    struct cn_ws_deflate *deflate;
    unsigned window_bits;    /* with `deflate`: of the client's window */
    uint64_t compress_bytes; /* messages of this size are compressed; 0: none */
    uint64_t max_bytes;      /* of a message */

    struct cn_str in;      /* what cn_ws_frames_take has not used yet */
    bool is_paused;        /* set by on_message: no further bytes are used for now */
    struct cn_buf message; /* the message that is coming */
    struct cn_request_bytes message_bytes;
    bool in_message; /* a message has begun */
    bool is_text, is_compressed;
    bool is_control; /* the present frame is a ping, a pong or a close */
    struct cn_buf out;
    bool is_closing;      /* a close of this side has gone to `out` */
    bool failed;          /* wslay could not go on: cut the connection */
    uint64_t open_bytes;  /* bytes that were taken since the last frame ended; may pass zero */
    uint64_t frame_bytes; /* of the present frame, with its head */
};

/* Prepares for a connection. The caller sets `deflate` to `max_bytes` first, and the rest to zero.
 * Returns false if there is no memory. */
bool cn_ws_frames_init(struct cn_ws_frames *frames, cn_ws_message_fn on_message);
void cn_ws_frames_fini(struct cn_ws_frames *frames);

/* Takes bytes of the client, and calls on_message for each message that is complete. Answers to
 * pings and to a close, and the close of a client that breaks the protocol, go to `out`. Returns
 * the bytes that were not used because on_message has set `is_paused`; a few messages may still
 * follow the one that has set it. */
struct cn_str cn_ws_frames_take(struct cn_ws_frames *frames, struct cn_str bytes);
/* Does it take further bytes? Not after a close of either side. */
bool cn_ws_frames_wants_bytes(const struct cn_ws_frames *frames);
/* Frees wslay's buffers, which take 8 KiB, if the client is between two messages. The next bytes
 * or the next message get new ones. */
void cn_ws_frames_rest(struct cn_ws_frames *frames);
/* Appends a message, a ping or a close to `out`. After a close nothing is appended any more.
 * `reason` is cut to the 123 bytes that a close can carry. */
void cn_ws_frames_send(struct cn_ws_frames *frames, bool is_text, struct cn_str message);
void cn_ws_frames_ping(struct cn_ws_frames *frames);
void cn_ws_frames_close(struct cn_ws_frames *frames, enum cn_ws_close code, struct cn_str reason);
/* Have both sides sent their close? */
bool cn_ws_frames_is_closed(const struct cn_ws_frames *frames);

#endif
