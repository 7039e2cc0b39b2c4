/* frontend/websocket/ws_json.c - a reader of JSON that only finds where values begin and end. Any
 * thread, no state.
 *
 * The functions take the position of the next character and return the position behind what they
 * read, or NULL if it is not what it should be. The caller checks UTF-8.
 *
 * The reader checks the whole grammar of RFC 8259, but it makes nothing: no tree, no copies, no
 * numbers. For
 *   {"type": "step", "data": [1, {"a": 2.50}]}
 * cn_ws_json_next() gives the name type with the value "step" (with its quotes), then the name data
 * with the value [1, {"a": 2.50}]. A step of many megabytes costs one pass over its bytes, and 2.50
 * reaches the handler as 2.50.
 *
 * The functions call each other for nested values, so CN_WS_JSON_DEPTH bounds the stack that a
 * client can use. */
#include "frontend/websocket/ws_json.h"

#include <string.h>

static const char *skip_value(const char *at, const char *end, unsigned depth);

static const char *
skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* After the opening quote. */
static const char *
skip_string(const char *at, const char *end)
{
    while (at < end) {
        const unsigned char c = (unsigned char)*at++;

        if (c == '"')
            return at;
        if (c < ' ')
            return NULL;
        if (c != '\\')
            continue;
        if (at == end)
            return NULL;
        if (*at == 'u') {
            for (int i = 1; i <= 4; i++)
                if (at + i >= end || cn_hex_digit(at[i]) < 0)
                    return NULL;
            at += 5;
        } else if (memchr("\"\\/bfnrt", *at, 8)) {
            at++;
        } else {
            return NULL;
        }
    }
    return NULL;
}

static const char *
skip_digits(const char *at, const char *end)
{
    const char *from = at;

    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at > from ? at : NULL;
}

/* A number must not begin with a superfluous zero: behind 0 or -0 only a fraction or an exponent
 * may follow. In "01" this function reads only the 0; the caller then finds a 1 where a comma or a
 * bracket should be. */
static const char *
skip_number(const char *at, const char *end)
{
    const bool is_zero = at < end && *(*at == '-' && at + 1 < end ? at + 1 : at) == '0';

    if (at < end && *at == '-')
        at++;
    at = is_zero ? at + 1 : skip_digits(at, end);
    if (at && at < end && *at == '.')
        at = skip_digits(at + 1, end);
    if (at && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        at = skip_digits(at, end);
    }
    return at;
}

static const char *
skip_word(const char *at, const char *end)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t len = strlen(words[i]);

        if ((size_t)(end - at) >= len && memcmp(at, words[i], len) == 0)
            return at + len;
    }
    return NULL;
}

/* After the opening quote of a name: to behind the colon. */
static const char *
skip_name(const char *at, const char *end)
{
    at = skip_string(at, end);
    at = at ? skip_blanks(at, end) : NULL;
    return at && at < end && *at == ':' ? at + 1 : NULL;
}

/* After the opening bracket. `close` is the closing one.
 *
 * An array and an object differ only in the names before the values. A comma before the closing
 * bracket is refused, since a value must follow it. */
static const char *
skip_list(const char *at, const char *end, char close, unsigned depth)
{
    at = skip_blanks(at, end);
    if (at < end && *at == close)
        return at + 1;
    while (at < end) {
        if (close == '}') {
            at = skip_blanks(at, end);
            at = at < end && *at == '"' ? skip_name(at + 1, end) : NULL;
        }
        at = at ? skip_value(at, end, depth) : NULL;
        if (!at || (at = skip_blanks(at, end)) == end)
            return NULL;
        if (*at == close)
            return at + 1;
        if (*at++ != ',')
            return NULL;
    }
    return NULL;
}

static const char *
skip_value(const char *at, const char *end, unsigned depth)
{
    at = skip_blanks(at, end);
    if (at == end || depth == CN_WS_JSON_DEPTH)
        return NULL;
    switch (*at) {
    case '"':
        return skip_string(at + 1, end);
    case '{':
        return skip_list(at + 1, end, '}', depth + 1);
    case '[':
        return skip_list(at + 1, end, ']', depth + 1);
    case 't':
    case 'f':
    case 'n':
        return skip_word(at, end);
    default:
        return skip_number(at, end);
    }
}

bool
cn_ws_json_is_valid(struct cn_str text)
{
    const char *end = text.ptr + text.len, *at = text.len ? skip_value(text.ptr, end, 0) : NULL;

    return at && skip_blanks(at, end) == end;
}

void
cn_ws_json_begin(struct cn_ws_json *json, struct cn_str text)
{
    json->end = text.ptr + text.len;
    json->at = text.len ? skip_blanks(text.ptr, json->end) : NULL;
    json->failed = !json->at || json->at == json->end || *json->at != '{';
    json->begun = false;
    if (!json->failed)
        json->at++;
}

static bool
fail(struct cn_ws_json *json)
{
    json->failed = true;
    return false;
}

bool
cn_ws_json_next(struct cn_ws_json *json, struct cn_str *name, struct cn_str *value)
{
    const char *at = json->at, *behind;

    if (json->failed)
        return false;
    at = skip_blanks(at, json->end);
    if (at < json->end && *at == '}')
        return skip_blanks(at + 1, json->end) == json->end ? false : fail(json);
    if (json->begun) {
        if (at == json->end || *at != ',')
            return fail(json);
        at = skip_blanks(at + 1, json->end);
    }
    json->begun = true;
    if (at == json->end || *at != '"' || !(behind = skip_string(at + 1, json->end)))
        return fail(json);
    *name = (struct cn_str){at + 1, (size_t)(behind - at) - 2};
    at = skip_name(at + 1, json->end);
    behind = at ? skip_value(at, json->end, 1) : NULL;
    if (!behind)
        return fail(json);
    at = skip_blanks(at, json->end);
    *value = (struct cn_str){at, (size_t)(behind - at)};
    json->at = behind;
    return true;
}
