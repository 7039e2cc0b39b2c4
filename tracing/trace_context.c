/* tracing/trace_context.c - reads and writes the headers of W3C Trace Context. Any thread.
 *
 * The value is "version-traceid-spanid-flags", all in lower-case hexadecimal digits. A later
 * version may append more behind another '-', and what we know of it stays as it is; version ff and
 * ids of zeros are invalid. */
#include "tracing/trace_context.h"

#include <string.h>

static bool
is_lower_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Reads 2 * n digits. Returns false if one of them is not a lower-case digit. */
static bool
read_bytes(const char *text, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const char high = text[2 * i], low = text[2 * i + 1];

        if (!is_lower_hex(high) || !is_lower_hex(low))
            return false;
        out[i] = (uint8_t)(cn_hex_digit(high) << 4 | cn_hex_digit(low));
    }
    return true;
}

static bool
is_zero(const uint8_t *bytes, size_t n)
{
    while (n > 0 && bytes[n - 1] == 0)
        n--;
    return n == 0;
}

bool
cn_traceparent_read(struct cn_str value, struct cn_trace_context *out)
{
    const char *text = value.ptr;
    uint8_t version;

    if (value.len < CN_TRACEPARENT_LEN || text[2] != '-' || text[35] != '-' || text[52] != '-')
        return false;
    if (!read_bytes(text, 1, &version) || !read_bytes(text + 3, CN_TRACE_ID_BYTES, out->trace_id) ||
        !read_bytes(text + 36, CN_SPAN_ID_BYTES, out->parent_id) ||
        !read_bytes(text + 53, 1, &out->flags))
        return false;
    if (version == 0xff || (version == 0 && value.len != CN_TRACEPARENT_LEN) ||
        (value.len > CN_TRACEPARENT_LEN && text[CN_TRACEPARENT_LEN] != '-'))
        return false;
    return !is_zero(out->trace_id, CN_TRACE_ID_BYTES) && !is_zero(out->parent_id, CN_SPAN_ID_BYTES);
}

static char *
put_bytes(const uint8_t *bytes, size_t n, char *to)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        *to++ = digits[bytes[i] >> 4];
        *to++ = digits[bytes[i] & 15];
    }
    return to;
}

void
cn_traceparent_write(const uint8_t trace_id[CN_TRACE_ID_BYTES],
                     const uint8_t span_id[CN_SPAN_ID_BYTES], uint8_t flags,
                     char out[CN_TRACEPARENT_LEN + 1])
{
    char *at = out;

    memcpy(at, "00-", 3);
    at = put_bytes(trace_id, CN_TRACE_ID_BYTES, at + 3);
    *at++ = '-';
    at = put_bytes(span_id, CN_SPAN_ID_BYTES, at);
    *at++ = '-';
    at = put_bytes(&flags, 1, at);
    *at = '\0';
}

bool
cn_trace_is_context(struct cn_str name)
{
    return cn_str_eq_nocase(name, CN_STR("traceparent")) ||
           cn_str_eq_nocase(name, CN_STR("tracestate"));
}

bool
cn_tracestate_is_valid(struct cn_str value)
{
    if (value.len > CN_TRACESTATE_MAX)
        return false;
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < ' ' || value.ptr[i] > '~')
            return false;
    return true;
}
