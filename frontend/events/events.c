/* frontend/events/events.c - the answers of predictions as server-sent events. On the loop of
 * the request.
 *
 * Each piece is rewritten in its box, so http_answer.c streams it like any other answer, and a slow
 * client holds up its handler as usual. Pieces are counted if they have bytes; a stored answer has
 * the same pieces as the first one had, so a piece keeps its number when the step is sent again.
 *
 * The data of an event is a sequence of lines of UTF-8. Bytes that are not UTF-8, and text with
 * carriage returns, which a reader would take for line ends, are sent as base64. A piece may end in
 * the middle of a character: its first bytes then wait for the next piece.
 */
#include "frontend/events/events.h"

#include <inttypes.h>
#include <string.h>

#include "core/memory/base64.h"
#include "core/memory/buf.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "frontend/http/http_answer.h"
#include "frontend/http/http_request.h"
#include "frontend/intake/headers.h"
#include "frontend/websocket/ws_messages.h"
#include "kserve/infer_answer.h"
#include "scheduler/queue/job.h"

#define NUMBER_MAX 999999999999999999u /* of steps and pieces */

/* --- what the client asks for */

int
cn_event_id_read(struct cn_str value, struct cn_event_id *out, struct cn_error *err)
{
    const char *dash = value.len ? memchr(value.ptr, '-', value.len) : NULL;
    const struct cn_str step = {value.ptr, dash ? (size_t)(dash - value.ptr) : value.len};
    const struct cn_str rest = {dash ? dash + 1 : NULL, dash ? value.len - step.len - 1 : 0};

    *out = (struct cn_event_id){.given = true, .is_end = cn_str_eq(rest, CN_STR("end"))};
    if (dash && cn_read_uint(step, NUMBER_MAX, &out->step) &&
        (out->is_end || cn_read_uint(rest, NUMBER_MAX, &out->piece)))
        return 0;
    return cn_fail(
        err, CN_E_BAD_REQUEST,
        "Last-Event-ID must be the id of an event, such as 7-2 or 7-end, and not \"%.*s\"",
        (int)cn_utf8_cut(value, 60), value.ptr);
}

int
cn_events_begin(struct cn_http_request *request, struct cn_events *events, struct cn_error *err)
{
    const struct cn_header *accept =
        cn_header_find(request->headers, request->n_headers, CN_STR("Accept"));
    const struct cn_header *last =
        cn_header_find(request->headers, request->n_headers, CN_STR("Last-Event-ID"));

    *events = (struct cn_events){.request = request};
    events->wanted = accept && cn_http_accepts(accept->value, CN_STR("text/event-stream"));
    if (!events->wanted || !last || last->value.len == 0)
        return 0;
    return cn_event_id_read(last->value, &events->last, err);
}

int
cn_events_check(const struct cn_events *events, bool is_stateful, const struct cn_row *row,
                struct cn_error *err)
{
    const uint64_t step = events->last.step;

    if (!events->last.given || !is_stateful)
        return 0;
    if ((row->flags & CN_ROW_NUMBERED) && row->step != step)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Last-Event-ID names an event of step %" PRIu64
                       ", but the request is step %" PRIu64,
                       step, row->step);
    if ((row->flags & CN_ROW_NUMBERED) || row->idempotency_key.len)
        return 0;
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the request has Last-Event-ID, but neither the Idempotency-Key nor the number "
                   "(ts-request-sequence-step) that it had before, so it would be another step");
}

/* --- events */

static void
put_id(const struct cn_events *events, bool is_end, struct cn_buf *out)
{
    if (is_end)
        cn_buf_printf(out, "id: %" PRIu64 "-end\n", events->step);
    else
        cn_buf_printf(out, "id: %" PRIu64 "-%" PRIu64 "\n", events->step, events->pieces);
}

/* Writes text as lines of data. A line ends with a line feed, or, if `cr_ends`, also with a
 * carriage return. */
static void
put_lines(struct cn_str text, bool cr_ends, struct cn_buf *out)
{
    size_t begun = 0;

    for (size_t i = 0; i <= text.len; i++) {
        if (i < text.len && text.ptr[i] != '\n' && !(cr_ends && text.ptr[i] == '\r'))
            continue;
        cn_buf_puts(out, "data: ");
        cn_buf_append(out, text.ptr + begun, i - begun);
        cn_buf_puts(out, "\n");
        begun = i + 1;
    }
    cn_buf_puts(out, "\n");
}

static void
put_base64(struct cn_str bytes, struct cn_buf *out)
{
    cn_buf_puts(out, "event: base64\ndata: ");
    cn_base64_put(bytes, out);
    cn_buf_puts(out, "\n\n");
}

/* How many bytes at the end of the text are the beginning of a character. */
static size_t
cut_at_end(struct cn_str text)
{
    for (size_t n = 1; n <= CN_EVENTS_CUT_MAX && n <= text.len; n++) {
        const unsigned char first = (unsigned char)text.ptr[text.len - n];

        if (first >= 0xc2 && first <= 0xf4)
            return n < (first >= 0xf0 ? 4u : first >= 0xe0 ? 3u : 2u) ? n : 0;
        if (first < 0x80 || first >= 0xc0)
            return 0;
    }
    return 0;
}

static bool
is_text(const struct cn_events *events, struct cn_str text)
{
    if (events->body == CN_EVENT_BYTES || !cn_utf8_is_valid(text))
        return false;
    if (events->body != CN_EVENT_JSON && text.len && memchr(text.ptr, '\r', text.len))
        return false;
    return events->body != CN_EVENT_OPEN || !text.len || !memchr(text.ptr, '\0', text.len);
}

/* Has the client this piece from an earlier answer? */
static bool
is_seen(const struct cn_events *events)
{
    return events->last.given && !events->begins_anew && events->pieces <= events->last.piece;
}

/* Writes the event of one piece, if there is anything to write. `is_last`: no piece follows, so a
 * character that is not complete will never be. */
static void
put_piece(struct cn_events *events, struct cn_str piece, bool is_last, struct cn_buf *out)
{
    struct cn_buf joined;
    struct cn_str text;
    size_t n_cut;
    bool fits;

    if (piece.len == 0 && !(is_last && events->n_cut))
        return;
    events->pieces++; /* a last event for the bytes that were left has a number of its own, too */
    cn_buf_init(&joined, 0);
    if (events->n_cut) {
        cn_buf_append(&joined, events->cut, events->n_cut);
        cn_buf_append_str(&joined, piece);
        piece = cn_buf_str(&joined);
        out->failed |= joined.failed;
    }
    n_cut = is_last || events->body == CN_EVENT_BYTES ? 0 : cut_at_end(piece);
    text = (struct cn_str){piece.ptr, piece.len - n_cut};
    fits = is_text(events, text);
    if (!fits) {
        text = piece;
        n_cut = 0;
    }
    if (text.len && !is_seen(events)) {
        put_id(events, false, out);
        if (fits)
            put_lines(text, events->body == CN_EVENT_JSON, out);
        else
            put_base64(text, out);
    }
    if (n_cut)
        memcpy(events->cut, piece.ptr + piece.len - n_cut, n_cut);
    events->n_cut = (uint32_t)n_cut;
    cn_buf_fini(&joined);
}

static void
put_end(const struct cn_events *events, const struct cn_answer *answer, struct cn_buf *out)
{
    put_id(events, true, out);
    cn_buf_printf(out, "event: end\ndata: {\"step\":%" PRIu64 ",\"pieces\":%" PRIu64, events->step,
                  events->pieces);
    if (events->type.len) {
        cn_buf_puts(out, ",\"content_type\":");
        cn_v2_write_text(events->type, out);
    }
    if (answer->flags & CN_ANSWER_REPLAYED)
        cn_buf_puts(out, ",\"replayed\":true");
    if (answer->flags & CN_ANSWER_ENDED)
        cn_buf_puts(out, ",\"ended\":true");
    cn_buf_puts(out, "}\n\n");
}

static void
put_error(const struct cn_events *events, const struct cn_answer_box *box, struct cn_buf *out)
{
    struct cn_buf body;

    cn_buf_init(&body, 0);
    cn_http_write_error(events->request, box->answer.error_code, box->answer.status,
                        box->answer.body, &body);
    cn_buf_puts(out, "event: error\n");
    put_lines(cn_buf_str(&body), true, out);
    out->failed |= body.failed;
    cn_buf_fini(&body);
}

/* --- answers */

static const struct cn_header *
find_header(const struct cn_answer *answer, const char *name)
{
    return cn_header_find(answer->headers, answer->n_headers, cn_str_from(name));
}

static enum cn_event_body
body_of(struct cn_str type)
{
    switch (cn_ws_body_of(type)) {
    case CN_WS_BODY_OPEN:
        return CN_EVENT_OPEN;
    case CN_WS_BODY_TEXT:
        return CN_EVENT_TEXT;
    case CN_WS_BODY_JSON:
        return CN_EVENT_JSON;
    default:
        return CN_EVENT_BYTES;
    }
}

/* Takes the handler's Content-Encoding out of the head: the body that it names becomes base64. */
static void
drop_coding(struct cn_events *events, struct cn_answer *answer)
{
    uint32_t n = 0;

    if (!find_header(answer, "content-encoding"))
        return;
    events->body = CN_EVENT_BYTES;
    for (uint32_t i = 0; i < answer->n_headers; i++)
        if (!cn_str_eq_nocase(answer->headers[i].name, CN_STR("content-encoding")))
            answer->headers[n++] = answer->headers[i];
    answer->n_headers = n;
}

/* Looks at the head of the answer. Returns false if the client cannot get the rest of this one. */
static bool
begin(struct cn_events *events, struct cn_answer_box *box, struct cn_buf *out, struct cn_error *err)
{
    struct cn_answer *answer = &box->answer;
    const struct cn_header *type = find_header(answer, "content-type");
    const struct cn_event_id *last = &events->last;

    events->begun = true;
    events->type =
        cn_arena_str(&events->request->arena, answer->content_type.len ? answer->content_type
                                              : type                   ? type->value
                                                                       : CN_STR(""));
    events->body = body_of(events->type);
    events->is_own = cn_http_accepts(events->type, CN_STR("text/event-stream"));
    events->request->plain = true;
    if (!events->is_own)
        drop_coding(events, answer);
    if (!last->given)
        return true;
    if (!(answer->flags & CN_ANSWER_REPLAYED)) {
        events->begins_anew = true;
        cn_buf_puts(out, "event: restart\ndata: {\"message\":\"the answer of the broken connection "
                         "was not stored, so the request is done again; drop its pieces\"}\n\n");
        return true;
    }
    if (answer->step == last->step)
        return true;
    cn_fail(err, CN_E_BAD_REQUEST,
            "Last-Event-ID names an event of step %" PRIu64 ", but this request was step %" PRIu64
            " of its sequence",
            last->step, answer->step);
    return false;
}

static struct cn_answer_box *
fail(struct cn_answer_box *box, const struct cn_error *err)
{
    box->answer.flags |= CN_ANSWER_FINAL;
    box->answer.error_code = err->code;
    box->answer.status = 0;
    box->answer.step = 0;
    return cn_answer_box_remake(box, CN_STR(""), cn_str_from(err->message));
}

static struct cn_answer_box *
remake(struct cn_answer_box *box, const struct cn_buf *text)
{
    struct cn_error err;

    if (text->failed) {
        cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the answer as events");
        return fail(box, &err);
    }
    return cn_answer_box_remake(box, CN_STR(CN_EVENTS_TYPE), cn_buf_str(text));
}

struct cn_answer_box *
cn_events_write(struct cn_events *events, struct cn_answer_box *box)
{
    struct cn_answer *answer = &box->answer;
    const bool is_final = answer->flags & CN_ANSWER_FINAL;
    struct cn_error err;
    struct cn_buf text;

    if (!events->wanted || events->is_own || (answer->error_code && !events->begun))
        return box;
    cn_buf_init(&text, 0);
    if (!events->begun && !begin(events, box, &text, &err)) {
        cn_buf_fini(&text);
        return fail(box, &err);
    }
    if (events->is_own) {
        cn_buf_fini(&text);
        return box;
    }
    if (answer->error_code) {
        put_error(events, box, &text);
        answer->error_code = 0;
        answer->status = 0;
    } else {
        events->step = answer->step ? answer->step : events->step;
        put_piece(events, answer->body, is_final, &text);
        if (is_final)
            put_end(events, answer, &text);
    }
    box = remake(box, &text);
    cn_buf_fini(&text);
    return box;
}
