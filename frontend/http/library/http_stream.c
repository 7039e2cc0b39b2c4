/* frontend/http/library/http_stream.c - gives the pieces of a streamed answer to libmicrohttpd.
 * Owned by the loop thread.
 *
 * libmicrohttpd calls cn_http_read_stream() whenever the socket has room. It takes bytes from the
 * list `boxes` and frees each box once it is sent. If the list is empty, the request becomes
 * STARVED and its connection is suspended; cn_http_answer_piece() resumes it with the next piece.
 * `on_taken` reports the bytes that were sent, and the scheduler gives the handler credit for as
 * many: so a slow client slows its handler down, and the server does not collect the stream in
 * memory. */
#include <string.h>

#include "core/log/log.h"
#include "frontend/http/library/http_response_priv.h"
#include "scheduler/queue/job.h"

/* Makes libmicrohttpd look at the connection again soon. The reader is about to end the connection:
 * because of an error, or because an HTTP/1.0 client can only know the end of a body from that.
 * libmicrohttpd 0.9.75 closes the socket then, but frees the connection only when it looks at it
 * again, and after a suspend no event of the socket may cause that. It looks at connections with a
 * timeout of their own in each run, so this one gets one. */
static void
end_connection(struct MHD_Connection *mhd, struct cn_http_listener *listener)
{
    MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    listener->resumed = true; /* the daemon must run in the next turn, too */
}

ssize_t
cn_http_read_stream(void *ctx, uint64_t position, char *out, size_t room)
{
    struct cn_http_request *request = cn_http_request_cast(ctx);
    struct cn_answer_box *box;
    size_t len, taken;

    (void)position;
    while ((box = request->boxes)) {
        if (box->answer.error_code) {
            cn_log(CN_LOG_DEBUG, "event=stream_ended_early job=%llu error=%s",
                   (unsigned long long)box->answer.job_id,
                   cn_error_info(box->answer.error_code)->word);
            request->state = CN_REQUEST_ANSWERED;
            end_connection(request->mhd, request->listener);
            return MHD_CONTENT_READER_END_WITH_ERROR; /* the head is out: closes early */
        }
        len = box->answer.body.len - request->piece_sent;
        len = len < room ? len : room;
        if (len)
            memcpy(out, box->answer.body.ptr + request->piece_sent, len);
        request->piece_sent += len;
        request->answer_bytes += len;
        taken = box->remade ? 0 : len;
        if (request->piece_sent == box->answer.body.len) {
            taken = box->remade ? box->made_of_bytes : len;
            request->boxes = (struct cn_answer_box *)box->msg.next;
            if (!request->boxes)
                request->boxes_end = &request->boxes;
            request->piece_sent = 0;
            cn_unread_sub(request->listener->loop, &request->unread, box->answer.body.len);
            cn_answer_box_free(box);
        }
        if (len) {
            if (request->on_taken)
                request->on_taken(request, taken);
            cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
            return (ssize_t)len;
        }
    }
    if (request->last_piece_came) {
        request->state = CN_REQUEST_ANSWERED;
        if (!request->is_http_1_1)
            end_connection(request->mhd, request->listener);
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    request->state = CN_REQUEST_STARVED;
    cn_http_conn_enter(request->conn, CN_PHASE_PARKED);
    MHD_suspend_connection(request->mhd);
    return 0;
}
