/* handlers/onnx/onnx_check.c - checks whether the declarations in the YAML fit the graph. Worker's
 * thread.
 *
 * The graph and the YAML both describe the tensors. The YAML leaves the batch dimension out, and a
 * graph may leave a size open (-1) or a shape out. So an input of the graph [batch, 1, 576] fits
 * dims [1, 576], and [batch, 1, -1] fits them, too, because the graph takes more than the YAML
 * promises. The other way round it is an error: a graph with the fixed size 512, where the YAML has
 * -1, would fail at the first request of another size. For an output an open size of the YAML fits
 * any size of the graph.
 *
 * What is found here, at registration, would otherwise be an error of onnxruntime in the middle of
 * a sequence. */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/onnx/onnx_model.h"

/* A tensor as the YAML declares it. */
struct declared {
    const char *what; /* "input" */
    struct cn_str name;
    enum cn_datatype type;
    uint32_t rank;
    const int64_t *dims;
    uint32_t axis;
};

static bool
is_batched(const struct ctt_model *model)
{
    return model->config->io->max_batch_size > 0;
}

static void
put_names(struct cn_buf *out, const struct onnx_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cn_buf_printf(out, "%s%s", i ? ", " : "", values[i].name);
    if (n == 0)
        cn_buf_puts(out, "none");
}

static int
find(const struct ctt_model *model, const struct declared *declared, bool input,
     const struct onnx_value **out, struct cn_error *err)
{
    const struct onnx_value *values = input ? model->inputs : model->outputs;
    const size_t n = input ? model->n_inputs : model->n_outputs;
    struct cn_buf names;
    int rc;

    for (size_t i = 0; i < n; i++)
        if (cn_str_eq(declared->name, cn_str_from(values[i].name))) {
            *out = &values[i];
            return 0;
        }
    cn_buf_init(&names, 0);
    put_names(&names, values, n);
    rc = cn_fail(err, CN_E_LOAD_FAILED,
                 "the graph of %s has no %s %.*s, which the YAML declares as %s; it has %.*s",
                 model->shown, input ? "input" : "output", CN_STR_ARG(declared->name),
                 declared->what, CN_STR_ARG(cn_buf_str(&names)));
    cn_buf_fini(&names);
    return rc;
}

/* Returns the dimensions of the YAML with the batch dimension, whose size is `n`. */
static uint32_t
with_batch(const struct ctt_model *model, const struct declared *declared, int64_t n, int64_t *out)
{
    uint32_t rank = 0;

    for (uint32_t i = 0; i <= declared->rank; i++) {
        if (is_batched(model) && i == declared->axis)
            out[rank++] = n;
        if (i < declared->rank)
            out[rank++] = declared->dims[i];
    }
    return rank;
}

/* Checks the buckets of a graph whose batch size is fixed: that size must be the only bucket. */
static int
check_buckets(const struct ctt_model *model, const struct declared *declared, int64_t size,
              struct cn_error *err)
{
    const struct cn_module_config *config = model->config;

    if (size < 0 || (config->n_buckets == 1 && config->buckets[0] == size))
        return 0;
    return cn_fail(err, CN_E_LOAD_FAILED,
                   "%s %.*s has the fixed size %" PRId64 " in dimension %" PRIu32
                   " of the graph of %s, where the YAML has its batch: say onnx: {buckets: "
                   "[%" PRId64 "]}, or export the model with a dynamic batch dimension",
                   declared->what, CN_STR_ARG(declared->name), size, declared->axis, model->shown,
                   size);
}

static int
check(const struct ctt_model *model, const struct declared *declared,
      const struct onnx_value *graph, bool input, struct cn_error *err)
{
    int64_t wanted[CN_TENSOR_RANK_MAX + 1];
    uint32_t rank = with_batch(model, declared, -1, wanted);
    struct cn_arena arena;
    bool fits = graph->tensor && graph->type == declared->type;
    int rc;

    /* A graph may leave out a tensor's shape, which looks like the shape of a scalar. */
    fits = fits && (graph->rank == rank || graph->rank == 0);
    for (uint32_t i = 0; fits && i < graph->rank; i++)
        if (!is_batched(model) || i != declared->axis)
            fits = graph->dims[i] < 0 || graph->dims[i] == wanted[i] || (!input && wanted[i] < 0);
    if (fits && is_batched(model) && graph->rank)
        return check_buckets(model, declared, graph->dims[declared->axis], err);
    if (fits)
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_LOAD_FAILED,
                 "%s %.*s of the graph of %s is %s%s, but the YAML has %s%s%s", declared->what,
                 CN_STR_ARG(declared->name), model->shown,
                 !graph->tensor ? "no tensor"
                 : graph->type  ? cn_datatype_word(graph->type)
                                : "of a type that is not supported, with the dimensions ",
                 graph->tensor ? cn_shape_text(&arena, graph->dims, graph->rank) : "",
                 cn_datatype_word(declared->type), cn_shape_text(&arena, wanted, rank),
                 is_batched(model) ? " (with the batch dimension added)" : "");
    cn_arena_fini(&arena);
    return rc;
}

static struct declared
of_spec(const struct cn_tensor_spec *spec, const char *what)
{
    return (struct declared){what, spec->name, spec->type, spec->rank, spec->dims, 0};
}

static struct declared
of_state(const struct cn_state_spec *spec, bool input)
{
    return (struct declared){"state",    input ? spec->input : spec->output,
                             spec->type, spec->rank,
                             spec->dims, spec->batch_axis};
}

static int
check_arguments(struct ctt_model *model, struct cn_error *err)
{
    const struct cn_module_config *config = model->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_arguments; i++) {
        const struct cn_module_binding *binding = &config->arguments[i];
        struct declared declared = binding->input >= 0
                                       ? of_spec(&config->io->inputs[binding->input], "input")
                                       : of_state(&config->io->state.items[binding->state], true);

        model->arguments[i].type = declared.type;
        rc = find(model, &declared, true, &model->arguments[i].graph, err);
        if (rc == 0)
            rc = check(model, &declared, model->arguments[i].graph, true, err);
    }
    return rc;
}

static int
check_results(struct ctt_model *model, struct cn_error *err)
{
    const struct cn_module_config *config = model->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_results; i++) {
        const struct cn_module_binding *binding = &config->results[i];
        struct onnx_output *out = &model->results[i];
        struct declared declared = binding->output >= 0
                                       ? of_spec(&config->io->outputs[binding->output], "output")
                                       : of_state(&config->io->state.items[binding->state], false);

        out->tensor.type = declared.type;
        out->axis = is_batched(model) ? (int32_t)declared.axis : -1;
        out->declared_rank = with_batch(model, &declared, 0, out->declared);
        out->fixed = true;
        for (uint32_t d = 0; d < out->declared_rank; d++)
            out->fixed = out->fixed && out->declared[d] >= 0;
        rc = find(model, &declared, false, &out->tensor.graph, err);
        if (rc == 0)
            rc = check(model, &declared, out->tensor.graph, false, err);
    }
    return rc;
}

/* Makes the tensors of `set`. They have the graph's shape, with 1 for each open dimension. */
static int
check_numbers(struct ctt_model *model, struct cn_error *err)
{
    const struct cn_module_config *config = model->config;

    for (uint32_t i = 0; i < config->n_attributes; i++) {
        struct onnx_bound *number = &model->numbers[i];
        struct declared declared = {
            "a number of onnx.set", cn_str_from(config->attributes[i].name), 0, 0, NULL, 0};
        int rc = find(model, &declared, true, &number->graph, err);

        if (rc)
            return rc;
        if (!number->graph->tensor || !number->graph->type)
            return cn_fail(err, CN_E_LOAD_FAILED,
                           "onnx.set: the input %s of the graph of %s takes no numbers",
                           config->attributes[i].name, model->shown);
        number->type = number->graph->type;
    }
    return 0;
}

/* Checks that every input of the graph has a source. */
static int
check_filled(const struct ctt_model *model, struct cn_error *err)
{
    const struct cn_module_config *config = model->config;

    for (size_t i = 0; i < model->n_inputs; i++) {
        bool filled = false;

        for (uint32_t a = 0; a < config->n_arguments; a++)
            filled = filled || model->arguments[a].graph == &model->inputs[i];
        for (uint32_t a = 0; a < config->n_attributes; a++)
            filled = filled || model->numbers[a].graph == &model->inputs[i];
        if (!filled)
            return cn_fail(err, CN_E_LOAD_FAILED,
                           "nothing in the YAML fills the input %s of the graph of %s: declare it "
                           "in inputs or state, or give it a number in onnx: {set: {%s: ...}}",
                           model->inputs[i].name, model->shown, model->inputs[i].name);
    }
    return 0;
}

static void
put_values(struct cn_buf *out, const struct onnx_value *values, size_t n)
{
    struct cn_arena arena;

    cn_arena_init(&arena);
    for (size_t i = 0; i < n; i++)
        cn_buf_printf(out, "%s%s %s%s", i ? ", " : "",
                      values[i].type ? cn_datatype_word(values[i].type) : "?", values[i].name,
                      cn_shape_text(&arena, values[i].dims, values[i].rank));
    cn_arena_fini(&arena);
}

static char *
schema_of(const struct ctt_model *model)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    cn_buf_puts(&text, "graph(");
    put_values(&text, model->inputs, model->n_inputs);
    cn_buf_puts(&text, ") -> (");
    put_values(&text, model->outputs, model->n_outputs);
    cn_buf_puts(&text, ")");
    cn_buf_append(&text, "", 1);
    return cn_buf_take(&text, NULL);
}

int
cn_onnx_session_check(struct ctt_model *model, struct cn_error *err)
{
    const struct cn_module_config *config = model->config;
    int rc;

    model->arguments = cn_alloc((config->n_arguments + 1) * sizeof(*model->arguments));
    model->numbers = cn_alloc((config->n_attributes + 1) * sizeof(*model->numbers));
    model->results = cn_alloc((config->n_results + 1) * sizeof(*model->results));
    model->schema = schema_of(model);
    rc = check_arguments(model, err);
    if (rc == 0)
        rc = check_results(model, err);
    if (rc == 0)
        rc = check_numbers(model, err);
    return rc ? rc : check_filled(model, err);
}
