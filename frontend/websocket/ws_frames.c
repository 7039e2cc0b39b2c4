/* frontend/websocket/ws_frames.c - the only file that uses wslay. On one loop.
 *
 * wslay reads frames, checks them (masks, opcodes, lengths, UTF-8 of text that is not compressed),
 * and answers pings and closes. Its own collection of a message's fragments is switched off: it
 * takes 50 bytes for each fragment, so a client could make a message of one-byte fragments cost
 * fifty times its size. The fragments are appended to `message` instead, whose size is checked when
 * a frame begins, before any of its bytes are kept.
 *
 * An idle stream gives wslay's buffers back. wslay does not tell whether it is in the middle of a
 * frame's head, so the bytes that went in are compared with the sizes of the frames that have
 * ended: if nothing is left over, the next byte begins a frame.
 */
#include "frontend/websocket/ws_frames.h"

#include <string.h>
#include <wslay/wslay.h>

#include "core/text/utf8.h"
#include "frontend/websocket/ws_deflate.h"

#define REASON_MAX 123
#define KEEP_BYTES 4096 /* a larger buffer is freed after its message */
/* In the first byte of a frame, with the opcode. */
#define FINAL_FRAME 0x80u
#define COMPRESSED_FRAME 0x40u

static ssize_t
on_recv(wslay_event_context_ptr wslay, uint8_t *room, size_t len, int flags, void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    (void)flags;
    if (frames->in.len == 0 || frames->is_paused) {
        wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    len = len < frames->in.len ? len : frames->in.len;
    memcpy(room, frames->in.ptr, len);
    frames->in = (struct cn_str){frames->in.ptr + len, frames->in.len - len};
    return (ssize_t)len;
}

static ssize_t
on_send(wslay_event_context_ptr wslay, const uint8_t *bytes, size_t len, int flags, void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    (void)flags;
    if (cn_buf_append(&frames->out, bytes, len) == 0)
        return (ssize_t)len;
    frames->failed = true;
    wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
    return -1;
}

/* Gives back the memory of the message, except that of a small one. */
static void
free_message(struct cn_ws_frames *frames, size_t keep)
{
    cn_request_bytes_done(&frames->message_bytes);
    if (frames->message.cap > keep)
        cn_buf_fini(&frames->message);
}

/* Closes because of what the client sent, and reads no further. The client may go on sending its
 * message for a while, but what came of it is not needed. */
static void
refuse(struct cn_ws_frames *frames, enum cn_ws_close code, const char *reason)
{
    cn_ws_frames_close(frames, code, cn_str_from(reason));
    wslay_event_shutdown_read(frames->wslay);
    free_message(frames, 0);
}

/* A client's frame has a mask, and its length in the shortest form.
 *
 * So the head has 2 bytes, 4 bytes of the mask, and 2 or 8 more bytes if the length does not fit
 * into 7 bits. wslay refuses a longer form than needed, so the sum below never drifts. */
static uint64_t
head_bytes(uint64_t payload_bytes)
{
    return 6u + (payload_bytes < 126 ? 0u : payload_bytes < 65536 ? 2u : 8u);
}

static void
on_frame_end(wslay_event_context_ptr wslay, void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    (void)wslay;
    frames->open_bytes -= frames->frame_bytes;
}

static void
on_frame_start(wslay_event_context_ptr wslay, const struct wslay_event_on_frame_recv_start_arg *arg,
               void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    (void)wslay;
    frames->is_control = wslay_is_ctrl_frame(arg->opcode);
    frames->frame_bytes = head_bytes(arg->payload_length) + arg->payload_length;
    if (frames->is_control)
        return;
    if (arg->opcode != WSLAY_CONTINUATION_FRAME) {
        cn_buf_reset(&frames->message);
        frames->in_message = true;
        frames->is_text = arg->opcode == WSLAY_TEXT_FRAME;
        frames->is_compressed = wslay_get_rsv1(arg->rsv);
    }
    if (arg->payload_length > frames->max_bytes - frames->message.len)
        refuse(frames, CN_WS_CLOSE_TOO_LARGE, "the message is too large");
}

static void
on_frame_chunk(wslay_event_context_ptr wslay, const struct wslay_event_on_frame_recv_chunk_arg *arg,
               void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    if (frames->is_control || !wslay_event_get_read_enabled(wslay))
        return;
    if (!cn_request_bytes_take(&frames->message_bytes, frames->message.len + arg->data_length))
        refuse(frames, CN_WS_CLOSE_TRY_AGAIN, CN_WS_NO_ROOM);
    else if (cn_buf_append(&frames->message, arg->data, arg->data_length))
        refuse(frames, CN_WS_CLOSE_TRY_AGAIN, "not enough memory for the message");
}

/* Passes on a message that was compressed. */
static void
pass_inflated(struct cn_ws_frames *frames)
{
    struct cn_buf message;
    enum cn_ws_inflate_result result;

    cn_buf_init(&message, 0);
    result = cn_ws_inflate(frames->deflate, cn_buf_str(&frames->message), (size_t)frames->max_bytes,
                           &message);
    if (result == CN_WS_INFLATES_TOO_LARGE)
        refuse(frames, CN_WS_CLOSE_TOO_LARGE, "the message is too large");
    else if (result == CN_WS_NOT_DEFLATE)
        refuse(frames, CN_WS_CLOSE_INVALID, "the message cannot be decompressed");
    else if (frames->is_text && !cn_utf8_is_valid(cn_buf_str(&message)))
        refuse(frames, CN_WS_CLOSE_INVALID, "the text is not UTF-8");
    else
        frames->on_message(frames, frames->is_text, cn_buf_str(&message));
    cn_buf_fini(&message);
}

static void
on_msg(wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *arg, void *ctx)
{
    struct cn_ws_frames *frames = ctx;

    if (wslay_is_ctrl_frame(arg->opcode) || frames->is_closing ||
        !wslay_event_get_read_enabled(wslay))
        return;
    frames->in_message = false;
    if (frames->is_compressed)
        pass_inflated(frames);
    else
        frames->on_message(frames, frames->is_text, cn_buf_str(&frames->message));
    free_message(frames, KEEP_BYTES);
}

static bool
wake(struct cn_ws_frames *frames)
{
    static const struct wslay_event_callbacks callbacks = {
        .recv_callback = on_recv,
        .send_callback = on_send,
        .on_frame_recv_start_callback = on_frame_start,
        .on_frame_recv_chunk_callback = on_frame_chunk,
        .on_frame_recv_end_callback = on_frame_end,
        .on_msg_recv_callback = on_msg,
    };

    frames->open_bytes = 0;
    if (wslay_event_context_server_init(&frames->wslay, &callbacks, frames))
        return false;
    wslay_event_config_set_no_buffering(frames->wslay, 1);
    if (frames->deflate)
        wslay_event_config_set_allowed_rsv_bits(frames->wslay, WSLAY_RSV1_BIT);
    return true;
}

bool
cn_ws_frames_init(struct cn_ws_frames *frames, cn_ws_message_fn on_message)
{
    frames->on_message = on_message;
    cn_buf_init(&frames->message, 0);
    cn_buf_init(&frames->out, 0);
    return wake(frames);
}

/* Frees the buffers of a stream that has nothing under way. A server with many thousand idle
 * streams then pays for their records only. The next bytes, in either direction, make the buffers
 * again (is_awake). */
void
cn_ws_frames_rest(struct cn_ws_frames *frames)
{
    if (!frames->wslay || frames->failed || frames->in_message || frames->open_bytes ||
        frames->is_closing || !cn_ws_frames_wants_bytes(frames))
        return;
    wslay_event_context_free(frames->wslay);
    frames->wslay = NULL;
    free_message(frames, 0);
    if (!frames->out.len)
        cn_buf_fini(&frames->out);
}

/* Makes wslay's buffers again if they were freed. */
static bool
is_awake(struct cn_ws_frames *frames)
{
    if (!frames->wslay && !frames->failed)
        frames->failed = !wake(frames);
    return !frames->failed;
}

void
cn_ws_frames_fini(struct cn_ws_frames *frames)
{
    if (frames->wslay)
        wslay_event_context_free(frames->wslay);
    frames->wslay = NULL;
    free_message(frames, 0);
    cn_buf_fini(&frames->out);
}

/* Moves what wslay has queued to `out`. */
static void
flush(struct cn_ws_frames *frames)
{
    if (!frames->wslay || frames->is_closing ||
        wslay_event_get_queued_msg_count(frames->wslay) == 0)
        return;
    if (wslay_event_send(frames->wslay))
        frames->failed = true;
    frames->is_closing = wslay_event_get_close_sent(frames->wslay);
}

/* Writes a frame that is a whole message. A server's frame has no mask, so its head is the opcode
 * and the length in its shortest form (RFC 6455, 5.2). wslay would take two allocations and a copy
 * for each message. What wslay itself sends is never in its queue here, because flush() has moved
 * it to `out`; only a close without a code is left there (refuse_head). */
static void
write_frame(struct cn_ws_frames *frames, uint8_t first_byte, struct cn_str message)
{
    const uint64_t len = message.len;
    const unsigned length_bytes = len < 126 ? 0 : len <= UINT16_MAX ? 2 : 8;
    char *at = cn_buf_reserve(&frames->out, 2 + length_bytes + message.len);

    if (!at) {
        frames->failed = true;
        return;
    }
    at[0] = (char)first_byte;
    at[1] = (char)(length_bytes == 0 ? len : length_bytes == 2 ? 126 : 127);
    for (unsigned i = 0; i < length_bytes; i++)
        at[2 + i] = (char)(len >> 8 * (length_bytes - 1 - i));
    if (len)
        memcpy(at + 2 + length_bytes, message.ptr, message.len);
    frames->out.len += 2 + length_bytes + message.len;
}

/* The head of a frame is impossible: its length is not in the shortest form, or a control frame is
 * too long or not whole. wslay has queued a close without a code then, which stays in its queue. */
static void
refuse_head(struct cn_ws_frames *frames)
{
    const char code[] = {(char)(CN_WS_CLOSE_PROTOCOL >> 8), (char)(CN_WS_CLOSE_PROTOCOL & 0xff)};

    write_frame(frames, FINAL_FRAME | WSLAY_CONNECTION_CLOSE, (struct cn_str){code, sizeof(code)});
    frames->is_closing = true;
}

/* Returns what was not used, because a message has filled the client's credit and on_message has
 * set `is_paused`. wslay may have bytes inside itself even then, so the caller keeps only what this
 * returns. */
struct cn_str
cn_ws_frames_take(struct cn_ws_frames *frames, struct cn_str bytes)
{
    struct cn_str rest = {NULL, 0};
    int rc;

    if (!is_awake(frames))
        return rest;
    frames->in = bytes;
    frames->is_paused = false;
    frames->open_bytes += bytes.len;
    rc = wslay_event_recv(frames->wslay);
    if (rc == WSLAY_ERR_NOMEM)
        frames->failed = true;
    else if (rc && !frames->is_closing)
        refuse_head(frames);
    if (frames->is_paused)
        rest = frames->in;
    frames->open_bytes -= rest.len;
    frames->in = (struct cn_str){NULL, 0};
    flush(frames);
    return rest;
}

bool
cn_ws_frames_wants_bytes(const struct cn_ws_frames *frames)
{
    return !frames->failed && (!frames->wslay || wslay_event_get_read_enabled(frames->wslay));
}

void
cn_ws_frames_send(struct cn_ws_frames *frames, bool is_text, struct cn_str message)
{
    const uint8_t first_byte = FINAL_FRAME | (is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME);
    struct cn_buf compressed;

    if (frames->failed || frames->is_closing)
        return;
    if (!frames->deflate || !frames->compress_bytes || message.len < frames->compress_bytes) {
        write_frame(frames, first_byte, message);
        return;
    }
    cn_buf_init(&compressed, 0);
    if (cn_ws_deflate(frames->deflate, frames->window_bits, message, &compressed))
        write_frame(frames, first_byte | COMPRESSED_FRAME, cn_buf_str(&compressed));
    else
        write_frame(frames, first_byte, message);
    cn_buf_fini(&compressed);
}

void
cn_ws_frames_ping(struct cn_ws_frames *frames)
{
    const struct wslay_event_msg msg = {.opcode = WSLAY_PING};

    if (is_awake(frames) && wslay_event_queue_msg(frames->wslay, &msg) == WSLAY_ERR_NOMEM)
        frames->failed = true;
    flush(frames);
}

void
cn_ws_frames_close(struct cn_ws_frames *frames, enum cn_ws_close code, struct cn_str reason)
{
    if (!is_awake(frames))
        return;
    if (wslay_event_queue_close(frames->wslay, (uint16_t)code, (const uint8_t *)reason.ptr,
                                cn_utf8_cut(reason, REASON_MAX)) == WSLAY_ERR_NOMEM)
        frames->failed = true;
    flush(frames);
}

bool
cn_ws_frames_is_closed(const struct cn_ws_frames *frames)
{
    return frames->is_closing && wslay_event_get_close_received(frames->wslay);
}
