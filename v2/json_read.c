/* v2/json_read.c - the JSON of an inference request and the binary tensors behind it. Any thread.
 *
 * json-c, strictly: it reads integers up to UINT64_MAX, and NaN and Infinity, which v2 clients send;
 * jansson, which the rest of the server uses, does neither.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <json-c/json.h>

#include "v2/json_values.h"
#include "v2/request.h"

#define DEPTH_MAX 100
#define PARAMS_MAX 1024

struct reader {
    struct cn_v2_request *out;
    struct cn_arena *arena;
    const struct cn_v2_limits *limits;
    const char *model;
    struct cn_str tail; /* binary inputs that are not taken yet */
    struct cn_error *err;
};

/* Where each input's data comes from. */
struct source {
    struct json_object *data;
    bool is_binary, is_shared;
    uint64_t binary_bytes;
};

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

/* Of a json-c string, copied: the document goes away before the request does. */
static struct cn_str
text_of(const struct reader *reader, struct json_object *value)
{
    return cn_arena_str(reader->arena,
                        (struct cn_str){json_object_get_string(value),
                                        (size_t)json_object_get_string_len(value)});
}

static int
read_string(const struct reader *reader, struct json_object *map, const char *key, bool required,
            struct cn_str *out)
{
    struct json_object *value;

    if (!json_object_object_get_ex(map, key, &value))
        return required ? missing(reader, key) : 0;
    if (!json_object_is_type(value, json_type_string))
        return unable(reader, key, "string", "string");
    *out = text_of(reader, value);
    return 0;
}

static int
read_bool(const struct reader *reader, const char *key, struct json_object *value, bool *out)
{
    if (!json_object_is_type(value, json_type_boolean))
        return unable(reader, key, "boolean", "boolean");
    *out = json_object_get_boolean(value);
    return 0;
}

static int
read_uint(const struct reader *reader, const char *key, struct json_object *value, uint64_t *out)
{
    if (!json_object_is_type(value, json_type_int) || json_object_get_int64(value) < 0)
        return unable(reader, key, "unsigned-integer", "unsigned-integer");
    *out = json_object_get_uint64(value);
    return 0;
}

static int
read_sequence_id(const struct reader *reader, const char *key, struct json_object *value)
{
    struct cn_v2_request *out = reader->out;

    if (json_object_is_type(value, json_type_int) && json_object_get_int64(value) >= 0) {
        out->sequence_number = json_object_get_uint64(value);
        out->sequence_kind = out->sequence_number ? CN_V2_ID_NUMBER : CN_V2_NO_ID;
        return 0;
    }
    if (!json_object_is_type(value, json_type_string))
        return unable(reader, key, "string", "string");
    out->sequence_text = text_of(reader, value);
    out->sequence_kind = out->sequence_text.len ? CN_V2_ID_TEXT : CN_V2_NO_ID;
    return 0;
}

/* A parameter of the model's own. */
static int
read_custom(const struct reader *reader, const char *key, struct json_object *value)
{
    struct cn_v2_request *out = reader->out;
    struct cn_v2_param *param = &out->params[out->n_params];

    *param = (struct cn_v2_param){
        .name = cn_arena_str(reader->arena, (struct cn_str){key, strlen(key)})};
    switch (json_object_get_type(value)) {
    case json_type_string:
        param->kind = CN_V2_STRING;
        param->text = text_of(reader, value);
        break;
    case json_type_boolean:
        param->kind = CN_V2_BOOL;
        param->boolean = json_object_get_boolean(value);
        break;
    case json_type_int:
        param->integer = json_object_get_int64(value);
        param->number = json_object_get_double(value);
        param->kind = json_object_get_uint64(value) > INT64_MAX && param->integer > 0
                          ? CN_V2_DOUBLE
                          : CN_V2_INT;
        break;
    case json_type_double:
        param->kind = CN_V2_DOUBLE;
        param->number = json_object_get_double(value);
        break;
    default:
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter '%s' has invalid type. It should be either 'int', 'bool', or "
                       "'string'.",
                       key);
    }
    out->n_params++;
    return 0;
}

static int
read_parameter(const struct reader *reader, const char *key, struct json_object *value)
{
    struct cn_v2_request *out = reader->out;

    if (strcmp(key, "sequence_id") == 0)
        return read_sequence_id(reader, key, value);
    if (strcmp(key, "sequence_start") == 0)
        return read_bool(reader, key, value, &out->start);
    if (strcmp(key, "sequence_end") == 0)
        return read_bool(reader, key, value, &out->end);
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
    return read_custom(reader, key, value);
}

static int
read_parameters(const struct reader *reader, struct json_object *root)
{
    struct json_object *map;
    int count, rc;

    if (!json_object_object_get_ex(root, "parameters", &map))
        return 0;
    if (!json_object_is_type(map, json_type_object))
        return unable(reader, "parameters", "object", "object");
    count = json_object_object_length(map);
    if (count > PARAMS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "%d parameters, the limit is %d", count,
                       PARAMS_MAX);
    reader->out->params =
        cn_arena_alloc(reader->arena, sizeof(struct cn_v2_param) * (size_t)(count ? count : 1));
    json_object_object_foreach(map, key, value)
    {
        if ((rc = read_parameter(reader, key, value)))
            return rc;
    }
    return 0;
}

static int
read_shape(const struct reader *reader, struct json_object *input, struct cn_tensor *tensor)
{
    struct json_object *list;
    size_t n;

    if (!json_object_object_get_ex(input, "shape", &list))
        return missing(reader, "shape");
    if (!json_object_is_type(list, json_type_array))
        return unable(reader, "shape", "array", "array");
    n = json_object_array_length(list);
    if (n > CN_TENSOR_RANK_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "input '%.*s' has %zu dimensions, the limit is %d", CN_STR_ARG(tensor->name),
                       n, CN_TENSOR_RANK_MAX);
    for (size_t i = 0; i < n; i++) {
        struct json_object *dim = json_object_array_get_idx(list, i);

        if (!json_object_is_type(dim, json_type_int) || json_object_get_int64(dim) < 0)
            return unable(reader, "shape", "unsigned-integer", "unsigned-integer");
        tensor->shape[i] = json_object_get_int64(dim);
    }
    tensor->rank = (uint32_t)n;
    return 0;
}

/* Exactly one of: data, a binary part, a region of shared memory. */
static int
read_source(const struct reader *reader, struct json_object *input, struct source *source)
{
    struct json_object *params, *value;
    unsigned found;
    int rc;

    *source = (struct source){0};
    json_object_object_get_ex(input, "data", &source->data);
    if (json_object_object_get_ex(input, "parameters", &params)) {
        if (!json_object_is_type(params, json_type_object))
            return unable(reader, "parameters", "object", "object");
        if (json_object_object_get_ex(params, "binary_data_size", &value)) {
            if ((rc = read_uint(reader, "binary_data_size", value, &source->binary_bytes)))
                return rc;
            source->is_binary = true;
        }
        source->is_shared = json_object_object_get_ex(params, "shared_memory_region", NULL);
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
read_input(struct reader *reader, struct json_object *input, struct cn_tensor *tensor)
{
    struct source source;
    struct cn_str word;
    int rc;

    *tensor = (struct cn_tensor){0};
    if (!json_object_is_type(input, json_type_object))
        return unable(reader, "inputs", "object", "object");
    if ((rc = read_string(reader, input, "name", true, &tensor->name)) ||
        (rc = read_string(reader, input, "datatype", true, &word)))
        return rc;
    tensor->type = cn_datatype_parse(word);
    if (tensor->type == CN_DATATYPE_NONE ||
        !cn_str_eq(word, cn_str_from(cn_datatype_word(tensor->type))))
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "invalid datatype for input %.*s",
                       CN_STR_ARG(tensor->name));
    if ((rc = read_shape(reader, input, tensor)) || (rc = read_source(reader, input, &source)))
        return rc;
    if (source.is_shared)
        return cn_fail(reader->err, CN_E_UNIMPLEMENTED,
                       "input '%.*s': this server takes no tensors from shared memory; send them "
                       "as binary data",
                       CN_STR_ARG(tensor->name));
    if (source.is_binary)
        return take_binary(reader, source.binary_bytes, tensor);
    return cn_v2_values(source.data, reader->limits->json_bytes, reader->arena, tensor,
                        reader->err);
}

static int
read_inputs(struct reader *reader, struct json_object *root)
{
    struct cn_v2_request *out = reader->out;
    struct json_object *list;
    size_t n;
    int rc;

    if (!json_object_object_get_ex(root, "inputs", &list))
        return missing(reader, "inputs");
    if (!json_object_is_type(list, json_type_array))
        return unable(reader, "inputs", "array", "array");
    n = json_object_array_length(list);
    if (n > CN_MODEL_TENSORS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "%zu inputs, the limit is %d", n,
                       CN_MODEL_TENSORS_MAX);
    out->inputs = cn_arena_alloc(reader->arena, sizeof(*out->inputs) * (n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        if ((rc = read_input(reader, json_object_array_get_idx(list, i), &out->inputs[i])))
            return rc;
        out->n_inputs++;
    }
    if (reader->tail.len > 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "unexpected additional input data for model '%s'", reader->model);
    return 0;
}

static int
read_output(const struct reader *reader, struct json_object *value, struct cn_v2_output *output)
{
    struct json_object *params, *field;
    int rc;

    *output = (struct cn_v2_output){0};
    if (!json_object_is_type(value, json_type_object))
        return unable(reader, "outputs", "object", "object");
    if ((rc = read_string(reader, value, "name", true, &output->name)) ||
        !json_object_object_get_ex(value, "parameters", &params))
        return rc;
    if (!json_object_is_type(params, json_type_object))
        return unable(reader, "parameters", "object", "object");
    if (json_object_object_get_ex(params, "binary_data", &field) &&
        (rc = read_bool(reader, "binary_data", field, &output->binary)))
        return rc;
    if (json_object_object_get_ex(params, "classification", &field) &&
        (rc = read_uint(reader, "classification", field, &output->classes)))
        return rc;
    if (json_object_object_get_ex(params, "shared_memory_region", NULL))
        return cn_fail(reader->err, CN_E_UNIMPLEMENTED,
                       "output '%.*s': this server writes no tensors to shared memory; ask for "
                       "binary data",
                       CN_STR_ARG(output->name));
    if (output->classes)
        return cn_fail(reader->err, CN_E_UNIMPLEMENTED,
                       "output '%.*s': this server does not classify", CN_STR_ARG(output->name));
    return 0;
}

static int
read_outputs(const struct reader *reader, struct json_object *root)
{
    struct cn_v2_request *out = reader->out;
    struct json_object *list;
    size_t n;
    int rc;

    if (!json_object_object_get_ex(root, "outputs", &list))
        return 0;
    if (!json_object_is_type(list, json_type_array))
        return unable(reader, "outputs", "array", "array");
    n = json_object_array_length(list);
    if (n > CN_MODEL_TENSORS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "%zu outputs, the limit is %d", n,
                       CN_MODEL_TENSORS_MAX);
    out->lists_outputs = n > 0;
    out->outputs = cn_arena_alloc(reader->arena, sizeof(*out->outputs) * (n ? n : 1));
    for (size_t i = 0; i < n; i++) {
        if ((rc = read_output(reader, json_object_array_get_idx(list, i), &out->outputs[i])))
            return rc;
        out->n_outputs++;
    }
    return 0;
}

/* The order of the checks is the protocol's: the first mistake is the one that is told. */
static int
read_root(struct reader *reader, struct json_object *root)
{
    int rc;

    if (!json_object_is_type(root, json_type_object))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "failed to parse the request JSON buffer: the document is no object");
    rc = read_string(reader, root, "id", false, &reader->out->id);
    if (!rc)
        rc = read_parameters(reader, root);
    if (!rc)
        rc = read_inputs(reader, root);
    if (!rc)
        rc = read_outputs(reader, root);
    return rc;
}

static int
parse(const struct reader *reader, struct cn_str json, struct json_object **out)
{
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);
    enum json_tokener_error why;
    size_t at;

    *out = NULL;
    if (!tokener)
        return cn_fail(reader->err, CN_E_OUT_OF_MEMORY, "no memory to read JSON");
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    *out = json_tokener_parse_ex(tokener, json.ptr, (int)json.len);
    why = json_tokener_get_error(tokener);
    at = json_tokener_get_parse_end(tokener);
    json_tokener_free(tokener);
    if (*out)
        return 0;
    if (why == json_tokener_error_depth)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "JSON nesting depth exceeds maximum allowed limit (%d)", DEPTH_MAX);
    return cn_fail(reader->err, CN_E_INTERNAL,
                   "failed to parse the request JSON buffer: %s at %zu",
                   why == json_tokener_continue ? "it ends too early"
                                                : json_tokener_error_desc(why),
                   at);
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
    struct json_object *root;
    int rc;

    *out = (struct cn_v2_request){.batch = 1};
    if (json_len > limits->json_bytes || json_len > INT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "request JSON size of %zu bytes exceeds the maximum allowed input size of "
                       "%zu bytes. Use --max-request-size to increase the limit.",
                       json_len, limits->json_bytes);
    rc = parse(&reader, (struct cn_str){body.ptr, json_len}, &root);
    if (rc)
        return rc;
    rc = read_root(&reader, root);
    json_object_put(root);
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
