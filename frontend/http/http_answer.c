/* frontend/http/http_answer.c - answers requests: with jobs' answers, in one piece or streamed, and
 * with the bodies of other endpoints. Owned by the loop thread.
 *
 * An answer's bytes are not copied: they are sent from the answer box, which the request owns until
 * its connection is done with it. An answer takes one of two ways:
 * - Complete. The first piece is also the last one. The answer has a Content-Length, or is
 *   compressed while it is sent.
 * - Streamed. The first piece is not the last one. The head says no length, and the pieces are sent
 *   as they come (transport/http_stream.c).
 */
#include "frontend/http/http_answer.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"
#include "frontend/intake/compress.h"
#include "frontend/intake/headers.h"
#include "frontend/intake/sequence_names.h"
#include "scheduler/queue/job.h"

#define DROPPED_EVERY_MS 1000

void
cn_http_answer_bytes(struct cn_http_request *request, unsigned status, const char *content_type,
                     struct cn_str body)
{
    if (!cn_http_is_answerable(request))
        return;
    cn_http_head_begin(request, status);
    cn_http_tell_text(request, CN_STR("Content-Type"), content_type);
    cn_http_head_send(request, body, true);
}

void
cn_http_answer_file(struct cn_http_request *request, const char *content_type,
                    const char *file_name, struct cn_str body)
{
    char disposition[300];

    if (!cn_http_is_answerable(request))
        return;
    cn_http_head_begin(request, 200);
    cn_http_tell_text(request, CN_STR("Content-Type"), content_type);
    snprintf(disposition, sizeof(disposition), "attachment; filename=\"%s\"", file_name);
    cn_http_tell_text(request, CN_STR("Content-Disposition"), disposition);
    cn_http_head_send(request, body, true);
}

void
cn_http_answer_json(struct cn_http_request *request, unsigned status, int code, struct cn_str body)
{
    if (!cn_http_is_answerable(request))
        return;
    cn_http_head_begin(request, status);
    cn_http_tell_text(request, CN_STR("Content-Type"), "application/json");
    if (code)
        cn_http_add_error_headers(request, code, status, 0);
    cn_http_head_send(request, body, true);
}

/* A handler that gives such a header gives it with every answer, so each loop writes a line at most
 * once a second, and in it the number of headers that had none. */
static void
log_dropped_header(const struct cn_answer_box *box, struct cn_str name)
{
    static _Thread_local uint64_t told_ms, untold;
    const uint64_t now = cn_now_ms();
    char shown[128];

    if (told_ms && now < told_ms + DROPPED_EVERY_MS) {
        untold++;
        return;
    }
    cn_log(CN_LOG_WARN, "event=handler_header_dropped job=%llu header=%s untold=%llu",
           (unsigned long long)box->answer.job_id,
           cn_log_quote(name.ptr, name.len, shown, sizeof(shown)), (unsigned long long)untold);
    told_ms = now;
    untold = 0;
}

/* Handlers of TorchServe give the id of their sequence with each answer. Nothing is lost if that
 * header is dropped, because the server sends the same id itself. */
static bool
is_own_sequence_id(const struct cn_answer_box *box, struct cn_str name, struct cn_str value)
{
    return cn_sequence_name_find(name) == CN_NAME_ID && cn_str_eq(value, box->sequence_id);
}

/* Adds the handler's headers, except those that would break the response (a line break in a value)
 * or that only the server may send. The log has a line for each one that is lost by that. */
static void
add_handler_headers(struct cn_http_request *request, const struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    bool has_type = answer->content_type.len > 0;
    uint32_t i;

    if (has_type && cn_http_header_is_valid(CN_STR("content-type"), answer->content_type))
        cn_http_tell(request, CN_STR("Content-Type"), answer->content_type);
    else if (has_type)
        log_dropped_header(box, CN_STR("content-type"));
    for (i = 0; i < answer->n_headers; i++) {
        struct cn_str name = answer->headers[i].name, value = answer->headers[i].value;

        if (has_type && cn_str_eq_nocase(name, CN_STR("content-type")))
            continue;
        if (!cn_http_header_is_valid(name, value) || cn_header_is_ours(name)) {
            if (!is_own_sequence_id(box, name, value))
                log_dropped_header(box, name);
            continue;
        }
        cn_http_tell(request, name, value);
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

/* Chooses the coding for an answer of `len` bytes. */
static enum cn_coding
coding_for(const struct cn_http_request *request, unsigned status, size_t len)
{
    uint64_t least = request->listener->shared->config->compress_bytes;

    if (!least || request->plain || len < least || cn_http_is_only_head(request, status))
        return CN_CODING_IDENTITY;
    return cn_coding_choose(request->headers, request->n_headers);
}

/* Lets the answer be compressed while it is sent, if the client wants that. Returns false if it is
 * to be sent as it is. */
static bool
begin_compression(struct cn_http_request *request, enum cn_coding coding, struct cn_str body)
{
    if (coding == CN_CODING_IDENTITY)
        return false;
    request->compressor = cn_compressor_create(coding, body);
    if (!request->compressor)
        return false;                 /* there is not enough memory for it */
    request->answer_bytes = body.len; /* before it is compressed */
    cn_http_tell_text(request, CN_STR("Content-Encoding"), cn_coding_name(coding));
    cn_http_tell_text(request, CN_STR("Vary"), "Accept-Encoding");
    return true;
}

/* Sends the head and the body, which must stay in place until the request is completed. */
static void
send_whole(struct cn_http_request *request, enum cn_coding coding, struct cn_str body)
{
    if (!begin_compression(request, coding, body)) {
        cn_http_head_send(request, body, false);
        return;
    }
    cn_http_head_send_open(request, CN_REQUEST_COMPRESSING);
    cn_http_wait_for_reader(request, body.len);
}

void
cn_http_answer_taken(struct cn_http_request *request, const char *content_type, struct cn_buf *body)
{
    struct cn_str taken;

    if (!cn_http_is_answerable(request)) {
        cn_buf_fini(body);
        return;
    }
    request->answer = cn_buf_take(body, &taken.len);
    taken.ptr = request->answer;
    cn_http_head_begin(request, 200);
    cn_http_tell_text(request, CN_STR("Content-Type"), content_type);
    send_whole(request, coding_for(request, 200, taken.len), taken);
}

bool
cn_http_answer_with_box(struct cn_http_request *request, const char *content_type,
                        struct cn_buf *body, struct cn_str last, struct cn_answer_box *box)
{
    struct cn_str taken;

    if (!cn_http_is_answerable(request) ||
        coding_for(request, 200, body->len + last.len) != CN_CODING_IDENTITY) {
        cn_buf_append_str(body, last);
        return false;
    }
    request->answer = cn_buf_take(body, &taken.len);
    taken.ptr = request->answer;
    box->msg.next = NULL; /* it is freed with the request */
    request->boxes = box;
    cn_http_head_begin(request, 200);
    cn_http_tell_text(request, CN_STR("Content-Type"), content_type);
    cn_http_head_send_two(request, taken, last);
    return true;
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

    if (!cn_http_is_answerable(request))
        return;
    if (cn_http_is_only_head(request, 200))
        coding = CN_CODING_IDENTITY;
    cn_http_head_begin(request, 200);
    cn_http_tell_text(request, CN_STR("Content-Type"), content_type);
    cn_http_tell_text(request, CN_STR("Content-Security-Policy"), PAGE_POLICY);
    cn_http_tell_text(request, CN_STR("X-Content-Type-Options"), "nosniff");
    cn_http_tell_text(request, CN_STR("Referrer-Policy"), "no-referrer");
    send_whole(request, coding, body);
}

static unsigned
status_of(const struct cn_answer_box *box)
{
    return box->answer.status ? box->answer.status : 200;
}

/* Begins the head of a stream. */
static void
begin_stream(struct cn_http_request *request, const struct cn_answer_box *first)
{
    cn_http_head_begin(request, status_of(first));
    add_handler_headers(request, first);
    if (!has_content_type(&first->answer))
        cn_http_tell_text(request, CN_STR("Content-Type"), stream_type(first->answer.body));
}

/* Answers with a complete answer. It is compressed if the client wants that and the handler has not
 * compressed it itself. */
static void
answer_whole(struct cn_http_request *request, const struct cn_answer_box *box, unsigned status)
{
    const struct cn_answer *answer = &box->answer;
    enum cn_coding coding = coding_for(request, status, answer->body.len);

    if (coding != CN_CODING_IDENTITY &&
        cn_header_find(answer->headers, answer->n_headers, CN_STR("content-encoding")))
        coding = CN_CODING_IDENTITY;
    cn_http_head_begin(request, status);
    add_handler_headers(request, box);
    send_whole(request, coding, answer->body);
}

/* Answers with the reason why the handler's answer cannot be sent. Nobody gets the rest of a stream
 * either, so its holder is told that it can end. Otherwise the handler would be held up. */
static void
refuse_answer(struct cn_http_request *request, const char *why)
{
    void (*on_gone)(struct cn_http_request *) = request->on_gone;

    cn_http_answer_error(request, CN_E_HANDLER_FAILED, why, 0);
    if (!request->last_piece_came && on_gone)
        on_gone(request);
}

/* Answers a job's request with its first piece: an error, a complete answer, or the beginning of a
 * stream. */
static void
begin_answer(struct cn_http_request *request, const struct cn_answer_box *box)
{
    unsigned status = status_of(box);
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
        refuse_answer(request, why);
        return;
    }
    if (request->last_piece_came) {
        answer_whole(request, box, status);
        return;
    }
    begin_stream(request, box);
    cn_http_head_send_open(request, CN_REQUEST_STREAMING);
    cn_http_wait_for_reader(request, box->answer.body.len);
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
    const char *why = why_not(request, first, status_of(first));

    cn_http_answer_echo(request, last);
    if (last->answer.error_code) {
        begin_answer(request, last);
    } else if (why) {
        cn_http_answer_error(request, CN_E_HANDLER_FAILED, why, 0);
    } else {
        begin_stream(request, first);
        cn_http_head_send_alone(request, bytes);
    }
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
    if (!request->conn || request->state == CN_REQUEST_ANSWERED ||
        request->state == CN_REQUEST_COMPRESSING) {
        cn_answer_box_free(box);
        return;
    }
    _Static_assert(offsetof(struct cn_answer_box, msg.next) == 0, "a box is its link");
    box->msg.next = NULL; /* the scheduler is done with it: it links the pieces from here on */
    *request->boxes_end = box;
    request->boxes_end = (struct cn_answer_box **)&box->msg.next;
    request->last_piece_came = (box->answer.flags & CN_ANSWER_FINAL) != 0;
    if (request->state == CN_REQUEST_STREAMING || request->state == CN_REQUEST_STARVED) {
        if (request->state == CN_REQUEST_STARVED)
            cn_http_conn_enter(request->conn, CN_PHASE_WRITE);
        request->state = CN_REQUEST_STREAMING;
        cn_http_wait_for_reader(request, box->answer.body.len);
        cn_http_conn_go_on(request->conn);
        return;
    }
    if (cn_http_is_only_head(request, status_of(request->boxes)) &&
        (box != request->boxes || !request->last_piece_came)) {
        take_for_head(request, box);
        return;
    }
    cn_http_answer_echo(request, box);
    begin_answer(request, box);
}
