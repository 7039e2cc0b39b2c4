/* handlers/modules/module_probe_rows.c - makes the random rows of a probe, runs them, and keeps and
 * compares their results. Worker's thread.
 *
 * A run changes the states of its rows, so each one starts from a copy of `begin`. `alone` has what
 * each row gave in its first run by itself, copied out of the arena; every later run of the row is
 * compared with that. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module_probe_priv.h"
#include "handlers/modules/module_values.h"

/* --- random rows --- */

static double
next_random(struct probe *probe) /* 0 to 1; splitmix64 */
{
    uint64_t z = (probe->random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Fills a tensor with floats from -1 to 1 or integers from 0 to 3, unless the YAML gives a range.
 * Each row has another magnitude, so that scaling over all rows changes the results. */
static void
fill(struct probe *probe, uint32_t row, uint32_t input, char *data, uint64_t elements)
{
    const struct cn_module_range *range = &probe->rt->config.ranges[input];
    const enum cn_datatype type = probe->rt->config.io->inputs[input].type;
    const bool is_float = cn_module_is_float(type);
    const double low = range->given ? range->low : is_float ? probe->lowest : 0;
    const double high = range->given               ? range->high
                        : is_float                 ? 1
                        : type == CN_DATATYPE_BOOL ? 1
                                                   : 3;

    for (uint64_t i = 0; i < elements; i++) {
        double value = next_random(probe);

        if (is_float)
            value = low + value * (high - low);
        else
            value = floor(low + value * (high - low + 1));
        if (is_float && !range->given)
            value *= (double)(row + 1) / PROBE_ROWS_MAX;
        cn_module_value_put(type, data, (size_t)i, value);
    }
}

/* Fills the inputs of a row with new random values. Makes room for them at the first call. */
int
cn_probe_fill_row(struct probe *probe, uint32_t row, struct cn_error *err)
{
    const struct cn_module_config *config = &probe->rt->config;
    const struct cn_model_io *io = config->io;
    struct module_item *item = &probe->items[row];
    const bool batched = io->max_batch_size > 0;
    struct cn_tensor *inputs;

    if (item->inputs) {
        for (uint32_t i = 0; i < io->n_inputs; i++)
            fill(probe, row, i, (char *)(uintptr_t)item->data[i],
                 item->inputs[i].data.len / cn_datatype_bytes(io->inputs[i].type));
        return 0;
    }
    inputs = cn_arena_alloc(&probe->arena, (io->n_inputs + 1) * sizeof(*inputs));
    item->data = cn_arena_alloc(&probe->arena, (io->n_inputs + 1) * sizeof(*item->data));
    for (uint32_t i = 0; i < io->n_inputs; i++) {
        int rc = cn_module_input_of(&io->inputs[i], batched, config->warmup, &probe->arena,
                                    &inputs[i], err);

        if (rc)
            return rc;
        item->data[i] = inputs[i].data.ptr;
    }
    item->inputs = inputs;
    return cn_probe_fill_row(probe, row, err);
}

/* --- runs --- */

/* Runs these rows, each from its state before the step. */
int
cn_probe_run(struct probe *probe, const uint32_t *rows, uint32_t k, uint32_t bucket,
             struct cn_error *err)
{
    struct module_runtime *rt = probe->rt;
    const struct cn_model_io *io = rt->config.io;

    cn_arena_clear(&rt->arena);
    for (uint32_t i = 0; i < k; i++) {
        struct module_item *item = &probe->items[rows[i]];

        item->outputs = cn_arena_alloc(&rt->arena, (io->n_outputs + 1) * sizeof(*item->outputs));
        memset(item->outputs, 0, io->n_outputs * sizeof(*item->outputs));
        if (!probe->begin[rows[i]])
            continue;
        cn_module_state_destroy(item->item->state);
        item->item->state = cn_module_state_copy(probe->begin[rows[i]], err);
        if (!item->item->state)
            return err->code;
    }
    rt->api->seed(probe->seed);
    return cn_module_batch_run(rt, rows, k, bucket, err);
}

static uint32_t
bucket_of_one(const struct module_runtime *rt)
{
    return rt->config.io->max_batch_size ? rt->plan.rows[cn_module_plan_next(&rt->plan, 1)] : 1;
}

int
cn_probe_run_alone(struct probe *probe, uint32_t row, struct cn_error *err)
{
    return cn_probe_run(probe, &row, 1, bucket_of_one(probe->rt), err);
}

/* --- results --- */

/* Copies what `from` borrows. */
static int
keep(const struct result *from, struct result *to, struct cn_error *err)
{
    const size_t bytes = from->place.bytes;
    char *data = cn_try_realloc(to->data, bytes);

    if (!data)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a tensor of %zu bytes",
                       bytes);
    if (bytes)
        memcpy(data, from->data, bytes);
    *to = (struct result){data, from->place};
    return 0;
}

/* Returns result `i` of a row that has run. Results are the outputs, then the states. Borrowed. */
static struct result
result_of(const struct probe *probe, uint32_t row, uint32_t i)
{
    const struct cn_model_io *io = probe->rt->config.io;
    const struct module_item *item = &probe->items[row];
    const struct module_state *state = item->item->state;
    struct result result = {0};

    if (i >= io->n_outputs) {
        result.data = cn_module_place_data(state, (int32_t)(i - io->n_outputs));
        result.place = *cn_module_place(state, (int32_t)(i - io->n_outputs));
        return result;
    }
    result.data = item->outputs[i].data;
    result.place.bytes = item->outputs[i].bytes;
    result.place.rank = item->outputs[i].rank;
    memcpy(result.place.dims, item->outputs[i].dims,
           sizeof(result.place.dims[0]) * result.place.rank);
    return result;
}

static uint32_t
n_results(const struct probe *probe)
{
    const struct cn_model_io *io = probe->rt->config.io;

    return io->n_outputs + (probe->begin[0] ? io->state.n : 0);
}

int
cn_probe_keep_results(struct probe *probe, uint32_t row, struct results *to, struct cn_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < n_results(probe); i++) {
        struct result got = result_of(probe, row, i);

        rc = keep(&got, &to->list[i], err);
    }
    return rc;
}

static enum cn_datatype
type_of(const struct probe *probe, uint32_t i)
{
    const struct cn_model_io *io = probe->rt->config.io;

    return i < io->n_outputs ? io->outputs[i].type : io->state.items[i - io->n_outputs].type;
}

static double
distance(enum cn_datatype type, const struct result *a, const struct result *b)
{
    const struct module_place *x = &a->place, *y = &b->place;

    if (x->none || y->none)
        return x->none == y->none ? 0 : INFINITY;
    if (x->rank != y->rank || x->bytes != y->bytes ||
        memcmp(x->dims, y->dims, sizeof(x->dims[0]) * x->rank) != 0)
        return INFINITY;
    return cn_module_distance(type, a->data, b->data, x->bytes / cn_datatype_bytes(type));
}

/* Compares the present results of the row with those that it gave alone. Remembers the largest
 * difference. */
void
cn_probe_compare(struct probe *probe, uint32_t row)
{
    const struct cn_model_io *io = probe->rt->config.io;
    struct module_probe_result *found = probe->found;

    for (uint32_t i = 0; i < n_results(probe); i++) {
        const bool is_output = i < io->n_outputs;
        struct cn_str name =
            is_output ? io->outputs[i].name : io->state.items[i - io->n_outputs].output;
        struct result got = result_of(probe, row, i);
        double apart = distance(type_of(probe, i), &got, &probe->alone[row].list[i]);

        if (apart <= found->distance)
            continue;
        found->distance = apart;
        snprintf(found->what, sizeof(found->what), "%s %.*s", is_output ? "output" : "state",
                 name.len > 64 ? 64 : (int)name.len, name.ptr);
    }
}

void
cn_probe_forget_states(struct probe *probe)
{
    for (uint32_t i = 0; i < probe->n; i++) {
        cn_module_state_destroy(probe->begin[i]);
        cn_module_state_destroy(probe->shells[i].state);
        probe->begin[i] = NULL;
        probe->shells[i].state = NULL;
    }
}

void
cn_probe_make(struct probe *probe, struct module_runtime *rt)
{
    const struct cn_model_io *io = rt->config.io;

    /* A model whose runs take long gets fewer rows. Each row needs about six runs. */
    probe->n = PROBE_ROWS_MAX;
    while (probe->n > PROBE_ROWS_MIN && rt->plan.cost_us[0] * 6 * probe->n > PROBE_MAX_US)
        probe->n--;
    cn_arena_init(&probe->arena);
    probe->shells = cn_arena_alloc(&probe->arena, sizeof(*probe->shells) * probe->n);
    probe->items = cn_arena_alloc(&probe->arena, sizeof(*probe->items) * probe->n);
    probe->rows = cn_arena_alloc(&probe->arena, sizeof(*probe->rows) * probe->n);
    probe->begin = cn_arena_alloc(&probe->arena, sizeof(*probe->begin) * probe->n);
    probe->alone = cn_arena_alloc(&probe->arena, sizeof(*probe->alone) * probe->n);
    memset(probe->shells, 0, sizeof(*probe->shells) * probe->n);
    memset(probe->items, 0, sizeof(*probe->items) * probe->n);
    memset(probe->begin, 0, sizeof(*probe->begin) * probe->n);
    for (uint32_t i = 0; i < probe->n; i++) {
        size_t bytes = sizeof(struct result) * (io->n_outputs + io->state.n + 1);

        probe->items[i].item = &probe->shells[i];
        probe->items[i].n_rows = 1;
        probe->rows[i] = (struct module_row){.item = i};
        probe->alone[i].list = cn_arena_alloc(&probe->arena, bytes);
        memset(probe->alone[i].list, 0, bytes);
    }
}

void
cn_probe_end(struct probe *probe)
{
    const struct cn_model_io *io = probe->rt->config.io;

    cn_probe_forget_states(probe);
    for (uint32_t i = 0; i < probe->n; i++)
        for (uint32_t t = 0; t < io->n_outputs + io->state.n; t++)
            cn_free(probe->alone[i].list[t].data);
    cn_arena_fini(&probe->arena);
    cn_arena_clear(&probe->rt->arena);
}
