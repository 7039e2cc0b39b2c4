/* frontend/http/transport/http_input.c - from the bytes of a connection to its requests. Owned by
 * the loop thread.
 *
 * Bytes are read into a buffer of the listener, which stays in the processor's cache, and the
 * parser looks at them there. A complete head is copied into the request's arena. What cannot be
 * used yet is copied to the connection's `in`: the beginning of a head, or what a client has sent
 * behind a request that is not answered. Nothing more is read then, so a connection holds at most
 * CN_HTTP_IN_BYTES besides its request. The bytes of a large body are read to where they stay.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "metrics/counters/metrics.h"

#define READS_PER_TURN 4      /* full ones, so that other connections get their turn */
#define TLS_READS_PER_TURN 32 /* one brings at most a record of 16 KiB */
#define REQUESTS_PER_TURN 8   /* that are answered at once: one read may bring hundreds of them */
#define DIRECT_BYTES 16384    /* the rest of a body that is at least as large is read directly */
#define VALUE_BYTES 64        /* what a header or parameter takes beside its text */

/* --- one request */

static bool
takes_bytes(const struct cn_http_conn *conn)
{
    return !conn->failed && (!conn->request || conn->request->state == CN_REQUEST_BODY);
}

static void
begin_request(struct cn_http_conn *conn, struct cn_str head)
{
    struct cn_http_request *request = cn_http_request_create(conn, head);
    struct cn_http_head parts;

    cn_http_head_split(&conn->parser, request->head, &request->arena, &parts);
    request->method_word = parts.method;
    request->method = cn_http_method_of(parts.method);
    request->path = parts.path;
    request->is_http_1_1 = parts.is_http_1_1;
    request->has_folded = parts.has_folded;
    request->headers = parts.headers;
    request->n_headers = parts.n_headers;
    request->query = parts.query;
    request->n_query = parts.n_query;
    request->head_bytes = head.len + (size_t)VALUE_BYTES * (parts.n_headers + parts.n_query);
    conn->listener->calls->begin(request);
    if (request->state == CN_REQUEST_BODY && request->framing.expects_continue &&
        request->is_http_1_1 && !cn_http_parser_is_between(&conn->parser))
        cn_http_out_send(conn, CN_STR("HTTP/1.1 100 Continue\r\n\r\n"), CN_STR(""), false,
                         CN_STR(""));
}

/* If the request is complete, gives it to its endpoint, and lets it wait if that has not answered
 * it. */
static void
end_request(struct cn_http_conn *conn)
{
    struct cn_http_request *request = conn->request;

    if (!request || request->state != CN_REQUEST_BODY || !cn_http_parser_is_between(&conn->parser))
        return;
    conn->listener->calls->end(request);
    if (request->state != CN_REQUEST_HANDLING)
        return;
    request->state = CN_REQUEST_PARKED;
    cn_http_conn_enter(conn, CN_PHASE_PARKED);
}

/* --- refusals */

static void
refuse_bytes(struct cn_http_conn *conn)
{
    char message[160];

    snprintf(message, sizeof(message), "the request has %s; the connection is closed",
             conn->parser.why);
    cn_log(CN_LOG_DEBUG, "event=request_refused fd=%d why=\"%s\"", conn->fd, conn->parser.why);
    cn_metrics_add(cn_loop_metrics(conn->listener->loop), CN_M_HTTP_MALFORMED, 1);
    if (conn->request)
        conn->listener->calls->refuse(conn->request, CN_E_BAD_REQUEST, message);
    else
        cn_http_out_refuse(conn, CN_E_BAD_REQUEST, 0, message);
}

/* How many bytes a head may have: --connection-memory, less what is kept for the answer's head. */
static size_t
head_room(const struct cn_http_conn *conn)
{
    const struct cn_http_shared *shared = conn->listener->shared;

    return shared->config->connection_memory_bytes - shared->answer_room;
}

/* Refuses a head that is too large for --connection-memory, before it is complete. */
static void
refuse_large_head(struct cn_http_conn *conn, struct cn_str head)
{
    const bool is_url = !head.len || !memchr(head.ptr, '\n', head.len);
    char message[160];

    snprintf(message, sizeof(message),
             "the %s more bytes than the server's connection-memory of %llu bytes can hold",
             is_url ? "URL has" : "URL and the headers have",
             (unsigned long long)conn->listener->shared->config->connection_memory_bytes);
    cn_http_out_refuse(conn, CN_E_HEADERS_TOO_LARGE, is_url ? 414 : 0, message);
}

/* --- bytes */

/* Gives bytes to the parser and to the request. Returns how many of them are done with. The parser
 * has taken the first `*parsed` bytes before, and afterwards that many of those that are left. */
static size_t
parse(struct cn_http_conn *conn, const char *bytes, size_t len, size_t *parsed)
{
    size_t from = 0, at = *parsed;

    while (at < len && takes_bytes(conn)) {
        enum cn_http_event event;
        const size_t n = cn_http_parser_next(&conn->parser, bytes + at, len - at, &event);

        if (event == CN_PARSED_BAD) {
            refuse_bytes(conn);
            *parsed = 0;
            return len;
        }
        if (event == CN_PARSED_DATA)
            conn->listener->calls->body(conn->request, bytes + at, n);
        at += n;
        if (event == CN_PARSED_HEAD)
            begin_request(conn, (struct cn_str){bytes + from, at - from});
        if (!cn_http_parser_is_in_head(&conn->parser))
            from = at;
        conn->has_more = at < len;
        end_request(conn);
    }
    *parsed = at - from;
    return from;
}

/* Keeps the bytes that cannot be used yet. */
static void
keep(struct cn_http_conn *conn, const char *bytes, size_t len)
{
    if (conn->failed || len == 0)
        return;
    if (cn_buf_append(&conn->in, bytes, len))
        conn->failed = true;
    if (conn->phase == CN_PHASE_IDLE)
        cn_http_conn_enter(conn, CN_PHASE_HEADERS);
}

/* Parses what is kept. */
static void
use_kept(struct cn_http_conn *conn)
{
    const size_t taken = parse(conn, conn->in.data, conn->in.len, &conn->in_parsed);

    if (taken == conn->in.len)
        cn_buf_fini(&conn->in);
    else
        cn_buf_consume(&conn->in, taken);
    if (conn->in.len > 0 && conn->phase == CN_PHASE_IDLE) /* the next head has begun */
        cn_http_conn_enter(conn, CN_PHASE_HEADERS);
}

/* Uses bytes that have just come. */
static void
use(struct cn_http_conn *conn, const char *bytes, size_t len)
{
    size_t taken = 0;

    if (conn->in.len == 0)
        taken = parse(conn, bytes, len, &conn->in_parsed);
    keep(conn, bytes + taken, len - taken);
    if (conn->in.len > conn->in_parsed)
        use_kept(conn);
    if (conn->in_parsed > head_room(conn) && !conn->failed)
        refuse_large_head(conn, cn_buf_str(&conn->in));
}

/* Reads the rest of a large body to where it stays. */
static void
took_directly(struct cn_http_conn *conn, size_t len)
{
    cn_http_parser_skip(&conn->parser, len);
    conn->listener->calls->took(conn->request, len);
    end_request(conn);
}

/* Reads once. Returns false if there is nothing more at present. */
static bool
read_more(struct cn_http_conn *conn)
{
    struct cn_http_request *request = conn->request;
    const bool is_direct =
        request && cn_http_parser_is_in_body(&conn->parser) && conn->parser.left >= DIRECT_BYTES;
    char *room = is_direct ? request->body + request->body_len : conn->listener->in;
    const size_t size = is_direct ? (size_t)conn->parser.left : CN_HTTP_IN_BYTES;
    const ssize_t n = cn_http_conn_recv(conn, room, size);

    if (n > 0) {
        /* After a short read, the kernel reports further bytes. With TLS, more may wait in the
         * session. */
        conn->is_readable = conn->tls || (size_t)n == size || conn->peer_closed;
        if (is_direct)
            took_directly(conn, (size_t)n);
        else
            use(conn, room, (size_t)n);
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    conn->is_readable = false;
    if (n == 0)
        conn->peer_closed = true;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
        conn->failed = true;
    return false;
}

void
cn_http_input_run(struct cn_http_conn *conn)
{
    const unsigned max = conn->tls ? TLS_READS_PER_TURN : READS_PER_TURN;
    unsigned n = 0, n_answered = 0;

    while (!conn->failed && conn->phase != CN_PHASE_UPGRADED) {
        if (conn->request && conn->request->state == CN_REQUEST_ANSWERED &&
            cn_http_out_is_empty(conn)) {
            cn_http_conn_answered(conn);
            n_answered++;
        } else if (!takes_bytes(conn)) {
            return;
        } else if (n_answered >= REQUESTS_PER_TURN) {
            cn_http_conn_go_on(conn);
            return;
        } else if (conn->in.len > conn->in_parsed) {
            use_kept(conn);
        } else if (!conn->is_readable) {
            return;
        } else if (n++ == max) {
            cn_http_conn_go_on(conn);
            return;
        } else if (!read_more(conn)) {
            return;
        }
    }
}
