/* frontend/http/http_checks.c - request smuggling, escapes, header values. Any thread, no state.
 *
 * Request smuggling works where two programs disagree on where a request ends. Example: a proxy
 * reads Content-Length, the server behind it reads Transfer-Encoding, and a request has both. The
 * rest of the body is then, for one of them, the next request, which the proxy has never checked.
 * So a request is refused, and its connection closed, wherever RFC 9112 leaves two readings: both
 * headers at once, one of them twice, a length that is not one decimal number, or a transfer coding
 * other than chunked.
 */
#include "frontend/http/http_checks.h"

#include <string.h>

#include "frontend/intake/headers.h"

bool
cn_http_accepts(struct cn_str accept, struct cn_str type)
{
    const char *at = accept.ptr, *end = accept.ptr + accept.len;

    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *stop = comma ? comma : end;
        const char *semicolon = memchr(at, ';', (size_t)(stop - at));
        const struct cn_str item = {at, (size_t)((semicolon ? semicolon : stop) - at)};

        if (cn_str_eq_nocase(cn_str_trim(item), type))
            return true;
        at = stop + 1;
    }
    return false;
}

/* Reads Content-Length. The text must be one decimal number: strtoull would also read "+5", " 5"
 * and "5, 5", which other readers refuse or understand differently. */
static int
parse_length(struct cn_str text, uint64_t *out, struct cn_error *err)
{
    uint64_t value = 0;
    size_t i;

    for (i = 0; i < text.len; i++) {
        unsigned digit = (unsigned)(unsigned char)text.ptr[i] - '0';

        if (digit > 9 || value > (UINT64_MAX - digit) / 10)
            break;
        value = value * 10 + digit;
    }
    if (text.len == 0 || i < text.len)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Content-Length is \"%.*s\"; it must be one decimal number",
                       text.len > 40 ? 40 : (int)text.len, text.len ? text.ptr : "");
    *out = value;
    return 0;
}

/* How often the headers that may occur only once were seen, and what Connection says. */
struct counts {
    unsigned host, length, encoding;
    bool says_close, says_keep_alive;
};

/* Reads the list of options in Connection (RFC 9110, 7.6.1). */
static void
read_connection(struct cn_str value, struct counts *counts)
{
    while (value.len > 0) {
        const struct cn_str option = cn_str_trim(cn_str_cut(&value, ','));

        counts->says_close |= cn_str_eq_nocase(option, CN_STR("close"));
        counts->says_keep_alive |= cn_str_eq_nocase(option, CN_STR("keep-alive"));
    }
}

static int
check_header(struct cn_str name, struct cn_str value, struct cn_http_framing *out,
             struct counts *counts, struct cn_error *err)
{
    if (cn_str_eq_nocase(name, CN_STR("host"))) {
        if (counts->host++)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the request has more than one Host header; send one");
    } else if (cn_str_eq_nocase(name, CN_STR("content-length"))) {
        if (counts->length++)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the request has more than one Content-Length header; send one");
        out->has_length = true;
        return parse_length(value, &out->length, err);
    } else if (cn_str_eq_nocase(name, CN_STR("transfer-encoding"))) {
        if (counts->encoding++)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the request has more than one Transfer-Encoding header; send one");
        if (!cn_str_eq_nocase(value, CN_STR("chunked")))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "Transfer-Encoding is \"%.*s\"; only chunked is supported",
                           value.len > 40 ? 40 : (int)value.len, value.len ? value.ptr : "");
        out->chunked = true;
    } else if (cn_str_eq_nocase(name, CN_STR("expect"))) {
        out->expects_continue = cn_str_eq_nocase(value, CN_STR("100-continue"));
    } else if (cn_str_eq_nocase(name, CN_STR("connection"))) {
        read_connection(value, counts);
    }
    return 0;
}

int
cn_http_check_headers(const struct cn_header *headers, uint32_t n, bool is_http_1_1,
                      struct cn_http_framing *out, struct cn_error *err)
{
    struct counts counts = {0};
    uint32_t i;
    int rc;

    *out = (struct cn_http_framing){0};
    for (i = 0; i < n; i++) {
        if ((rc = check_header(headers[i].name, headers[i].value, out, &counts, err)))
            return rc;
    }
    out->closes = counts.says_close || (!is_http_1_1 && !counts.says_keep_alive);
    if (out->chunked && out->has_length)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has both Content-Length and Transfer-Encoding; send only one");
    if (out->chunked && !is_http_1_1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "an HTTP/1.0 request may not have a Transfer-Encoding");
    if (is_http_1_1 && counts.host == 0)
        return cn_fail(err, CN_E_BAD_REQUEST, "the Host header is missing");
    return 0;
}

int
cn_http_take_path(struct cn_str *path, const struct cn_header *headers, uint32_t n,
                  struct cn_error *err)
{
    const struct cn_header *host = cn_header_find(headers, n, CN_STR("host"));
    struct cn_str rest = *path, origin;

    if (cn_str_begins_nocase(rest, CN_STR("http://")))
        rest = (struct cn_str){rest.ptr + 7, rest.len - 7};
    else if (cn_str_begins_nocase(rest, CN_STR("https://")))
        rest = (struct cn_str){rest.ptr + 8, rest.len - 8};
    else
        return 0;
    origin = cn_str_cut(&rest, '/');
    if (!host || !cn_str_eq_nocase(origin, cn_str_trim(host->value)))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the URL names the host \"%.*s\", but the Host header does not; send the "
                       "same host in both, or only the path",
                       origin.len > 80 ? 80 : (int)origin.len, origin.len ? origin.ptr : "");
    *path = origin.len + (size_t)(origin.ptr - path->ptr) == path->len
                ? CN_STR("/")
                : (struct cn_str){rest.ptr - 1, rest.len + 1};
    return 0;
}

/* Returns the byte that the escape at `at` stands for, or -1 when it is not % and two hex
 * digits. */
static int
escaped_byte(struct cn_str raw, size_t at)
{
    int high, low;

    if (raw.len - at < 3)
        return -1;
    high = cn_hex_digit(raw.ptr[at + 1]);
    low = cn_hex_digit(raw.ptr[at + 2]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int
cn_http_check_url(struct cn_str raw, struct cn_error *err)
{
    size_t i;

    for (i = 0; i < raw.len; i++) {
        unsigned char c = (unsigned char)raw.ptr[i];

        if (c <= ' ' || c == 0x7f)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the URL has a space or control character; percent-encode it");
        if (c == '%' && escaped_byte(raw, i) <= 0)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the URL has %%00 or an escape that is not %% and two hex digits");
    }
    return 0;
}

bool
cn_http_decode(struct cn_arena *arena, struct cn_str raw, bool plus_is_space, struct cn_str *out)
{
    char *text = cn_arena_alloc(arena, raw.len + 1);
    size_t i, len = 0;

    for (i = 0; i < raw.len; i++) {
        int byte;

        if (raw.ptr[i] == '%') {
            byte = escaped_byte(raw, i);
            if (byte <= 0)
                return false;
            text[len++] = (char)byte;
            i += 2;
        } else {
            text[len++] = plus_is_space && raw.ptr[i] == '+' ? ' ' : raw.ptr[i];
        }
    }
    text[len] = '\0';
    *out = (struct cn_str){text, len};
    return true;
}

bool
cn_http_header_is_valid(struct cn_str name, struct cn_str value)
{
    /* Visible characters, blanks and tabs are allowed, and so are bytes from 0x80 on (5.5). */
    return cn_str_is_token(name) && cn_text_without_control(value.ptr, value.len) == value.len;
}
