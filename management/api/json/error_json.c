/* management/api/json/error_json.c - TorchServe's error body, for every HTTP interface. Any
 * thread. */
#include <jansson.h>
#include <string.h>

#include "management/api/json/json_text.h"
#include "management/management.h"

/* All digits that a decimal number keeps in a double: with more, 0.1 is 0.10000000000000001. */
#define REAL_DIGITS 15

json_t *
cn_json_text(const char *text)
{
    json_t *value = json_string(text);
    struct cn_buf clean;
    size_t i;

    if (value)
        return value;
    /* Texts of handlers and file names may not be UTF-8. Then each byte that is not ASCII becomes a
     * question mark. */
    cn_buf_init(&clean, 0);
    for (i = 0; text[i]; i++)
        cn_buf_append(&clean, (unsigned char)text[i] < 0x80 ? &text[i] : "?", 1);
    value = json_stringn(clean.data, clean.len);
    cn_buf_fini(&clean);
    return value;
}

static int
append_piece(const char *piece, size_t len, void *ctx)
{
    return cn_buf_append(ctx, piece, len);
}

void
cn_json_print(json_t *value, struct cn_buf *out)
{
    json_dump_callback(value, append_piece, out,
                       JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(REAL_DIGITS));
    cn_buf_puts(out, "\n");
    json_decref(value);
}

void
cn_error_json_as(unsigned http_status, const char *type, const char *message,
                 uint64_t expected_step, struct cn_buf *out)
{
    json_t *body = json_object();

    json_object_set_new(body, "code", json_integer((int)http_status));
    json_object_set_new(body, "type", json_string(type));
    json_object_set_new(body, "message", cn_json_text(message));
    if (expected_step)
        json_object_set_new(body, "expectedStep", json_integer((json_int_t)expected_step));
    cn_json_print(body, out);
}

void
cn_error_json(int code, unsigned http_status, const char *message, struct cn_buf *out)
{
    const struct cn_error_info *info = cn_error_info(code);

    cn_error_json_as(http_status ? http_status : (unsigned)info->http_status, info->type, message,
                     0, out);
}
