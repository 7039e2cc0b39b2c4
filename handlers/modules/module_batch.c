/* handlers/modules/module_batch.c - runs rows of one shape as one batch: gathers them, runs the
 * model, checks the results, and scatters them. Worker's thread.
 *
 * If there are fewer rows than the bucket has, copies of the first row fill it up. Zeros would not
 * do, because the model may not expect such values. States and outputs change only after all
 * results have been checked.
 */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/modules/module_values.h"
#include "handlers/torchlib/torch_message.h"

/* One run in eight is timed, because reading a thread's CPU clock twice takes 2 us. */
#define TIMED_EACH 8

/* How the rows of a tensor lie in memory: each row has `outer` pieces of `inner` bytes, and in each
 * piece the rows lie side by side. */
struct layout {
    size_t outer, inner;
};

static struct layout
layout_of(enum cn_datatype type, uint32_t rank, const int64_t *dims, uint32_t axis)
{
    struct layout layout = {1, cn_datatype_bytes(type)};

    for (uint32_t i = 0; i < rank; i++) {
        if (i < axis)
            layout.outer *= (size_t)dims[i];
        else
            layout.inner *= (size_t)dims[i];
    }
    return layout;
}

/* Returns the dimensions with the batch dimension inserted at `axis`. With `n` 0 there is none. */
static uint32_t
put_axis(uint32_t rank, const int64_t *dims, uint32_t axis, uint32_t n, int64_t *out)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i <= rank; i++) {
        if (n && i == axis)
            out[at++] = n;
        if (i < rank)
            out[at++] = dims[i];
    }
    return at;
}

static bool
is_batched(const struct module_runtime *rt)
{
    return rt->config.io->max_batch_size > 0;
}

/* --- gather --- */

static int
batch_reserve(struct module_batch *batch, size_t bytes, struct cn_error *err)
{
    char *data;

    if (batch->data && bytes <= batch->cap)
        return 0;
    data = cn_try_realloc(batch->data, bytes ? bytes : 1);
    if (!data)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a batch of %zu bytes",
                       bytes);
    batch->data = data;
    batch->cap = bytes;
    return 0;
}

static const struct module_row *
row_at(const struct module_runtime *rt, const uint32_t *rows, uint32_t i)
{
    return &rt->rows[rows[i]];
}

static struct module_tensor *
state_at(const struct module_runtime *rt, const struct module_row *row, int32_t state)
{
    struct module_state *object = rt->items[row->item].item->state;

    return &object->tensors[state];
}

static int
library_failed(const struct module_runtime *rt, struct cn_error *err)
{
    struct cn_str cause = cn_torch_cause(rt->error, true);

    return cn_fail(err, CN_E_HANDLER_FAILED, "%s of %s: %.*s", rt->config.method, rt->load->handler,
                   CN_STR_ARG(cause));
}

/* Makes room for the joined rows. For an argument that is memory of the library, so that nothing is
 * copied again. `out` has type and shape. */
static int
room_for(struct module_runtime *rt, uint32_t argument, struct module_batch *batch, size_t bytes,
         struct ctt_tensor *out, struct cn_error *err)
{
    int rc;

    if (!batch)
        return rt->api->room(rt->model, argument, out, rt->error, CTT_ERROR_BYTES)
                   ? library_failed(rt, err)
                   : 0;
    rc = batch_reserve(batch, bytes, err);
    out->data = batch->data;
    return rc;
}

/* Joins the rows of one tensor. `batch` is NULL for an argument. */
static int
gather(struct module_runtime *rt, uint32_t argument, struct module_batch *batch,
       const uint32_t *rows, uint32_t k, uint32_t bucket, int32_t input, int32_t state,
       struct ctt_tensor *out, struct cn_error *err)
{
    const struct module_row *first = row_at(rt, rows, 0);
    const struct cn_model_io *io = rt->config.io;
    const bool batched = is_batched(rt);
    uint32_t axis = 0, rank;
    enum cn_datatype type;
    const int64_t *dims;
    struct layout layout;
    int rc;

    if (input >= 0) {
        const struct cn_tensor *tensor = &rt->items[first->item].inputs[input];

        type = io->inputs[input].type;
        rank = tensor->rank - batched;
        dims = tensor->shape + batched;
    } else {
        type = io->state.items[state].type;
        axis = batched ? io->state.items[state].batch_axis : 0;
        rank = state_at(rt, first, state)->rank;
        dims = state_at(rt, first, state)->dims;
    }
    layout = layout_of(type, rank, dims, axis);
    out->datatype = (int32_t)type;
    out->rank = (int32_t)put_axis(rank, dims, axis, batched ? bucket : 0, out->dims);
    rc = room_for(rt, argument, batch, layout.outer * layout.inner * bucket, out, err);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < bucket && layout.inner; i++) {
        const struct module_row *row = row_at(rt, rows, i < k ? i : 0);
        const char *from = input >= 0 ? rt->items[row->item].data[input] + row->index * layout.inner
                                      : state_at(rt, row, state)->data;

        for (size_t o = 0; o < layout.outer; o++)
            memcpy((char *)out->data + (o * bucket + i) * layout.inner, from + o * layout.inner,
                   layout.inner);
    }
    return 0;
}

/* --- run --- */

/* Sets the number that is one for all rows of the run. module_run.c puts only rows together that
 * agree on it. */
static void
read_number(const struct module_runtime *rt, const struct module_row *row,
            const struct cn_module_attribute *attribute, struct ctt_value *out)
{
    const enum cn_datatype type = rt->config.io->state.items[attribute->state].type;
    const struct module_tensor *state = state_at(rt, row, attribute->state);

    out->kind = attribute->kind;
    out->number = cn_module_value(type, state->data, 0);
    if (type == CN_DATATYPE_INT64)
        memcpy(&out->integer, state->data, sizeof(out->integer));
    else
        out->integer = (int64_t)out->number;
}

static int
set_attributes(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket,
               struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;

    for (uint32_t i = 0; i < config->n_attributes; i++) {
        const struct cn_module_attribute *attribute = &config->attributes[i];
        struct ctt_value value = attribute->number;
        int rc;

        if (attribute->state >= 0 && state_at(rt, row_at(rt, rows, 0), attribute->state)->none) {
            value.kind = CTT_NONE;
        } else if (cn_module_is_number(attribute)) {
            read_number(rt, row_at(rt, rows, 0), attribute, &value);
        } else if (attribute->state >= 0) {
            value.kind = CTT_TENSOR;
            rc = gather(rt, 0, &rt->batches[i], rows, k, bucket, -1, attribute->state,
                        &value.tensor, err);
            if (rc)
                return rc;
        } else if (attribute->batch) {
            value.kind = CTT_INT;
            value.integer = bucket;
        }
        if (rt->api->set_attribute(rt->model, attribute->name, &value, rt->error, CTT_ERROR_BYTES))
            return library_failed(rt, err);
    }
    return 0;
}

/* Returns the counters of this bucket, or NULL if the plan does not have it. */
static struct module_spent *
spent_of(struct module_runtime *rt, uint32_t bucket)
{
    for (uint32_t b = 0; b < rt->plan.n; b++)
        if (rt->plan.rows[b] == bucket)
            return &rt->spent[b];
    return NULL;
}

static int
run_model(struct module_runtime *rt, uint32_t bucket, uint32_t *n_results)
{
    struct module_spent *spent = spent_of(rt, bucket);
    bool timed = spent && spent->runs % TIMED_EACH == 0;
    uint64_t ns = 0;

    if (rt->api->run(rt->model, rt->arguments, rt->config.n_arguments, rt->results,
                     rt->config.n_results, n_results, timed ? &ns : NULL, rt->error,
                     CTT_ERROR_BYTES))
        return -1;
    if (spent)
        spent->runs++;
    if (timed) {
        spent->timed++;
        spent->ns += ns;
    }
    return 0;
}

static int
call_model(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket,
           struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    uint32_t n_results = 0;
    int rc = set_attributes(rt, rows, k, bucket, err);

    for (uint32_t i = 0; rc == 0 && i < config->n_arguments; i++) {
        const struct cn_module_slot *slot = &config->arguments[i];

        rt->arguments[i] = slot->number;
        if (slot->input < 0 && slot->state < 0)
            continue;
        rt->arguments[i].kind = CTT_TENSOR;
        if (slot->state >= 0 && state_at(rt, row_at(rt, rows, 0), slot->state)->none) {
            rt->arguments[i].kind = CTT_NONE;
            continue;
        }
        rc = gather(rt, i, NULL, rows, k, bucket, slot->input, slot->state,
                    &rt->arguments[i].tensor, err);
    }
    if (rc)
        return rc;
    if (run_model(rt, bucket, &n_results))
        return library_failed(rt, err);
    if (n_results != config->n_results)
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "%s of %s returned %" PRIu32
                       " tensors, but the model's YAML declares %" PRIu32 " (%s.results): %s",
                       config->method, rt->load->handler, n_results, config->n_results,
                       config->kind->runtime, rt->api->schema(rt->model));
    for (uint32_t i = 0; i < config->n_attributes; i++)
        if (config->attributes[i].state >= 0 &&
            rt->api->get_attribute(rt->model, config->attributes[i].name, &rt->kept[i], rt->error,
                                   CTT_ERROR_BYTES))
            return library_failed(rt, err);
    return 0;
}

/* --- check --- */

static bool
fits(const struct ctt_tensor *got, uint32_t rank, const int64_t *dims)
{
    if (got->rank != (int32_t)rank)
        return false;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] >= 0 && got->dims[i] != dims[i])
            return false;
    return true;
}

static int
check_result(struct module_runtime *rt, const struct ctt_tensor *got, const char *what,
             struct cn_str name, enum cn_datatype type, uint32_t rank, const int64_t *dims,
             uint32_t axis, uint32_t bucket, struct cn_error *err)
{
    int64_t wanted[CN_TENSOR_RANK_MAX + 1];
    const char *got_word =
        got->datatype ? cn_datatype_word((enum cn_datatype)got->datatype) : "None";
    struct cn_arena arena;
    int rc = 0;

    rank = put_axis(rank, dims, axis, is_batched(rt) ? bucket : 0, wanted);
    if (got->datatype == (int32_t)type && fits(got, rank, wanted))
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_HANDLER_FAILED,
                 "%s of %s returned %s %.*s as %s%s, but the model's YAML declares %s%s%s",
                 rt->config.method, rt->load->handler, what, CN_STR_ARG(name), got_word,
                 cn_shape_text(&arena, got->dims, (uint32_t)got->rank), cn_datatype_word(type),
                 cn_shape_text(&arena, wanted, rank),
                 is_batched(rt) ? " (with the batch dimension added)" : "");
    cn_arena_fini(&arena);
    return rc;
}

static int
check_state(struct module_runtime *rt, const struct ctt_tensor *got, int32_t state, uint32_t bucket,
            struct cn_error *err)
{
    const struct cn_state_spec *spec = &rt->config.io->state.items[state];

    if (got->datatype == 0 && spec->init == CN_STATE_NONE)
        return 0;
    return check_result(rt, got, "state", spec->output, spec->type, spec->rank, spec->dims,
                        spec->batch_axis, bucket, err);
}

/* Checks a number that the module keeps, as read_number() reads it. */
static int
check_number(struct module_runtime *rt, const struct ctt_tensor *got, int32_t state,
             struct cn_error *err)
{
    const struct cn_state_spec *spec = &rt->config.io->state.items[state];

    if (got->rank == 0 && got->datatype == (int32_t)spec->type)
        return 0;
    return cn_fail(err, CN_E_HANDLER_FAILED,
                   "the module holds the state %.*s as %s, but the model's YAML declares %s",
                   CN_STR_ARG(spec->output),
                   got->datatype ? cn_datatype_word((enum cn_datatype)got->datatype) : "None",
                   cn_datatype_word(spec->type));
}

static int
check_results(struct module_runtime *rt, uint32_t bucket, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_results; i++) {
        const struct cn_module_slot *slot = &config->results[i];

        if (slot->output >= 0) {
            const struct cn_tensor_spec *spec = &config->io->outputs[slot->output];

            rc = check_result(rt, &rt->results[i], "output", spec->name, spec->type, spec->rank,
                              spec->dims, 0, bucket, err);
        }
        if (rc == 0 && slot->state >= 0)
            rc = check_state(rt, &rt->results[i], slot->state, bucket, err);
    }
    for (uint32_t i = 0; rc == 0 && i < config->n_attributes; i++) {
        const int32_t state = config->attributes[i].state;

        if (cn_module_is_number(&config->attributes[i]))
            rc = check_number(rt, &rt->kept[i], state, err);
        else if (state >= 0)
            rc = check_state(rt, &rt->kept[i], state, bucket, err);
    }
    return rc;
}

/* --- scatter --- */

/* Reverses the joining for the dimensions of a result: returns those of one row. */
static uint32_t
row_dims(const struct module_runtime *rt, const struct ctt_tensor *from, uint32_t axis,
         int64_t *out)
{
    uint32_t rank = 0;

    for (uint32_t i = 0; i < (uint32_t)from->rank; i++)
        if (!is_batched(rt) || i != axis)
            out[rank++] = from->dims[i];
    return rank;
}

static void
copy_row(const struct ctt_tensor *from, struct layout layout, uint32_t bucket, uint32_t i, char *to)
{
    const char *data = from->data;

    for (size_t o = 0; o < layout.outer && layout.inner; o++)
        memcpy(to + o * layout.inner, data + (o * bucket + i) * layout.inner, layout.inner);
}

/* Copies a row's part of a result. With `write` false it only makes room, which is the only step
 * that can fail. */
static int
scatter_state(struct module_runtime *rt, const struct ctt_tensor *from, int32_t state,
              const uint32_t *rows, uint32_t k, uint32_t bucket, bool write, struct cn_error *err)
{
    const struct cn_state_spec *spec = &rt->config.io->state.items[state];
    const uint32_t axis = is_batched(rt) ? spec->batch_axis : 0;
    int64_t dims[CN_TENSOR_RANK_MAX];
    uint32_t rank = row_dims(rt, from, axis, dims);
    struct layout layout = layout_of(spec->type, rank, dims, axis);
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < k; i++) {
        struct module_tensor *to = state_at(rt, row_at(rt, rows, i), state);

        if (write && row_at(rt, rows, i)->no_number)
            continue;
        if (from->datatype == 0) {
            to->none = to->none || write;
            continue;
        }
        if (!write) {
            rc = cn_module_tensor_reserve(to, layout.outer * layout.inner, err);
            continue;
        }
        to->none = false;
        to->rank = rank;
        memcpy(to->dims, dims, sizeof(dims[0]) * rank);
        to->bytes = layout.outer * layout.inner;
        copy_row(from, layout, bucket, i, to->data);
    }
    return rc;
}

/* Gives each row the number that the module keeps. Its dimensions are those of the declaration. */
static void
scatter_number(struct module_runtime *rt, const struct ctt_tensor *from, int32_t state,
               const uint32_t *rows, uint32_t k)
{
    for (uint32_t i = 0; i < k; i++) {
        const struct module_tensor *to = state_at(rt, row_at(rt, rows, i), state);

        if (!row_at(rt, rows, i)->no_number)
            memcpy(to->data, from->data, to->bytes);
    }
}

static const int64_t *
keep_dims(struct module_runtime *rt, const int64_t *dims, uint32_t rank)
{
    int64_t *kept = cn_arena_alloc(&rt->arena, sizeof(dims[0]) * CN_TENSOR_RANK_MAX);

    memcpy(kept, dims, sizeof(dims[0]) * rank);
    return kept;
}

/* Writes the rows of a result into the outputs of their items. An output of an item is one piece of
 * memory, even if its rows were in several runs. */
static int
scatter_output(struct module_runtime *rt, const struct ctt_tensor *from, int32_t output,
               const uint32_t *rows, uint32_t k, uint32_t bucket, bool write, struct cn_error *err)
{
    const struct cn_tensor_spec *spec = &rt->config.io->outputs[output];
    int64_t dims[CN_TENSOR_RANK_MAX];
    uint32_t rank = row_dims(rt, from, 0, dims);
    struct layout layout = layout_of(spec->type, rank, dims, 0);

    const int64_t *kept = NULL; /* the dimensions are the same for all requests of this run */

    for (uint32_t i = 0; i < k; i++) {
        const struct module_row *row = row_at(rt, rows, i);
        struct module_item *item = &rt->items[row->item];
        struct module_output *to = &item->outputs[output];

        if (write) {
            copy_row(from, layout, bucket, i, to->data + row->index * layout.inner);
            continue;
        }
        if (!to->data) {
            if (!kept)
                kept = keep_dims(rt, dims, rank);
            to->rank = rank;
            to->dims = kept;
            to->bytes = layout.inner * item->n_rows;
            to->data = cn_arena_try_alloc(&rt->arena, to->bytes ? to->bytes : 1);
            if (!to->data)
                return cn_fail(err, CN_E_OUT_OF_MEMORY,
                               "not enough memory for an output of %zu bytes", to->bytes);
        } else if (memcmp(to->dims, dims, sizeof(dims[0]) * rank) != 0) {
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "the output %.*s has different shapes for the rows of one request",
                           CN_STR_ARG(spec->name));
        }
    }
    return 0;
}

static int
scatter(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket, bool write,
        struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_results; i++) {
        const struct cn_module_slot *slot = &config->results[i];

        if (slot->output >= 0)
            rc = scatter_output(rt, &rt->results[i], slot->output, rows, k, bucket, write, err);
        if (rc == 0 && slot->state >= 0)
            rc = scatter_state(rt, &rt->results[i], slot->state, rows, k, bucket, write, err);
    }
    for (uint32_t i = 0; rc == 0 && i < config->n_attributes; i++) {
        const int32_t state = config->attributes[i].state;

        if (!cn_module_is_number(&config->attributes[i]) && state >= 0)
            rc = scatter_state(rt, &rt->kept[i], state, rows, k, bucket, write, err);
        else if (state >= 0 && write)
            scatter_number(rt, &rt->kept[i], state, rows, k);
    }
    return rc;
}

/* --- nanPolicy: refuse --- */

/* Marks the rows whose part of this result contains a NaN or an infinity. */
static void
mark_tensor(struct module_runtime *rt, const struct ctt_tensor *from, uint32_t axis,
            const char *what, struct cn_str name, const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    const enum cn_datatype type = (enum cn_datatype)from->datatype;
    int64_t dims[CN_TENSOR_RANK_MAX];
    struct layout layout;

    if (from->datatype == 0 || !cn_module_is_float(type))
        return;
    layout = layout_of(type, row_dims(rt, from, axis, dims), dims, axis);
    for (uint32_t i = 0; i < k; i++)
        for (size_t o = 0; o < layout.outer; o++) {
            const char *at = (const char *)from->data + (o * bucket + i) * layout.inner;

            if (!rt->rows[rows[i]].no_number &&
                cn_module_has_no_number(type, at, layout.inner / cn_datatype_bytes(type)))
                rt->rows[rows[i]].no_number =
                    cn_arena_printf(&rt->arena, "%s %.*s", what, CN_STR_ARG(name));
        }
}

static void
mark_rows(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    const struct cn_module_config *config = &rt->config;

    for (uint32_t i = 0; i < config->n_results; i++) {
        const struct cn_module_slot *slot = &config->results[i];

        if (slot->output >= 0)
            mark_tensor(rt, &rt->results[i], 0, "output", config->io->outputs[slot->output].name,
                        rows, k, bucket);
        if (slot->state >= 0)
            mark_tensor(rt, &rt->results[i], config->io->state.items[slot->state].batch_axis,
                        "state", config->io->state.items[slot->state].output, rows, k, bucket);
    }
    for (uint32_t i = 0; i < config->n_attributes; i++) {
        const int32_t state = config->attributes[i].state;

        if (state >= 0 && !cn_module_is_number(&config->attributes[i]))
            mark_tensor(rt, &rt->kept[i], config->io->state.items[state].batch_axis, "state",
                        config->io->state.items[state].output, rows, k, bucket);
    }
}

int
cn_module_batch_run(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket,
                    struct cn_error *err)
{
    int rc;

    rt->error[0] = '\0';
    rc = call_model(rt, rows, k, bucket, err);
    if (rc == 0)
        rc = check_results(rt, bucket, err);
    if (rc == 0 && rt->config.refuse_nan)
        mark_rows(rt, rows, k, bucket);
    if (rc == 0)
        rc = scatter(rt, rows, k, bucket, false, err);
    if (rc == 0)
        rc = scatter(rt, rows, k, bucket, true, err);
    return rc;
}
