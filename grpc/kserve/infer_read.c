/* grpc/kserve/infer_read.c - reads a ModelInferRequest field by field, without unpacking it. Any
 * thread.
 *
 * Tensors may have megabytes, and the generated code of protobuf-c would copy each of them. This
 * reader walks over the fields on the wire instead, and a raw tensor of the result points into the
 * message. What is small and has many shapes is read by others: the lists of typed contents by
 * infer_contents.c, and parameters by infer_parameter.c.
 *
 * A message is read in two passes. cn_rpc_infer_scan counts parameters, inputs, outputs and raw
 * contents and finds the names, so that arrays are allocated once, within the limits, and the model
 * is known before anything is read with its help. cn_rpc_infer_read then reads the fields. In both
 * passes, rules of protobuf apply that are easily forgotten: fields may come in any order, the last
 * one of a field that is not repeated counts, a field of an unexpected wire type is skipped as
 * unknown, and a list of numbers may be packed or not.
 *
 * An input gets its data in one of three ways: typed contents in the input itself, the next entry
 * of raw_input_contents, or a place in shared memory (struct window). An input in shared memory
 * takes no raw entry. The messages of errors are those that Triton's clients know, since some of
 * them compare texts. */
#include "grpc/kserve/infer_read.h"

#include <inttypes.h>

#include "core/text/varint.h"
#include "grpc/kserve/infer_contents.h"
#include "grpc/kserve/infer_read_priv.h"
#include "grpc/protobuf_message.h"

/* proto/v2_inference.proto */
enum {
    REQUEST_MODEL = 1,
    REQUEST_VERSION = 2,
    REQUEST_ID = 3,
    REQUEST_PARAMETERS = 4,
    REQUEST_INPUTS = 5,
    REQUEST_OUTPUTS = 6,
    REQUEST_RAW = 7
};
enum { INPUT_NAME = 1, INPUT_DATATYPE = 2, INPUT_SHAPE = 3, INPUT_PARAMETERS = 4 };
enum { OUTPUT_NAME = 1, OUTPUT_PARAMETERS = 2 };

/* --- parameters */

static int
wrong_type(const struct reader *reader, const char *key, const char *expected)
{
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "invalid value type for '%s' parameter, expected %s.", key, expected);
}

static int
take_bool(const struct reader *reader, const struct parameter *from, const char *key, bool *out)
{
    if (from->member != BOOL)
        return wrong_type(reader, key, "bool_param");
    *out = from->value != 0;
    return 0;
}

static int
take_sequence_id(const struct reader *reader, const struct parameter *from)
{
    struct cn_v2_request *out = reader->out;

    if (from->member == INT64) { /* a negative number means the unsigned one with the same bits */
        out->sequence_number = from->value;
        out->sequence_kind = from->value ? CN_V2_ID_NUMBER : CN_V2_NO_ID;
    } else if (from->member == STRING) {
        out->sequence_text = from->text;
        out->sequence_kind = from->text.len ? CN_V2_ID_TEXT : CN_V2_NO_ID;
    } else {
        return wrong_type(reader, "sequence_id", "int64_param or string_param");
    }
    return 0;
}

static int
take_priority(const struct reader *reader, const struct parameter *from)
{
    if (from->member != INT64 && from->member != UINT64)
        return wrong_type(reader, "priority", "int64_param or uint64_param");
    if (from->member == INT64 && (int64_t)from->value < 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "invalid value for 'priority', expected value >= 0.");
    reader->out->priority = from->value;
    return 0;
}

static int
take_step(const struct reader *reader, const struct parameter *from)
{
    if (from->member != INT64)
        return wrong_type(reader, "sequence_step", "int64_param");
    if ((int64_t)from->value < 1)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter sequence_step is %" PRId64 "; steps are counted from 1",
                       (int64_t)from->value);
    reader->out->has_step = true;
    reader->out->step = from->value;
    return 0;
}

/* A timeout below 1 is ignored: a deadline that had passed before the request came cannot be meant.
 */
static int
take_timeout(const struct reader *reader, const struct parameter *from)
{
    if (from->member != INT64)
        return wrong_type(reader, "timeout", "int64_param");
    reader->out->timeout_us = (int64_t)from->value > 0 ? from->value : 0;
    return 0;
}

/* Returns where a parameter of that name is kept. If a name comes twice, the last one counts. */
static struct cn_v2_param *
param_slot(struct cn_v2_request *out, struct cn_str name)
{
    for (uint32_t i = 0; i < out->n_params; i++)
        if (cn_str_eq(out->params[i].name, name))
            return &out->params[i];
    return &out->params[out->n_params++];
}

/* Reads a parameter that the protocol does not define, for the model. */
static int
take_custom(const struct reader *reader, const struct parameter *from)
{
    struct cn_v2_param param = {.name = from->key};

    switch (from->member) {
    case BOOL:
        param.kind = CN_V2_BOOL;
        param.boolean = from->value != 0;
        break;
    case INT64:
        param.kind = CN_V2_INT;
        param.integer = (int64_t)from->value;
        break;
    case STRING:
        param.kind = CN_V2_STRING;
        param.text = from->text;
        break;
    case DOUBLE:
        param.kind = CN_V2_DOUBLE;
        param.number = from->number;
        break;
    default:
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "invalid value type for '%.*s' parameter, expected int64_param, bool_param, "
                       "or string_param.",
                       CN_STR_ARG(from->key));
    }
    *param_slot(reader->out, from->key) = param;
    return 0;
}

#define EMPTY_FINAL "triton_enable_empty_final_response"

static int
take_parameter(const struct reader *reader, struct cn_str entry)
{
    struct cn_v2_request *out = reader->out;
    struct parameter from;
    struct cn_str key;

    if (cn_rpc_infer_entry(entry, &from, reader->err))
        return reader->err->code;
    key = from.key;
    if (cn_str_eq(key, CN_STR("sequence_id")))
        return take_sequence_id(reader, &from);
    if (cn_str_eq(key, CN_STR("sequence_start")))
        return take_bool(reader, &from, "sequence_start", &out->start);
    if (cn_str_eq(key, CN_STR("sequence_end")))
        return take_bool(reader, &from, "sequence_end", &out->end);
    if (cn_str_eq(key, CN_STR("sequence_step")))
        return take_step(reader, &from);
    if (cn_str_eq(key, CN_STR("priority")))
        return take_priority(reader, &from);
    if (cn_str_eq(key, CN_STR("timeout")))
        return take_timeout(reader, &from);
    if (cn_str_eq(key, CN_STR(EMPTY_FINAL)))
        return take_bool(reader, &from, EMPTY_FINAL, &out->empty_final);
    if (key.len >= 7 && memcmp(key.ptr, "triton_", 7) == 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "parameter keys starting with 'triton_' are reserved for Triton usage. Only "
                       "the following keys starting with 'triton_' are allowed: " EMPTY_FINAL);
    return take_custom(reader, &from);
}

/* --- tensors */

/* Adds the dimensions of one shape field, which holds a packed list or a single number. */
static int
take_shape(const struct reader *reader, const struct cn_rpc_field *field, struct cn_tensor *tensor)
{
    struct cn_str rest = field->bytes;
    uint64_t dim = field->value;

    if (field->wire != CN_RPC_WIRE_BYTES && field->wire != CN_RPC_WIRE_VARINT)
        return 0;
    while (field->wire == CN_RPC_WIRE_VARINT || rest.len > 0) {
        if (field->wire == CN_RPC_WIRE_BYTES && !cn_take_varint(&rest, &dim))
            return cn_rpc_infer_invalid(reader->err);
        if (tensor->rank == CN_TENSOR_RANK_MAX)
            return cn_fail(reader->err, CN_E_BAD_REQUEST,
                           "input '%.*s' has more than the limit of %d dimensions",
                           CN_STR_ARG(tensor->name), CN_TENSOR_RANK_MAX);
        tensor->shape[tensor->rank++] = (int64_t)dim;
        if (field->wire == CN_RPC_WIRE_VARINT)
            break;
    }
    return 0;
}

static int
take_input_parameter(const struct reader *reader, struct cn_str entry,
                     const struct cn_tensor *tensor, struct window *window)
{
    struct parameter from;

    if (cn_rpc_infer_entry(entry, &from, reader->err))
        return reader->err->code;
    return cn_rpc_infer_window(reader, &from, tensor->name, window);
}

/* Finds the name in an input or output. It is looked for first, wherever it stands, because the
 * messages about all other fields need it. */
static struct cn_str
name_of(struct cn_str bytes)
{
    struct cn_str name = {NULL, 0};
    struct cn_rpc_field field;

    _Static_assert((int)INPUT_NAME == (int)OUTPUT_NAME, "either's name");
    while (cn_rpc_next_field(&bytes, &field) > 0)
        if (field.number == INPUT_NAME && field.wire == CN_RPC_WIRE_BYTES)
            name = field.bytes;
    return name;
}

/* Reads all of an input but its contents. */
static int
read_input(const struct reader *reader, struct cn_str bytes, struct cn_tensor *tensor,
           struct cn_v2_window *place)
{
    struct window window = {.is_named = false};
    struct cn_str word = {NULL, 0};
    struct cn_rpc_field field;
    uint32_t parameters = 0;
    int rc;

    *place = window.place;
    *tensor = (struct cn_tensor){.name = name_of(bytes)};
    if (cn_rpc_infer_check_text(tensor->name, "an input's name", reader->err))
        return reader->err->code;
    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        if (field.number == INPUT_DATATYPE && field.wire == CN_RPC_WIRE_BYTES)
            word = field.bytes;
        else if (field.number == INPUT_SHAPE && take_shape(reader, &field, tensor))
            return reader->err->code;
        else if (field.number == INPUT_PARAMETERS && field.wire == CN_RPC_WIRE_BYTES &&
                 (++parameters > CN_RPC_INFER_PARAMETERS_MAX
                      ? cn_fail(reader->err, CN_E_BAD_REQUEST,
                                "input '%.*s' has more than the limit of %d parameters",
                                CN_STR_ARG(tensor->name), CN_RPC_INFER_PARAMETERS_MAX)
                      : take_input_parameter(reader, field.bytes, tensor, &window)))
            return reader->err->code;
    }
    if (rc < 0)
        return cn_rpc_infer_invalid(reader->err);
    if (cn_rpc_infer_window_check(reader, tensor->name, &window))
        return reader->err->code;
    *place = window.place;
    tensor->type = cn_datatype_parse(word);
    if (tensor->type == CN_DATATYPE_NONE ||
        !cn_str_eq(word, cn_str_from(cn_datatype_word(tensor->type))))
        return cn_fail(reader->err, CN_E_BAD_REQUEST, "invalid datatype for input %.*s",
                       CN_STR_ARG(tensor->name));
    return 0;
}

static int
take_classes(const struct reader *reader, const struct parameter *from, uint64_t *out)
{
    if (from->member != INT64)
        return wrong_type(reader, "classification", "int64_param");
    if ((int64_t)from->value <= 0)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "invalid value for 'classification' parameter, expected >= 0");
    *out = from->value;
    return 0;
}

static int
take_output_parameter(const struct reader *reader, struct cn_str entry, struct cn_v2_output *output,
                      struct window *window)
{
    struct parameter from;

    if (cn_rpc_infer_entry(entry, &from, reader->err))
        return reader->err->code;
    if (cn_str_eq(from.key, CN_STR("classification")))
        return take_classes(reader, &from, &output->classes);
    return cn_rpc_infer_window(reader, &from, output->name, window);
}

static int
read_output(const struct reader *reader, struct cn_str bytes, struct cn_v2_output *output)
{
    struct cn_rpc_field field;
    uint32_t parameters = 0;
    int rc;

    struct window window = {.is_named = false};

    *output = (struct cn_v2_output){.name = name_of(bytes), .binary = true};
    if (cn_rpc_infer_check_text(output->name, "an output's name", reader->err))
        return reader->err->code;
    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        if (field.number != OUTPUT_PARAMETERS || field.wire != CN_RPC_WIRE_BYTES)
            continue;
        if (++parameters > CN_RPC_INFER_PARAMETERS_MAX)
            return cn_fail(reader->err, CN_E_BAD_REQUEST,
                           "output '%.*s' has more than the limit of %d parameters",
                           CN_STR_ARG(output->name), CN_RPC_INFER_PARAMETERS_MAX);
        if (take_output_parameter(reader, field.bytes, output, &window))
            return reader->err->code;
    }
    if (rc < 0)
        return cn_rpc_infer_invalid(reader->err);
    if (cn_rpc_infer_window_check(reader, output->name, &window))
        return reader->err->code;
    output->window = window.place;
    if (window.is_named && output->classes)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "Output can't set both 'shared_memory_region' and 'classification'");
    return 0;
}

/* --- the whole */

int
cn_rpc_infer_scan(struct cn_str bytes, struct cn_rpc_infer_head *out, struct cn_error *err)
{
    struct cn_rpc_field field;
    int rc;

    memset(out, 0, sizeof(*out));
    while ((rc = cn_rpc_next_field(&bytes, &field)) > 0) {
        if (field.wire != CN_RPC_WIRE_BYTES)
            continue;
        if (field.number == REQUEST_MODEL)
            out->model = field.bytes;
        else if (field.number == REQUEST_VERSION)
            out->version = field.bytes;
        else if (field.number == REQUEST_ID)
            out->id = field.bytes;
        out->n_parameters += field.number == REQUEST_PARAMETERS;
        out->n_inputs += field.number == REQUEST_INPUTS;
        out->n_outputs += field.number == REQUEST_OUTPUTS;
        out->n_raw += field.number == REQUEST_RAW;
    }
    if (rc < 0)
        return cn_rpc_infer_invalid(err);
    if (out->n_parameters > CN_RPC_INFER_PARAMETERS_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the request has %u parameters; the limit is %d",
                       out->n_parameters, CN_RPC_INFER_PARAMETERS_MAX);
    if (out->n_inputs > CN_MODEL_TENSORS_MAX || out->n_outputs > CN_MODEL_TENSORS_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has %u inputs and %u outputs; the limit is %d of each",
                       out->n_inputs, out->n_outputs, CN_MODEL_TENSORS_MAX);
    if (cn_rpc_infer_check_text(out->model, "model_name", err) ||
        cn_rpc_infer_check_text(out->version, "model_version", err) ||
        cn_rpc_infer_check_text(out->id, "id", err))
        return err->code;
    return 0;
}

/* Reads parameters, inputs and outputs. The bytes of each input and the raw contents are only
 * noted: which of them belong together is known when all are there. */
static int
read_fields(struct reader *reader, struct cn_str bytes, struct cn_str *inputs, struct cn_str *raw)
{
    struct cn_v2_request *out = reader->out;
    const uint32_t n_inputs = out->n_inputs;
    uint32_t n_raw = 0;
    struct cn_rpc_field field;
    int rc = 0;

    out->n_inputs = 0;
    while (!rc && cn_rpc_next_field(&bytes, &field) > 0) {
        if (field.wire != CN_RPC_WIRE_BYTES)
            continue;
        if (field.number == REQUEST_PARAMETERS) {
            rc = take_parameter(reader, field.bytes);
        } else if (field.number == REQUEST_INPUTS) {
            inputs[out->n_inputs] = field.bytes;
            rc = read_input(reader, field.bytes, &out->inputs[out->n_inputs],
                            &out->windows[out->n_inputs]);
            out->n_inputs++;
        } else if (field.number == REQUEST_OUTPUTS) {
            rc = read_output(reader, field.bytes, &out->outputs[out->n_outputs++]);
        } else if (field.number == REQUEST_RAW && n_raw < n_inputs) {
            raw[n_raw++] = field.bytes; /* contents beyond the number of inputs have no effect */
        }
    }
    return rc;
}

/* An input in shared memory must not have contents as well. Its data is read when the job is made.
 */
static int
take_nothing(const struct reader *reader, struct cn_str input, const struct cn_tensor *tensor)
{
    if (!cn_rpc_has_contents(input))
        return 0;
    return cn_fail(reader->err, CN_E_BAD_REQUEST,
                   "unexpected 'content' provided when using shared memory for input tensor "
                   "'%.*s' for model '%s'",
                   CN_STR_ARG(tensor->name), reader->model);
}

static int
take_data(const struct reader *reader, struct cn_str input, bool has_raw, const struct cn_str *raw,
          struct cn_tensor *tensor)
{
    bool has_contents = cn_rpc_has_contents(input);

    if (has_raw && has_contents)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "contents field must not be specified when using raw_input_contents for "
                       "'%.*s' for model '%s'",
                       CN_STR_ARG(tensor->name), reader->model);
    if (has_contents)
        return cn_rpc_read_contents(input, reader->model, reader->max_tensor_bytes, reader->arena,
                                    tensor, reader->err);
    if (!raw)
        return cn_fail(reader->err, CN_E_BAD_REQUEST,
                       "unable to find data for input tensor '%.*s' for model '%s' in request.",
                       CN_STR_ARG(tensor->name), reader->model);
    tensor->data = *raw;
    return 0;
}

int
cn_rpc_infer_read(struct cn_str bytes, const struct cn_rpc_infer_head *head, const char *model,
                  size_t max_tensor_bytes, struct cn_arena *arena, struct cn_v2_request *out,
                  struct cn_error *err)
{
    struct reader reader = {out, model, max_tensor_bytes, arena, err};
    struct cn_str *inputs = cn_arena_alloc(arena, (head->n_inputs + 1) * sizeof(*inputs));
    struct cn_str *raw = cn_arena_alloc(arena, (head->n_inputs + 1) * sizeof(*raw));
    uint32_t next = 0; /* raw entries belong to the inputs that are not in shared memory */
    int rc;

    *out = (struct cn_v2_request){.id = head->id,
                                  .batch = 1,
                                  .binary_by_default = true,
                                  .n_inputs = head->n_inputs,
                                  .lists_outputs = head->n_outputs > 0};
    out->params = cn_arena_alloc(arena, (head->n_parameters + 1) * sizeof(*out->params));
    out->inputs = cn_arena_alloc(arena, (head->n_inputs + 1) * sizeof(*out->inputs));
    out->outputs = cn_arena_alloc(arena, (head->n_outputs + 1) * sizeof(*out->outputs));
    out->windows = cn_arena_alloc(arena, (head->n_inputs + 1) * sizeof(*out->windows));
    rc = read_fields(&reader, bytes, inputs, raw);
    for (uint32_t i = 0; !rc && i < out->n_inputs; i++) {
        if (out->windows[i].region.len)
            rc = take_nothing(&reader, inputs[i], &out->inputs[i]);
        else
            rc = take_data(&reader, inputs[i], head->n_raw > 0,
                           next < head->n_raw ? &raw[next] : NULL, &out->inputs[i]);
        next += out->windows[i].region.len == 0;
    }
    return rc;
}
