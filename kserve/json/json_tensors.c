/* kserve/json/json_tensors.c - reads the inputs of an inference request, and the outputs that it
 * wants. Any thread. */
#include <inttypes.h>
#include <string.h>

#include "kserve/json/json_read_priv.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"

/* What an input says about its data: exactly one of the three must be given. */
struct given {
    const json_t *data;
    bool is_binary, is_shared;
    uint64_t binary_bytes;
    struct cn_v2_window window;
};

static int
read_shape(const struct reader *reader, const json_t *input, struct cn_tensor *tensor)
{
    const json_t *list;
    size_t n;

    if (!(list = cn_v2_json_get(input, "shape")))
        return cn_v2_field_missing(reader, "shape");
    if (!json_is_array(list))
        return cn_v2_field_unable(reader, "shape", "array", "array");
    n = json_array_size(list);
    if (n > CN_TENSOR_RANK_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "input '%.*s' has %zu dimensions; the limit is %d", CN_STR_ARG(tensor->name),
                       n, CN_TENSOR_RANK_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(list, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return cn_v2_field_unable(reader, "shape", "unsigned-integer", "unsigned-integer");
        tensor->shape[i] = json_integer_value(dim);
    }
    tensor->rank = (uint32_t)n;
    return 0;
}

/* Reads the place in shared memory that a tensor's parameters give, if they do. */
static int
read_window(const struct reader *reader, const json_t *params, struct cn_str tensor,
            struct cn_v2_window *window)
{
    const json_t *value = cn_v2_json_get(params, "shared_memory_region");
    int rc;

    if (!value)
        return 0;
    if (!cn_v2_json_is_string(value))
        return cn_v2_field_unable(reader, "shared_memory_region", "string", "string");
    window->region = cn_v2_field_text(reader, value);
    if (window->region.len == 0)
        return cn_fail(reader->err, CN_E_NOT_FOUND, "Unable to find shared memory region: ''");
    value = cn_v2_json_get(params, "shared_memory_byte_size");
    if (!value)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "'shared_memory_byte_size' must be specified along with "
                       "'shared_memory_region' parameter for tensor '%.*s'",
                       CN_STR_ARG(tensor));
    if ((rc = cn_v2_field_uint(reader, "shared_memory_byte_size", value, &window->bytes)))
        return rc;
    if ((value = cn_v2_json_get(params, "shared_memory_offset")))
        rc = cn_v2_field_uint(reader, "shared_memory_offset", value, &window->offset);
    return rc;
}

/* Finds where an input's data is. Exactly one of these must be given: data, a binary part, or a
 * region of shared memory. */
static int
read_given(const struct reader *reader, const json_t *input, struct cn_str name,
           struct given *given)
{
    const json_t *params, *value;
    unsigned found;
    int rc;

    *given = (struct given){0};
    given->data = cn_v2_json_get(input, "data");
    if ((params = cn_v2_json_get(input, "parameters"))) {
        if (!json_is_object(params))
            return cn_v2_field_unable(reader, "parameters", "object", "object");
        if ((value = cn_v2_json_get(params, "binary_data_size"))) {
            if ((rc = cn_v2_field_uint(reader, "binary_data_size", value, &given->binary_bytes)))
                return rc;
            given->is_binary = true;
        }
        if ((rc = read_window(reader, params, name, &given->window)))
            return rc;
        given->is_shared = given->window.region.len > 0;
    }
    found = (given->data != NULL) + given->is_binary + given->is_shared;
    if (found == 1)
        return 0;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "Input must set only one of the following fields: 'data', 'binary_data_size' in "
                   "'parameters', 'shared_memory_region' in 'parameters'. But%s%s%s%s",
                   found ? " set" : " no field is set", given->data ? " 'data'" : "",
                   given->is_binary ? " 'binary_data_size'" : "",
                   given->is_shared ? " 'shared_memory_region'" : "");
}

/* Takes an input's bytes off the front of the binary data. */
static int
take_binary(struct reader *reader, uint64_t bytes, struct cn_tensor *tensor)
{
    if (bytes > reader->tail.len)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "unexpected size for input '%.*s', expecting %" PRIu64
                       " additional bytes for model '%s'",
                       CN_STR_ARG(tensor->name), bytes - reader->tail.len, reader->model);
    tensor->data = (struct cn_str){reader->tail.ptr, (size_t)bytes};
    reader->tail.ptr += bytes;
    reader->tail.len -= (size_t)bytes;
    return 0;
}

/* Reads an input's data, which are in JSON. */
static int
read_values(struct reader *reader, const json_t *data, struct cn_tensor *tensor,
            struct cn_v2_source *source)
{
    source->from = reader->cuts ? CN_V2_FROM_CUT : CN_V2_FROM_HEAD;
    if (!reader->cuts)
        return cn_v2_values(data, reader->limits->json_bytes, reader->arena, tensor, reader->err);
    return cn_v2_cut_number_of(reader->cuts, data, &source->cut) &&
                   cn_v2_cut_values(reader->cuts, source->cut, reader->limits->json_bytes,
                                    reader->arena, tensor)
               ? 0
               : CN_E_BAD_REQUEST;
}

static int
read_input(struct reader *reader, const json_t *input, struct cn_tensor *tensor,
           struct cn_v2_window *window, struct cn_v2_source *source)
{
    struct given given;
    struct cn_str word;
    int rc;

    *tensor = (struct cn_tensor){0};
    if (!json_is_object(input))
        return cn_v2_field_unable(reader, "inputs", "object", "object");
    if ((rc = cn_v2_field_string(reader, input, "name", true, &tensor->name)) ||
        (rc = cn_v2_field_string(reader, input, "datatype", true, &word)))
        return rc;
    tensor->type = cn_datatype_parse(word);
    if (tensor->type == CN_DATATYPE_NONE ||
        !cn_str_eq(word, cn_str_from(cn_datatype_word(tensor->type))))
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "invalid datatype for input %.*s",
                       CN_STR_ARG(tensor->name));
    if ((rc = read_shape(reader, input, tensor)) ||
        (rc = read_given(reader, input, tensor->name, &given)))
        return rc;
    *window = given.window;
    source->from = given.is_shared ? CN_V2_FROM_SHARED_MEMORY : CN_V2_FROM_TAIL;
    if (given.is_shared)
        return 0; /* cn_shm_read() reads it */
    if (given.is_binary)
        return take_binary(reader, given.binary_bytes, tensor);
    return read_values(reader, given.data, tensor, source);
}

int
cn_v2_read_inputs(struct reader *reader, const json_t *root)
{
    struct cn_v2_request *out = reader->out;
    const json_t *list;
    size_t n;
    int rc;

    if (!(list = cn_v2_json_get(root, "inputs")))
        return cn_v2_field_missing(reader, "inputs");
    if (!json_is_array(list))
        return cn_v2_field_unable(reader, "inputs", "array", "array");
    n = json_array_size(list);
    if (n > CN_MODEL_TENSORS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "the request has %zu inputs; the limit is %d",
                       n, CN_MODEL_TENSORS_MAX);
    out->inputs = cn_arena_alloc(reader->arena, sizeof(*out->inputs) * (n ? n : 1));
    reader->sources = cn_arena_alloc(reader->arena, sizeof(*reader->sources) * (n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        struct cn_v2_window window = {.held = NULL};

        if ((rc = read_input(reader, json_array_get(list, i), &out->inputs[i], &window,
                             &reader->sources[i])))
            return rc;
        if (window.region.len && !out->windows) {
            out->windows = cn_arena_alloc(reader->arena, sizeof(*out->windows) * n);
            memset(out->windows, 0, sizeof(*out->windows) * n);
        }
        if (window.region.len)
            out->windows[i] = window;
        out->n_inputs++;
    }
    if (reader->tail.len > 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "unexpected additional input data for model '%s'", reader->model);
    return 0;
}

bool
cn_v2_fill_inputs(struct reader *reader, const struct cn_v2_source *sources)
{
    for (uint32_t i = 0; i < reader->out->n_inputs; i++) {
        struct cn_tensor *tensor = &reader->out->inputs[i];

        if (sources[i].from == CN_V2_FROM_TAIL && take_binary(reader, tensor->data.len, tensor))
            return false;
        if (sources[i].from == CN_V2_FROM_CUT &&
            !(reader->cuts && cn_v2_cut_values(reader->cuts, sources[i].cut,
                                               reader->limits->json_bytes, reader->arena, tensor)))
            return false;
    }
    return reader->tail.len == 0;
}

static int
read_output(const struct reader *reader, const json_t *value, struct cn_v2_output *output)
{
    const json_t *params, *field;
    int rc;

    *output = (struct cn_v2_output){0};
    if (!json_is_object(value))
        return cn_v2_field_unable(reader, "outputs", "object", "object");
    if ((rc = cn_v2_field_string(reader, value, "name", true, &output->name)) ||
        !(params = cn_v2_json_get(value, "parameters")))
        return rc;
    if (!json_is_object(params))
        return cn_v2_field_unable(reader, "parameters", "object", "object");
    if ((field = cn_v2_json_get(params, "binary_data")) &&
        (rc = cn_v2_field_bool(reader, "binary_data", field, &output->binary)))
        return rc;
    if ((field = cn_v2_json_get(params, "classification")) &&
        (rc = cn_v2_field_uint(reader, "classification", field, &output->classes)))
        return rc;
    if ((rc = read_window(reader, params, output->name, &output->window)) ||
        output->window.region.len == 0 || (!output->classes && !output->binary))
        return rc;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "Output can't set both 'shared_memory_region' and '%s'",
                   output->classes ? "classification" : "binary_data");
}

int
cn_v2_read_outputs(const struct reader *reader, const json_t *root)
{
    struct cn_v2_request *out = reader->out;
    const json_t *list;
    size_t n;
    int rc;

    if (!(list = cn_v2_json_get(root, "outputs")))
        return 0;
    if (!json_is_array(list))
        return cn_v2_field_unable(reader, "outputs", "array", "array");
    n = json_array_size(list);
    if (n > CN_MODEL_TENSORS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "the request has %zu outputs; the limit is %d", n, CN_MODEL_TENSORS_MAX);
    out->lists_outputs = n > 0;
    out->outputs = cn_arena_alloc(reader->arena, sizeof(*out->outputs) * (n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        if ((rc = read_output(reader, json_array_get(list, i), &out->outputs[i])))
            return rc;
        out->n_outputs++;
    }
    return 0;
}
