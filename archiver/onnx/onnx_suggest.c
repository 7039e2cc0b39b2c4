/* archiver/onnx/onnx_suggest.c - guesses a model's YAML from the graph of an ONNX file. Archiver
 * only.
 *
 * ONNX has no word for states: a recurrent model takes h as one more input and returns the new h as
 * one more output. So the guess goes by names, types and ranks: an input "past.0.key" and an output
 * "present.0.key" with the same type are probably one state. The result is a YAML that says "check"
 * wherever the guess is weak; the author reads it before it is used. */
#include "archiver/onnx/onnx_suggest.h"

#include <inttypes.h>
#include <string.h>

#define BATCH_SIZE 16 /* is suggested if the graph allows any size of batch */

/* How the names of a state begin and end: past.0.key and present.0.key. The first row that fits
 * counts. */
static const struct {
    const char *in_begin, *in_end, *out_begin, *out_end;
} pairs[] = {{"past_key_values.", "", "present.", ""},
             {"past_key_values", "", "present", ""},
             {"past", "", "present", ""},
             {"", "_in", "", "_out"},
             {"in_", "", "out_", ""},
             {"", ".in", "", ".out"},
             {"", "_input", "", "_output"},
             {"prev_", "", "next_", ""},
             {"", "_prev", "", "_next"},
             {"old_", "", "new_", ""},
             {"", "", "new_", ""},
             {"", "", "next_", ""},
             {"", "0", "", "n"},
             {"", "", "", "N"},
             {"", "", "", "n"},
             {"", "", "", "_next"},
             {"", "", "", "_out"},
             {"", "in", "", "out"}};

/* Finds what lies between this beginning and this end of the name. Returns false if the name does
 * not begin and end so. */
static bool
middle(struct cn_str name, const char *begin, const char *end, struct cn_str *out)
{
    size_t b = strlen(begin), e = strlen(end);

    if (name.len <= b + e || memcmp(name.ptr, begin, b) != 0 ||
        memcmp(name.ptr + name.len - e, end, e) != 0)
        return false;
    *out = (struct cn_str){name.ptr + b, name.len - b - e};
    return true;
}

static bool
belong(const struct cn_onnx_value *input, const struct cn_onnx_value *output)
{
    struct cn_str a, b;

    if (!input->type || input->type != output->type || input->rank == 0 ||
        (output->rank != 0 && output->rank != input->rank))
        return false;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (middle(input->name, pairs[i].in_begin, pairs[i].in_end, &a) &&
            middle(output->name, pairs[i].out_begin, pairs[i].out_end, &b) && cn_str_eq(a, b))
            return true;
    return false;
}

struct guess {
    const struct cn_onnx_file *file;
    struct cn_buf *out;
    int32_t output_of[CN_ONNX_VALUES_MAX]; /* for each input, the output of the same state, or -1 */
    bool taken[CN_ONNX_VALUES_MAX];        /* for each output */
    struct cn_onnx_dim batch;              /* the dimension in which rows are joined */
};

static void
find_states(struct guess *g)
{
    for (uint32_t i = 0; i < g->file->n_inputs; i++) {
        g->output_of[i] = -1;
        for (uint32_t o = 0; o < g->file->n_outputs && g->output_of[i] < 0; o++)
            if (!g->taken[o] && belong(&g->file->inputs[i], &g->file->outputs[o])) {
                g->output_of[i] = (int32_t)o;
                g->taken[o] = true;
            }
    }
}

static void
find_batch(struct guess *g)
{
    g->batch = (struct cn_onnx_dim){.size = -1};
    for (uint32_t i = 0; i < g->file->n_inputs; i++)
        if (g->output_of[i] < 0 && g->file->inputs[i].rank > 0) {
            g->batch = g->file->inputs[i].dims[0];
            return;
        }
}

static bool
is_batch(const struct guess *g, const struct cn_onnx_dim *dim)
{
    if (g->batch.size >= 0)
        return dim->size == g->batch.size;
    return dim->size < 0 && cn_str_eq(dim->name, g->batch.name);
}

/* Returns which dimension is the batch's. If none is certain, it is the first one that has no fixed
 * size. */
static uint32_t
axis_of(const struct guess *g, const struct cn_onnx_value *value, bool *sure)
{
    *sure = true;
    for (uint32_t d = 0; d < value->rank; d++)
        if (is_batch(g, &value->dims[d]) && (g->batch.size >= 0 || g->batch.name.len > 0))
            return d;
    *sure = false;
    for (uint32_t d = 0; d < value->rank; d++)
        if (value->dims[d].size < 0)
            return d;
    return 0;
}

/* Writes a name in quotes, so that YAML cannot read it as anything else. */
static void
put_name(struct cn_buf *out, struct cn_str name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    size_t n = 0;

    while (n < name.len && name.ptr[n] && strchr(plain, name.ptr[n]))
        n++;
    if (n == name.len && n > 0 && !strchr("0123456789.", name.ptr[0])) {
        cn_buf_append_str(out, name);
        return;
    }
    cn_buf_puts(out, "\"");
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];

        if (c < 0x20 || c == 0x7f)
            cn_buf_printf(out, "\\x%02x", c);
        else
            cn_buf_printf(out, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    cn_buf_puts(out, "\"");
}

/* Writes all dimensions except the batch's. `open` is written for a dimension without a fixed size.
 */
static bool
put_dims(struct cn_buf *out, const struct cn_onnx_value *value, uint32_t axis, int open)
{
    bool any = false, first = true;

    cn_buf_puts(out, "[");
    for (uint32_t d = 0; d < value->rank; d++) {
        if (d == axis)
            continue;
        any = any || value->dims[d].size < 0;
        cn_buf_printf(out, "%s%" PRId64, first ? "" : ", ",
                      value->dims[d].size < 0 ? (int64_t)open : value->dims[d].size);
        first = false;
    }
    cn_buf_puts(out, "]");
    return any;
}

static void
put_tensors(const struct guess *g, const char *list, bool input)
{
    const uint32_t n = input ? g->file->n_inputs : g->file->n_outputs;
    bool sure;

    cn_buf_printf(g->out, "%s:\n", list);
    for (uint32_t i = 0; i < n; i++) {
        const struct cn_onnx_value *value = input ? &g->file->inputs[i] : &g->file->outputs[i];

        if (input ? g->output_of[i] >= 0 || value->rank == 0 : g->taken[i])
            continue;
        cn_buf_puts(g->out, "  - {name: ");
        put_name(g->out, value->name);
        cn_buf_printf(g->out, ", dataType: %s, dims: ", value->type ? value->type : "FP32");
        put_dims(g->out, value, 0, -1);
        if (axis_of(g, value, &sure) != 0 || value->rank == 0 || !value->type)
            cn_buf_puts(g->out, "} # check: type or dimensions were not to be guessed\n");
        else
            cn_buf_puts(g->out, "}\n");
    }
}

static void
put_states(const struct guess *g)
{
    bool begun = false, sure;

    for (uint32_t i = 0; i < g->file->n_inputs; i++) {
        const struct cn_onnx_value *value = &g->file->inputs[i];
        uint32_t axis;

        if (g->output_of[i] < 0)
            continue;
        if (!begun)
            cn_buf_puts(g->out, "state:\n  tensors:\n");
        begun = true;
        axis = axis_of(g, value, &sure);
        cn_buf_puts(g->out, "    - {input: ");
        put_name(g->out, value->name);
        cn_buf_puts(g->out, ", output: ");
        put_name(g->out, g->file->outputs[g->output_of[i]].name);
        cn_buf_printf(g->out, ", dataType: %s, dims: ", value->type);
        if (put_dims(g->out, value, axis, -1)) { /* the state grows, and begins empty */
            cn_buf_puts(g->out, ", init: {dims: ");
            put_dims(g->out, value, axis, 0);
            cn_buf_puts(g->out, "}");
        }
        cn_buf_printf(g->out, ", batchAxis: %" PRIu32 "}%s\n", axis, sure ? "" : " # check");
    }
}

/* Writes the settings that are numbers. They are the same for all rows. */
static void
put_settings(const struct guess *g)
{
    bool begun = g->batch.size >= 0;

    if (begun)
        cn_buf_printf(g->out, "onnx:\n  buckets: [%" PRId64 "] # the graph's own batch size\n",
                      g->batch.size);
    for (uint32_t i = 0, n = 0; i < g->file->n_inputs; i++) {
        if (g->file->inputs[i].rank > 0)
            continue;
        cn_buf_puts(g->out, begun ? "" : "onnx:\n");
        cn_buf_puts(g->out, n++ ? "" : "  set:\n");
        begun = true;
        cn_buf_puts(g->out, "    ");
        put_name(g->out, g->file->inputs[i].name);
        cn_buf_puts(g->out, ": 0 # put the number here\n");
    }
}

void
cn_onnx_suggest(const struct cn_onnx_file *file, struct cn_buf *out)
{
    struct guess g = {.file = file, .out = out};
    bool stateful = false;
    int64_t batch;

    find_states(&g);
    find_batch(&g);
    for (uint32_t i = 0; i < file->n_inputs; i++)
        stateful = stateful || g.output_of[i] >= 0;
    batch = g.batch.size > 0 ? g.batch.size : BATCH_SIZE;
    cn_buf_printf(out, "sequenceBatching: %s\nbatchSize: %" PRId64 "\nmaxBatchSize: %" PRId64 "\n",
                  stateful ? "true" : "false", batch, batch);
    put_tensors(&g, "inputs", true);
    put_tensors(&g, "outputs", false);
    put_states(&g);
    put_settings(&g);
}
