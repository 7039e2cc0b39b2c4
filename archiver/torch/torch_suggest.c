/* archiver/torch/torch_suggest.c - guesses a model's YAML from the signature of its method.
 * Archiver only.
 *
 * PyTorch has no word for states: forward(x, h) returns (y, h). So the guess goes by names, and
 * where results have none by their order. TorchScript also has no types and sizes. The result is a
 * YAML that says "check" wherever something is missing; the author reads it before it is used. */
#include "archiver/torch/torch_suggest.h"

#include <inttypes.h>
#include <string.h>

#define BATCH_SIZE 16 /* is suggested if the file allows any size of batch */

struct guess {
    const struct cn_torch_file *file;
    struct cn_buf *out;
    int32_t
        result_of[CN_TORCH_VALUES_MAX]; /* for each argument, the result that replaces it, or -1 */
    int32_t argument_of[CN_TORCH_VALUES_MAX]; /* for each result, the argument, or -1 */
    bool by_order;                            /* states were found by their order only */
    bool stateful;
};

/* A result h0 belongs to the argument h: the code has set h anew. */
static bool
replaces(struct cn_str result, struct cn_str argument)
{
    if (argument.len == 0 || !cn_str_begins(result, argument))
        return false;
    for (size_t i = argument.len; i < result.len; i++)
        if (result.ptr[i] < '0' || result.ptr[i] > '9')
            return false;
    return true;
}

static bool
alike(const struct cn_torch_value *a, const struct cn_torch_value *b)
{
    if (a->kind != CN_TORCH_TENSOR || b->kind != CN_TORCH_TENSOR)
        return false;
    return !a->shaped || !b->shaped || (a->rank == b->rank && a->type == b->type);
}

static void
pair(struct guess *g, uint32_t argument, uint32_t result)
{
    g->result_of[argument] = (int32_t)result;
    g->argument_of[result] = (int32_t)argument;
    g->stateful = true;
}

/* The first argument is what the client sends, so it is never a state. Of two results with the
 * name, the later one is the state: forward returns answers first. */
static void
find_states(struct guess *g)
{
    const struct cn_torch_file *f = g->file;
    bool all = f->n_arguments == f->n_results;

    for (uint32_t i = 0; i < CN_TORCH_VALUES_MAX; i++)
        g->result_of[i] = g->argument_of[i] = -1;
    for (uint32_t i = 1; i < f->n_arguments; i++)
        for (uint32_t r = f->n_results; r-- > 0 && g->result_of[i] < 0;)
            if (g->argument_of[r] < 0 && alike(&f->arguments[i], &f->results[r]) &&
                replaces(f->results[r].name, f->arguments[i].name))
                pair(g, i, r);
    for (uint32_t i = 1; all && i < f->n_arguments; i++)
        all = alike(&f->arguments[i], &f->results[i]);
    if (g->stateful || !all || f->n_arguments < 2)
        return;
    g->by_order = true;
    for (uint32_t i = 1; i < f->n_arguments; i++)
        pair(g, i, i);
}

/* --- the YAML --- */

/* Names of arguments are identifiers of Python; what is not is written with underscores. */
static void
put_name(struct cn_buf *out, struct cn_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))
            cn_buf_append(out, &c, 1);
        else
            cn_buf_puts(out, "_");
    }
}

/* A package of AOTInductor has other names than its module: arg6_1 is the first one. */
static void
put_argument(const struct guess *g, uint32_t i)
{
    if (g->file->kind != CN_TORCH_PACKAGE && g->file->arguments[i].name.len > 0)
        put_name(g->out, g->file->arguments[i].name);
    else
        cn_buf_printf(g->out, "%s%" PRIu32, g->result_of[i] >= 0 ? "state" : "input", i);
}

static void
put_result(const struct guess *g, uint32_t i)
{
    if (g->argument_of[i] >= 0)
        put_argument(g, (uint32_t)g->argument_of[i]);
    else
        cn_buf_printf(g->out, "output%" PRIu32, i);
}

/* The dimension in which rows are joined: the first one of the first argument. */
static const struct cn_torch_dim *
batch_of(const struct guess *g)
{
    const struct cn_torch_value *first = g->file->arguments;

    return g->file->n_arguments > 0 && first->shaped && first->rank > 0 ? &first->dims[0] : NULL;
}

/* In the state [2, rows, 256] it is the second one. */
static uint32_t
axis_of(const struct guess *g, const struct cn_torch_value *value, bool *sure)
{
    const struct cn_torch_dim *batch = batch_of(g);

    *sure = false;
    for (uint32_t d = 0; batch && d < value->rank; d++)
        if (batch->size < 0 && value->dims[d].size < 0 &&
            cn_str_eq(value->dims[d].name, batch->name)) {
            *sure = batch->name.len > 0;
            return d;
        }
    return 0;
}

static void
put_tensor(const struct guess *g, const struct cn_torch_value *value, bool state)
{
    uint32_t axis = 0;
    bool sure = true, open = false;

    cn_buf_printf(g->out, ", dataType: %s, dims: [", value->type ? value->type : "FP32");
    if (!value->shaped) {
        cn_buf_printf(g->out, "1]}%s\n",
                      state ? " # check: type and sizes without the batch dimension, batchAxis"
                            : " # check: type and sizes without the batch dimension");
        return;
    }
    axis = axis_of(g, value, &sure);
    for (uint32_t d = 0, n = 0; d < value->rank; d++) {
        if (d == (state ? axis : 0))
            continue;
        open = open || value->dims[d].size < 0;
        cn_buf_printf(g->out, "%s%" PRId64, n++ ? ", " : "", value->dims[d].size);
    }
    cn_buf_puts(g->out, "]");
    if (state && axis > 0)
        cn_buf_printf(g->out, ", batchAxis: %" PRIu32, axis);
    if (state && (g->by_order || !sure || open || !value->type))
        cn_buf_puts(g->out, open ? "} # check: a state of open size needs init"
                                 : "} # check: is it a state?");
    else
        cn_buf_puts(g->out, value->rank == 0 || !value->type ? "} # check: type and sizes" : "}");
    cn_buf_puts(g->out, "\n");
}

static void
put_inputs(const struct guess *g)
{
    bool begun = false;

    for (uint32_t i = 0; i < g->file->n_arguments; i++) {
        const struct cn_torch_value *value = &g->file->arguments[i];

        if (g->result_of[i] >= 0 || value->kind != CN_TORCH_TENSOR)
            continue;
        cn_buf_puts(g->out, begun ? "  - {name: " : "inputs:\n  - {name: ");
        begun = true;
        put_argument(g, i);
        put_tensor(g, value, false);
    }
}

static void
put_outputs(const struct guess *g)
{
    bool begun = false;

    for (uint32_t i = 0; i < g->file->n_results; i++) {
        const struct cn_torch_value *value = &g->file->results[i];

        if (g->argument_of[i] >= 0 || value->kind == CN_TORCH_OTHER)
            continue;
        cn_buf_puts(g->out, begun ? "  - {name: " : "outputs:\n  - {name: ");
        begun = true;
        put_result(g, i);
        put_tensor(g, value, false);
    }
}

static void
put_states(const struct guess *g)
{
    if (!g->stateful)
        return;
    cn_buf_puts(g->out, "state:\n  tensors:\n");
    for (uint32_t i = 0; i < g->file->n_arguments; i++) {
        if (g->result_of[i] < 0)
            continue;
        cn_buf_puts(g->out, "    - {name: ");
        put_argument(g, i);
        put_tensor(g, &g->file->arguments[i], true);
    }
}

/* The order of arguments and results. A number without a default is 0. */
static void
put_order(const struct guess *g)
{
    const struct cn_torch_file *f = g->file;
    const struct cn_torch_dim *batch = batch_of(g);

    cn_buf_puts(g->out, "torch:\n  arguments: [");
    for (uint32_t i = 0; i < f->n_arguments; i++) {
        const struct cn_torch_value *value = &f->arguments[i];

        cn_buf_puts(g->out, i ? ", " : "");
        if (value->kind == CN_TORCH_TENSOR)
            put_argument(g, i);
        else if (cn_str_eq(value->text, CN_STR("True")) || cn_str_eq(value->text, CN_STR("bool")))
            cn_buf_puts(g->out, value->text.ptr[0] == 'T' ? "true" : "false");
        else if (cn_str_eq(value->text, CN_STR("False")))
            cn_buf_puts(g->out, "false");
        else if (value->text.len > 0 && strchr("-0123456789", value->text.ptr[0]) &&
                 cn_text_without_control(value->text.ptr, value->text.len) == value->text.len)
            cn_buf_append_str(g->out, value->text);
        else
            cn_buf_puts(g->out, "0");
    }
    cn_buf_puts(g->out, "]\n  results: [");
    for (uint32_t i = 0; i < f->n_results; i++) {
        cn_buf_puts(g->out, i ? ", " : "");
        if (f->results[i].kind == CN_TORCH_OTHER)
            cn_buf_puts(g->out, "_");
        else
            put_result(g, i);
    }
    cn_buf_puts(g->out, "]\n");
    if (batch && batch->size > 0)
        cn_buf_printf(g->out, "  buckets: [%" PRId64 "] # the only size of a batch that it takes\n",
                      batch->size);
}

/* What the YAML cannot say of one argument or result. */
static void
put_remark(const struct guess *g, const char *list, uint32_t i, const struct cn_torch_value *value)
{
    const size_t len = cn_text_without_control(value->text.ptr, value->text.len);

    if (value->kind == CN_TORCH_OTHER)
        cn_buf_printf(g->out, "# check: %s %" PRIu32 " has the type %.*s, which is not served\n",
                      list, i + 1, (int)(len < 200 ? len : 200), value->text.ptr);
    else if (value->kind == CN_TORCH_NUMBER)
        cn_buf_printf(g->out, "# check: %s %" PRIu32 " is a number, %s\n", list, i + 1,
                      list[0] == 'a' ? "which is the same in each step" : "sent as a tensor");
}

static void
put_remarks(const struct guess *g)
{
    for (uint32_t i = 0; i < g->file->n_arguments; i++)
        put_remark(g, "argument", i, &g->file->arguments[i]);
    for (uint32_t i = 0; i < g->file->n_results; i++)
        put_remark(g, "result", i, &g->file->results[i]);
    if (g->by_order)
        cn_buf_puts(g->out,
                    "# check: the states were guessed by the order of arguments and results\n");
    if (g->file->kind == CN_TORCH_EXPORTED)
        cn_buf_puts(g->out, "# the file is an exported program: the server needs the package that\n"
                            "# torch._inductor.aoti_compile_and_package makes of it\n");
}

void
cn_torch_suggest(const struct cn_torch_file *file, struct cn_buf *out)
{
    struct guess g = {.file = file, .out = out};
    const struct cn_torch_dim *batch;
    int64_t rows;

    find_states(&g);
    batch = batch_of(&g);
    rows = batch && batch->size > 0 ? batch->size : BATCH_SIZE;
    cn_buf_printf(out, "sequenceBatching: %s\nbatchSize: %" PRId64 "\nmaxBatchSize: %" PRId64 "\n",
                  g.stateful ? "true" : "false", rows, rows);
    put_inputs(&g);
    put_outputs(&g);
    put_states(&g);
    put_order(&g);
    put_remarks(&g);
}
