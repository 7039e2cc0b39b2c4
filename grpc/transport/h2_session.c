/* grpc/transport/h2_session.c - the session of HTTP/2: its settings, and nghttp2's callbacks. */
#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "grpc/transport/transport_priv.h"

#define GOAWAY_BYTES_MAX 4096 /* the reasons of real clients are one sentence */

static struct cn_grpc_call *
call_of(nghttp2_session *h2, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(h2, stream);
}

/* nghttp2 keeps the reason of a client that goes until the frame is complete. A client that never
 * completes it would hold CN_GRPC_IN_FRAME_BYTES. This callback comes before nghttp2 takes memory
 * for it. */
static int
on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *head, void *ctx)
{
    const struct cn_grpc_conn *conn = ctx;

    (void)h2;
    if (head->type != NGHTTP2_GOAWAY || head->length <= GOAWAY_BYTES_MAX)
        return 0;
    cn_grpc_conn_log_drop(conn, "the client sends a GOAWAY that is too large");
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int
on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx)
{
    struct cn_grpc_conn *conn = ctx;

    (void)h2;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        cn_arena_fini(&conn->head.arena); /* of a request whose metadata ended in an error */
        conn->head = (struct cn_grpc_head){.deadline_ms = CN_NEVER};
        cn_arena_init(&conn->head.arena);
    }
    return 0;
}

static int
on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
          const uint8_t *value, size_t value_len, uint8_t flags, void *ctx)
{
    struct cn_grpc_conn *conn = ctx;

    (void)h2, (void)flags;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        cn_grpc_head_add(&conn->head, conn->site, (struct cn_str){(const char *)name, name_len},
                         (struct cn_str){(const char *)value, value_len});
    return 0; /* clients of gRPC send no trailers */
}

/* A request's metadata are complete. */
static void
open_stream(struct cn_grpc_conn *conn, const nghttp2_frame *frame)
{
    /* The frame that says so (GOAWAY) may still wait. It names the last call before it, so the
     * client may make this one again elsewhere. */
    if (conn->draining)
        nghttp2_submit_rst_stream(conn->h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_REFUSED_STREAM);
    else if (!conn->head.is_post)
        cn_grpc_submit_http_status(conn, frame->hd.stream_id, "405");
    else if (!conn->head.is_grpc && !conn->head.wrong) /* it may have been behind what is wrong */
        cn_grpc_submit_http_status(conn, frame->hd.stream_id, "415");
    else
        cn_grpc_call_begin(conn, frame->hd.stream_id);
}

static int
on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx)
{
    struct cn_grpc_conn *conn = ctx;
    struct cn_grpc_call *call;

    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        open_stream(conn, frame);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) {
        call = call_of(h2, frame->hd.stream_id);
        if (call)
            cn_grpc_receive_end(call);
    }
    return 0;
}

static int
on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *bytes, size_t len,
        void *ctx)
{
    struct cn_grpc_call *call = call_of(h2, stream);

    (void)flags, (void)ctx;
    /* One slow call must not stop the others, so only its own window stays closed. */
    nghttp2_session_consume_connection(h2, len);
    if (call)
        cn_grpc_receive(call, bytes, len);
    else
        nghttp2_session_consume_stream(h2, stream, len);
    return 0;
}

/* nghttp2 resets a call of its own accord when a frame of it is wrong. */
static void
count_reset(struct cn_grpc_conn *conn, uint32_t code)
{
    if (code != NGHTTP2_PROTOCOL_ERROR && code != NGHTTP2_FLOW_CONTROL_ERROR &&
        code != NGHTTP2_STREAM_CLOSED)
        return;
    if (!cn_h2_guard_provoked(&conn->guard, &conn->site->grpc->h2_limits, conn->from))
        cn_grpc_conn_cut(conn);
}

/* The last frame of an answer is made. */
static int
on_frame_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *ctx)
{
    const int32_t stream = frame->hd.stream_id;
    struct cn_grpc_call *call;

    if (frame->hd.type == NGHTTP2_RST_STREAM)
        count_reset(ctx, frame->rst_stream.error_code);
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    call = call_of(h2, stream);
    if (call)
        cn_grpc_call_end_sent(call);
    else if (nghttp2_session_get_stream_remote_close(h2, stream) == 0)
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, stream, NGHTTP2_NO_ERROR);
    return 0;
}

static int
on_stream_close(nghttp2_session *h2, int32_t stream, uint32_t code, void *ctx)
{
    struct cn_grpc_call *call = call_of(h2, stream);

    (void)code, (void)ctx;
    if (call) {
        nghttp2_session_set_stream_user_data(h2, stream, NULL);
        cn_grpc_call_closed(call);
    }
    return 0;
}

void
cn_grpc_session_start(struct cn_grpc *grpc)
{
    if (nghttp2_session_callbacks_new(&grpc->callbacks) || nghttp2_option_new(&grpc->options))
        cn_panic(__FILE__, __LINE__, "not enough memory");
    nghttp2_session_callbacks_set_on_begin_frame_callback(grpc->callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(grpc->callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(grpc->callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(grpc->callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(grpc->callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(grpc->callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(grpc->callbacks, on_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(grpc->callbacks, cn_grpc_on_send_data);
    /* Windows are opened when messages are taken (incoming.c), not when bytes arrive. */
    nghttp2_option_set_no_auto_window_update(grpc->options, 1);
    /* These would be kept for a tree of priorities, which is not used. */
    nghttp2_option_set_no_closed_streams(grpc->options, 1);
    /* grpc-max-resets bounds this (h2_guard.h). */
    nghttp2_option_set_stream_reset_rate_limit(grpc->options, UINT64_MAX, UINT64_MAX);
}

void
cn_grpc_session_stop(struct cn_grpc *grpc)
{
    nghttp2_session_callbacks_del(grpc->callbacks);
    nghttp2_option_del(grpc->options);
}

bool
cn_grpc_session_begin(struct cn_grpc_conn *conn)
{
    const struct cn_grpc_limits *limits = &conn->site->grpc->limits;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, CN_GRPC_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, CN_GRPC_IN_FRAME_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->metadata_bytes},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };

    return nghttp2_session_server_new2(&conn->h2, conn->site->grpc->callbacks, conn,
                                       conn->site->grpc->options) == 0 &&
           nghttp2_submit_settings(conn->h2, NGHTTP2_FLAG_NONE, settings,
                                   sizeof(settings) / sizeof(settings[0])) == 0 &&
           nghttp2_session_set_local_window_size(conn->h2, NGHTTP2_FLAG_NONE, 0,
                                                 CN_GRPC_CONNECTION_WINDOW) == 0;
}

struct iovec
cn_grpc_session_room(struct cn_grpc_conn *conn)
{
    int32_t stream = 0;
    const uint32_t most = cn_h2_guard_in_data(&conn->guard, &stream);
    struct cn_grpc_call *call = most > 0 ? call_of(conn->h2, stream) : NULL;

    return call ? cn_grpc_receive_room(call, most) : (struct iovec){0};
}
