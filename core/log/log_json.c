/* core/log/log_json.c - turns the log's key=value text into members of a JSON object. Any thread.
 *
 * A value becomes a number if it is written as one, and a string otherwise; names of models and
 * versions are always strings. Quoted values keep their escapes, most of which mean the same in
 * JSON. Whatever the text holds, the result is valid JSON: bytes that are not UTF-8 are replaced,
 * and a member that does not fit is left out as a whole. */
#include <stdbool.h>
#include <string.h>

#include "core/log/log.h"
#include "core/text/utf8.h"

struct out {
    char *at, *end;
    bool full;
};

static void
put(struct out *out, const char *bytes, size_t len)
{
    if ((size_t)(out->end - out->at) < len) {
        out->full = true;
        return;
    }
    memcpy(out->at, bytes, len);
    out->at += len;
}

static void
put_code(struct out *out, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    const char text[6] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 0x0f]};

    put(out, text, sizeof(text));
}

/* Writes one character. A byte that is not UTF-8 is shown as the Latin-1 character with its number.
 */
static void
put_char(struct out *out, const char *at, size_t left, size_t *taken)
{
    unsigned char c = (unsigned char)*at;
    size_t len = cn_utf8_length(at, left);

    *taken = len ? len : 1;
    if (c == '"' || c == '\\')
        put(out, c == '"' ? "\\\"" : "\\\\", 2);
    else if (len == 0 || c < 0x20 || c == 0x7f)
        put_code(out, c);
    else
        put(out, at, len);
}

/* Writes the inside of a value that cn_log_quote made. The text may be cut, and then its last
 * escape is not whole. */
static void
put_quoted(struct out *out, const char *at, const char *end)
{
    size_t taken;

    for (; at < end; at += taken) {
        if (*at != '\\' || at + 1 >= end || !strchr("\"\\nrtx", at[1])) {
            put_char(out, at, (size_t)(end - at), &taken);
            continue;
        }
        taken = 2;
        if (at[1] == 'x' && end - at >= 4 && cn_hex_digit(at[2]) >= 0 && cn_hex_digit(at[3]) >= 0) {
            put_code(out, (unsigned char)(cn_hex_digit(at[2]) << 4 | cn_hex_digit(at[3])));
            taken = 4;
        } else if (at[1] == 'x') {
            put_char(out, at, (size_t)(end - at), &taken);
        } else {
            put(out, at, 2); /* \" \\ \n \r \t mean the same in JSON */
        }
    }
}

/* Is this a number as JSON writes it? More than 18 digits stay text, because many readers would
 * round them. */
static bool
is_number(const char *at, const char *end)
{
    size_t digits = 0;

    if (at < end && *at == '-')
        at++;
    if (end - at > 1 && at[0] == '0' && at[1] != '.')
        return false;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        digits++;
    if (digits == 0 || digits > 18)
        return false;
    if (at < end && *at == '.') {
        if (++at == end)
            return false;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
    }
    return at == end;
}

/* Names stay strings, as in the access log: version 1.10 is not 1.1, and a model may be called 7.
 */
static bool
is_name(const char *key, size_t len)
{
    static const char *const names[] = {"model", "version", "from", "to"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) == len && memcmp(key, names[i], len) == 0)
            return true;
    return false;
}

static void
put_plain(struct out *out, const char *at, const char *end)
{
    size_t taken;

    for (; at < end; at += taken)
        put_char(out, at, (size_t)(end - at), &taken);
}

static const char *
end_of_quoted(const char *at)
{
    for (; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return at;
}

/* Writes one member for the key=value at `at`, and returns the text after it. */
static const char *
put_member(struct out *out, const char *at)
{
    size_t key = strcspn(at, "= ");
    const char *value = at[key] == '=' ? at + key + 1 : at, *end;

    put(out, "\"", 1);
    if (value == at)
        put(out, "text", 4);
    else
        put_plain(out, at, at + key);
    put(out, "\":", 2);
    if (value != at && *value == '"') {
        end = end_of_quoted(value + 1);
        put(out, "\"", 1);
        put_quoted(out, value + 1, end);
        put(out, "\"", 1);
        return *end ? end + 1 : end;
    }
    end = value + strcspn(value, " ");
    if (!is_name(at, key) && is_number(value, end)) {
        put(out, value, (size_t)(end - value));
        return end;
    }
    put(out, "\"", 1);
    put_plain(out, value, end);
    put(out, "\"", 1);
    return end;
}

unsigned long
cn_log_json_members(const char *text, char *bytes, unsigned long room)
{
    struct out out = {bytes, bytes + room, false};
    char *whole = bytes; /* the end of the last member that fitted */

    while (*(text += strspn(text, " "))) {
        if (out.at > bytes)
            put(&out, ",", 1);
        text = put_member(&out, text);
        if (out.full)
            break;
        whole = out.at;
    }
    return (unsigned long)(whole - bytes);
}
