/* frontend/http/http_answer.c - answers requests: with jobs' answers, in one piece or streamed, and
 * with the bodies of other endpoints. Owned by the loop thread.
 *
 * Only this file and those of the folder library use libmicrohttpd. An answer's bytes are not
 * copied: the response points into the answer box, and the request owns the box until libmicrohttpd
 * is done with both.
 *
 * An answer takes one of two ways:
 * - Complete. The first piece is also the last one. cn_http_queue() hands a response with a known
 *   length to libmicrohttpd, and the request is ANSWERED.
 * - Streamed. The first piece is not the last one. cn_http_queue() hands over a response without a
 *   length, and libmicrohttpd takes the pieces with cn_http_read_stream() (library/http_stream.c).
 *
 * A status cannot be changed once the head of a response is out. An error after the first piece of
 * a stream can therefore only cut the connection before the last chunk, which clients see as an
 * incomplete body.
 */
#include "frontend/http/http_answer.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "frontend/http/library/http_response_priv.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/headers.h"
#include "scheduler/queue/job.h"

#define COMPRESSED_BLOCK_BYTES 16384
#define STREAM_BLOCK_BYTES 4096 /* only for HTTP/1.0 clients, which get no chunks */

void
cn_http_answer_bytes(struct cn_http_request *request, unsigned status, const char *content_type,
                     struct cn_str body)
{
    struct MHD_Response *response;

    if (!cn_http_is_answerable(request))
        return;
    response = cn_http_response_of(request, body, MHD_RESPMEM_MUST_COPY);
    cn_http_tell_text(response, request, CN_STR("Content-Type"), content_type);
    cn_http_queue(request, status, response, CN_REQUEST_ANSWERED);
}

void
cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                    const char *file_name, struct cn_str body)
{
    struct MHD_Response *response;
    char disposition[300];

    if (!cn_http_is_answerable(request))
        return;
    response = cn_http_response_of(request, body, MHD_RESPMEM_MUST_COPY);
    cn_http_tell_text(response, request, CN_STR("Content-Type"), content_type);
    snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"", file_name);
    cn_http_add(response, "Content-Disposition", disposition);
    cn_http_queue(request, 200, response, CN_REQUEST_ANSWERED);
}

void
cn_http_answer_json(struct cn_http_request *request, unsigned status, int code, struct cn_str body)
{
    struct MHD_Response *response;

    if (!cn_http_is_answerable(request))
        return;
    response = cn_http_response_of(request, body, MHD_RESPMEM_MUST_COPY);
    cn_http_tell_text(response, request, CN_STR("Content-Type"), "application/json");
    if (code)
        cn_http_add_error_headers(response, request, code, status, 0);
    cn_http_queue(request, status, response, CN_REQUEST_ANSWERED);
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
        cn_http_tell(response, request, CN_STR("Content-Type"),
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
        cn_http_add(response, cn_arena_strndup(&request->arena, name.ptr, name.len),
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

/* Does the answer end with its head? If libmicrohttpd 0.9.75 does not know the length of the body,
 * it sends a last chunk behind such a head all the same, and the client, or a proxy, takes that for
 * the beginning of the next answer. So these answers are neither compressed nor streamed. */
static bool
is_only_head(const struct cn_http_request *request, unsigned status)
{
    return request->method == CN_HTTP_HEAD || status == 204 || status == 304;
}

/* Chooses the coding for an answer of `len` bytes. */
static enum cn_coding
coding_for(const struct cn_http_request *request, unsigned status, size_t len)
{
    uint64_t least = request->listener->shared->config->compress_bytes;

    if (!least || request->plain || len < least || is_only_head(request, status))
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
    cn_http_add(response, "Content-Encoding", cn_coding_name(coding));
    cn_http_add(response, "Vary", "Accept-Encoding");
    return response;
}

/* Makes the response for a complete answer. It is compressed if the client wants that and the
 * handler has not compressed it itself. */
static struct MHD_Response *
whole_answer(struct cn_http_request *request, const struct cn_answer *answer, unsigned status)
{
    enum cn_coding coding = coding_for(request, status, answer->body.len);
    struct MHD_Response *response = NULL;

    if (coding != CN_CODING_IDENTITY &&
        !cn_header_find(answer->headers, answer->n_headers, CN_STR("content-encoding")))
        response = compressed_response(request, coding, answer->body, NULL);
    return response ? response : cn_http_response_of(request, answer->body, MHD_RESPMEM_PERSISTENT);
}

void
cn_http_answer_taken(struct cn_http_request *request, const char *content_type, struct cn_buf *body)
{
    struct MHD_Response *response = NULL;
    enum cn_coding coding;
    struct cn_str taken;

    if (!cn_http_is_answerable(request)) {
        cn_buf_fini(body);
        return;
    }
    taken.ptr = cn_buf_take(body, &taken.len);
    coding = coding_for(request, 200, taken.len);
    if (coding != CN_CODING_IDENTITY)
        response = compressed_response(request, coding, taken, (char *)(uintptr_t)taken.ptr);
    if (!response)
        response = cn_http_response_of(request, taken, MHD_RESPMEM_MUST_FREE);
    cn_http_tell_text(response, request, CN_STR("Content-Type"), content_type);
    cn_http_queue(request, 200, response, CN_REQUEST_ANSWERED);
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

    if (!cn_http_is_answerable(request))
        return;
    if (coding != CN_CODING_IDENTITY && !is_only_head(request, 200))
        response = compressed_response(request, coding, body, NULL);
    if (!response)
        response = cn_http_response_of(request, body, MHD_RESPMEM_PERSISTENT);
    cn_http_tell_text(response, request, CN_STR("Content-Type"), content_type);
    cn_http_add(response, "Content-Security-Policy", PAGE_POLICY);
    cn_http_add(response, "X-Content-Type-Options", "nosniff");
    cn_http_add(response, "Referrer-Policy", "no-referrer");
    cn_http_queue(request, 200, response, CN_REQUEST_ANSWERED);
}

static unsigned
status_of(const struct cn_answer_box *box)
{
    return box->answer.status ? box->answer.status : 200;
}

/* Makes a response whose body cn_http_read_stream() gives. */
static struct MHD_Response *
streamed_response(struct cn_http_request *request, uint64_t bytes,
                  const struct cn_answer_box *first)
{
    struct MHD_Response *response = MHD_create_response_from_callback(
        bytes, STREAM_BLOCK_BYTES, cn_http_read_stream, request, NULL);

    if (!response)
        cn_panic(__FILE__, __LINE__, "not enough memory for a response");
    add_handler_headers(request, response, first);
    if (!has_content_type(&first->answer))
        cn_http_tell_text(response, request, CN_STR("Content-Type"),
                          stream_type(first->answer.body));
    return response;
}

/* Answers a job's request with its first piece: an error, a complete answer, or the beginning of a
 * stream. */
static void
begin_answer(struct cn_http_request *request, const struct cn_answer_box *box)
{
    unsigned status = status_of(box);
    struct MHD_Response *response;
    const char *why;

    if (box->answer.error_code) {
        cn_http_answer_error_as(
            request, box->answer.error_code, box->answer.status,
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
        response = whole_answer(request, &box->answer, status);
        add_handler_headers(request, response, box);
        cn_http_queue(request, status, response, CN_REQUEST_ANSWERED);
        return;
    }
    cn_http_queue(request, status, streamed_response(request, MHD_SIZE_UNKNOWN, box),
                  CN_REQUEST_STREAMING);
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

/* Answers with the head of a stream whose last piece has come. */
static void
answer_with_head(struct cn_http_request *request, uint64_t bytes, const struct cn_answer_box *last)
{
    const struct cn_answer_box *first = request->boxes;
    const unsigned status = status_of(first);
    const char *why = why_not(request, first, status);

    cn_http_answer_echo(request, last);
    if (last->answer.error_code)
        begin_answer(request, last);
    else if (why)
        cn_http_answer_error(request, CN_E_HANDLER_FAILED, why, 0);
    else
        cn_http_queue(request, status, streamed_response(request, bytes, first),
                      CN_REQUEST_ANSWERED);
}

/* Takes a piece of a stream whose answer is only a head. It is sent when the last piece has come,
 * so it says how the step has ended. The bytes are only counted, for Content-Length. */
static void
take_for_head(struct cn_http_request *request, struct cn_answer_box *box)
{
    struct cn_answer_box *first = request->boxes;
    const uint64_t bytes = request->answer_bytes + box->answer.body.len;

    if (request->last_piece_came) {
        request->answer_bytes = 0;
        answer_with_head(request, bytes, box);
        return;
    }
    request->answer_bytes = bytes;
    if (request->on_taken)
        request->on_taken(request, box->remade ? box->made_of_bytes : box->answer.body.len);
    if (box == first)
        return;
    first->msg.next = NULL;
    request->boxes_end = (struct cn_answer_box **)&first->msg.next;
    cn_answer_box_free(box);
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
        cn_http_wait_for_reader(request, box->answer.body.len);
    if (request->state == CN_REQUEST_STREAMING)
        return; /* cn_http_read_stream() will be called and find it */
    if (request->state == CN_REQUEST_STARVED) {
        request->state = CN_REQUEST_STREAMING;
        cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
        cn_http_listener_resume(request);
        return;
    }
    if (is_only_head(request, status_of(request->boxes)) &&
        (box != request->boxes || !request->last_piece_came)) {
        take_for_head(request, box);
        return;
    }
    len = box->answer.body.len;
    cn_http_answer_echo(request, box);
    begin_answer(request, box);
    if (!request->mhd_done && request->state == CN_REQUEST_STREAMING)
        cn_http_wait_for_reader(request, len);
}
