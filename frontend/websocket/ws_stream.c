/* frontend/websocket/ws_stream.c - the life of a stream. Owned by the loop of its listener.
 *
 * Only callbacks of the loop (a socket's event, the timer, the deferred send, an answer) free a
 * stream; what is found out deeper down only puts a close frame into `out`.
 *
 * The usual way through the phases, with what leads from one to the next:
 *   OPENING   the worker is asked where the sequence is (ws_resume.c), if the model has sequences
 *   RESUMING  only if the client has missed answers: they are sent first
 *   OPEN      messages become steps, answers become messages
 *   LEAVING   the server drains: what was begun is finished, and nothing more is read
 *   CLOSING   our close frame is in `out`; the socket ends soon after
 *
 * The struct lies in an arena of its own, together with its texts and the headers of the handshake.
 * When the connection is gone, the stream stays until its last step has its final answer: jobs
 * point to its headers and to `left`. */
#include "frontend/websocket/ws_stream.h"

#include <string.h>

#include "config/model/model_config.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/http_request.h"
#include "frontend/websocket/ws_deflate.h"
#include "management/management.h"
#include "scheduler/queue/model_queue.h"
#include "tracing/trace_context.h"

/* Headers of the handshake that no handler needs: they are about the connection, or a secret. */
static bool
is_left_out(struct cn_str name)
{
    static const char *const names[] = {"upgrade", "connection", "authorization"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (cn_str_eq_nocase(name, cn_str_from(names[i])))
            return true;
    return name.len > 14 &&
           cn_str_eq_nocase((struct cn_str){name.ptr, 14}, CN_STR("sec-websocket-"));
}

static void
copy_headers(struct cn_ws_stream *stream, const struct cn_ws_opening *opening)
{
    stream->headers =
        cn_arena_alloc(&stream->arena, sizeof(struct cn_header) * (opening->n_headers + 1));
    for (uint32_t i = 0; i < opening->n_headers; i++) {
        const struct cn_header *from = &opening->headers[i];

        if (is_left_out(from->name))
            continue;
        stream->headers[stream->n_headers++] = (struct cn_header){
            cn_arena_str(&stream->arena, from->name), cn_arena_str(&stream->arena, from->value)};
    }
}

/* A message that names its caller's span has headers of its own, without the context of the
 * handshake. A handler that is not traced gets what its client sent, so a value that no HTTP header
 * could have is left out. */
void
cn_ws_give_headers(const struct cn_ws_stream *stream, const struct cn_ws_request *request,
                   struct cn_arena *arena, struct cn_row *row)
{
    struct cn_header *headers;
    uint32_t n = 0;

    row->headers = stream->headers;
    row->n_headers = stream->n_headers;
    if (!request || !request->has_traceparent)
        return;
    headers = cn_arena_alloc(arena, sizeof(*headers) * (stream->n_headers + 2));
    for (uint32_t i = 0; i < stream->n_headers; i++)
        if (!cn_trace_is_context(stream->headers[i].name))
            headers[n++] = stream->headers[i];
    if (cn_tracestate_is_valid(request->traceparent))
        headers[n++] = (struct cn_header){CN_STR("traceparent"), request->traceparent};
    if (request->tracestate.len && cn_tracestate_is_valid(request->tracestate))
        headers[n++] = (struct cn_header){CN_STR("tracestate"), request->tracestate};
    row->headers = headers;
    row->n_headers = n;
}

void
cn_ws_set_credit(struct cn_ws_stream *stream, uint64_t credit)
{
    stream->credit = credit < stream->max_credit ? (uint32_t)credit : stream->max_credit;
    stream->keep = stream->credit > stream->keep ? stream->credit : stream->keep;
}

/* The record is made before the handshake is answered, while the request and its headers still
 * exist. That is why all texts are copied, and why the listener counts the stream as a request: a
 * server that drains waits for it. */
struct cn_ws_stream *
cn_ws_stream_create(struct cn_ws_site *site, const struct cn_ws_opening *opening)
{
    const struct cn_server_config *config = site->listener->shared->config;
    struct cn_ws_stream *stream;
    struct cn_arena arena;

    cn_arena_init(&arena);
    stream = cn_arena_alloc(&arena, sizeof(*stream));
    memset(stream, 0, sizeof(*stream));
    stream->arena = arena;
    stream->site = site;
    stream->form = opening->form;
    stream->access = opening->key;
    stream->certificate_ends_ms = opening->certificate_ends_ms;
    stream->model = cn_arena_str(&stream->arena, cn_str_from(cn_model_queue_name(opening->queue)));
    stream->version = cn_arena_str(&stream->arena, opening->version);
    stream->id = cn_arena_str(&stream->arena, opening->id);
    stream->request_id = cn_arena_str(&stream->arena, opening->request_id);
    stream->has_sequence = cn_model_queue_config(opening->queue)->sequence_batching;
    if (stream->has_sequence) {
        const struct cn_str owner =
            cn_management_owner(site->listener->shared->management, opening->key);

        stream->key.ptr =
            cn_arena_printf(&stream->arena, "%.*s/%.*s/%.*s", CN_STR_ARG(stream->model),
                            CN_STR_ARG(owner), CN_STR_ARG(stream->id));
        stream->key.len = stream->model.len + 1 + owner.len + 1 + stream->id.len;
    }
    copy_headers(stream, opening);
    stream->buffer_bytes = config->stream_buffer_bytes;
    stream->max_credit = config->stream_credit;
    cn_ws_set_credit(stream, opening->credit ? opening->credit : config->stream_credit);
    stream->next = 1;
    stream->sends_lost = opening->resumes;
    stream->last = opening->last;
    stream->wanted_generation = opening->generation;
    stream->frames.window_bits = opening->window_bits;
    stream->frames.compress_bytes = config->compress_bytes;
    stream->frames.max_bytes =
        opening->form == CN_WS_BINARY ? config->max_v2_request_bytes : config->max_request_bytes;
    cn_list_init(&stream->link);
    cn_list_init(&stream->steps);
    cn_list_init(&stream->waiting);
    atomic_init(&stream->left, false);
    site->listener->n_requests++;
    return stream;
}

void
cn_ws_stream_destroy(struct cn_ws_stream *stream)
{
    struct cn_arena arena = stream->arena;

    cn_assert(!stream->conn && cn_list_empty(&stream->steps) && cn_list_empty(&stream->waiting));
    cn_ws_frames_fini(&stream->frames);
    cn_buf_fini(&stream->pending);
    stream->site->listener->n_requests--;
    cn_arena_fini(&arena);
}

/* The streams of a loop share one buffer for what is read and one compressor, because a loop works
 * on one stream at a time. Both are made when the first stream needs them. */
static bool
prepare_frames(struct cn_ws_stream *stream)
{
    struct cn_ws_site *site = stream->site;

    if (!site->scratch)
        site->scratch = cn_try_alloc(CN_WS_SCRATCH_BYTES);
    if (!site->deflate && stream->frames.window_bits)
        site->deflate = cn_ws_deflate_create();
    if (stream->frames.window_bits)
        stream->frames.deflate = site->deflate;
    return site->scratch && cn_ws_frames_init(&stream->frames, cn_ws_take_message);
}

void
cn_ws_stream_begin(struct cn_ws_stream *stream, struct cn_http_conn *conn, struct cn_str extra)
{
    stream->conn = conn;
    stream->fd = conn->fd;
    conn->stream = stream;
    cn_ws_site_add(stream->site, stream);
    if (!prepare_frames(stream)) {
        cn_ws_io_end(stream);
        return;
    }
    if (stream->site->leaving)
        cn_ws_close(stream, CN_WS_CLOSE_RESTART, CN_STR("draining"));
    else
        cn_ws_hello_begin(stream);
    cn_ws_io_begin(stream, extra);
}

/* The close frame goes out behind the answers that are in `out` already. The socket stays open
 * until the client has sent its own close frame, or until that has taken too long (ws_io.c). */
void
cn_ws_close(struct cn_ws_stream *stream, enum cn_ws_close code, struct cn_str why)
{
    if (stream->phase == CN_WS_CLOSING || !stream->conn)
        return;
    cn_log(CN_LOG_DEBUG, "event=stream_closed fd=%d code=%d why=%.*s", stream->fd, (int)code,
           CN_STR_ARG(why));
    stream->phase = CN_WS_CLOSING;
    cn_ws_io_wait_for_close(stream);
    cn_ws_frames_close(&stream->frames, code, why);
    atomic_store(&stream->left, true);
    cn_ws_steps_cancel(stream);
    cn_ws_io_send_soon(stream);
}

/* What may go well later has another code, so that a client knows whether to connect again. */
enum cn_ws_close
cn_ws_close_of(int error_code)
{
    const int status = cn_error_info(error_code)->http_status;

    return status == 503 || status == 429 ? CN_WS_CLOSE_TRY_AGAIN : CN_WS_CLOSE_FAILED;
}

/* The plain form has no message for errors, so its client finds the reason in the close frame. */
void
cn_ws_fail(struct cn_ws_stream *stream, enum cn_ws_close code, const struct cn_ws_failure *failure)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    if (stream->form != CN_WS_PLAIN) {
        cn_ws_write_error(failure, &text);
        cn_ws_frames_send(&stream->frames, true, cn_buf_str(&text));
    }
    cn_buf_reset(&text);
    cn_buf_printf(&text, "%s: %.*s", cn_error_info(failure->code)->word,
                  CN_STR_ARG(failure->message));
    cn_ws_close(stream, code, cn_buf_str(&text));
    cn_buf_fini(&text);
}

/* Callbacks of the loop call it last. If the connection is gone and no step is left, it frees the
 * stream, so nobody may touch the stream after false. */
bool
cn_ws_go_on(struct cn_ws_stream *stream)
{
    if (!stream->conn) {
        if (!cn_list_empty(&stream->steps))
            return true;
        cn_ws_stream_destroy(stream);
        return false;
    }
    cn_ws_steps_go_on(stream);
    if (stream->phase == CN_WS_LEAVING && cn_list_empty(&stream->steps))
        cn_ws_close(stream, CN_WS_CLOSE_RESTART, CN_STR("draining"));
    cn_ws_io_read_on(stream);
    if (stream->writes) /* else what came is still to be sent, and then counted */
        cn_ws_io_count_unread(stream);
    return true;
}

void
cn_ws_stream_leave(struct cn_ws_stream *stream)
{
    if (stream->phase == CN_WS_CLOSING)
        return;
    if (stream->phase == CN_WS_OPEN)
        stream->phase = CN_WS_LEAVING;
    else if (stream->phase != CN_WS_LEAVING) /* it has sent nothing that a client could lose */
        cn_ws_close(stream, CN_WS_CLOSE_RESTART, CN_STR("draining"));
    cn_ws_go_on(stream);
}

void
cn_ws_stream_taken_over(struct cn_ws_stream *stream)
{
    cn_ws_close(stream, CN_WS_CLOSE_TAKEN_OVER,
                CN_STR("a newer connection has taken over the sequence"));
}

struct cn_ws_stream *
cn_ws_stream_of(struct cn_ws_frames *frames)
{
    return cn_container_of(frames, struct cn_ws_stream, frames);
}
