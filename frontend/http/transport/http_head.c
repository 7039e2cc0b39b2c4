/* frontend/http/transport/http_head.c - the heads of answers, with the headers that all of them
 * have. Owned by the loop thread.
 *
 * A head is written into a buffer of the listener: cn_http_head_begin() writes its status line,
 * endpoints add headers, and then it gets the common ones and is sent. Between the first and the
 * last of these calls nothing else may write there, so they follow one another directly.
 *
 * TorchServe closes the connection after every status from 400 on. We do that only where the
 * connection cannot be trusted or used any further (malformed HTTP, a body that was not read) and
 * while draining: a client that is told "queue full, try again" should not have to open a new
 * connection. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/text/number.h"
#include "frontend/access/http_certificate.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/sequence_names.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "torchserve/metrics/metric_lines.h"

#define SMALL_BODY_BYTES 1024

/* --- parts of a head */

/* Most texts are constants, so this is inline: a head has some thirty of them. */
static inline void
put(struct cn_buf *out, struct cn_str text)
{
    char *room = cn_buf_reserve(out, text.len);

    if (!room || !text.len)
        return;
    memcpy(room, text.ptr, text.len);
    out->len += text.len;
}

static void
put_number(struct cn_buf *out, uint64_t value)
{
    char *room = cn_buf_reserve(out, CN_NUMBER_MAX);

    if (room)
        out->len = (size_t)(cn_put_uint(value, room) - out->data);
}

/* Adds a header whose value is known to be good. */
static void
put_header(struct cn_http_request *request, struct cn_str name, struct cn_str value)
{
    struct cn_buf *out = &request->listener->head;

    put(out, name);
    put(out, CN_STR(": "));
    put(out, value);
    put(out, CN_STR("\r\n"));
}

void
cn_http_tell(struct cn_http_request *request, struct cn_str name, struct cn_str value)
{
    if (cn_text_without_control(value.ptr, value.len) == value.len)
        put_header(request, name, value);
}

void
cn_http_tell_text(struct cn_http_request *request, struct cn_str name, const char *value)
{
    if (value)
        cn_http_tell(request, name, cn_str_from(value));
}

void
cn_http_tell_number(struct cn_http_request *request, struct cn_str name, uint64_t value)
{
    char text[CN_NUMBER_MAX], *end = cn_put_uint(value, text);

    if (value)
        put_header(request, name, (struct cn_str){text, (size_t)(end - text)});
}

void
cn_http_head_begin(struct cn_http_request *request, unsigned status)
{
    struct cn_buf *out = &request->listener->head;

    request->status = status;
    cn_buf_reset(out);
    if (status == 200) {
        put(out, CN_STR("HTTP/1.1 200 OK\r\n"));
        return;
    }
    put(out, CN_STR("HTTP/1.1 "));
    put_number(out, status);
    put(out, CN_STR(" "));
    put(out, cn_str_from(cn_http_reason(status)));
    put(out, CN_STR("\r\n"));
}

/* Adds the headers for scripts of other sites. TorchServe has them on every answer, too. */
static void
add_cors(struct cn_http_request *request)
{
    const struct cn_server_config *config = request->listener->shared->config;

    if (!config->cors_allowed_origin)
        return;
    cn_http_tell_text(request, CN_STR("Access-Control-Allow-Origin"), config->cors_allowed_origin);
    cn_http_tell_text(request, CN_STR("Access-Control-Allow-Methods"),
                      config->cors_allowed_methods);
    cn_http_tell_text(request, CN_STR("Access-Control-Allow-Headers"),
                      config->cors_allowed_headers);
    cn_http_tell_text(request, CN_STR("Access-Control-Expose-Headers"), CN_HTTP_EXPOSED_HEADERS);
    if (cn_http_allows_credentials(config))
        cn_http_tell_text(request, CN_STR("Access-Control-Allow-Credentials"), "true");
}

#define CACHE_CONTROL "no-cache; no-store, must-revalidate, private"
#define EXPIRES "Thu, 01 Jan 1970 00:00:00 UTC"

/* Says whether the connection ends with this answer. In TorchServe's dialect it ends after each
 * error, and an answer after which it stays open says so, as one to HTTP/1.0 must. */
static void
put_connection(struct cn_http_request *request, unsigned status)
{
    const bool exact = request->listener->shared->config->dialect == CN_DIALECT_TORCHSERVE;
    struct cn_buf *out = &request->listener->head;

    request->close |= request->listener->leaving || (exact && status >= 400);
    if (request->close)
        put(out, CN_STR("Connection: close\r\n"));
    else if (exact || !request->is_http_1_1)
        put(out, CN_STR("Connection: Keep-Alive\r\n"));
}

/* Adds what the request has collected about its sequence on the way. */
static void
put_sequence(struct cn_http_request *request)
{
    if (request->echo_value.len)
        cn_http_tell(request, request->echo_name, request->echo_value);
    if (request->echo_value.len && request->echo_short)
        cn_http_tell(request, CN_STR(CN_SHORT_SEQUENCE_HEADER), request->echo_value);
    cn_http_tell_text(request, CN_STR("traceparent"), request->traceparent);
    cn_http_tell_text(request, CN_STR("Continuo-Sequence-Restarted"), request->restarted);
    cn_http_tell_text(request, CN_STR("X-Amzn-SageMaker-New-Session-Id"), request->new_session);
    cn_http_tell_text(request, CN_STR("X-Amzn-SageMaker-Closed-Session-Id"),
                      request->closed_session);
    cn_http_tell_text(request, CN_STR("Continuo-Replayed"), request->replayed ? "true" : NULL);
    cn_http_tell_number(request, CN_STR("Continuo-Sequence-Step"), request->step);
    cn_http_tell_number(request, CN_STR("Continuo-Expected-Step"), request->expected_step);
}

static void
put_request_id(struct cn_http_request *request)
{
    put_header(request, CN_STR("x-request-id"),
               (struct cn_str){request->id, sizeof(request->id) - 1});
}

/* Adds the headers that do not depend on the body, and TorchServe's own. */
static void
put_common(struct cn_http_request *request)
{
    struct cn_buf *out = &request->listener->head;

    put_request_id(request);
    put(out,
        CN_STR("Pragma: no-cache\r\nCache-Control: " CACHE_CONTROL "\r\nExpires: " EXPIRES "\r\n"));
    cn_http_put_date(out);
    put_sequence(request);
    cn_http_tell_text(request, CN_STR("Inference-Header-Content-Length"), request->json_length);
    cn_http_tell_text(request, CN_STR("Allow"), request->allow);
    cn_http_tell_text(request, CN_STR("Location"), request->location);
    cn_http_tell_text(request, CN_STR("Accept-Encoding"), request->codings);
    add_cors(request);
    put_connection(request, request->status);
}

/* --- counts */

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

void
cn_http_wait_for_reader(struct cn_http_request *request, size_t bytes)
{
    request->unread.drop = drop_unread;
    cn_unread_add(request->listener->loop, &request->unread, bytes);
}

/* --- sending */

/* Ends the head with an empty line, and returns it. */
static struct cn_str
end_head(struct cn_http_request *request)
{
    struct cn_buf *out = &request->listener->head;

    put(out, CN_STR("\r\n"));
    if (out->failed)
        cn_panic(__FILE__, __LINE__, "not enough memory for the head of an answer");
    count(request, request->status);
    return cn_buf_str(out);
}

static void
put_length(struct cn_http_request *request, uint64_t bytes)
{
    struct cn_buf *out = &request->listener->head;

    if (request->status == 204)
        return; /* RFC 9110, 8.6 */
    put(out, CN_STR("Content-Length: "));
    put_number(out, bytes);
    put(out, CN_STR("\r\n"));
}

/* The answer is given. If it was sent completely, and the connection has nothing else to do, the
 * request is completed at once; otherwise the connection goes on at the end of the turn. An answer
 * that was given while its request was read is completed by http_input.c. */
static void
answered(struct cn_http_request *request, bool was_parked)
{
    struct cn_http_conn *conn = request->conn;

    request->state = CN_REQUEST_ANSWERED;
    request->on_gone = NULL; /* its holder, who has answered, need not know if the client leaves */
    if (!cn_http_out_is_empty(conn)) {
        cn_http_conn_enter(conn, CN_PHASE_WRITE);
        /* The body stays in memory as a whole until its last byte is sent. */
        cn_http_wait_for_reader(
            request, conn->out.kept.len +
                         (conn->out.body.len + conn->out.tail.len ? request->answer_bytes : 0));
        return;
    }
    if (!was_parked)
        return;
    if (request->held && !request->close && !request->on_upgraded && !conn->is_readable &&
        conn->in.len == 0)
        cn_http_conn_answered(conn);
    else
        cn_http_conn_go_on(conn);
}

/* Sends the head and the parts of the body. A small first part is copied behind the head, which is
 * cheaper than two parts are for the kernel. */
static void
send_answer(struct cn_http_request *request, struct cn_str body, bool copies_body,
            struct cn_str rest)
{
    const bool was_parked = request->state == CN_REQUEST_PARKED;
    struct cn_str head = end_head(request);

    if (body.len && body.len <= SMALL_BODY_BYTES) {
        put(&request->listener->head, body);
        head = cn_buf_str(&request->listener->head);
        body = CN_STR("");
    }
    cn_http_out_send(request->conn, head, body, copies_body, rest);
    answered(request, was_parked);
}

static void
send_body(struct cn_http_request *request, struct cn_str body, bool copies_body, struct cn_str rest)
{
    const bool is_only_head = cn_http_is_only_head(request, request->status);

    put_length(request, body.len + rest.len);
    put_common(request);
    request->answer_bytes = is_only_head ? 0 : body.len + rest.len;
    if (is_only_head)
        body = rest = CN_STR("");
    send_answer(request, body, copies_body, rest);
}

void
cn_http_head_send(struct cn_http_request *request, struct cn_str body, bool copies_body)
{
    send_body(request, body, copies_body, CN_STR(""));
}

void
cn_http_head_send_two(struct cn_http_request *request, struct cn_str body, struct cn_str rest)
{
    send_body(request, body, false, rest);
}

void
cn_http_head_send_alone(struct cn_http_request *request, uint64_t bytes)
{
    put_length(request, bytes);
    put_common(request);
    send_answer(request, CN_STR(""), false, CN_STR(""));
}

void
cn_http_head_send_upgrade(struct cn_http_request *request, const struct cn_header *headers,
                          uint32_t n)
{
    cn_http_head_begin(request, 101);
    put(&request->listener->head, CN_STR("Connection: Upgrade\r\n"));
    for (uint32_t i = 0; i < n; i++)
        cn_http_tell(request, headers[i].name, headers[i].value);
    put_request_id(request);
    cn_http_put_date(&request->listener->head);
    send_answer(request, CN_STR(""), false, CN_STR(""));
}

void
cn_http_head_send_open(struct cn_http_request *request, enum cn_http_state next)
{
    if (request->is_http_1_1)
        put(&request->listener->head, CN_STR("Transfer-Encoding: chunked\r\n"));
    else
        request->close = true;
    put_common(request);
    request->state = (uint8_t)next;
    cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
    cn_http_out_keep_head(request->conn, end_head(request));
}
