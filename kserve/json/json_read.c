/* kserve/json/json_read.c - reads the JSON of an inference request and the binary tensors after it.
 * Any thread.
 *
 * The document is read in the protocol's order (id, parameters, inputs, outputs) and not in its
 * own, so that of several errors the same one is always reported first.
 *
 * There are two ways. A request in plain JSON, or with a sequence, is tried with read_cut() first:
 * json_numbers.h cuts out the arrays of numbers and what else differs from one request to the next,
 * and json_heads.h may have the rest in its cache. If anything is unusual, the attempt leaves no
 * trace, and the request is read again as one document, which then reports the error.
 *
 * All numbers and sizes of the client are checked before memory is allocated for them.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kserve/json/json_heads.h"
#include "kserve/json/json_numbers.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"
#include "kserve/request.h"

struct reader {
    struct cn_v2_request *out;
    struct cn_arena *arena;
    const struct cn_v2_limits *limits;
    const char *model;
    struct cn_str tail;      /* the binary data that no input has taken yet */
    struct cn_v2_cuts *cuts; /* what was cut out of the document; NULL: nothing was */
    struct cn_error *err;
};

/* Where an input's data comes from: exactly one of the three must be given. */
struct source {
    const json_t *data;
    bool is_binary, is_shared;
    uint64_t binary_bytes;
    struct cn_v2_window window;
};

/* The protocol's error for a value of a wrong type. */
static int
unable(const struct reader *reader, const char *key, const char *got, const char *wanted)
{
    return cn_fail(reader->err, CN_E_INTERNAL,
                   "Unable to parse '%s': attempt to access JSON non-%s as %s", key, got, wanted);
}

static int
missing(const struct reader *reader, const char *key)
{
    return cn_fail(reader->err, CN_E_INTERNAL,
                   "Unable to parse '%s': attempt to access non-existing object member '%s'", key,
                   key);
}

/* Copies a string of the document, since the document is freed before the request is. */
static struct cn_str
text_of(const struct reader *reader, const json_t *value)
{
    return cn_arena_str(reader->arena, cn_v2_json_text(value));
}

static int
read_string(const struct reader *reader, const json_t *map, const char *key, bool required,
            struct cn_str *out)
{
    const json_t *value;

    if (!(value = cn_v2_json_get(map, key)))
        return required ? missing(reader, key) : 0;
    if (!cn_v2_json_is_string(value))
        return unable(reader, key, "string", "string");
    *out = text_of(reader, value);
    return 0;
}

static int
read_bool(const struct reader *reader, const char *key, const json_t *value, bool *out)
{
    if (!json_is_boolean(value))
        return unable(reader, key, "boolean", "boolean");
    *out = json_is_true(value);
    return 0;
}

static int
read_uint(const struct reader *reader, const char *key, const json_t *value, uint64_t *out)
{
    if (!cn_v2_json_uint(value, out))
        return unable(reader, key, "unsigned-integer", "unsigned-integer");
    return 0;
}

/* Takes a field that was cut out of the document. Returns false if it was not. */
static bool
cut_field(const struct reader *reader, enum cn_v2_field field, struct cn_str *out, bool *is_text)
{
    return reader->cuts && cn_v2_cut_field(reader->cuts, field, out, is_text);
}

/* Reads the id of a request, which is not that of a sequence. */
static int
read_id(const struct reader *reader, const json_t *root)
{
    struct cn_str text;
    bool is_text;

    if (!cut_field(reader, CN_V2_FIELD_ID, &text, &is_text))
        return read_string(reader, root, "id", false, &reader->out->id);
    reader->out->id = cn_arena_str(reader->arena, text);
    return 0;
}

/* An id is an integer or a text; 0 and "" stand for no sequence. */
static int
read_sequence_id(const struct reader *reader, const char *key, const json_t *value)
{
    struct cn_v2_request *out = reader->out;
    struct cn_str cut, *text = &out->sequence_text;
    bool is_text;

    *text = CN_STR("");
    if (cut_field(reader, CN_V2_FIELD_SEQUENCE_ID, &cut, &is_text)) {
        if (is_text)
            *text = cn_arena_str(reader->arena, cut);
        else
            out->sequence_number = cn_v2_cut_number(cut);
    } else if (cn_v2_json_is_string(value)) {
        *text = text_of(reader, value);
    } else if (!cn_v2_json_uint(value, &out->sequence_number)) {
        return unable(reader, key, "string", "string");
    }
    out->sequence_kind = text->len              ? CN_V2_ID_TEXT
                         : out->sequence_number ? CN_V2_ID_NUMBER
                                                : CN_V2_NO_ID;
    return 0;
}

/* Reads the expected step number; its range is checked together with the header's. */
static int
read_step(const struct reader *reader, const json_t *value)
{
    struct cn_str cut;
    bool is_text;

    if (cut_field(reader, CN_V2_FIELD_SEQUENCE_STEP, &cut, &is_text))
        reader->out->step = cn_v2_cut_number(cut);
    else if (!cn_v2_json_uint(value, &reader->out->step))
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter sequence_step must be an integer; steps are counted from 1");
    reader->out->has_step = true;
    return 0;
}

/* Reads one of the request's parameters: one that the protocol defines, or one for the model. */
static int
read_parameter(const struct reader *reader, const char *key, const json_t *value)
{
    struct cn_v2_request *out = reader->out;
    int rc;

    if (strcmp(key, "sequence_id") == 0)
        return read_sequence_id(reader, key, value);
    if (strcmp(key, "sequence_start") == 0)
        return read_bool(reader, key, value, &out->start);
    if (strcmp(key, "sequence_end") == 0)
        return read_bool(reader, key, value, &out->end);
    if (strcmp(key, "sequence_step") == 0)
        return read_step(reader, value);
    if (strcmp(key, "priority") == 0)
        return read_uint(reader, key, value, &out->priority);
    if (strcmp(key, "timeout") == 0)
        return read_uint(reader, key, value, &out->timeout_us);
    if (strcmp(key, "binary_data_output") == 0)
        return read_bool(reader, key, value, &out->binary_by_default);
    if (strncmp(key, "triton_", 7) == 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter keys starting with 'triton_' are reserved for Triton usage and "
                       "should not be specified.");
    if ((rc =
             cn_v2_json_param(key, value, reader->arena, &out->params[out->n_params], reader->err)))
        return rc;
    out->n_params++;
    return 0;
}

static int
read_parameters(const struct reader *reader, const json_t *root)
{
    json_t *map, *value;
    const char *key;
    size_t count;
    int rc;

    if (!(map = cn_v2_json_get(root, "parameters")))
        return 0;
    if (!json_is_object(map))
        return unable(reader, "parameters", "object", "object");
    count = json_object_size(map);
    if (count > CN_V2_PARAMS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "the request has %zu parameters; the limit is %d", count, CN_V2_PARAMS_MAX);
    reader->out->params =
        cn_arena_alloc(reader->arena, sizeof(struct cn_v2_param) * (count ? count : 1));
    json_object_foreach(map, key, value)
    {
        if ((rc = read_parameter(reader, key, value)))
            return rc;
    }
    return 0;
}

static int
read_shape(const struct reader *reader, const json_t *input, struct cn_tensor *tensor)
{
    const json_t *list;
    size_t n;

    if (!(list = cn_v2_json_get(input, "shape")))
        return missing(reader, "shape");
    if (!json_is_array(list))
        return unable(reader, "shape", "array", "array");
    n = json_array_size(list);
    if (n > CN_TENSOR_RANK_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "input '%.*s' has %zu dimensions; the limit is %d", CN_STR_ARG(tensor->name),
                       n, CN_TENSOR_RANK_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *dim = json_array_get(list, i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return unable(reader, "shape", "unsigned-integer", "unsigned-integer");
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
        return unable(reader, "shared_memory_region", "string", "string");
    window->region = text_of(reader, value);
    if (window->region.len == 0)
        return cn_fail(reader->err, CN_E_NOT_FOUND, "Unable to find shared memory region: ''");
    value = cn_v2_json_get(params, "shared_memory_byte_size");
    if (!value)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "'shared_memory_byte_size' must be specified along with "
                       "'shared_memory_region' parameter for tensor '%.*s'",
                       CN_STR_ARG(tensor));
    if ((rc = read_uint(reader, "shared_memory_byte_size", value, &window->bytes)))
        return rc;
    if ((value = cn_v2_json_get(params, "shared_memory_offset")))
        rc = read_uint(reader, "shared_memory_offset", value, &window->offset);
    return rc;
}

/* Finds where an input's data is. Exactly one of these must be given: data, a binary part, or a
 * region of shared memory. */
static int
read_source(const struct reader *reader, const json_t *input, struct cn_str name,
            struct source *source)
{
    const json_t *params, *value;
    unsigned found;
    int rc;

    *source = (struct source){0};
    source->data = cn_v2_json_get(input, "data");
    if ((params = cn_v2_json_get(input, "parameters"))) {
        if (!json_is_object(params))
            return unable(reader, "parameters", "object", "object");
        if ((value = cn_v2_json_get(params, "binary_data_size"))) {
            if ((rc = read_uint(reader, "binary_data_size", value, &source->binary_bytes)))
                return rc;
            source->is_binary = true;
        }
        if ((rc = read_window(reader, params, name, &source->window)))
            return rc;
        source->is_shared = source->window.region.len > 0;
    }
    found = (source->data != NULL) + source->is_binary + source->is_shared;
    if (found == 1)
        return 0;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "Input must set only one of the following fields: 'data', 'binary_data_size' in "
                   "'parameters', 'shared_memory_region' in 'parameters'. But%s%s%s%s",
                   found ? " set" : " no field is set", source->data ? " 'data'" : "",
                   source->is_binary ? " 'binary_data_size'" : "",
                   source->is_shared ? " 'shared_memory_region'" : "");
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

static int
read_input(struct reader *reader, const json_t *input, struct cn_tensor *tensor,
           struct cn_v2_window *window)
{
    struct source source;
    struct cn_str word;
    int rc;

    *tensor = (struct cn_tensor){0};
    if (!json_is_object(input))
        return unable(reader, "inputs", "object", "object");
    if ((rc = read_string(reader, input, "name", true, &tensor->name)) ||
        (rc = read_string(reader, input, "datatype", true, &word)))
        return rc;
    tensor->type = cn_datatype_parse(word);
    if (tensor->type == CN_DATATYPE_NONE ||
        !cn_str_eq(word, cn_str_from(cn_datatype_word(tensor->type))))
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "invalid datatype for input %.*s",
                       CN_STR_ARG(tensor->name));
    if ((rc = read_shape(reader, input, tensor)) ||
        (rc = read_source(reader, input, tensor->name, &source)))
        return rc;
    *window = source.window;
    if (source.is_shared)
        return 0; /* cn_shm_read() reads it */
    if (source.is_binary)
        return take_binary(reader, source.binary_bytes, tensor);
    if (reader->cuts)
        return cn_v2_cut_values(reader->cuts, source.data, reader->limits->json_bytes,
                                reader->arena, tensor)
                   ? 0
                   : CN_E_BAD_REQUEST;
    return cn_v2_values(source.data, reader->limits->json_bytes, reader->arena, tensor,
                        reader->err);
}

static int
read_inputs(struct reader *reader, const json_t *root)
{
    struct cn_v2_request *out = reader->out;
    const json_t *list;
    size_t n;
    int rc;

    if (!(list = cn_v2_json_get(root, "inputs")))
        return missing(reader, "inputs");
    if (!json_is_array(list))
        return unable(reader, "inputs", "array", "array");
    n = json_array_size(list);
    if (n > CN_MODEL_TENSORS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "the request has %zu inputs; the limit is %d",
                       n, CN_MODEL_TENSORS_MAX);
    out->inputs = cn_arena_alloc(reader->arena, sizeof(*out->inputs) * (n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        struct cn_v2_window window = {.held = NULL};

        if ((rc = read_input(reader, json_array_get(list, i), &out->inputs[i], &window)))
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

static int
read_output(const struct reader *reader, const json_t *value, struct cn_v2_output *output)
{
    const json_t *params, *field;
    int rc;

    *output = (struct cn_v2_output){0};
    if (!json_is_object(value))
        return unable(reader, "outputs", "object", "object");
    if ((rc = read_string(reader, value, "name", true, &output->name)) ||
        !(params = cn_v2_json_get(value, "parameters")))
        return rc;
    if (!json_is_object(params))
        return unable(reader, "parameters", "object", "object");
    if ((field = cn_v2_json_get(params, "binary_data")) &&
        (rc = read_bool(reader, "binary_data", field, &output->binary)))
        return rc;
    if ((field = cn_v2_json_get(params, "classification")) &&
        (rc = read_uint(reader, "classification", field, &output->classes)))
        return rc;
    if ((rc = read_window(reader, params, output->name, &output->window)) ||
        output->window.region.len == 0 || (!output->classes && !output->binary))
        return rc;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "Output can't set both 'shared_memory_region' and '%s'",
                   output->classes ? "classification" : "binary_data");
}

/* Reads the list of requested outputs; without one, the model's outputs are all sent. */
static int
read_outputs(const struct reader *reader, const json_t *root)
{
    struct cn_v2_request *out = reader->out;
    const json_t *list;
    size_t n;
    int rc;

    if (!(list = cn_v2_json_get(root, "outputs")))
        return 0;
    if (!json_is_array(list))
        return unable(reader, "outputs", "array", "array");
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

static int
read_root(struct reader *reader, const json_t *root)
{
    int rc;

    if (!json_is_object(root))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "failed to parse the request JSON buffer: the document is not an object");
    rc = read_id(reader, root);
    if (!rc)
        rc = read_parameters(reader, root);
    if (!rc)
        rc = read_inputs(reader, root);
    if (!rc)
        rc = read_outputs(reader, root);
    return rc;
}

/* Tries to read the request without what json_numbers.h cuts out of it. Returns false when that is
 * not possible; the caller then reads it as if nothing had happened. */
static bool
read_cut(struct cn_str json, const struct reader *like)
{
    struct reader reader = *like;
    struct cn_v2_cuts cuts;
    json_t *root;
    int rc;

    if (!cn_v2_cut(json, &cuts))
        return false;
    reader.cuts = &cuts;
    reader.err = NULL; /* the full document will report the error */
    rc = cn_v2_json_head(cn_v2_cut_head(&cuts), &root, NULL);
    if (!rc) {
        rc = read_root(&reader, root);
        json_decref(root);
    }
    if (!rc && cuts.taken == cuts.found) /* what nobody took has not been checked */
        return true;
    *reader.out = (struct cn_v2_request){.batch = 1};
    return false;
}

int
cn_v2_read(struct cn_str body, size_t json_len, const char *model,
           const struct cn_v2_limits *limits, struct cn_arena *arena, struct cn_v2_request *out,
           struct cn_error *err)
{
    struct reader reader = {.out = out,
                            .arena = arena,
                            .limits = limits,
                            .model = model,
                            .tail = {body.ptr + json_len, body.len - json_len},
                            .err = err};
    json_t *root;
    int rc;

    *out = (struct cn_v2_request){.batch = 1};
    if (json_len > limits->json_bytes || json_len > INT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "request JSON size of %zu bytes exceeds the maximum allowed input size of "
                       "%zu bytes. Use --max-v2-request-size to increase the limit.",
                       json_len, limits->json_bytes);
    /* A client whose tensors are binary always sends the same JSON, unless it names sequences. */
    if ((reader.tail.len == 0 || memmem(body.ptr, json_len, "sequence_", 9)) &&
        read_cut((struct cn_str){body.ptr, json_len}, &reader))
        return 0;
    rc = (reader.tail.len ? cn_v2_json_head : cn_v2_json_load)((struct cn_str){body.ptr, json_len},
                                                               &root, err);
    if (rc)
        return rc;
    rc = read_root(&reader, root);
    json_decref(root);
    return rc;
}

int
cn_v2_read_json_length(struct cn_str header, size_t body_len, size_t *out, struct cn_error *err)
{
    char text[32], *end;
    long long value;

    if (header.len == 0 || header.len >= sizeof(text))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, got: %.*s",
                       (int)(header.len < 64 ? header.len : 64), header.ptr ? header.ptr : "");
    memcpy(text, header.ptr, header.len);
    text[header.len] = '\0';
    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, got: %s", text);
    if (errno || value < INT_MIN || value > INT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Unable to parse Inference-Header-Content-Length, value is out of range "
                       "[ -2147483648, 2147483647 ], got: %s",
                       text);
    if (value < 0 || (size_t)value > body_len)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "inference header size should be in range (0, %zu), got: %s", body_len,
                       text);
    *out = (size_t)value;
    return 0;
}
