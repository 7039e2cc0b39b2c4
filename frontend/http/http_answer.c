/* frontend/http/http_answer.c - responses: TorchServe's headers and error bodies, jobs' answers,
 * streams. Owned by the loop thread.
 *
 * Only this file and http_listener.c use libmicrohttpd. An answer's bytes are not copied: the
 * response points into the answer box, and the request owns the box until libmicrohttpd is done
 * with both.
 *
 * An answer takes one of two ways:
 * - Complete. The first piece is also the last one. queue() hands a response with a known length to
 *   libmicrohttpd, and the request is ANSWERED.
 * - Streamed. The first piece is not the last one. queue() hands over a response without a length,
 *   and libmicrohttpd calls read_stream() whenever the socket has room. read_stream() takes bytes
 *   from the list `boxes` and frees each box once it is sent. If the list is empty, the request
 *   becomes STARVED and its connection is suspended; cn_http_answer_piece() resumes it with the
 *   next piece. `on_taken` reports the bytes that were sent, and the scheduler gives the handler
 *   credit for as many: so a slow client slows its handler down, and the server does not collect
 *   the stream in memory.
 *
 * A status cannot be changed once the head of a response is out. An error after the first piece of
 * a stream can therefore only cut the connection before the last chunk, which clients see as an
 * incomplete body.
 *
 * TorchServe closes the connection after every status from 400 on. We do that only where the
 * connection cannot be trusted or used any further (malformed HTTP, a body that was not read) and
 * while draining: a client that is told "queue full, try again" should not have to open a new
 * connection.
 */
#include "frontend/http/http_answer.h"
#include "frontend/access/http_certificate.h"

#include <microhttpd.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "core/tuning/tuning.h"
#include "frontend/endpoints/kserve/kserve_http_priv.h"
#include "frontend/guard/head_text.h"
#include "frontend/http/compress.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "frontend/intake/sequence_names.h"
#include "kserve/infer_answer.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/job.h"
#include "torchserve/errors/torchserve_error.h"
#include "torchserve/metrics/metric_lines.h"

#define COMPRESSED_BLOCK_BYTES 16384
#define STREAM_BLOCK_BYTES 4096 /* only for HTTP/1.0 clients, which get no chunks */

static void
add(struct MHD_Response *response, const char *name, const char *value)
{
    MHD_add_response_header(response, name, value);
}

/* Do headers that libmicrohttpd need not know go into the head as text (head_text.h)? With TLS they
 * do not, because libmicrohttpd itself hands the head to GnuTLS. */
static bool
has_head_text(const struct cn_http_request *request)
{
    return cn_tuned(CN_TUNING_HEAD_TEXT) && !request->listener->is_tls;
}

/* Adds a header that libmicrohttpd need not know. `value` ends with a NUL. */
static void
tell(struct MHD_Response *response, const struct cn_http_request *request, struct cn_str name,
     struct cn_str value)
{
    if (has_head_text(request))
        cn_head_text_put(&request->conn->head_text, name, value);
    else
        add(response, name.ptr, value.ptr);
}

static void
tell_text(struct MHD_Response *response, const struct cn_http_request *request, struct cn_str name,
          const char *value)
{
    if (value)
        tell(response, request, name, cn_str_from(value));
}

static void
tell_number(struct MHD_Response *response, const struct cn_http_request *request,
            struct cn_str name, uint64_t value)
{
    char text[24], *end = cn_put_uint(value, text);

    *end = '\0';
    if (value)
        tell(response, request, name, (struct cn_str){text, (size_t)(end - text)});
}

/* Adds the headers for scripts of other sites. TorchServe has them on every answer, too. */
static void
add_cors(struct MHD_Response *response, const struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (!config->cors_allowed_origin)
        return;
    tell_text(response, request, CN_STR("Access-Control-Allow-Origin"),
              config->cors_allowed_origin);
    tell_text(response, request, CN_STR("Access-Control-Allow-Methods"),
              config->cors_allowed_methods);
    tell_text(response, request, CN_STR("Access-Control-Allow-Headers"),
              config->cors_allowed_headers);
    if (cn_http_allows_credentials(config))
        tell_text(response, request, CN_STR("Access-Control-Allow-Credentials"), "true");
}

#define CACHE_CONTROL "no-cache; no-store, must-revalidate, private"
#define EXPIRES "Thu, 01 Jan 1970 00:00:00 UTC"

/* Adds the headers that are the same in each answer. */
static void
add_constant(struct MHD_Response *response, const struct cn_http_request *request)
{
    if (has_head_text(request)) {
        cn_buf_append_str(&request->conn->head_text,
                          CN_STR("Pragma: no-cache\r\nCache-Control: " CACHE_CONTROL
                                 "\r\nExpires: " EXPIRES "\r\n"));
        return;
    }
    add(response, "Pragma", "no-cache");
    add(response, "Cache-Control", CACHE_CONTROL);
    add(response, "Expires", EXPIRES);
}

/* Does the connection end with this answer? In TorchServe's dialect it ends after each error.
 * There, an answer after which the connection stays open says so with a header. */
static bool
closes(struct MHD_Response *response, const struct cn_http_request *request, unsigned status)
{
    bool exact = request->listener->shared->config->dialect == CN_DIALECT_TORCHSERVE;
    /* A client that has closed its side sends no more; libmicrohttpd does not see that when the end
     * came together with the request. */
    bool ends = request->close || request->listener->leaving || request->conn->peer_closed;

    if (exact && status < 400 && !ends)
        MHD_set_response_options(response, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
    return ends || (exact && status >= 400);
}

/* Adds the headers that do not depend on the body: TorchServe's own, and what the request has
 * collected about its sequence on the way. */
static void
add_common(struct MHD_Response *response, const struct cn_http_request *request, unsigned status)
{
    tell(response, request, CN_STR("x-request-id"),
         (struct cn_str){request->id, sizeof(request->id) - 1});
    add_constant(response, request);
    if (request->echo_value.len)
        tell(response, request, request->echo_name, request->echo_value);
    if (request->echo_value.len && request->echo_short)
        tell(response, request, CN_STR(CN_SHORT_SEQUENCE_HEADER), request->echo_value);
    tell_text(response, request, CN_STR("traceparent"), request->traceparent);
    tell_text(response, request, CN_STR("Continuo-Sequence-Restarted"), request->restarted);
    tell_text(response, request, CN_STR("Inference-Header-Content-Length"), request->json_length);
    tell_text(response, request, CN_STR("X-Amzn-SageMaker-New-Session-Id"), request->new_session);
    tell_text(response, request, CN_STR("X-Amzn-SageMaker-Closed-Session-Id"),
              request->closed_session);
    tell_text(response, request, CN_STR("Continuo-Replayed"), request->replayed ? "true" : NULL);
    tell_number(response, request, CN_STR("Continuo-Sequence-Step"), request->step);
    tell_number(response, request, CN_STR("Continuo-Expected-Step"), request->expected_step);
    tell_text(response, request, CN_STR("Allow"), request->allow);
    tell_text(response, request, CN_STR("Location"), request->location);
    tell_text(response, request, CN_STR("Accept-Encoding"), request->codings);
    add_cors(response, request);
    if (closes(response, request, status))
        add(response, "Connection", "close");
}

/* Counts the answer in TorchServe's three metrics. Statuses that are neither 2xx nor 4xx count as
 * 5xx there. */
static void
count_for_torchserve(struct cn_metrics *metrics, unsigned status)
{
    unsigned hundreds = status / 100;

    cn_metrics_add(metrics, hundreds == 2 ? CN_M_HTTP_2XX : CN_M_HTTP_OTHER, hundreds != 4);
    if (cn_ts_logs())
        cn_ts_log(CN_LOG_METRICS,
                  hundreds == 2   ? "Requests2XX.Count"
                  : hundreds == 4 ? "Requests4XX.Count"
                                  : "Requests5XX.Count",
                  1, "Level:Host", NULL);
}

static void
count(const struct cn_http_request *request, unsigned status)
{
    struct cn_metrics *metrics = cn_loop_metrics(request->listener->loop);

    cn_metrics_add(metrics, CN_M_HTTP_REQUESTS, 1);
    count_for_torchserve(metrics, status);
    if (status >= 500)
        cn_metrics_add(metrics, CN_M_HTTP_5XX, 1);
    else if (status >= 400)
        cn_metrics_add(metrics, CN_M_HTTP_4XX, 1);
}

/* Too many bytes wait for clients, and this client has been reading for the longest time. */
static void
drop_unread(struct cn_unread *unread)
{
    struct cn_http_request *request = cn_container_of(unread, struct cn_http_request, unread);

    if (request->conn)
        cn_http_conn_drop(request->conn, "max-unread-answers");
}

/* Counts bytes that the client has yet to read. */
static void
wait_for_reader(struct cn_http_request *request, size_t bytes)
{
    request->unread.drop = drop_unread;
    cn_unread_add(request->listener->loop, &request->unread, bytes);
}

/* Hands the response to libmicrohttpd; `next` is the request's state from here on. libmicrohttpd
 * may call back before MHD_queue_response returns: if the headers do not fit into the connection's
 * memory, the request is completed by then and must not be touched. */
static void
queue(struct cn_http_request *request, unsigned status, struct MHD_Response *response,
      enum cn_http_state next)
{
    bool parked = request->state == CN_REQUEST_PARKED;

    add_common(response, request, status);
    if (request->conn->head_text.failed)
        cn_panic(__FILE__, __LINE__, "not enough memory for the headers of a response");
    request->conn->reader.head_text = cn_buf_str(&request->conn->head_text);
    request->state = (uint8_t)next;
    request->status = status;
    if (MHD_queue_response(request->mhd, status, response) != MHD_YES) {
        cn_log(CN_LOG_ERROR, "event=response_not_queued status=%u", status);
        request->state = CN_REQUEST_BROKEN;
    }
    MHD_destroy_response(response); /* libmicrohttpd has its own reference */
    if (request->mhd_done)
        return; /* its headers did not fit the connection's memory: closed, and completed already */
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
    if (next == CN_REQUEST_ANSWERED)
        wait_for_reader(request, request->answer_bytes);
    count(request, status);
    if (parked)
        cn_http_listener_resume(request);
}

/* Makes a response whose length is known. `mode` says whether libmicrohttpd copies `body`, frees
 * it, or only points to it. */
static struct MHD_Response *
response_of(struct cn_http_request *request, struct cn_str body, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.len, (void *)(uintptr_t)body.ptr, mode);

    request->answer_bytes = body.len;
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    return response;
}

/* Has the request no answer yet, and is its connection still there? */
static bool
is_answerable(const struct cn_http_request *request)
{
    return !request->mhd_done && request->state <= CN_REQUEST_PARKED;
}

/* Over TLS, libmicrohttpd first sends what it still has, and then waits for an event of the
 * client's socket, even if there is nothing to send. So the socket stops reading, which is such an
 * event. The client has --write-timeout to take the rest. */
static void
end_upgrade(const struct cn_http_upgrade *upgrade)
{
    struct cn_http_conn *conn = upgrade->conn;

    if (conn->listener->is_tls) {
        conn->is_ending = true;
        conn->listener->n_ending++;
        cn_http_conn_enter(conn, CN_PHASE_WRITE);
        shutdown(conn->fd, SHUT_RD);
    }
    conn->listener->resumed = true; /* it is freed in the daemon's next run */
    MHD_upgrade_action(upgrade->handle, MHD_UPGRADE_ACTION_CLOSE);
}

/* libmicrohttpd has sent the head of a 101 and leaves the socket to us. With TLS, `fd` is the end
 * of a socket pair, which nobody uses. */
static void
on_upgrade(void *ctx, struct MHD_Connection *mhd, void *slot, const char *extra, size_t extra_len,
           MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct cn_http_request *request = cn_http_request_cast(ctx);
    const struct cn_http_upgrade upgrade = {request->conn, handle, end_upgrade};

    (void)mhd, (void)slot, (void)fd;
    cn_http_conn_leave_http(request->conn);
    cn_http_conn_enter(request->conn, CN_PHASE_UPGRADED);
    request->on_upgraded(request, (struct cn_str){extra, extra_len}, &upgrade);
}

bool
cn_http_answer_upgrade(struct cn_http_request *request, const struct cn_header *headers, uint32_t n,
                       cn_http_upgraded_fn on_upgraded)
{
    struct MHD_Response *response;

    if (!is_answerable(request))
        return false;
    response = MHD_create_response_for_upgrade(on_upgrade, request);
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    for (uint32_t i = 0; i < n; i++)
        add(response, headers[i].name.ptr, headers[i].value.ptr);
    add(response, "x-request-id", request->id);
    request->on_upgraded = on_upgraded;
    request->state = CN_REQUEST_ANSWERED;
    request->status = MHD_HTTP_SWITCHING_PROTOCOLS;
    if (MHD_queue_response(request->mhd, MHD_HTTP_SWITCHING_PROTOCOLS, response) != MHD_YES) {
        cn_log(CN_LOG_ERROR, "event=response_not_queued status=101");
        request->state = CN_REQUEST_BROKEN;
    }
    MHD_destroy_response(response);
    if (request->mhd_done || request->state == CN_REQUEST_BROKEN)
        return false;
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
    cn_metrics_add(cn_loop_metrics(request->listener->loop), CN_M_HTTP_REQUESTS, 1);
    return true;
}

void
cn_http_answer_bytes(struct cn_http_request *request, unsigned status, const char *content_type,
                     struct cn_str body)
{
    struct MHD_Response *response;

    if (!is_answerable(request))
        return;
    response = response_of(request, body, MHD_RESPMEM_MUST_COPY);
    tell_text(response, request, CN_STR("Content-Type"), content_type);
    queue(request, status, response, CN_REQUEST_ANSWERED);
}

void
cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                    const char *file_name, struct cn_str body)
{
    struct MHD_Response *response;
    char disposition[300];

    if (!is_answerable(request))
        return;
    response = response_of(request, body, MHD_RESPMEM_MUST_COPY);
    tell_text(response, request, CN_STR("Content-Type"), content_type);
    snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"", file_name);
    add(response, "Content-Disposition", disposition);
    queue(request, 200, response, CN_REQUEST_ANSWERED);
}

/* Adds an error's headers. `own_status` is the status that Continuo itself uses: in TorchServe's
 * dialect 503 also stands for errors that no repetition heals (a handler's bug, a closed sequence),
 * and those must not have a Retry-After. */
static void
add_error_headers(struct MHD_Response *response, const struct cn_http_request *request, int code,
                  unsigned own_status, uint32_t retry_after_s)
{
    tell_text(response, request, CN_STR("Continuo-Error"), cn_error_info(code)->word);
    if (code == CN_E_KEY_REQUIRED) /* RFC 9110: each 401 says how to authenticate */
        tell_text(response, request, CN_STR("WWW-Authenticate"), "Bearer");
    if (own_status == 429 || own_status == 503 || code == CN_E_CONTENDED)
        tell_number(response, request, CN_STR("Retry-After"), retry_after_s ? retry_after_s : 1);
}

void
cn_http_answer_json(struct cn_http_request *request, unsigned status, int code, struct cn_str body)
{
    struct MHD_Response *response;

    if (!is_answerable(request))
        return;
    response = response_of(request, body, MHD_RESPMEM_MUST_COPY);
    tell_text(response, request, CN_STR("Content-Type"), "application/json");
    if (code)
        add_error_headers(response, request, code, status, 0);
    queue(request, status, response, CN_REQUEST_ANSWERED);
}

/* Answers with TorchServe's error body. `status` is the handler's own choice; 0 stands for the
 * code's status. */
static void
answer_error(struct cn_http_request *request, int code, unsigned status, const char *message,
             uint32_t retry_after_s)
{
    const struct cn_server_config *config = request->listener->shared->config;
    const struct cn_error_info *info = cn_error_info(code);
    const bool refused = status >= 400 && status <= 599;
    const unsigned own_status = refused ? status : (unsigned)info->http_status;
    struct cn_error_words words = {own_status, info->type, message};
    struct MHD_Response *response;
    struct cn_buf body;

    if (!is_answerable(request))
        return;
    if (config->torchserve_errors)
        cn_torchserve_error(code, refused, request->match.args[0], request->match.args[1],
                            &request->arena, &words);
    cn_buf_init(&body, 0);
    if (!config->torchserve_errors || code != CN_E_TOO_LARGE || refused)
        cn_error_json_as(words.status, words.type, words.message, request->expected_step, &body);
    response = response_of(request, cn_buf_str(&body), MHD_RESPMEM_MUST_COPY);
    if (body.len)
        tell_text(response, request, CN_STR("Content-Type"), "application/json");
    cn_buf_fini(&body);
    add_error_headers(response, request, code, own_status, retry_after_s);
    queue(request, words.status, response, CN_REQUEST_ANSWERED);
}

void
cn_http_write_error(struct cn_http_request *request, int code, unsigned status,
                    struct cn_str message, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(code);
    const bool refused = status >= 400 && status <= 599;
    struct cn_error_words words = {refused ? status : (unsigned)info->http_status, info->type,
                                   cn_arena_str(&request->arena, message).ptr};

    if (request->listener->shared->config->torchserve_errors)
        cn_torchserve_error(code, refused, request->match.args[0], request->match.args[1],
                            &request->arena, &words);
    cn_buf_printf(out, "{\"code\":%u,\"type\":\"%s\",\"error\":\"%s\",\"message\":", words.status,
                  words.type, info->word);
    cn_v2_write_text(cn_utf8_is_valid(cn_str_from(words.message)) ? cn_str_from(words.message)
                                                                  : cn_str_from(info->word),
                     out);
    cn_buf_puts(out, "}");
}

void
cn_http_answer_error(struct cn_http_request *request, int code, const char *message,
                     uint32_t retry_after_s)
{
    const struct cn_route *route = request->match.route;
    const struct cn_str path = request->path;

    /* Clients of the v2 protocol read the member `error`. So they get that body from everything
     * that refuses the request, also before a route is found. */
    if (route && (route->flags & CN_ROUTE_TORCHSERVE)) {
        answer_error(request, code, 0, message, retry_after_s);
        return;
    }
    if (cn_str_eq(path, CN_STR("/v2")) || (path.len > 4 && memcmp(path.ptr, "/v2/", 4) == 0)) {
        cn_v2_http_error(request, code, message);
        return;
    }
    answer_error(request, code, 0, message, retry_after_s);
}

static void
log_dropped_header(const struct cn_answer_box *box, struct cn_str name)
{
    char shown[128];

    cn_log(CN_LOG_WARN, "event=handler_header_dropped job=%llu header=%s",
           (unsigned long long)box->answer.job_id,
           cn_log_quote(name.ptr, name.len, shown, sizeof(shown)));
}

/* Adds the handler's headers, except those that would break the response (a line break in a value)
 * or that only the server may send. The log has a line for each one that is dropped. */
static void
add_handler_headers(struct cn_http_request *request, struct MHD_Response *response,
                    const struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    bool has_type = answer->content_type.len > 0;
    uint32_t i;

    if (has_type && cn_http_header_is_valid(CN_STR("content-type"), answer->content_type))
        tell(response, request, CN_STR("Content-Type"),
             cn_arena_str(&request->arena, answer->content_type));
    else if (has_type)
        log_dropped_header(box, CN_STR("content-type"));
    for (i = 0; i < answer->n_headers; i++) {
        struct cn_str name = answer->headers[i].name, value = answer->headers[i].value;

        if (has_type && cn_str_eq_nocase(name, CN_STR("content-type")))
            continue;
        if (!cn_http_header_is_valid(name, value) || cn_header_is_ours(name)) {
            log_dropped_header(box, name);
            continue;
        }
        add(response, cn_arena_strndup(&request->arena, name.ptr, name.len),
            cn_arena_strndup(&request->arena, value.ptr, value.len));
    }
}

/* Returns the content type of a stream whose handler does not name one. It is always sent, because
 * clients and proxies would guess otherwise, and some of them collect a stream that they do not
 * take for text. The first piece decides: valid UTF-8 without NUL is text. The piece may end in the
 * middle of a character, so up to three bytes at its end may belong to a character that is not
 * complete. */
static const char *
stream_type(struct cn_str first)
{
    size_t len = first.len;

    if (len && memchr(first.ptr, '\0', len))
        return "application/octet-stream";
    for (size_t cut = 1; cut <= 3 && cut <= first.len && len == first.len; cut++)
        if ((unsigned char)first.ptr[first.len - cut] >= 0xc2)
            len = first.len - cut; /* where the last character begins */
    if (cn_utf8_is_valid(first) || (len < first.len && (unsigned char)first.ptr[len] <= 0xf4 &&
                                    cn_utf8_is_valid((struct cn_str){first.ptr, len})))
        return "text/plain; charset=utf-8";
    return "application/octet-stream";
}

static bool
has_content_type(const struct cn_answer *answer)
{
    return answer->content_type.len ||
           cn_header_find(answer->headers, answer->n_headers, CN_STR("content-type"));
}

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

/* Gives libmicrohttpd the next bytes of a stream. One call returns bytes of at most one piece, so
 * that each piece becomes a chunk of its own and no client waits for a chunk to fill up. A box that
 * was rewritten for its protocol (`remade`) counts as taken only when it is sent completely, and
 * then with the size that it had before: the scheduler's credit counts the handler's bytes. */
static ssize_t
read_stream(void *ctx, uint64_t position, char *out, size_t room)
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

/* Returns NULL, or a text that says why the handler's answer cannot be sent. */
static const char *
why_not(struct cn_http_request *request, const struct cn_answer_box *box, unsigned status)
{
    size_t room = request->listener->shared->config->connection_memory_bytes - request->head_bytes -
                  request->listener->shared->answer_room;
    size_t bytes = box->answer.content_type.len;
    uint32_t i;

    for (i = 0; i < box->answer.n_headers; i++)
        bytes += box->answer.headers[i].name.len + box->answer.headers[i].value.len + 4;
    if (bytes > room)
        return cn_arena_printf(
            &request->arena,
            "the handler's headers take %zu bytes, but only %zu are left (connection-memory)",
            bytes, room);
    if (status < 200 || status > 599)
        return cn_arena_printf(
            &request->arena,
            "the handler chose status %u, which cannot be sent; it must be from 200 to 599",
            status);
    return NULL;
}

/* The context of read_compressed(). It may live a moment longer than the request, but never longer
 * than the listener. */
struct compressed {
    struct cn_compressor *compressor;
    struct cn_http_listener *listener;
    char *own; /* the answer's bytes, freed with this; NULL: they belong to the request */
};

static ssize_t
read_compressed(void *ctx, uint64_t position, char *out, size_t room)
{
    struct compressed *compressed = ctx;
    size_t len = cn_compressor_read(compressed->compressor, out, room);

    (void)position;
    compressed->listener->went_on = true;
    return len ? (ssize_t)len : MHD_CONTENT_READER_END_OF_STREAM;
}

static void
free_compressed(void *ctx)
{
    struct compressed *compressed = ctx;

    cn_compressor_destroy(compressed->compressor);
    cn_free(compressed->own);
    cn_free(compressed);
}

/* Chooses the coding for an answer of `len` bytes. */
static enum cn_coding
coding_for(const struct cn_http_request *request, size_t len)
{
    uint64_t least = request->listener->shared->config->compress_bytes;

    if (!least || request->plain || len < least)
        return CN_CODING_IDENTITY;
    return cn_coding_choose(request->headers, request->n_headers);
}

/* Makes a response that is compressed while it is sent. `own` is freed with the response. Returns
 * NULL when there is not enough memory to compress. */
static struct MHD_Response *
compressed_response(struct cn_http_request *request, enum cn_coding coding, struct cn_str body,
                    char *own)
{
    struct cn_compressor *compressor = cn_compressor_create(coding, body);
    struct compressed *compressed;
    struct MHD_Response *response;

    if (!compressor)
        return NULL;
    request->answer_bytes = body.len; /* before it is compressed */
    compressed = cn_alloc(sizeof(*compressed));
    *compressed = (struct compressed){compressor, request->listener, own};
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, COMPRESSED_BLOCK_BYTES,
                                                 read_compressed, compressed, free_compressed);
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    add(response, "Content-Encoding", cn_coding_name(coding));
    add(response, "Vary", "Accept-Encoding");
    return response;
}

/* Makes the response for a complete answer. It is compressed if the client wants that and the
 * handler has not compressed it itself. */
static struct MHD_Response *
whole_answer(struct cn_http_request *request, const struct cn_answer *answer)
{
    enum cn_coding coding = coding_for(request, answer->body.len);
    struct MHD_Response *response = NULL;

    if (coding != CN_CODING_IDENTITY &&
        !cn_header_find(answer->headers, answer->n_headers, CN_STR("content-encoding")))
        response = compressed_response(request, coding, answer->body, NULL);
    return response ? response : response_of(request, answer->body, MHD_RESPMEM_PERSISTENT);
}

void
cn_http_answer_taken(struct cn_http_request *request, const char *content_type, struct cn_buf *body)
{
    struct MHD_Response *response = NULL;
    enum cn_coding coding;
    struct cn_str taken;

    if (!is_answerable(request)) {
        cn_buf_fini(body);
        return;
    }
    taken.ptr = cn_buf_take(body, &taken.len);
    coding = coding_for(request, taken.len);
    if (coding != CN_CODING_IDENTITY)
        response = compressed_response(request, coding, taken, (char *)(uintptr_t)taken.ptr);
    if (!response)
        response = response_of(request, taken, MHD_RESPMEM_MUST_FREE);
    tell_text(response, request, CN_STR("Content-Type"), content_type);
    queue(request, 200, response, CN_REQUEST_ANSWERED);
}

/* The page's own scripts and styles are files, so nothing inline is needed, and no other site may
 * show the page in a frame. Data URLs are small images. */
#define PAGE_POLICY                                                                                \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "              \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

void
cn_http_answer_page(struct cn_http_request *request, const char *content_type, struct cn_str body)
{
    enum cn_coding coding = cn_coding_choose(request->headers, request->n_headers);
    struct MHD_Response *response = NULL;

    if (!is_answerable(request))
        return;
    if (coding != CN_CODING_IDENTITY)
        response = compressed_response(request, coding, body, NULL);
    if (!response)
        response = response_of(request, body, MHD_RESPMEM_PERSISTENT);
    tell_text(response, request, CN_STR("Content-Type"), content_type);
    add(response, "Content-Security-Policy", PAGE_POLICY);
    add(response, "X-Content-Type-Options", "nosniff");
    add(response, "Referrer-Policy", "no-referrer");
    queue(request, 200, response, CN_REQUEST_ANSWERED);
}

/* Answers a job's request with its first piece: an error, a complete answer, or the beginning of a
 * stream. */
static void
begin_answer(struct cn_http_request *request, const struct cn_answer_box *box)
{
    unsigned status = box->answer.status ? box->answer.status : 200;
    struct MHD_Response *response;
    const char *why;

    if (box->answer.error_code) {
        answer_error(request, box->answer.error_code, box->answer.status,
                     cn_arena_strndup(&request->arena, box->answer.body.ptr, box->answer.body.len),
                     box->retry_after_s);
        return;
    }
    why = why_not(request, box, status);
    if (why) {
        cn_http_answer_error(request, CN_E_HANDLER_FAILED, why, 0);
        return;
    }
    if (request->last_piece_came) {
        response = whole_answer(request, &box->answer);
        add_handler_headers(request, response, box);
        queue(request, status, response, CN_REQUEST_ANSWERED);
        return;
    }
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream,
                                                 request, NULL);
    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    add_handler_headers(request, response, box);
    if (!has_content_type(&box->answer))
        tell_text(response, request, CN_STR("Content-Type"), stream_type(box->answer.body));
    queue(request, status, response, CN_REQUEST_STREAMING);
}

void
cn_http_answer_echo(struct cn_http_request *request, const struct cn_answer_box *box)
{
    if (box->traceparent.len)
        request->traceparent = cn_arena_str(&request->arena, box->traceparent).ptr;
    request->restarted = cn_answer_restarted(&box->answer);
    request->replayed = (box->answer.flags & CN_ANSWER_REPLAYED) && !box->answer.error_code;
    if (box->answer.error_code)
        request->expected_step = box->answer.step;
    else
        request->step = cn_answer_committed(&box->answer);
    if (!request->echo_name.len || !box->sequence_id.len)
        return;
    request->echo_name = cn_arena_str(&request->arena, request->echo_name); /* with a NUL */
    request->echo_value = cn_arena_str(&request->arena, box->sequence_id);
}

void
cn_http_answer_piece(struct cn_http_request *request, struct cn_answer_box *box)
{
    size_t len;

    if (request->mhd_done || request->state == CN_REQUEST_ANSWERED ||
        request->state == CN_REQUEST_BROKEN) {
        cn_answer_box_free(box);
        return;
    }
    _Static_assert(offsetof(struct cn_answer_box, msg.next) == 0, "a box is its link");
    box->msg.next = NULL; /* the scheduler is done with it: it links the pieces from here on */
    *request->boxes_end = box;
    request->boxes_end = (struct cn_answer_box **)&box->msg.next;
    request->last_piece_came = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    if (request->state == CN_REQUEST_STREAMING || request->state == CN_REQUEST_STARVED)
        wait_for_reader(request, box->answer.body.len);
    if (request->state == CN_REQUEST_STREAMING)
        return; /* read_stream() will be called and find it */
    if (request->state == CN_REQUEST_STARVED) {
        request->state = CN_REQUEST_STREAMING;
        cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
        cn_http_listener_resume(request);
        return;
    }
    len = box->answer.body.len;
    cn_http_answer_echo(request, box);
    begin_answer(request, box);
    if (!request->mhd_done && request->state == CN_REQUEST_STREAMING)
        wait_for_reader(request, len);
}
