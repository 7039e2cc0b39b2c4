/* kserve/json/json_write.c - writes responses, errors and metadata as JSON. Any thread.
 *
 * The JSON is written by hand into a buffer: a tensor's numbers go from its bytes straight into the
 * text, without a document in between, which would allocate memory for each number. Each number
 * first reserves CN_NUMBER_MAX bytes, so that the conversion needs no further checks.
 *
 * A response whose outputs are all JSON is one text; with binary outputs their bytes follow behind
 * the text, in the order in which it lists them, and *json_len says where they begin:
 *   {"model_name":"m","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[2],
 *    "parameters":{"binary_data_size":8}}]}<8 bytes> */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text/number.h"
#include "kserve/infer_answer.h"

void
cn_v2_write_text(struct cn_str text, struct cn_buf *out)
{
    size_t from = 0;

    cn_buf_puts(out, "\"");
    for (size_t i = 0; i < text.len; i++) {
        const unsigned char c = (unsigned char)text.ptr[i];

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

/* Writes NaN and the infinities as null, since JSON cannot express them. Clients in Python read
 * null as NaN; in binary data the exact value is sent. */
static char *
put_finite(double value, char *to)
{
    return isfinite(value) ? cn_put_double(value, to) : stpcpy(to, "null");
}

/* Writes the element at `at` into CN_NUMBER_MAX bytes of room; returns the position after it. */
static char *
put_value(enum cn_datatype type, const char *at, char *to)
{
    const unsigned bytes = cn_datatype_bytes(type);
    double wide;
    float narrow;

    switch (type) {
    case CN_DATATYPE_BOOL:
        return stpcpy(to, *at ? "true" : "false");
    case CN_DATATYPE_FP32:
        memcpy(&narrow, at, sizeof(narrow));
        return put_finite((double)narrow, to);
    case CN_DATATYPE_FP64:
        memcpy(&wide, at, sizeof(wide));
        return put_finite(wide, to);
    case CN_DATATYPE_INT8:
    case CN_DATATYPE_INT16:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_INT64:
        return cn_put_int(integer_at(at, bytes), to);
    default:
        return cn_put_uint(natural_at(at, bytes), to);
    }
}

void
cn_v2_write_value(enum cn_datatype type, const char *at, struct cn_buf *out)
{
    char *to = cn_buf_reserve(out, CN_NUMBER_MAX);

    if (to)
        out->len = (size_t)(put_value(type, at, to) - out->data);
}

bool
cn_v2_has_json(enum cn_datatype type)
{
    return type != CN_DATATYPE_FP16 && type != CN_DATATYPE_BF16;
}

int
cn_v2_refuse_json(enum cn_datatype type, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST, CN_V2_NO_JSON, cn_datatype_word(type));
}

int
cn_v2_write_values(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);
    const char *comma = "";
    struct cn_reader reader;
    struct cn_str element;

    if (!cn_v2_has_json(tensor->type))
        return cn_v2_refuse_json(tensor->type, err);
    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (tensor->type == CN_DATATYPE_BYTES && cn_tensor_next(&reader, &element)) {
        cn_buf_puts(out, comma);
        cn_v2_write_text(element, out);
        comma = ",";
    }
    for (size_t at = 0; bytes && at < tensor->data.len; at += bytes) {
        char *to = cn_buf_reserve(out, 1 + CN_NUMBER_MAX);

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

/* Writes one output: its name, datatype and shape, and its data unless it follows as binary data or
 * lies in shared memory. */
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

/* Appends the binary tensors, which have `left` bytes together. May leave the last one to the
 * caller. */
static void
append_binary(const struct cn_v2_answer *answer, const struct cn_v2_request *request, size_t left,
              struct cn_buf *out, struct cn_str *last)
{
    struct cn_v2_output otherwise;

    for (uint32_t i = 0; i < answer->n_tensors; i++) {
        const struct cn_str data = answer->tensors[i].data;
        const struct cn_v2_output *output =
            cn_v2_wanted(request, answer->tensors[i].name, &otherwise);

        if (!output || !output->binary)
            continue;
        left -= data.len;
        if (last && left == 0 && data.len >= CN_V2_BORROWED_BYTES) {
            *last = data;
            return;
        }
        cn_buf_append_str(out, data);
    }
}

int
cn_v2_write(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
            struct cn_buf *out, size_t *json_len, struct cn_str *last, struct cn_error *err)
{
    const size_t begun = out->len;
    const char *comma = "";
    struct cn_v2_output otherwise;
    size_t binary_bytes = 0;
    int rc;

    *json_len = 0;
    if (last)
        *last = CN_STR("");
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
    append_binary(answer, request, binary_bytes, out, last);
    return 0;
}

/* Writes declared tensors; a model with batches has a first dimension of -1. */
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
