/* handlers/modules/module_batch.c - rows of one shape become one run of the model: they are
 * gathered, run and checked, and their results are scattered (module_rows.c).
 *
 * If there are fewer rows than the bucket has, copies of the first row fill it up. Zeros would not
 * do, because the model may not expect such values. States and outputs change only after all
 * results have been checked.
 *
 * Example: a recurrent model with an input x of dims [16], a state h of dims [2, 64] whose batch
 * axis is 1, and buckets 1 and 4. Three sequences step at the same time:
 *   gather   x of the rows becomes [4, 16], h becomes [2, 4, 64]; place 3 repeats row 0
 *   run      the method gets both tensors and returns y [4, 8] and the new h [2, 4, 64]
 *   check    type, rank and sizes of y and h are as declared, with the batch dimension 4
 *   scatter  y of each row goes to its request, and h into the bytes of its sequence's state
 *
 * What the YAML declares wrongly therefore shows as an error of the run with both shapes in it, and
 * never as bytes of one sequence in another one. */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/modules/module_values.h"
#include "handlers/torchlib/torch_message.h"

/* One run in eight is timed, because reading a thread's CPU clock twice takes 2 us. */
#define TIMED_EACH 8

/* Returns the dimensions with the batch dimension inserted at `axis`. With `n` 0 there is none.
 *
 * For example [2, 64] with axis 1 and n 4 is [2, 4, 64]. */
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

/* --- what goes into a run --- */

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

/* Describes the tensor in which the rows are joined, and makes room for it. All rows of a run have
 * the shape of the first one. `batch` is NULL for an argument. */
static int
add_piece(struct module_runtime *rt, uint32_t argument, struct module_batch *batch, uint32_t row,
          uint32_t bucket, int32_t input, int32_t state, struct ctt_tensor *out,
          struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    const bool batched = cn_module_is_batched(rt);
    struct module_piece *piece = &rt->pieces[rt->n_pieces];
    uint32_t axis = 0, rank;
    enum cn_datatype type;
    const int64_t *dims;
    size_t at = 0;
    int rc;

    if (input >= 0) {
        const struct cn_tensor *tensor = &rt->items[rt->rows[row].item].inputs[input];

        type = io->inputs[input].type;
        rank = tensor->rank - batched;
        dims = tensor->shape + batched;
    } else {
        const struct module_place *place = cn_module_place(cn_module_state_of(rt, row), state);

        type = io->state.items[state].type;
        axis = cn_module_axis_of(rt, state);
        rank = place->rank;
        dims = place->dims;
        at = place->at;
    }
    *piece = cn_module_piece_of(type, rank, dims, axis);
    piece->input = input;
    piece->state = state;
    piece->at = at;
    out->datatype = (int32_t)type;
    out->rank = (int32_t)put_axis(rank, dims, axis, batched ? bucket : 0, out->dims);
    rc = room_for(rt, argument, batch, piece->outer * piece->inner * bucket, out, err);
    piece->all = out->data;
    rt->n_pieces += rc == 0;
    return rc;
}

static bool
is_none(const struct module_runtime *rt, uint32_t row, int32_t state)
{
    return state >= 0 && cn_module_place(cn_module_state_of(rt, row), state)->none;
}

/* --- run --- */

/* Sets the number that is one for all rows of the run. module_run.c puts only rows together that
 * agree on it. */
static void
read_number(const struct module_runtime *rt, uint32_t row,
            const struct cn_module_attribute *attribute, struct ctt_value *out)
{
    const enum cn_datatype type = rt->config.io->state.items[attribute->state].type;
    const char *data = cn_module_place_data(cn_module_state_of(rt, row), attribute->state);

    out->kind = attribute->kind;
    out->number = cn_module_value(type, data, 0);
    if (type == CN_DATATYPE_INT64)
        memcpy(&out->integer, data, sizeof(out->integer));
    else
        out->integer = (int64_t)out->number;
}

/* Finds the values of the attributes. Tensors are only described, and gathered later.
 *
 * An attribute is one of four things: a state that is None now, a state that the module keeps as
 * one number for all rows, a state that is a tensor, or a value of `set`, which is constant or the
 * size of the batch. */
static int
find_attributes(struct module_runtime *rt, uint32_t row, uint32_t bucket, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_attributes; i++) {
        const struct cn_module_attribute *attribute = &config->attributes[i];
        struct ctt_value *value = &rt->values[i];

        *value = attribute->number;
        if (is_none(rt, row, attribute->state)) {
            value->kind = CTT_NONE;
        } else if (cn_module_is_number(attribute)) {
            read_number(rt, row, attribute, value);
        } else if (attribute->state >= 0) {
            value->kind = CTT_TENSOR;
            rc = add_piece(rt, 0, &rt->batches[i], row, bucket, -1, attribute->state,
                           &value->tensor, err);
        } else if (attribute->batch) {
            value->kind = CTT_INT;
            value->integer = bucket;
        }
    }
    return rc;
}

static int
find_arguments(struct module_runtime *rt, uint32_t row, uint32_t bucket, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_arguments; i++) {
        const struct cn_module_binding *binding = &config->arguments[i];

        rt->arguments[i].kind = binding->number.kind;
        if (binding->input < 0 && binding->state < 0) {
            rt->arguments[i] = binding->number;
            continue;
        }
        rt->arguments[i].kind = is_none(rt, row, binding->state) ? CTT_NONE : CTT_TENSOR;
        if (rt->arguments[i].kind == CTT_TENSOR)
            rc = add_piece(rt, i, NULL, row, bucket, binding->input, binding->state,
                           &rt->arguments[i].tensor, err);
    }
    return rc;
}

static int
set_attributes(struct module_runtime *rt, struct cn_error *err)
{
    for (uint32_t i = 0; i < rt->config.n_attributes; i++)
        if (rt->api->set_attribute(rt->model, rt->config.attributes[i].name, &rt->values[i],
                                   rt->error, CTT_ERROR_BYTES))
            return library_failed(rt, err);
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
    int rc;

    rt->n_pieces = 0;
    rc = find_attributes(rt, rows[0], bucket, err);
    if (rc == 0)
        rc = find_arguments(rt, rows[0], bucket, err);
    if (rc)
        return rc;
    cn_module_rows_gather(rt, rows, k, bucket);
    rc = set_attributes(rt, err);
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

    rank = put_axis(rank, dims, axis, cn_module_is_batched(rt) ? bucket : 0, wanted);
    if (got->datatype == (int32_t)type && fits(got, rank, wanted))
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_HANDLER_FAILED,
                 "%s of %s returned %s %.*s as %s%s, but the model's YAML declares %s%s%s",
                 rt->config.method, rt->load->handler, what, CN_STR_ARG(name), got_word,
                 cn_shape_text(&arena, got->dims, (uint32_t)got->rank), cn_datatype_word(type),
                 cn_shape_text(&arena, wanted, rank),
                 cn_module_is_batched(rt) ? " (with the batch dimension added)" : "");
    cn_arena_fini(&arena);
    return rc;
}

/* A state declared with `init: none` may also become None again, for example when a model resets
 * itself. */
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
        const struct cn_module_binding *binding = &config->results[i];

        if (binding->output >= 0) {
            const struct cn_tensor_spec *spec = &config->io->outputs[binding->output];

            rc = check_result(rt, &rt->results[i], "output", spec->name, spec->type, spec->rank,
                              spec->dims, 0, bucket, err);
        }
        if (rc == 0 && binding->state >= 0)
            rc = check_state(rt, &rt->results[i], binding->state, bucket, err);
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

/* --- the whole --- */

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
        cn_module_rows_mark(rt, rows, k, bucket);
    if (rc == 0)
        rc = cn_module_rows_scatter(rt, rows, k, bucket, err);
    return rc;
}
