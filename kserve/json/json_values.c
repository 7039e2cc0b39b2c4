/* kserve/json/json_values.c - a JSON array becomes a tensor's bytes; parameters. Any thread.
 *
 * The shape decides how many values there must be. So the tensor's memory is allocated before the
 * values are read, after its size has been checked against max-v2-request-size. BYTES have no fixed
 * size; they are collected in a buffer with the same limit.
 *
 * The lists may be nested like the shape or in any other way: [[1, 2], [3, 4]] and [1, 2, 3, 4] are
 * the same for the shape [2, 2]. Only the number of values counts. The texts of errors are those
 * that clients of this protocol know. */
#include "kserve/json/json_values.h"

#include <inttypes.h>
#include <string.h>

#include "kserve/json/json_words.h"

struct fill {
    struct cn_tensor *tensor;
    char *at, *end; /* for elements of a fixed size */
    struct cn_arena *arena;
    struct cn_buf strings; /* for elements of BYTES */
    uint64_t left;         /* how many elements of the shape are missing */
    struct cn_error *err;
};

static int
wrong_type(const struct fill *fill, const char *got, const char *wanted)
{
    return cn_fail(fill->err, CN_E_INTERNAL,
                   "Unable to parse 'data': attempt to access JSON non-%s as %s", got, wanted);
}

static void
put(struct fill *fill, const void *value, size_t bytes)
{
    memcpy(fill->at, value, bytes); /* the low bytes, so integers wrap in narrow types */
    fill->at += bytes;
}

/* Appends one value. A value must be of its own kind: 0 is not a BOOL, and 1.0 is not an
 * integer. */
static int
put_value(struct fill *fill, const json_t *value)
{
    const unsigned bytes = cn_datatype_bytes(fill->tensor->type);
    int64_t integer;
    uint64_t natural;
    double number;
    float narrow;
    uint8_t flag;

    switch (fill->tensor->type) {
    case CN_DATATYPE_BOOL:
        if (!json_is_boolean(value))
            return wrong_type(fill, "boolean", "boolean");
        flag = json_is_true(value);
        put(fill, &flag, 1);
        return 0;
    case CN_DATATYPE_UINT8:
    case CN_DATATYPE_UINT16:
    case CN_DATATYPE_UINT32:
    case CN_DATATYPE_UINT64:
        if (!cn_v2_json_uint(value, &natural))
            return wrong_type(fill, "unsigned-integer", "unsigned-integer");
        put(fill, &natural, bytes);
        return 0;
    case CN_DATATYPE_INT8:
    case CN_DATATYPE_INT16:
    case CN_DATATYPE_INT32:
    case CN_DATATYPE_INT64:
        if (!json_is_integer(value))
            return wrong_type(fill, "signed-integer", "signed-integer");
        integer = json_integer_value(value);
        put(fill, &integer, bytes);
        return 0;
    case CN_DATATYPE_FP32:
    case CN_DATATYPE_FP64:
        if (!cn_v2_json_number(value, &number))
            return wrong_type(fill, "number", "double");
        narrow = (float)number;
        put(fill, bytes == 4 ? (const void *)&narrow : &number, bytes);
        return 0;
    case CN_DATATYPE_BYTES:
        if (!cn_v2_json_is_string(value))
            return wrong_type(fill, "string", "string");
        cn_write_str32(&fill->strings, cn_v2_json_text(value));
        return 0;
    default:
        return cn_fail(fill->err, CN_E_BAD_REQUEST,
                       "receiving %s data via JSON is not supported. Please use the binary data "
                       "format for input %.*s",
                       cn_datatype_word(fill->tensor->type), CN_STR_ARG(fill->tensor->name));
    }
}

/* Appends the values of an array and of the arrays in it. The reader has limited the depth. */
static int
put_array(struct fill *fill, const json_t *array)
{
    const size_t n = json_array_size(array);

    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        int rc;

        if (json_is_array(value)) {
            if ((rc = put_array(fill, value)))
                return rc;
            continue;
        }
        if (fill->left == 0)
            return cn_fail(fill->err, CN_E_INTERNAL,
                           "Unable to parse 'data': %s does not match true shape of 'data' field",
                           fill->tensor->type == CN_DATATYPE_BYTES ? "shape" : "Shape");
        fill->left--;
        if ((rc = put_value(fill, value)))
            return rc;
    }
    return 0;
}

/* Allocates the tensor's bytes, after it has checked their number. */
static int
make_room(struct fill *fill, size_t max_bytes, uint64_t elements)
{
    struct cn_tensor *tensor = fill->tensor;
    uint64_t bytes;

    if (__builtin_mul_overflow(elements, cn_datatype_bytes(tensor->type), &bytes) ||
        bytes > INT64_MAX)
        return cn_fail(fill->err, CN_E_BAD_REQUEST,
                       "byte size overflow for input '%.*s': element count (%" PRIu64
                       ") * data type size (%u) exceeds maximum allowed size (9223372036854775807)",
                       CN_STR_ARG(tensor->name), elements, cn_datatype_bytes(tensor->type));
    if (bytes > max_bytes)
        return cn_fail(fill->err, CN_E_BAD_REQUEST,
                       "JSON input '%.*s' has a byte_size (%" PRIu64
                       " bytes) that exceeds the maximum allowed value of %zu bytes. Use "
                       "--max-v2-request-size to increase the limit.",
                       CN_STR_ARG(tensor->name), bytes, max_bytes);
    fill->at = cn_arena_try_alloc(fill->arena, bytes ? (size_t)bytes : 1);
    if (!fill->at)
        return cn_fail(fill->err, CN_E_OUT_OF_MEMORY, "not enough memory for input '%.*s'",
                       CN_STR_ARG(tensor->name));
    tensor->data = (struct cn_str){fill->at, (size_t)bytes};
    return 0;
}

int
cn_v2_values(const json_t *data, size_t max_bytes, struct cn_arena *arena, struct cn_tensor *tensor,
             struct cn_error *err)
{
    struct fill fill = {.tensor = tensor, .arena = arena, .err = err};
    bool strings = tensor->type == CN_DATATYPE_BYTES;
    int rc;

    if (!json_is_array(data))
        return cn_fail(err, CN_E_INTERNAL,
                       "Unable to parse 'data': attempt to access JSON non-array as array");
    if (!cn_shape_elements(tensor->shape, tensor->rank, &fill.left))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "invalid shape for input '%.*s': shape %s causes total element count to "
                       "exceed maximum size of 9223372036854775807",
                       CN_STR_ARG(tensor->name), cn_shape_text(arena, tensor->shape, tensor->rank));
    if (fill.left == 0 || tensor->rank == 0) /* no model takes a tensor without dimensions */
        return 0; /* an empty tensor: what stands in data is not looked at */
    cn_buf_init(&fill.strings, max_bytes);
    rc = strings ? 0 : make_room(&fill, max_bytes, fill.left);
    if (!rc)
        rc = put_array(&fill, data);
    if (!rc && fill.left > 0)
        rc = cn_fail(err, CN_E_INTERNAL,
                     "Failed to parse 'data' field: shape does not match true shape");
    if (!rc && strings && fill.strings.failed)
        rc = cn_fail(err, CN_E_BAD_REQUEST,
                     "JSON input '%.*s' has a byte_size that exceeds the maximum allowed value of "
                     "%zu bytes. Use --max-v2-request-size to increase the limit.",
                     CN_STR_ARG(tensor->name), max_bytes);
    if (!rc && strings)
        tensor->data = cn_arena_str(arena, cn_buf_str(&fill.strings));
    cn_buf_fini(&fill.strings);
    return rc;
}

int
cn_v2_json_param(const char *key, const json_t *value, struct cn_arena *arena,
                 struct cn_v2_param *out, struct cn_error *err)
{
    *out = (struct cn_v2_param){.name = cn_arena_str(arena, cn_str_from(key))};
    if (cn_v2_json_is_string(value)) {
        out->kind = CN_V2_STRING;
        out->text = cn_arena_str(arena, cn_v2_json_text(value));
    } else if (json_is_boolean(value)) {
        out->kind = CN_V2_BOOL;
        out->boolean = json_is_true(value);
    } else if (json_is_integer(value)) {
        out->kind = CN_V2_INT;
        out->integer = json_integer_value(value);
    } else if (cn_v2_json_number(value, &out->number)) {
        out->kind = CN_V2_DOUBLE;
    } else {
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "parameter '%s' has invalid type. It should be either 'int', 'bool', or "
                       "'string'.",
                       key);
    }
    return 0;
}
