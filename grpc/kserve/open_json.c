/* grpc/kserve/open_json.c - the Open Inference Protocol for models without declared tensors: the
 * request as JSON for the handler, and its JSON answer as tensors. Any thread.
 *
 * TorchServe gives such a handler the whole request as a JSON object, and expects an object with
 * `outputs`. Numbers are written as JSON numbers, and elements of BYTES as base64, because they
 * need not be text. FP16 and BF16 are refused: JSON has no form for them that a handler would
 * expect. */
#include "grpc/kserve/open_json.h"

#include <inttypes.h>

#include "core/memory/base64.h"
#include "kserve/json/json_values.h"
#include "kserve/json/json_words.h"
#include "proto/wire.h"

/* --- the request */

static void
write_base64(struct cn_str bytes, struct cn_buf *out)
{
    cn_buf_puts(out, "\"");
    cn_base64_put(bytes, out);
    cn_buf_puts(out, "\"");
}

static void
write_data(const struct cn_tensor *tensor, struct cn_buf *out)
{
    const unsigned bytes = cn_datatype_bytes(tensor->type);
    const char *comma = "";
    struct cn_reader reader;
    struct cn_str element;

    cn_buf_puts(out, "\"data\":[");
    cn_reader_init(&reader, tensor->data.ptr, tensor->data.len);
    while (bytes ? (element = cn_read_bytes(&reader, bytes)).ptr != NULL
                 : cn_tensor_next(&reader, &element)) {
        cn_buf_puts(out, comma);
        comma = ",";
        if (bytes)
            cn_v2_write_value(tensor->type, element.ptr, out);
        else
            write_base64(element, out);
    }
    cn_buf_puts(out, "]}");
}

static int
write_input(const struct cn_tensor *tensor, struct cn_buf *out, struct cn_error *err)
{
    if (cn_tensor_check(tensor, err))
        return err->code;
    if (tensor->type == CN_DATATYPE_FP16 || tensor->type == CN_DATATYPE_BF16)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "input '%.*s' is %s, which JSON numbers cannot express; the model gets "
                       "JSON, because its YAML declares no inputs",
                       CN_STR_ARG(tensor->name), cn_datatype_word(tensor->type));
    cn_buf_puts(out, "{\"name\":");
    cn_v2_write_text(tensor->name, out);
    cn_buf_puts(out, ",\"shape\":[");
    for (uint32_t i = 0; i < tensor->rank; i++)
        cn_buf_printf(out, "%s%" PRId64, i ? "," : "", tensor->shape[i]);
    cn_buf_printf(out, "],\"datatype\":\"%s\",", cn_datatype_word(tensor->type));
    write_data(tensor, out);
    return 0;
}

int
cn_rpc_open_body(const struct cn_v2_request *request, const char *model, struct cn_buf *out,
                 struct cn_error *err)
{
    cn_buf_puts(out, "{\"id\":");
    cn_v2_write_text(request->id, out);
    cn_buf_puts(out, ",\"model_name\":");
    cn_v2_write_text(cn_str_from(model), out);
    cn_buf_puts(out, ",\"inputs\":[");
    for (uint32_t i = 0; i < request->n_inputs; i++) {
        cn_buf_puts(out, i ? "," : "");
        if (write_input(&request->inputs[i], out, err))
            return err->code;
    }
    cn_buf_puts(out, "]}");
    return out->failed
               ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the request as JSON")
               : 0;
}

/* --- the answer */

static int
no_output(struct cn_error *err, size_t i, const char *why)
{
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "output %zu of the handler's answer: %s; the Open Inference Protocol needs "
                   "{\"outputs\":[{\"name\",\"datatype\",\"shape\",\"data\"}]}",
                   i, why);
}

/* Reads the outputs of type BYTES: the JSON text of each element becomes the bytes of one element.
 */
static bool
read_texts(const json_t *data, size_t max_bytes, struct cn_arena *arena, struct cn_tensor *tensor)
{
    struct cn_buf all, one;
    bool written = true;

    cn_buf_init(&all, max_bytes);
    cn_buf_init(&one, max_bytes);
    for (size_t i = 0; written && i < json_array_size(data); i++) {
        cn_buf_reset(&one);
        written = cn_v2_json_write(json_array_get(data, i), &one);
        cn_write_str32(&all, cn_buf_str(&one));
    }
    tensor->data = cn_arena_str(arena, cn_buf_str(&all));
    written = written && !all.failed;
    cn_buf_fini(&one);
    cn_buf_fini(&all);
    return written;
}

static const char *
read_shape(const json_t *shape, struct cn_tensor *tensor)
{
    if (!json_is_array(shape) || json_array_size(shape) > CN_TENSOR_RANK_MAX)
        return "its shape is not a list, or is too long";
    for (; tensor->rank < json_array_size(shape); tensor->rank++) {
        const json_t *dim = json_array_get(shape, tensor->rank);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return "its shape is not a list of sizes";
        tensor->shape[tensor->rank] = json_integer_value(dim);
    }
    return NULL;
}

static int
read_output(const json_t *output, size_t i, size_t max_bytes, struct cn_arena *arena,
            struct cn_tensor *tensor, struct cn_error *err)
{
    const char *name = json_string_value(json_object_get(output, "name"));
    const char *word = json_string_value(json_object_get(output, "datatype")), *why;
    const json_t *data = json_object_get(output, "data");
    struct cn_error inner;

    *tensor = (struct cn_tensor){.name = cn_arena_str(arena, cn_str_from(name)),
                                 .type = cn_datatype_parse(cn_str_from(word))};
    if (!name || tensor->type == CN_DATATYPE_NONE)
        return no_output(err, i, "it has no name, or no known datatype");
    if ((why = read_shape(json_object_get(output, "shape"), tensor)))
        return no_output(err, i, why);
    if (!json_is_array(data))
        return no_output(err, i, "its data is not a list");
    if (tensor->type == CN_DATATYPE_BYTES && !read_texts(data, max_bytes, arena, tensor))
        return no_output(err, i, "it is too large");
    if ((tensor->type != CN_DATATYPE_BYTES &&
         cn_v2_values(data, max_bytes, arena, tensor, &inner)) ||
        cn_tensor_check(tensor, &inner))
        return no_output(err, i, inner.message);
    return 0;
}

int
cn_rpc_open_outputs(struct cn_str json, size_t max_tensor_bytes, struct cn_arena *arena,
                    struct cn_v2_answer *out, struct cn_error *err)
{
    struct cn_tensor *tensors;
    struct cn_error inner;
    const json_t *list;
    json_t *root;
    int rc = 0;

    if (cn_v2_json_load(json, &root, &inner))
        return cn_fail(err, CN_E_HANDLER_FAILED, "the handler's answer is not valid JSON: %s",
                       inner.message);
    list = json_object_get(root, "outputs");
    if (!json_is_array(list) || json_array_size(list) > CN_TENSORS_MAX)
        rc = cn_fail(err, CN_E_HANDLER_FAILED,
                     "the handler's answer has no outputs; the Open Inference Protocol needs "
                     "{\"outputs\":[{\"name\",\"datatype\",\"shape\",\"data\"}]}");
    tensors = cn_arena_alloc(arena, sizeof(*tensors) * (rc ? 1 : json_array_size(list) + 1));
    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        if (!(rc = read_output(json_array_get(list, i), i, max_tensor_bytes, arena, &tensors[i],
                               err)))
            out->n_tensors++;
    out->tensors = tensors;
    json_decref(root);
    return rc;
}
