/* kserve/generate.c - the generate extension. Any thread.
 *
 * The extension has no shapes: a list is flat, and its length must fill the declared shape.
 * set_shape() divides the number of values by the sizes that are known; what is left is the last
 * open size. Example: declared [-1, 3] and 6 values give [2, 3].
 */
#include "kserve/generate.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"

struct reader {
    struct cn_v2_request *out;
    const struct cn_model_io *io;
    const struct cn_v2_limits *limits;
    struct cn_arena *arena;
    struct cn_error *err;
};

/* --- fields into tensors --- */

static int
no_shape(const struct reader *reader, const struct cn_tensor *tensor)
{
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "The schema can not convert input '%.*s' to tensor with proper shape",
                   CN_STR_ARG(tensor->name));
}

/* Computes the shape from the number of values. `tensor` has the declared shape, -1 for an open
 * size. */
static int
set_shape(const struct reader *reader, uint64_t values, struct cn_tensor *tensor)
{
    int64_t *open = NULL;

    for (uint32_t i = 0; i < tensor->rank; i++) {
        const int64_t size = tensor->shape[i];

        if (size > 0 && values % (uint64_t)size)
            return no_shape(reader, tensor);
        if (size > 0)
            values /= (uint64_t)size;
        else
            open = &tensor->shape[i];
    }
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0 && &tensor->shape[i] != open)
            tensor->shape[i] = 1;
    if (open)
        *open = (int64_t)values;
    else if (values != 1)
        return no_shape(reader, tensor);
    return 0;
}

/* Reads the values of an input from a flat list. */
static int
read_list(const struct reader *reader, const json_t *list, struct cn_tensor *tensor)
{
    const size_t n = json_array_size(list);
    int rc;

    for (size_t i = 0; i < n; i++)
        if (json_is_array(json_array_get(list, i)))
            return no_shape(reader, tensor);
    rc = set_shape(reader, n, tensor);
    if (!rc)
        rc = cn_v2_values(list, reader->limits->json_bytes, reader->arena, tensor, reader->err);
    return rc;
}

static int
read_input(const struct reader *reader, const struct cn_tensor_spec *spec, const json_t *value)
{
    const uint32_t skip = reader->io->max_batch_size > 0;
    struct cn_tensor *tensor = &reader->out->inputs[reader->out->n_inputs++];
    json_t *list;
    int rc;

    *tensor = (struct cn_tensor){.name = spec->name, .type = spec->type, .rank = spec->rank + skip};
    tensor->shape[0] = -1; /* the batch dimension, if there is one */
    memcpy(tensor->shape + skip, spec->dims, sizeof(spec->dims[0]) * spec->rank);
    if (json_is_array(value))
        return read_list(reader, value, tensor);
    list = json_pack("[O]", value);
    if (!list)
        return cn_fail(reader->err, CN_E_OUT_OF_MEMORY, "not enough memory for input '%.*s'",
                       CN_STR_ARG(spec->name));
    rc = read_list(reader, list, tensor);
    json_decref(list);
    return rc;
}

/* Reads one field: an input if the model has one of that name, else a parameter. */
static int
read_field(const struct reader *reader, const char *key, const json_t *value)
{
    struct cn_v2_request *out = reader->out;
    const struct cn_tensor_spec *spec = cn_model_io_input(reader->io, cn_str_from(key), 0);
    int rc;

    if (spec)
        return read_input(reader, spec, value);
    if ((rc =
             cn_v2_json_param(key, value, reader->arena, &out->params[out->n_params], reader->err)))
        return rc;
    out->n_params++;
    return 0;
}

static int read_parameters(const struct reader *reader, json_t *value);

static int
read_fields(const struct reader *reader, json_t *map, bool is_root)
{
    const char *key;
    json_t *value;
    int rc;

    json_object_foreach(map, key, value)
    {
        if (is_root && strcmp(key, "parameters") == 0)
            rc = read_parameters(reader, value);
        else
            rc = read_field(reader, key, value);
        if (rc)
            return rc;
    }
    return 0;
}

/* The fields of `parameters` count like those beside it. */
static int
read_parameters(const struct reader *reader, json_t *value)
{
    struct cn_error why;

    if (cn_model_io_input(reader->io, CN_STR("parameters"), 0))
        return read_field(reader, "parameters", value);
    if (!json_is_object(value))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "Expected JSON object for keyword: 'parameters': attempt to access JSON "
                       "non-object as object");
    if (read_fields(reader, value, false) == 0)
        return 0;
    why = *reader->err;
    return cn_fail(reader->err, why.code, "Converting keyword: 'parameters': %s", why.message);
}

static int
read_id(const struct reader *reader, const json_t *root)
{
    const json_t *id = json_object_get(root, "id");

    if (!id)
        return 0;
    if (!cn_v2_json_is_string(id))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "Unable to parse 'id': attempt to access JSON non-string as string");
    reader->out->id = cn_arena_str(reader->arena, cn_v2_json_text(id));
    return 0;
}

static int
read_root(const struct reader *reader, json_t *root)
{
    struct cn_v2_request *out = reader->out;
    size_t fields;
    int rc;

    if (!json_is_object(root))
        return cn_fail(reader->err, CN_E_INTERNAL,
                       "failed to parse the request JSON buffer: the document is not an object");
    fields = json_object_size(root) + json_object_size(json_object_get(root, "parameters"));
    if (fields > CN_V2_PARAMS_MAX)
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "the request has %zu fields; the limit is %d",
                       fields, CN_V2_PARAMS_MAX);
    out->params = cn_arena_alloc(reader->arena, sizeof(*out->params) * (fields ? fields : 1));
    out->inputs = cn_arena_alloc(reader->arena, sizeof(*out->inputs) * (fields ? fields : 1));
    rc = read_id(reader, root);
    return rc ? rc : read_fields(reader, root, true);
}

/* Improves the error for a field that comes twice: for an input the protocol has an error of its
 * own. */
static int
explain_duplicate(const struct reader *reader)
{
    static const char mark[] = "duplicate object key near '\"";
    const char *key = strstr(reader->err->message, mark), *end;
    struct cn_str name;

    end = key ? strchr(key += sizeof(mark) - 1, '"') : NULL;
    if (!end)
        return reader->err->code;
    name = cn_arena_str(reader->arena, (struct cn_str){key, (size_t)(end - key)});
    if (!cn_model_io_input(reader->io, name, 0))
        return reader->err->code;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "[request id: <id_unknown>] input '%.*s' already exists in request",
                   CN_STR_ARG(name));
}

int
cn_v2_read_generate(struct cn_str body, const struct cn_model_io *io,
                    const struct cn_v2_limits *limits, struct cn_arena *arena,
                    struct cn_v2_request *out, struct cn_error *err)
{
    const struct reader reader = {out, io, limits, arena, err};
    json_t *root;
    int rc;

    *out = (struct cn_v2_request){.batch = 1};
    rc = cn_v2_json_load(body, &root, err);
    if (rc)
        return explain_duplicate(&reader);
    rc = read_root(&reader, root);
    json_decref(root);
    return rc;
}

/* --- tensors into fields --- */

struct field {
    struct cn_str name;
    struct cn_str text;             /* the text, if there is no tensor */
    const struct cn_tensor *tensor; /* NULL: the field has a text */
};

/* Order by the bytes of the names. */
static int
by_name(const void *a_, const void *b_)
{
    const struct field *a = a_, *b = b_;
    const size_t len = a->name.len < b->name.len ? a->name.len : b->name.len;
    const int order = memcmp(a->name.ptr, b->name.ptr, len);

    return order ? order : (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static int
write_tensor(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err)
{
    uint64_t elements;
    bool scalar = cn_shape_elements(tensor->shape, tensor->rank, &elements) && elements == 1;
    int rc;

    cn_buf_puts(out, scalar ? "" : "[");
    rc = cn_v2_write_values(tensor, out, err);
    cn_buf_puts(out, scalar ? "" : "]");
    return rc;
}

static bool
has_tensor(const struct cn_v2_answer *answer, struct cn_str name)
{
    for (uint32_t i = 0; i < answer->n_tensors; i++)
        if (cn_str_eq(answer->tensors[i].name, name))
            return true;
    return false;
}

/* Collects the fields of a response. An output with the name of one of the protocol's own members
 * replaces it. */
static uint32_t
collect(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
        struct field *fields)
{
    const struct field own[] = {{CN_STR("id"), request->id, NULL},
                                {CN_STR("model_name"), cn_str_from(answer->model), NULL},
                                {CN_STR("model_version"), cn_str_from(answer->version), NULL}};
    uint32_t n = 0;

    for (uint32_t i = request->id.len ? 0 : 1; i < 3; i++)
        if (!has_tensor(answer, own[i].name))
            fields[n++] = own[i];
    for (uint32_t i = 0; i < answer->n_tensors; i++)
        fields[n++] =
            (struct field){.name = answer->tensors[i].name, .tensor = &answer->tensors[i]};
    qsort(fields, n, sizeof(*fields), by_name);
    return n;
}

int
cn_v2_write_generate(const struct cn_v2_answer *answer, const struct cn_v2_request *request,
                     struct cn_buf *out, struct cn_error *err)
{
    struct field *fields = cn_alloc(sizeof(*fields) * (answer->n_tensors + 3));
    const uint32_t n = collect(answer, request, fields);
    int rc = 0;

    cn_buf_puts(out, "{");
    for (uint32_t i = 0; i < n && !rc; i++) {
        cn_buf_puts(out, i ? "," : "");
        cn_v2_write_text(fields[i].name, out);
        cn_buf_puts(out, ":");
        if (fields[i].tensor)
            rc = write_tensor(fields[i].tensor, out, err);
        else
            cn_v2_write_text(fields[i].text, out);
    }
    cn_buf_puts(out, "}");
    cn_free(fields);
    return rc;
}
