/* frontend/http/transport/http_stream.c - answers that are made while they are sent: the pieces of
 * a handler's stream, and compressed bodies. Owned by the loop thread.
 *
 * When everything of a connection is sent, the next bytes are made here. Pieces wait in the
 * request's list `boxes`. Each piece becomes a chunk of its own, and no client waits for a chunk to
 * fill up: small pieces are copied behind each other and sent together, and a large one is sent
 * from its box. If the list is empty, the request is STARVED until the next piece comes
 * (cn_http_answer_piece). `on_taken` reports the bytes that were sent, and the scheduler gives the
 * handler credit for as many: so a slow client slows its handler down, and the server does not
 * collect the stream in memory.
 */
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/compress.h"
#include "scheduler/queue/job.h"

#define COPIED_BYTES 4096    /* pieces up to this size are copied */
#define TOGETHER_BYTES 16384 /* this much of them is sent together */
#define COMPRESSED_BYTES 16384
#define STEPS_PER_TURN 16 /* of such an answer, so that other connections get their turn */

/* HTTP/1.0 has no chunks: the answer ends with the connection. */
static bool
has_chunks(const struct cn_http_request *request)
{
    return request->is_http_1_1;
}

static void
begin_chunk(const struct cn_http_request *request, size_t len, struct cn_buf *out)
{
    if (has_chunks(request))
        cn_buf_printf(out, "%zx\r\n", len);
}

static struct cn_str
chunk_end(const struct cn_http_request *request)
{
    return has_chunks(request) ? CN_STR("\r\n") : CN_STR("");
}

/* Ends the answer: with the last chunk, which has no bytes, or without chunks by the end of the
 * connection (cn_http_head_send_open). */
static void
end_answer(struct cn_http_request *request, struct cn_buf *out)
{
    request->state = CN_REQUEST_ANSWERED;
    if (has_chunks(request))
        cn_buf_append_str(out, CN_STR("0\r\n\r\n"));
}

/* The first piece goes out, or has gone out: it does not wait any more. */
static void
drop_piece(struct cn_http_request *request)
{
    struct cn_answer_box *box = request->boxes;
    const size_t len = box->answer.body.len;
    const size_t taken = box->remade ? box->made_of_bytes : len;

    request->boxes = (struct cn_answer_box *)box->msg.next;
    if (!request->boxes)
        request->boxes_end = &request->boxes;
    request->is_piece_out = false;
    request->answer_bytes += len;
    cn_unread_sub(request->listener->loop, &request->unread, len);
    if (request->on_taken && taken) /* also if nothing was made of them: they wait for nobody */
        request->on_taken(request, taken);
    cn_answer_box_free(box);
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
}

/* A status cannot be changed once the head is out. So the connection ends before the last chunk,
 * which clients see as an incomplete body. */
static void
break_off(struct cn_http_conn *conn, const struct cn_answer_box *box)
{
    cn_log(CN_LOG_DEBUG, "event=stream_ended_early job=%llu error=%s",
           (unsigned long long)box->answer.job_id, cn_error_info(box->answer.error_code)->word);
    conn->failed = true;
    cn_http_conn_go_on(conn);
}

/* Copies the small pieces that have come. */
static void
copy_pieces(struct cn_http_request *request, struct cn_buf *out)
{
    const struct cn_answer_box *box;

    while ((box = request->boxes) && !box->answer.error_code &&
           box->answer.body.len <= COPIED_BYTES && out->len < TOGETHER_BYTES) {
        if (box->answer.body.len) {
            begin_chunk(request, box->answer.body.len, out);
            cn_buf_append_str(out, box->answer.body);
            cn_buf_append_str(out, chunk_end(request));
        }
        drop_piece(request);
    }
    if (!request->boxes && request->last_piece_came)
        end_answer(request, out);
}

/* Sends the first piece, which is large, from its box. */
static void
send_piece(struct cn_http_request *request, struct cn_buf *out)
{
    begin_chunk(request, request->boxes->answer.body.len, out);
    request->is_piece_out = true;
    cn_http_out_send(request->conn, cn_buf_str(out), request->boxes->answer.body, false,
                     chunk_end(request));
}

static bool
next_pieces(struct cn_http_request *request)
{
    struct cn_http_conn *conn = request->conn;
    struct cn_buf *out = &conn->listener->head;

    if (request->is_piece_out)
        drop_piece(request);
    cn_buf_reset(out);
    copy_pieces(request, out);
    if (out->failed)
        cn_panic(__FILE__, __LINE__, "not enough memory for a piece of an answer");
    if (out->len) {
        cn_http_out_send(conn, cn_buf_str(out), CN_STR(""), false, CN_STR(""));
    } else if (request->boxes && request->boxes->answer.error_code) {
        break_off(conn, request->boxes);
        return false;
    } else if (request->boxes) {
        send_piece(request, out);
    } else if (request->state == CN_REQUEST_STREAMING) {
        request->state = CN_REQUEST_STARVED;
        cn_http_conn_enter(conn, CN_PHASE_PARKED);
        return false;
    }
    return request->state == CN_REQUEST_STREAMING;
}

/* Compresses and sends the next block. One block takes a bounded time, so a large answer does not
 * hold up its loop. */
static bool
next_block(struct cn_http_request *request)
{
    struct cn_buf *out = &request->conn->listener->head;
    char block[COMPRESSED_BYTES];
    const size_t len = cn_compressor_read(request->compressor, block, sizeof(block));

    cn_buf_reset(out);
    if (len) {
        begin_chunk(request, len, out);
        cn_buf_append(out, block, len);
        cn_buf_append_str(out, chunk_end(request));
    } else {
        end_answer(request, out);
    }
    if (out->failed)
        cn_panic(__FILE__, __LINE__, "not enough memory for a piece of an answer");
    cn_http_out_send(request->conn, cn_buf_str(out), CN_STR(""), false, CN_STR(""));
    return len > 0;
}

/* Sends the next bytes. Returns false if there are none at present. */
static bool
send_next(struct cn_http_conn *conn)
{
    struct cn_http_request *request = conn->request;

    if (!request)
        return false;
    if (request->state == CN_REQUEST_STREAMING)
        return next_pieces(request);
    return request->state == CN_REQUEST_COMPRESSING && next_block(request);
}

void
cn_http_out_run(struct cn_http_conn *conn)
{
    for (unsigned i = 0; i < STEPS_PER_TURN; i++) {
        if (!conn->out.has_new_head) /* that is sent together with the first bytes of the body */
            cn_http_out_push(conn);
        if (conn->failed || !(cn_http_out_is_empty(conn) || conn->out.has_new_head))
            return;
        conn->out.has_new_head = false;
        if (!send_next(conn)) {
            cn_http_out_push(conn);
            return;
        }
    }
    cn_http_conn_go_on(conn);
}
