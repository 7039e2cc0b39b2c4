/* frontend/websocket/ws_messages.c - the JSON messages of streams. Any thread, no state.
 *
 * The form of a stream, which the handshake has agreed on, and the kind of a message, text or
 * binary, decide how it is read:
 *   plain   text: the body of a step, text/plain     binary: the body, application/octet-stream
 *   json    text: an object, see below               binary: as in the plain form
 *   binary  text: an object, such as a ping          binary: a head and tensors (ws_binary.c)
 *
 * An object says its type and at most one body, in any order of the members:
 *   {"type": "step", "data": {"x": [1, 2]}}                      the body is the text {"x": [1, 2]}
 *   {"type": "step", "text": "hello", "content_type": "text/x"}  the escapes are decoded
 *   {"type": "step", "base64": "AAEC", "end": true}
 *   {"type": "answer", "step": 3, "final": true, "data": 4}      what the server sends
 *
 * Members that this version does not know are skipped, so that a newer client can talk to it.
 * "data" is never parsed into a tree: its text is the body of the step, so a long number keeps all
 * of its digits. */
#include "frontend/websocket/ws_messages.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "core/memory/base64.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "frontend/websocket/ws_binary.h"
#include "frontend/websocket/ws_json.h"
#include "kserve/infer_answer.h"
#include "kserve/plain.h"

#define COUNT_MAX 999999999999999999u /* of steps and credit */
#define JSON_TYPE CN_STR("application/json")
#define TEXT_TYPE CN_STR("text/plain")
#define BYTES_TYPE CN_STR("application/octet-stream")

/* --- reading */

static int
bad_member(const char *name, const char *what, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, "the member %s of the message must be %s", name, what);
}

/* Decodes a string. Its bytes stay in the message if there is nothing to decode. */
static bool
read_string(struct cn_str value, struct cn_arena *arena, struct cn_str *out)
{
    json_t *text;

    if (value.len < 2 || value.ptr[0] != '"')
        return false;
    *out = (struct cn_str){value.ptr + 1, value.len - 2};
    if (!memchr(out->ptr, '\\', out->len))
        return true;
    text = json_loadb(value.ptr, value.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!json_is_string(text)) {
        json_decref(text);
        return false;
    }
    *out = cn_arena_str(arena, (struct cn_str){json_string_value(text), json_string_length(text)});
    json_decref(text);
    return true;
}

static bool
read_flag(struct cn_str value, bool *out)
{
    *out = cn_str_eq(value, CN_STR("true"));
    return *out || cn_str_eq(value, CN_STR("false"));
}

static bool
read_count(struct cn_str value, uint64_t *out)
{
    return cn_read_uint(value, COUNT_MAX, out) && *out > 0;
}

/* A content_type of the client counts whether it stands before or behind the body: `type` is taken
 * only while there is none, and a member that comes later overwrites it. */
static int
take_body(struct cn_ws_request *out, struct cn_str body, struct cn_str type, struct cn_error *err)
{
    if (out->has_body)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a step has only one of the members data, text and base64");
    out->has_body = true;
    out->body = body;
    if (out->content_type.len == 0)
        out->content_type = type;
    return 0;
}

static int
read_member(struct cn_str name, struct cn_str value, struct cn_arena *arena,
            struct cn_ws_request *out, struct cn_error *err)
{
    struct cn_str text;

    if (cn_str_eq(name, CN_STR("data")))
        return take_body(out, value, JSON_TYPE, err);
    if (cn_str_eq(name, CN_STR("text")))
        return read_string(value, arena, &text) ? take_body(out, text, TEXT_TYPE, err)
                                                : bad_member("text", "a string", err);
    if (cn_str_eq(name, CN_STR("base64")))
        return read_string(value, arena, &text) && cn_base64_get(text, arena, &text)
                   ? take_body(out, text, BYTES_TYPE, err)
                   : bad_member("base64", "a string of base64 with padding", err);
    if (cn_str_eq(name, CN_STR("content_type")))
        return read_string(value, arena, &out->content_type)
                   ? 0
                   : bad_member("content_type", "a string", err);
    if (cn_str_eq(name, CN_STR("start")))
        return read_flag(value, &out->start) ? 0 : bad_member("start", "true or false", err);
    if (cn_str_eq(name, CN_STR("end")))
        return read_flag(value, &out->end) ? 0 : bad_member("end", "true or false", err);
    if (cn_str_eq(name, CN_STR("step"))) {
        out->has_step = true;
        return read_count(value, &out->step) ? 0 : bad_member("step", "a number from 1 on", err);
    }
    if (cn_str_eq(name, CN_STR("traceparent"))) {
        out->has_traceparent = true;
        return read_string(value, arena, &out->traceparent)
                   ? 0
                   : bad_member("traceparent", "a string", err);
    }
    if (cn_str_eq(name, CN_STR("tracestate")))
        return read_string(value, arena, &out->tracestate)
                   ? 0
                   : bad_member("tracestate", "a string", err);
    if (cn_str_eq(name, CN_STR("credit")))
        return read_count(value, &out->credit) ? 0
                                               : bad_member("credit", "a number from 1 on", err);
    return 0;
}

static int
read_type(struct cn_str type, struct cn_ws_request *out, struct cn_error *err)
{
    static const struct {
        const char *word;
        enum cn_ws_kind kind;
    } types[] = {{"step", CN_WS_STEP},
                 {"start", CN_WS_START},
                 {"end", CN_WS_END},
                 {"credit", CN_WS_CREDIT},
                 {"ping", CN_WS_PING}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (cn_str_eq(type, cn_str_from(types[i].word))) {
            out->kind = types[i].kind;
            return 0;
        }
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "the type \"%.*s\" of the message is unknown; it must be step, start, end, "
                   "credit or ping",
                   (int)cn_utf8_cut(type, 60), type.ptr);
}

static int
read_json(struct cn_str message, struct cn_arena *arena, struct cn_ws_request *out,
          struct cn_error *err)
{
    struct cn_str name, value, type = {NULL, 0};
    struct cn_ws_json json;
    int rc = 0;

    cn_ws_json_begin(&json, message);
    while (!rc && cn_ws_json_next(&json, &name, &value)) {
        if (!cn_str_eq(name, CN_STR("type")))
            rc = read_member(name, value, arena, out, err);
        else if (!read_string(value, arena, &type))
            rc = bad_member("type", "a string", err);
    }
    if (rc)
        return rc;
    if (json.failed)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a text message must be a JSON object with the member type, such as "
                       "{\"type\": \"step\", \"data\": 4}");
    if (!type.ptr)
        return cn_fail(err, CN_E_BAD_REQUEST, "the message has no member type");
    if ((rc = read_type(type, out, err)))
        return rc;
    if (out->kind == CN_WS_STEP && !out->has_body)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the step has none of the members data, text and base64");
    if (out->kind == CN_WS_CREDIT && !out->credit)
        return bad_member("credit", "a number from 1 on", err);
    return 0;
}

int
cn_ws_read(enum cn_ws_form form, bool is_text, struct cn_str message, struct cn_arena *arena,
           struct cn_ws_request *out, struct cn_error *err)
{
    *out = (struct cn_ws_request){.kind = CN_WS_STEP};
    if (is_text && form != CN_WS_PLAIN)
        return read_json(message, arena, out, err);
    if (form == CN_WS_BINARY)
        return cn_ws_binary_read(message, arena, out, err);
    out->has_body = true;
    out->body = message;
    out->content_type = is_text ? TEXT_TYPE : BYTES_TYPE;
    return 0;
}

/* --- writing */

enum cn_ws_body
cn_ws_body_of(struct cn_str type)
{
    const char *end = type.len ? memchr(type.ptr, ';', type.len) : NULL;
    size_t len = end ? (size_t)(end - type.ptr) : type.len;

    while (len > 0 && type.ptr[len - 1] == ' ')
        len--;
    type.len = len;
    if (len == 0)
        return CN_WS_BODY_OPEN;
    if (cn_str_eq(type, CN_STR(CN_TENSORS_TYPE)))
        return CN_WS_BODY_TENSORS;
    if (cn_str_eq_nocase(type, CN_STR("application/json")) ||
        cn_str_eq_nocase(type, CN_STR("application/x-ndjson")) ||
        (len > 5 && memcmp(type.ptr + len - 5, "+json", 5) == 0))
        return CN_WS_BODY_JSON;
    if (len > 5 && memcmp(type.ptr, "text/", 5) == 0)
        return CN_WS_BODY_TEXT;
    return CN_WS_BODY_BYTES;
}

/* Can the body stand in a message as text? The handler's word decides first, but bytes that are not
 * UTF-8 cannot be in a text message, whatever their type says: they are sent in base64. A body
 * without a type is text unless a NUL in it shows that it is not meant to be read. */
static bool
is_text_body(const struct cn_ws_piece *piece)
{
    const struct cn_str body = piece->answer->body;

    return piece->kind != CN_WS_BODY_BYTES && cn_utf8_is_valid(body) &&
           (piece->kind != CN_WS_BODY_OPEN || !body.len || !memchr(body.ptr, '\0', body.len));
}

/* Writes a set of tensors as {name: values}. */
static int
write_tensors(struct cn_str body, struct cn_buf *out, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_arena arena;
    uint32_t n;
    int rc;

    cn_arena_init(&arena);
    rc = cn_tensors_get(body, &arena, &tensors, &n, err);
    if (!rc)
        rc = cn_v2_write_named(tensors, n, out, err);
    cn_arena_fini(&arena);
    return rc;
}

static void
write_base64(struct cn_str bytes, struct cn_buf *out)
{
    cn_buf_puts(out, ",\"base64\":\"");
    cn_base64_put(bytes, out);
    cn_buf_puts(out, "\"");
}

/* Writes tensors as the member data. Strings among them may have any bytes. If these are not UTF-8,
 * they cannot be in a text message, and the JSON of the tensors is sent in base64. */
static int
write_data(struct cn_str body, struct cn_buf *out, struct cn_error *err)
{
    const size_t begun = out->len;
    struct cn_buf json;
    size_t from;
    int rc;

    cn_buf_puts(out, ",\"data\":");
    from = out->len;
    rc = write_tensors(body, out, err);
    if (rc || out->failed || cn_utf8_is_valid((struct cn_str){out->data + from, out->len - from}))
        return rc;
    cn_buf_init(&json, 0);
    cn_buf_append(&json, out->data + from, out->len - from);
    out->failed |= json.failed;
    out->len = begun;
    cn_buf_puts(out, ",\"content_type\":\"application/json\"");
    write_base64(cn_buf_str(&json), out);
    cn_buf_fini(&json);
    return 0;
}

/* Writes the member that has the body: data, text or base64. A body that claims to be JSON is
 * checked first, because it is put into the message as it is and would otherwise break the object
 * around it. A piece of a longer JSON text, or several lines of application/x-ndjson, fail that
 * check and are sent as text. */
static int
write_body(const struct cn_ws_piece *piece, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_str body = piece->answer->body;

    if (body.len == 0 && (piece->kind == CN_WS_BODY_TENSORS || piece->kind == CN_WS_BODY_JSON))
        return cn_buf_puts(out, ",\"data\":null");
    if (piece->kind == CN_WS_BODY_TENSORS)
        return write_data(body, out, err);
    if (!is_text_body(piece)) {
        write_base64(body, out);
    } else if (piece->kind == CN_WS_BODY_JSON && cn_ws_json_is_valid(body)) {
        cn_buf_puts(out, ",\"data\":");
        cn_buf_append_str(out, body);
    } else {
        cn_buf_puts(out, ",\"text\":");
        cn_v2_write_text(body, out);
    }
    return 0;
}

/* Writes the members that every answer has, all of them with one check of the buffer's room. */
static void
write_head(const struct cn_ws_piece *piece, struct cn_buf *out)
{
    static const char begin[] = "{\"type\":\"answer\",\"step\":";
    static const char final[] = ",\"final\":true", not_final[] = ",\"final\":false";
    char *to = cn_buf_reserve(out, sizeof(begin) + CN_NUMBER_MAX + sizeof(not_final)), *at = to;

    if (!to)
        return;
    memcpy(at, begin, sizeof(begin) - 1);
    at = cn_put_uint(piece->step, at + sizeof(begin) - 1);
    if (piece->final) {
        memcpy(at, final, sizeof(final) - 1);
        at += sizeof(final) - 1;
    } else {
        memcpy(at, not_final, sizeof(not_final) - 1);
        at += sizeof(not_final) - 1;
    }
    out->len += (size_t)(at - to);
}

static int
write_json(const struct cn_ws_piece *piece, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_answer *answer = piece->answer;

    write_head(piece, out);
    if (answer->content_type.len && piece->kind != CN_WS_BODY_TENSORS &&
        cn_utf8_is_valid(answer->content_type)) {
        cn_buf_puts(out, ",\"content_type\":");
        cn_v2_write_text(answer->content_type, out);
    }
    if (answer->status)
        cn_buf_printf(out, ",\"status\":%u", answer->status);
    if (answer->flags & CN_ANSWER_REPLAYED)
        cn_buf_puts(out, ",\"replayed\":true");
    if (piece->generation)
        cn_buf_printf(out, ",\"generation\":%" PRIu64, piece->generation);
    if (piece->final && piece->traceparent.len)
        cn_buf_printf(out, ",\"traceparent\":\"%.*s\"", CN_STR_ARG(piece->traceparent));
    if (write_body(piece, out, err))
        return err->code;
    cn_buf_puts(out, "}");
    return 0;
}

int
cn_ws_write_answer(enum cn_ws_form form, const struct cn_ws_piece *piece, struct cn_buf *out,
                   struct cn_str *message, bool *is_text, struct cn_error *err)
{
    int rc;

    *is_text = form == CN_WS_JSON;
    if (form == CN_WS_JSON) {
        rc = write_json(piece, out, err);
    } else if (form == CN_WS_BINARY) {
        rc = cn_ws_binary_write(piece, out, err);
    } else if (piece->kind == CN_WS_BODY_TENSORS && piece->answer->body.len) {
        rc = write_tensors(piece->answer->body, out, err);
        *is_text = cn_utf8_is_valid(cn_buf_str(out));
    } else {
        *is_text = is_text_body(piece);
        *message = piece->answer->body;
        return 0;
    }
    if (!rc && out->failed)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the answer");
    *message = cn_buf_str(out);
    return rc;
}

/* A handler may fail with any bytes as its message. If these are not UTF-8, the error's word takes
 * their place, because a client would have to close the stream at a text message that is not
 * UTF-8. */
void
cn_ws_write_failure(const struct cn_ws_failure *failure, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(failure->code);

    if (failure->step)
        cn_buf_printf(out, "\"step\":%" PRIu64 ",", failure->step);
    cn_buf_printf(out, "\"status\":%u,\"error\":\"%s\",\"exception\":\"%s\",\"message\":",
                  failure->status ? failure->status : (unsigned)info->http_status, info->word,
                  info->type);
    if (cn_utf8_is_valid(failure->message))
        cn_v2_write_text(failure->message, out);
    else
        cn_v2_write_text(cn_str_from(info->word), out);
    if (failure->expected_step)
        cn_buf_printf(out, ",\"expected_step\":%" PRIu64, failure->expected_step);
    if (failure->retry_after_s)
        cn_buf_printf(out, ",\"retry_after\":%u", failure->retry_after_s);
    if (failure->traceparent.len)
        cn_buf_printf(out, ",\"traceparent\":\"%.*s\"", CN_STR_ARG(failure->traceparent));
}

void
cn_ws_write_error(const struct cn_ws_failure *failure, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"type\":\"error\",");
    cn_ws_write_failure(failure, out);
    cn_buf_puts(out, "}");
}
