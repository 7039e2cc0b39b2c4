/* archiver/torch/torch_package.c - reads what an exported program or a package of AOTInductor says
 * of its tensors. Archiver only.
 *
 * An exported program is JSON: graph_module.graph has inputs and outputs by name, and tensor_values
 * has the type and the sizes of each name; graph_module.signature says which inputs the user gives.
 * A package has machine code and, beside it, the C++ source from which it was compiled. The source
 * checks each input, and these lines are read:
 *   inputs_info_[0].name = "arg0_1";
 *   int32_t arg0_1_expected_dtype = aoti_torch_dtype_float32();
 *   if (4 != arg0_1_size[1]) {
 *   outputs_info_[0].name = "output0"; */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "archiver/torch/torch_parse.h"

static const struct {
    uint32_t number;      /* in an exported program */
    const char *cpp;      /* in the C++ source, after aoti_torch_dtype_ */
    const char *datatype; /* in the v2 protocol */
} types[] = {{1, "uint8", "UINT8"},   {2, "int8", "INT8"},    {3, "int16", "INT16"},
             {4, "int32", "INT32"},   {5, "int64", "INT64"},  {6, "float16", "FP16"},
             {7, "float32", "FP32"},  {8, "float64", "FP64"}, {12, "bool", "BOOL"},
             {13, "bfloat16", "BF16"}};

#define N_TYPES (sizeof(types) / sizeof(types[0]))

static const char not_read[] = "the JSON of its exported program cannot be read";
static const char too_many[] = "it has more than 256 inputs or outputs, or a tensor of more than 8 "
                               "dimensions";

/* --- an exported program --- */

static struct cn_str
text_of(const json_t *value, struct cn_arena *arena)
{
    const char *text = json_string_value(value);

    return text ? cn_str_from(cn_arena_strndup(arena, text, strlen(text))) : (struct cn_str){"", 0};
}

/* The name in "Symbol('s77', positive=True)", or in "s77". */
static struct cn_str
symbol_of(struct cn_str expression)
{
    if (cn_str_begins(expression, CN_STR("Symbol('"))) {
        expression = (struct cn_str){expression.ptr + 8, expression.len - 8};
        return cn_str_cut(&expression, '\'');
    }
    return expression;
}

static const char *
read_shape(const json_t *about, struct cn_arena *arena, struct cn_torch_value *out)
{
    const json_t *sizes = json_object_get(about, "sizes");
    const json_int_t number = json_integer_value(json_object_get(about, "dtype"));

    for (size_t i = 0; i < N_TYPES; i++)
        if ((json_int_t)types[i].number == number)
            out->type = types[i].datatype;
    if (json_array_size(sizes) > CN_TORCH_RANK_MAX)
        return too_many;
    out->rank = (uint32_t)json_array_size(sizes);
    out->shaped = true;
    for (uint32_t d = 0; d < out->rank; d++) {
        const json_t *size = json_array_get(sizes, d), *fixed = json_object_get(size, "as_int");
        const json_t *symbol = json_object_get(size, "as_expr");

        out->dims[d].size = -1;
        if (json_is_integer(fixed) && json_integer_value(fixed) >= 0)
            out->dims[d].size = json_integer_value(fixed);
        else
            out->dims[d].name = symbol_of(text_of(json_object_get(symbol, "expr_str"), arena));
    }
    return NULL;
}

static const char *
read_specs(const json_t *graph, const json_t *specs, const char *key, struct cn_arena *arena,
           struct cn_torch_value *values, uint32_t *n)
{
    for (size_t i = 0; i < json_array_size(specs); i++) {
        const json_t *user = json_object_get(json_array_get(specs, i), key), *argument, *name;
        struct cn_torch_value *value;
        const char *wrong;

        if (!user)
            continue;
        if (!(value = cn_torch_value_add(values, n)))
            return too_many;
        argument = json_object_get(user, "arg");
        name = json_object_get(json_object_get(argument, "as_tensor"), "name");
        if (!json_is_string(name)) {
            value->kind = CN_TORCH_OTHER;
            value->text = CN_STR("a value that is not a tensor");
            continue;
        }
        value->name = text_of(name, arena);
        wrong = read_shape(
            json_object_get(json_object_get(graph, "tensor_values"), json_string_value(name)),
            arena, value);
        if (wrong)
            return wrong;
    }
    return NULL;
}

const char *
cn_torch_exported_parse(struct cn_str json, struct cn_arena *arena, struct cn_torch_file *out)
{
    json_t *root = json_loadb(json.ptr, json.len, 0, NULL);
    const json_t *module = json_object_get(root, "graph_module");
    const json_t *graph = json_object_get(module, "graph");
    const json_t *signature = json_object_get(module, "signature");
    const char *wrong = not_read;

    if (graph && signature) {
        wrong = read_specs(graph, json_object_get(signature, "input_specs"), "user_input", arena,
                           out->arguments, &out->n_arguments);
        if (!wrong)
            wrong = read_specs(graph, json_object_get(signature, "output_specs"), "user_output",
                               arena, out->results, &out->n_results);
        if (!wrong && (out->n_arguments == 0 || out->n_results == 0))
            wrong = not_read;
    }
    json_decref(root);
    return wrong;
}

/* --- a package of AOTInductor --- */

/* Takes the text from the front of the line. */
static bool
take(struct cn_str *line, struct cn_str text)
{
    if (!cn_str_begins(*line, text))
        return false;
    *line = (struct cn_str){line->ptr + text.len, line->len - text.len};
    return true;
}

static bool
take_number(struct cn_str *line, int64_t *out)
{
    size_t n = 0;

    *out = 0;
    for (; n < line->len && n < 18 && line->ptr[n] >= '0' && line->ptr[n] <= '9'; n++)
        *out = *out * 10 + (line->ptr[n] - '0');
    *line = (struct cn_str){line->ptr + n, line->len - n};
    return n > 0;
}

/* inputs_info_[0].name = "arg0_1"; and the same for outputs. The order is that of the lines. */
static bool
read_name(struct cn_str line, struct cn_str begin, struct cn_torch_value *values, uint32_t *n,
          const char **wrong)
{
    struct cn_torch_value *value;
    int64_t index;

    if (!take(&line, begin) || !take_number(&line, &index) || !take(&line, CN_STR("].name = \"")))
        return false;
    if (index != (int64_t)*n || !(value = cn_torch_value_add(values, n)))
        *wrong = too_many;
    else
        value->name = cn_str_cut(&line, '"');
    return true;
}

/* Finds the argument with whose name the line goes on, and which `behind` follows. */
static struct cn_torch_value *
take_argument(struct cn_str *line, struct cn_str behind, struct cn_torch_file *out)
{
    for (uint32_t i = 0; i < out->n_arguments; i++) {
        struct cn_str rest = *line;

        if (take(&rest, out->arguments[i].name) && take(&rest, behind)) {
            *line = rest;
            return &out->arguments[i];
        }
    }
    return NULL;
}

static void
read_type(struct cn_str line, struct cn_torch_file *out)
{
    struct cn_torch_value *value;

    if (!take(&line, CN_STR("int32_t ")) ||
        !(value = take_argument(&line, CN_STR("_expected_dtype = aoti_torch_dtype_"), out)))
        return;
    for (size_t i = 0; i < N_TYPES; i++)
        if (cn_str_eq(cn_str_cut(&(struct cn_str){line.ptr, line.len}, '('),
                      cn_str_from(types[i].cpp)))
            value->type = types[i].datatype;
}

/* if (4 != arg0_1_size[1]) { tells a size, and if (arg0_1_size[0] < 2) { that there is any. */
static const char *
read_size(struct cn_str line, struct cn_torch_file *out)
{
    struct cn_torch_value *value;
    int64_t size = -1, index;

    if (!take(&line, CN_STR("if (")))
        return NULL;
    if (take_number(&line, &size) && !take(&line, CN_STR(" != ")))
        return NULL;
    if (!(value = take_argument(&line, CN_STR("_size["), out)) || !take_number(&line, &index))
        return NULL;
    if (index >= CN_TORCH_RANK_MAX)
        return too_many;
    for (; value->rank <= index; value->rank++)
        value->dims[value->rank].size = -1;
    value->shaped = true;
    if (size > 0)
        value->dims[index].size = size;
    return NULL;
}

const char *
cn_torch_package_parse(struct cn_str source, struct cn_torch_file *out)
{
    const char *wrong = NULL;

    while (source.len > 0 && !wrong) {
        struct cn_str line = cn_str_cut(&source, '\n');

        while (take(&line, CN_STR(" ")))
            ;
        if (read_name(line, CN_STR("inputs_info_["), out->arguments, &out->n_arguments, &wrong) ||
            read_name(line, CN_STR("outputs_info_["), out->results, &out->n_results, &wrong))
            continue;
        read_type(line, out);
        wrong = read_size(line, out);
    }
    if (!wrong && (out->n_arguments == 0 || out->n_results == 0))
        wrong = "the source of its machine code does not say what its inputs and outputs are";
    return wrong;
}
