/* kserve/check.c - checks a request against what its model declares. Any thread.
 *
 * Clients of the protocol compare error texts, so the order of the checks and the messages are
 * those that they know: requested outputs, number and names of inputs, batch dimension, and then
 * datatype, shape and size of each input. After cn_v2_check() the rest of the server can rely on
 * each input having exactly the bytes that its shape and datatype ask for, so no handler has to
 * check sizes again.
 *
 * Messages contain texts of the client, which may have any length. They are cut between two
 * characters.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/model/batching.h"
#include "config/model/stream_input.h"
#include "core/text/number.h"
#include "core/text/utf8.h"
#include "kserve/classify.h"
#include "kserve/infer_answer.h"
#include "kserve/request.h"

#define ID_SHOWN_MAX 64
#define NAMES_MAX 320 /* bytes of the part of a message that names a request's inputs */

struct check {
    struct cn_v2_request *request;
    const struct cn_model_io *io;
    const char *model;
    struct cn_arena *arena;
    struct cn_error *err;
    const struct cn_tensor_spec **specs; /* of each input; set by check_names() */
};

/* Refuses the request, with its id in front of the message, as clients of the protocol know it. */
static int __attribute__((format(printf, 2, 3)))
refuse(const struct check *check, const char *fmt, ...)
{
    struct cn_str id = check->request->id;
    char text[CN_ERROR_MESSAGE_MAX]; /* with the prefix it is cut once more, between characters */
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (id.len == 0)
        id = CN_STR("<id_unknown>");
    id.len = cn_utf8_cut(id, ID_SHOWN_MAX);
    return cn_fail(check->err, CN_E_BAD_REQUEST, "[request id: %.*s] %s", CN_STR_ARG(id), text);
}

/* The requested outputs must exist in the model, each once. */
static int
check_outputs(const struct check *check)
{
    const struct cn_v2_request *request = check->request;
    const struct cn_model_io *io = check->io;
    bool seen[CN_MODEL_TENSORS_MAX];

    memset(seen, 0, io->n_outputs);
    for (uint32_t i = 0; i < request->n_outputs; i++) {
        struct cn_str name = request->outputs[i].name;
        const struct cn_tensor_spec *spec = cn_model_io_output(io, name, i);

        if (!spec)
            return cn_fail(check->err, CN_E_BAD_REQUEST,
                           "unexpected inference output '%.*s' for model '%s'", CN_STR_ARG(name),
                           check->model);
        if (seen[spec - io->outputs])
            return refuse(check, "output '%.*s' already exists in request", CN_STR_ARG(name));
        seen[spec - io->outputs] = true;
    }
    return 0;
}

static bool
has_input(const struct cn_v2_request *request, struct cn_str name, uint32_t below)
{
    for (uint32_t i = 0; i < below; i++)
        if (cn_str_eq(request->inputs[i].name, name))
            return true;
    return false;
}

/* Writes the names of the request's inputs, or of those that are missing: "['A','B']". Stops when
 * the room is used up, since clients may send names of any length. */
static const char *
names_text(const struct check *check, bool missing, char out[NAMES_MAX])
{
    const struct cn_v2_request *request = check->request;
    const struct cn_model_io *io = check->io;
    const uint32_t n = missing ? io->n_inputs : request->n_inputs;
    const char *comma = "";
    size_t len = 1;

    out[0] = '[';
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str name = missing ? io->inputs[i].name : request->inputs[i].name;

        if (missing && (io->inputs[i].optional || has_input(request, name, request->n_inputs)))
            continue;
        if (len + name.len + sizeof("','...]") > NAMES_MAX) {
            len += (size_t)snprintf(out + len, NAMES_MAX - len, "%s...", comma);
            break;
        }
        len += (size_t)snprintf(out + len, NAMES_MAX - len, "%s'%.*s'", comma, CN_STR_ARG(name));
        comma = ",";
    }
    memcpy(out + len, "]", 2);
    return out;
}

/* Number and names of the inputs. An input may be missing only if the model declares it as
 * optional. */
static int
check_names(const struct check *check)
{
    const struct cn_v2_request *request = check->request;
    const struct cn_model_io *io = check->io;
    char given[NAMES_MAX], missing[NAMES_MAX];
    bool seen[CN_MODEL_TENSORS_MAX];
    const char *wanted;
    uint32_t required = 0;

    memset(seen, 0, io->n_inputs);
    for (uint32_t i = 0; i < request->n_inputs; i++) {
        struct cn_str name = request->inputs[i].name;
        const struct cn_tensor_spec *spec = cn_model_io_input(io, name, i);

        if (spec ? seen[spec - io->inputs] : has_input(request, name, i))
            return refuse(check, "input '%.*s' already exists in request", CN_STR_ARG(name));
        if (spec)
            seen[spec - io->inputs] = true;
        if (i < io->n_inputs)
            check->specs[i] = spec;
        required += spec && !spec->optional;
    }
    if (request->n_inputs > io->n_inputs || request->n_inputs < io->n_required ||
        (required < io->n_required && request->n_inputs != io->n_inputs)) {
        if (io->n_required < io->n_inputs)
            wanted = cn_arena_printf(check->arena, "number of inputs between %u and %u",
                                     io->n_required, io->n_inputs);
        else
            wanted = cn_arena_printf(check->arena, "%u inputs", io->n_inputs);
        return refuse(check,
                      "expected %s but got %u inputs for model '%s'. Got input(s) %s, but missing "
                      "required input(s) %s. Please provide all required input(s).",
                      wanted, request->n_inputs, check->model, names_text(check, false, given),
                      names_text(check, true, missing));
    }
    for (uint32_t i = 0; i < request->n_inputs; i++)
        if (!check->specs[i])
            return cn_fail(check->err, CN_E_BAD_REQUEST,
                           "unexpected inference input '%.*s' for model '%s'",
                           CN_STR_ARG(request->inputs[i].name), check->model);
    return 0;
}

/* Samples of a stream may come without a batch dimension, since they are never batched. */
static void
add_batch(const struct cn_tensor_spec *spec, struct cn_tensor *tensor)
{
    if (!spec->samples || tensor->rank != 1)
        return;
    tensor->shape[1] = tensor->shape[0];
    tensor->shape[0] = 1;
    tensor->rank = 2;
}

/* For a model with batches the first dimension of each input is the batch size, the same for
 * all. */
static int
check_batch(const struct check *check)
{
    struct cn_v2_request *request = check->request;
    const uint32_t max = check->io->max_batch_size;
    int64_t batch = -1;

    if (max == 0)
        return 0;
    for (uint32_t i = 0; i < request->n_inputs; i++) {
        struct cn_tensor *tensor = &request->inputs[i];

        add_batch(check->specs[i], tensor);
        if (tensor->rank == 0)
            return refuse(check,
                          "input '%.*s' has no shape but model requires batch dimension for '%s'",
                          CN_STR_ARG(tensor->name), check->model);
        if (batch >= 0 && tensor->shape[0] != batch)
            return refuse(check, "input '%.*s' batch size does not match other inputs for '%s'",
                          CN_STR_ARG(tensor->name), check->model);
        batch = tensor->shape[0];
    }
    if (batch < 1 || batch > max)
        return refuse(check, "inference request batch-size must be <= %u for '%s'", max,
                      check->model);
    request->batch = (uint32_t)batch;
    return 0;
}

/* Does the shape fit the declared one, where an open size (-1) fits any? */
static bool
shape_fits(const struct check *check, const struct cn_tensor *tensor,
           const struct cn_tensor_spec *spec)
{
    const uint32_t skip = check->io->max_batch_size > 0;

    if (tensor->rank != spec->rank + skip)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->dims[i] >= 0 && spec->dims[i] != tensor->shape[i + skip])
            return false;
    return true;
}

static int
wrong_shape(const struct check *check, const struct cn_tensor *tensor,
            const struct cn_tensor_spec *spec)
{
    const bool batching = check->io->max_batch_size > 0;
    int64_t want[CN_TENSOR_RANK_MAX] = {-1};

    for (uint32_t i = 0; i < spec->rank; i++)
        want[i + batching] = spec->dims[i];
    return refuse(check,
                  "unexpected shape for input '%.*s' for model '%s'. Expected %s, got %s. %s",
                  CN_STR_ARG(tensor->name), check->model,
                  cn_shape_text(check->arena, want, spec->rank + batching),
                  cn_shape_text(check->arena, tensor->shape, tensor->rank),
                  batching ? "NOTE: Setting a non-zero max_batch_size in the model config requires "
                             "a batch dimension to be prepended to each input shape."
                           : "");
}

/* The bytes of a BYTES tensor must be exactly `elements` strings, each after its length of 4
 * bytes. */
static int
check_strings(const struct check *check, const struct cn_tensor *tensor, uint64_t elements)
{
    struct cn_reader reader;
    struct cn_str element;
    uint64_t n = 0;
    size_t left = tensor->data.len; /* bytes left before the incomplete string, with its length */

    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (n < elements && cn_tensor_next(&reader, &element)) {
        left = cn_reader_left(&reader);
        n++;
    }
    if (n < elements && left > 0 && left < 4)
        return refuse(check,
                      "incomplete string length indicator for inference input '%.*s' for model "
                      "'%s', expecting 4 bytes but only %zu bytes available. Please make sure the "
                      "string length indicator is in one buffer.",
                      CN_STR_ARG(tensor->name), check->model, left);
    if (n < elements)
        return refuse(check,
                      "expected %" PRIu64 " string elements for inference input '%.*s' for model "
                      "'%s', got %" PRIu64,
                      elements, CN_STR_ARG(tensor->name), check->model, n);
    if (cn_reader_left(&reader) > 0)
        return refuse(check,
                      "unexpected number of string elements %" PRIu64
                      " for inference input '%.*s' for model '%s', expecting %" PRIu64,
                      n + 1, CN_STR_ARG(tensor->name), check->model, elements);
    return 0;
}

static int
check_input(const struct check *check, const struct cn_tensor *tensor,
            const struct cn_tensor_spec *spec)
{
    uint64_t elements, bytes;

    if (spec->samples ? !cn_stream_takes(tensor->type) : tensor->type != spec->type)
        return refuse(
            check, "inference input '%.*s' data-type is '%s', but model '%s' expects '%s'",
            CN_STR_ARG(tensor->name), cn_datatype_word(tensor->type), check->model,
            spec->samples ? "INT16', 'FP32', 'UINT8' or 'BYTES" : cn_datatype_word(spec->type));
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0)
            return refuse(check,
                          "All input dimensions should be specified for input '%.*s' for model "
                          "'%s', got %s",
                          CN_STR_ARG(tensor->name), check->model,
                          cn_shape_text(check->arena, tensor->shape, tensor->rank));
    if (!shape_fits(check, tensor, spec))
        return wrong_shape(check, tensor, spec);
    if (!cn_shape_elements(tensor->shape, tensor->rank, &elements))
        return refuse(check,
                      "invalid shape for input '%.*s': shape %s causes total element count to "
                      "exceed maximum size of 9223372036854775807",
                      CN_STR_ARG(tensor->name),
                      cn_shape_text(check->arena, tensor->shape, tensor->rank));
    if (tensor->type == CN_DATATYPE_BYTES)
        return check_strings(check, tensor, elements);
    if (__builtin_mul_overflow(elements, cn_datatype_bytes(tensor->type), &bytes) ||
        bytes > INT64_MAX)
        return refuse(check,
                      "byte size overflow for input '%.*s': element count (%" PRIu64
                      ") * data type size (%u) exceeds maximum allowed size (9223372036854775807)",
                      CN_STR_ARG(tensor->name), elements, cn_datatype_bytes(tensor->type));
    if (tensor->data.len != bytes)
        return refuse(check,
                      "input byte size mismatch for input '%.*s' for model '%s'. Expected %" PRIu64
                      ", got %zu",
                      CN_STR_ARG(tensor->name), check->model, bytes, tensor->data.len);
    return 0;
}

int
cn_v2_check(struct cn_v2_request *request, const struct cn_model_io *io, const char *model,
            struct cn_arena *arena, struct cn_error *err)
{
    const struct cn_tensor_spec *specs[CN_MODEL_TENSORS_MAX];
    const struct check check = {request, io, model, arena, err, specs};
    int rc = check_outputs(&check);

    request->batch = 1;
    if (!rc)
        rc = check_names(&check);
    if (!rc)
        rc = check_batch(&check);
    for (uint32_t i = 0; !rc && i < request->n_inputs; i++)
        rc = check_input(&check, &request->inputs[i], check.specs[i]);
    return rc;
}

int
cn_v2_check_writable(const struct cn_v2_request *request, const struct cn_model_io *io,
                     bool keeps_state, struct cn_error *err)
{
    for (uint32_t i = 0; i < request->n_outputs; i++) {
        const struct cn_v2_output *output = &request->outputs[i];
        const struct cn_tensor_spec *spec = cn_model_io_output(io, output->name, i);

        if (output->classes && !cn_v2_has_classes(spec->type))
            return cn_v2_refuse_classes(spec->name, spec->type, err);
        if (!output->classes && !output->binary && !output->window.region.len &&
            !cn_v2_has_json(spec->type))
            return cn_v2_refuse_json(spec->type, err);
    }
    if (request->lists_outputs || request->binary_by_default || !keeps_state)
        return 0;
    for (uint32_t i = 0; i < io->n_outputs; i++)
        if (!cn_v2_has_json(io->outputs[i].type))
            return cn_fail(err, CN_E_BAD_REQUEST,
                           CN_V2_NO_JSON " '%.*s', or list the outputs that the answer is to have; "
                                         "the step was not done",
                           cn_datatype_word(io->outputs[i].type), CN_STR_ARG(io->outputs[i].name));
    return 0;
}

int
cn_v2_check_corrid(const struct cn_v2_request *request, const struct cn_model_io *io,
                   const char *model, bool is_text, struct cn_error *err)
{
    const struct cn_control *control =
        cn_batching_control(io ? io->batching : NULL, CN_CONTROL_SEQUENCE_CORRID);
    /* refuse() reads only the request's id. */
    const struct check check = {
        (struct cn_v2_request *)(uintptr_t)request, io, model, NULL, err, NULL};

    if (!control || (control->type == CN_DATATYPE_BYTES) == is_text)
        return 0;
    return refuse(&check,
                  "sequence batching control '%.*s' data-type is '%s', but model '%s' expects '%s'",
                  CN_STR_ARG(control->name), is_text ? "BYTES" : "UINT64", model,
                  cn_datatype_word(control->type));
}

int
cn_v2_sequence_id(const struct cn_v2_request *request, struct cn_arena *arena, struct cn_str *out,
                  struct cn_error *err)
{
    struct cn_str text = request->sequence_text;
    char *id;

    *out = (struct cn_str){NULL, 0};
    switch (request->sequence_kind) {
    case CN_V2_NO_ID:
        return 0;
    case CN_V2_ID_NUMBER:
        id = cn_arena_alloc(arena, 1 + CN_NUMBER_MAX);
        *id = CN_SEQUENCE_NUMBER;
        *out = (struct cn_str){id, (size_t)(cn_put_uint(request->sequence_number, id + 1) - id)};
        return 0;
    case CN_V2_ID_TEXT:
        break;
    }
    if (text.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "sequence_id has %zu bytes; the limit is %d",
                       text.len, CN_SEQUENCE_ID_MAX);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7f)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "a sequence_id may not contain control characters");
    *out = text;
    return 0;
}
