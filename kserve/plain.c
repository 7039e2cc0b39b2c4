/* kserve/plain.c - reads one raw tensor, or {name: values}, and writes {name: values}. Any thread.
 *
 * {name: values} is the form for people with curl: {"X": [[1, 2], [3, 4]]}. It has no datatype and
 * no shape. The datatype is the declared one, and the shape is measured: all lists of one depth
 * must have the same length. {"X": 5} becomes a tensor of the declared rank with sizes of 1.
 *
 * Example: a model declares the input x with dims [2] and batches, so its tensors have rank 2.
 *   {"x": [1, 2]}            shape [2] is measured; a batch of 1 is put in front: [1, 2]
 *   {"x": [[1, 2], [3, 4]]}  shape [2, 2], two rows
 *   {"x": [[1, 2], [3]]}     refused: its lists differ in length
 * A raw tensor has its bytes and nothing else. One size may be open (-1) and follows from the
 * number of bytes. */
#include "kserve/plain.h"

#include <inttypes.h>
#include <string.h>

#include "kserve/infer_answer.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"

/* --- a raw tensor --- */

/* Makes a BYTES tensor of one string: the protocol writes its length in front of it. */
static int
raw_string(struct cn_str body, struct cn_arena *arena, struct cn_tensor *tensor,
           struct cn_error *err)
{
    const uint32_t len = (uint32_t)body.len;
    char *bytes;

    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] != 1)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "[request id: <id_unknown>] For BYTE datatype raw input '%.*s', the "
                           "model must have input shape [1]",
                           CN_STR_ARG(tensor->name));
    bytes = body.len <= UINT32_MAX ? cn_arena_try_alloc(arena, sizeof(len) + body.len) : NULL;
    if (!bytes)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for input '%.*s'",
                       CN_STR_ARG(tensor->name));
    memcpy(bytes, &len, sizeof(len)); /* little-endian, as this machine */
    if (len)
        memcpy(bytes + sizeof(len), body.ptr, len);
    tensor->data = (struct cn_str){bytes, sizeof(len) + len};
    return 0;
}

/* Computes an open size from the number of bytes; whether they fit exactly is checked later. */
static int
raw_shape(struct cn_str body, struct cn_tensor *tensor, struct cn_error *err)
{
    uint64_t row = cn_datatype_bytes(tensor->type);
    int64_t *open = NULL;

    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0 && open)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "[request id: <id_unknown>] The shape of the raw input '%.*s' can not "
                           "be deduced because there are more than one variable-sized dimension",
                           CN_STR_ARG(tensor->name));
        if (tensor->shape[i] < 0)
            open = &tensor->shape[i];
        else if (__builtin_mul_overflow(row, (uint64_t)tensor->shape[i], &row))
            row = 0;
    }
    if (open)
        *open = row ? (int64_t)(body.len / row) : 0;
    tensor->data = body;
    return 0;
}

int
cn_v2_read_raw(struct cn_str body, const struct cn_model_io *io, const char *model,
               struct cn_arena *arena, struct cn_v2_request *out, struct cn_error *err)
{
    const struct cn_tensor_spec *spec = io->inputs;
    const uint32_t skip = io->max_batch_size > 0;
    struct cn_tensor *tensor;

    *out = (struct cn_v2_request){.batch = 1, .binary_by_default = true};
    if (io->n_inputs != 1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to "
                       "be deduced but got %u inputs in '%s' model configuration",
                       io->n_inputs, model);
    if (spec->rank + skip > CN_TENSOR_RANK_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "input '%.*s' has %u dimensions; the limit is %d",
                       CN_STR_ARG(spec->name), spec->rank + skip, CN_TENSOR_RANK_MAX);
    tensor = cn_arena_alloc(arena, sizeof(*tensor));
    *tensor = (struct cn_tensor){.name = spec->name, .type = spec->type, .rank = spec->rank + skip};
    if (spec->samples) /* the worker knows the encoding */
        tensor->type = CN_DATATYPE_UINT8;
    tensor->shape[0] = 1;
    memcpy(tensor->shape + skip, spec->dims, sizeof(spec->dims[0]) * spec->rank);
    out->inputs = tensor;
    out->n_inputs = 1;
    return spec->type == CN_DATATYPE_BYTES ? raw_string(body, arena, tensor, err)
                                           : raw_shape(body, tensor, err);
}

int
cn_v2_read_index(struct cn_str body, bool *ready_only, struct cn_error *err)
{
    const json_t *ready;
    json_t *root;
    int rc;

    *ready_only = false;
    if (body.len == 0)
        return 0;
    if ((rc = cn_v2_json_load(body, &root, err)))
        return rc;
    ready = json_object_get(root, "ready");
    *ready_only = json_is_true(ready);
    if (ready && !json_is_boolean(ready))
        rc = cn_fail(err, CN_E_BAD_REQUEST, "Invalid value for 'ready': expected a boolean");
    json_decref(root);
    return rc;
}

/* --- {name: values} --- */

struct measure {
    struct cn_tensor *tensor;
    bool deep; /* a value was seen, so the rank is known */
};

/* Measures the shape of nested lists. Returns false when two lists of one depth differ in length.
 * The reader has limited the depth.
 *
 * The first value that is not a list ends the search for the rank. Until then each new depth adds a
 * size; after that each list must have the size that its depth has already. */
static bool
measure(struct measure *m, const json_t *value, uint32_t depth)
{
    struct cn_tensor *tensor = m->tensor;
    size_t n;

    if (!json_is_array(value)) {
        m->deep = true;
        return depth == tensor->rank;
    }
    n = json_array_size(value);
    if (depth == tensor->rank) {
        if (m->deep || depth == CN_TENSOR_RANK_MAX)
            return false;
        tensor->shape[tensor->rank++] = (int64_t)n;
    } else if (tensor->shape[depth] != (int64_t)n) {
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!measure(m, json_array_get(value, i), depth + 1))
            return false;
    return true;
}

/* Reads one input. A value without a list around it gets one, since cn_v2_values() takes lists. */
static int
read_values(const json_t *value, uint32_t rank, const struct cn_v2_limits *limits,
            struct cn_arena *arena, struct cn_tensor *tensor, struct cn_error *err)
{
    struct measure m = {tensor, false};
    json_t *list;
    int rc;

    if (!measure(&m, value, 0))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "input '%.*s': its lists differ in length or are nested deeper than %d",
                       CN_STR_ARG(tensor->name), CN_TENSOR_RANK_MAX);
    for (; tensor->rank < rank; tensor->rank++) {
        memmove(tensor->shape + 1, tensor->shape, sizeof(tensor->shape[0]) * tensor->rank);
        tensor->shape[0] = 1;
    }
    if (json_is_array(value))
        return cn_v2_values(value, limits->json_bytes, arena, tensor, err);
    list = json_pack("[O]", value);
    if (!list)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for input '%.*s'",
                       CN_STR_ARG(tensor->name));
    rc = cn_v2_values(list, limits->json_bytes, arena, tensor, err);
    json_decref(list);
    return rc;
}

static int
read_members(const json_t *root, const struct cn_model_io *io, const char *model,
             const struct cn_v2_limits *limits, struct cn_arena *arena, struct cn_v2_request *out,
             struct cn_error *err)
{
    const uint32_t skip = io->max_batch_size > 0;
    const char *key;
    json_t *value;
    int rc;

    if (!json_is_object(root))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a typed model takes a JSON object of input names and values, such as "
                       "{\"%.*s\": [...]}",
                       CN_STR_ARG(io->inputs[0].name));
    out->inputs = cn_arena_alloc(arena, sizeof(*out->inputs) * io->n_inputs);
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        const struct cn_tensor_spec *spec = cn_model_io_input(io, cn_str_from(key), 0);
        struct cn_tensor *tensor;

        if (!spec) /* a key is there once, so there cannot be more inputs than the model has */
            return cn_fail(err, CN_E_BAD_REQUEST, "unexpected inference input '%s' for model '%s'",
                           key, model);
        tensor = &out->inputs[out->n_inputs++];
        *tensor = (struct cn_tensor){.name = spec->name, .type = spec->type};
        if ((rc = read_values(value, spec->rank + skip, limits, arena, tensor, err)))
            return rc;
    }
    return 0;
}

int
cn_v2_read_named(struct cn_str body, const struct cn_model_io *io, const char *model,
                 const struct cn_v2_limits *limits, struct cn_arena *arena,
                 struct cn_v2_request *out, struct cn_error *err)
{
    json_t *root;
    int rc;

    *out = (struct cn_v2_request){.batch = 1};
    rc = cn_v2_json_load(body, &root, err);
    if (!rc) {
        rc = read_members(root, io, model, limits, arena, out, err);
        json_decref(root);
    }
    if (rc == CN_E_INTERNAL) /* in v2, this error stands for a client's mistake */
        rc = err->code = CN_E_BAD_REQUEST;
    return rc;
}

struct nest {
    const struct cn_tensor *tensor;
    struct cn_reader reader; /* the elements that are not written yet */
    struct cn_buf *out;
};

static void
write_nested(struct nest *nest, uint32_t depth)
{
    const struct cn_tensor *tensor = nest->tensor;
    struct cn_str element;

    if (depth < tensor->rank) {
        cn_buf_puts(nest->out, "[");
        for (int64_t i = 0; i < tensor->shape[depth]; i++) {
            cn_buf_puts(nest->out, i ? "," : "");
            write_nested(nest, depth + 1);
        }
        cn_buf_puts(nest->out, "]");
    } else if (tensor->type == CN_DATATYPE_BYTES) {
        if (cn_tensor_next(&nest->reader, &element))
            cn_v2_write_text(element, nest->out);
    } else {
        element = cn_read_bytes(&nest->reader, cn_datatype_bytes(tensor->type));
        if (element.ptr)
            cn_v2_write_value(tensor->type, element.ptr, nest->out);
    }
}

static int
no_numbers(struct cn_str output, enum cn_datatype type, struct cn_error *err)
{
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "output '%.*s' is %s, which JSON numbers cannot express; request it as binary "
                   "data from /v2/models/NAME/infer",
                   CN_STR_ARG(output), cn_datatype_word(type));
}

int
cn_v2_check_named(const struct cn_model_io *io, struct cn_error *err)
{
    for (uint32_t i = 0; i < io->n_outputs; i++)
        if (!cn_v2_has_json(io->outputs[i].type))
            return no_numbers(io->outputs[i].name, io->outputs[i].type, err);
    return 0;
}

int
cn_v2_write_named(const struct cn_tensor *tensors, uint32_t n, struct cn_buf *out,
                  struct cn_error *err)
{
    cn_buf_puts(out, "{");
    for (uint32_t i = 0; i < n; i++) {
        struct nest nest = {.tensor = &tensors[i], .out = out};
        uint64_t elements = 0;

        if (!cn_v2_has_json(tensors[i].type))
            return no_numbers(tensors[i].name, tensors[i].type, err);
        cn_buf_puts(out, i ? "," : "");
        cn_v2_write_text(tensors[i].name, out);
        cn_buf_puts(out, ":");
        cn_reader_init(&nest.reader, tensors[i].data.ptr, tensors[i].data.len);
        if (cn_shape_elements(tensors[i].shape, tensors[i].rank, &elements) && elements > 0)
            write_nested(&nest, 0);
        else /* its other sizes do not matter: the tensor holds nothing */
            cn_buf_puts(out, "[]");
    }
    cn_buf_puts(out, "}");
    return 0;
}
