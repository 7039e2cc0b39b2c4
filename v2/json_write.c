/* v2/json_write.c - responses, errors and metadata as JSON. Any thread.
 *
 * Written by hand: a tensor's numbers go from its bytes into the text without a document between.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "v2/answer.h"

void
cn_v2_write_text(struct cn_str text, struct cn_buf *out)
{
    size_t from = 0;

    cn_buf_puts(out, "\"");
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        if (c >= ' ' && c != '"' && c != '\\')
            continue;
        cn_buf_append(out, text.ptr + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\')
            cn_buf_printf(out, "\\%c", c);
        else
            cn_buf_printf(out, "\\u%04x", c);
    }
    cn_buf_append(out, text.ptr + from, text.len - from);
    cn_buf_puts(out, "\"");
}

void
cn_v2_write_error(const char *message, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"error\":");
    cn_v2_write_text(cn_str_from(message), out);
    cn_buf_puts(out, "}");
}

#define VALUE_MAX 40 /* bytes of any number's text, with a comma; %.17g needs 24 */

/* Numbers of up to six places behind the point, which most are that people write: no printf, no trial.
 * The quotient of two whole numbers is what their text reads back as, and with up to 15 digits no shorter
 * text does. Behind what was written; NULL: it is none of them. */
static char *
put_short(double value, char *to)
{
    const double size = fabs(value), scaled = size * 1e6;
    char text[24], *const end = text + sizeof(text), *at = end;
    uint64_t n;

    if (!(scaled < 1e15) || scaled != floor(scaled) || scaled / 1e6 != size ||
        (size > 0 && size < 1e-4))
        return NULL;
    n = (uint64_t)scaled;
    for (int place = 6; place > 0; place--, n /= 10)
        if (at < end || n % 10 || place == 1) /* no zeros at the end, but for "1.0" */
            *--at = (char)('0' + n % 10);
    *--at = '.';
    do
        *--at = (char)('0' + n % 10);
    while (n /= 10);
    if (signbit(value))
        *--at = '-';
    memcpy(to, at, (size_t)(end - at));
    return to + (end - at);
}

static char *
put_word(const char *word, char *to)
{
    return stpcpy(to, word);
}

/* The shortest text that reads back as the same number; NaN and Infinity as bare words. */
static char *
put_double(double value, char *to)
{
    char *end;

    if (isnan(value))
        return put_word("NaN", to);
    if (isinf(value))
        return put_word(value < 0 ? "-Infinity" : "Infinity", to);
    if ((end = put_short(value, to)))
        return end;
    for (int digits = 15; digits <= 17; digits++) {
        end = to + snprintf(to, VALUE_MAX, "%.*g", digits, value);
        if (strtod(to, NULL) == value)
            break;
    }
    return to[strcspn(to, ".e")] ? end
                                 : put_word(".0", end); /* a number with a fraction stays one */
}

static char *
put_uint(uint64_t value, char *to)
{
    char digits[20], *const end = digits + sizeof(digits), *at = end;

    do
        *--at = (char)('0' + value % 10);
    while (value /= 10);
    memcpy(to, at, (size_t)(end - at));
    return to + (end - at);
}

static char *
put_int(int64_t value, char *to)
{
    if (value >= 0)
        return put_uint((uint64_t)value, to);
    *to++ = '-';
    return put_uint(0 - (uint64_t)value, to);
}

static uint64_t
natural_at(const char *at, unsigned bytes)
{
    uint64_t value = 0;

    memcpy(&value, at, bytes); /* little-endian, as this machine */
    return value;
}

static int64_t
integer_at(const char *at, unsigned bytes)
{
    const unsigned shift = 64 - 8 * bytes;

    return (int64_t)(natural_at(at, bytes) << shift) >> shift;
}

/* The number at `at` into VALUE_MAX bytes of room. Behind it. */
static char *
put_value(enum cn_datatype type, const char *at, char *to)
{
    const unsigned bytes = cn_datatype_bytes(type);
    double wide;
    float narrow;

    switch (type) {
    case CN_DATATYPE_BOOL:
        return put_word(*at ? "true" : "false", to);
    case CN_DATATYPE_FP32:
        memcpy(&narrow, at, sizeof(narrow));
        return put_double((double)narrow, to);
    case CN_DATATYPE_FP64:
        memcpy(&wide, at, sizeof(wide));
        return put_double(wide, to);
    case CN_DATATYPE_INT8:
    case CN_DATATYPE_INT16:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_INT64:
        return put_int(integer_at(at, bytes), to);
    default:
        return put_uint(natural_at(at, bytes), to);
    }
}

void
cn_v2_write_value(enum cn_datatype type, const char *at, struct cn_buf *out)
{
    char *to = cn_buf_reserve(out, VALUE_MAX);

    if (to)
        out->len = (size_t)(put_value(type, at, to) - out->data);
}

int
cn_v2_write_values(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);
    const char *comma = "";
    struct cn_reader reader;
    struct cn_str element;

    if (tensor->type == CN_DATATYPE_FP16 || tensor->type == CN_DATATYPE_BF16)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "sending %s data via JSON is not supported. Please use the binary data "
                       "format for output",
                       cn_datatype_word(tensor->type));
    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (tensor->type == CN_DATATYPE_BYTES && cn_tensor_next(&reader, &element)) {
        cn_buf_puts(out, comma);
        cn_v2_write_text(element, out);
        comma = ",";
    }
    for (size_t at = 0; bytes && at < tensor->data.len; at += bytes) {
        char *to = cn_buf_reserve(out, VALUE_MAX);

        if (!to)
            break;
        if (at)
            *to++ = ',';
        out->len = (size_t)(put_value(tensor->type, tensor->data.ptr + at, to) - out->data);
    }
    return 0;
}

static int
write_data(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err)
{
    int rc;

    cn_buf_puts(out, ",\"data\":[");
    rc = cn_v2_write_values(tensor, out, err);
    cn_buf_puts(out, "]");
    return rc;
}

static void
write_shape(const int64_t *shape, uint32_t rank, struct cn_buf *out)
{
    cn_buf_puts(out, "[");
    for (uint32_t i = 0; i < rank; i++) {
        cn_buf_puts(out, i ? "," : "");
        cn_buf_put_int(out, shape[i]);
    }
    cn_buf_puts(out, "]");
}

static int
write_output(const struct cn_tensor *tensor, const struct cn_v2_output *output, struct cn_buf *out,
             struct cn_error *err)
{
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(tensor->name, out);
    cn_buf_puts(out, ",\"datatype\":\"");
    cn_buf_puts(out, cn_datatype_word(tensor->type));
    cn_buf_puts(out, "\",\"shape\":");
    write_shape(tensor->shape, tensor->rank, out);
    if (output->binary) {
        cn_buf_puts(out, ",\"parameters\":{\"binary_data_size\":");
        cn_buf_put_uint(out, tensor->data.len);
        cn_buf_puts(out, "}");
    } else if (!output->window.region.len && write_data(tensor, out, err)) {
        return err->code;
    }
    cn_buf_puts(out, "}");
    return 0;
}

int
cn_v2_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
            struct cn_buf *out, size_t *json_len, struct cn_error *err)
{
    const size_t begun = out->len;
    const char *comma = "";
    struct cn_v2_output otherwise;
    size_t binary_bytes = 0;
    int rc;

    *json_len = 0;
    cn_buf_puts(out, "{");
    if (request->id.len) {
        cn_buf_puts(out, "\"id\":");
        cn_v2_write_text(request->id, out);
        cn_buf_puts(out, ",");
    }
    cn_buf_puts(out, "\"model_name\":");
    cn_v2_write_text(cn_str_from(answer->model), out);
    cn_buf_puts(out, ",\"model_version\":");
    cn_v2_write_text(cn_str_from(answer->version), out);
    if (answer->streamed)
        cn_buf_printf(out, ",\"parameters\":{\"triton_final_response\":%s}",
                      answer->final ? "true" : "false");
    cn_buf_puts(out, ",\"outputs\":[");
    for (uint32_t i = 0; i < answer->n_tensors; i++) {
        const struct cn_tensor *tensor = &answer->tensors[i];
        const struct cn_v2_output *output = cn_v2_wanted(request, tensor->name, &otherwise);

        if (!output)
            continue;
        cn_buf_puts(out, comma);
        comma = ",";
        if ((rc = write_output(tensor, output, out, err)))
            return rc;
        binary_bytes += output->binary ? tensor->data.len : 0;
    }
    cn_buf_puts(out, "]}");
    if (binary_bytes == 0)
        return 0;
    *json_len = out->len - begun;
    for (uint32_t i = 0; i < answer->n_tensors; i++) {
        const struct cn_v2_output *output =
            cn_v2_wanted(request, answer->tensors[i].name, &otherwise);

        if (output && output->binary)
            cn_buf_append_str(out, answer->tensors[i].data);
    }
    return 0;
}

static void
write_specs(const char *key, const struct cn_tensor_spec *specs, uint32_t n, bool batching,
            struct cn_buf *out)
{
    cn_buf_printf(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < n; i++) {
        int64_t shape[CN_TENSOR_RANK_MAX] = {-1};

        memcpy(shape + batching, specs[i].dims, sizeof(shape[0]) * specs[i].rank);
        cn_buf_puts(out, i ? ",{\"name\":" : "{\"name\":");
        cn_v2_write_text(specs[i].name, out);
        cn_buf_printf(out, ",\"datatype\":\"%s\",\"shape\":", cn_datatype_word(specs[i].type));
        write_shape(shape, specs[i].rank + batching, out);
        cn_buf_puts(out, "}");
    }
    cn_buf_puts(out, "]");
}

void
cn_v2_write_metadata(const char *model, const char *const *versions, uint32_t n,
                     const char *platform, const struct cn_model_io *io, struct cn_buf *out)
{
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_puts(out, ",\"versions\":[");
    for (uint32_t i = 0; i < n; i++) {
        cn_buf_puts(out, i ? "," : "");
        cn_v2_write_text(cn_str_from(versions[i]), out);
    }
    cn_buf_puts(out, "],\"platform\":");
    cn_v2_write_text(cn_str_from(platform), out);
    write_specs("inputs", io->inputs, io->n_inputs, io->max_batch_size > 0, out);
    write_specs("outputs", io->outputs, io->n_outputs, io->max_batch_size > 0, out);
    cn_buf_puts(out, "}");
}
