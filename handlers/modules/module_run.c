/* handlers/modules/module_run.c - runs a batch of requests: checks their tensors, sorts their rows
 * by shape, runs them, and answers each request. Worker's thread.
 *
 * An item is a request, and a row is one line of its batch dimension. A step of a sequence has one
 * row; a request without sequence may have up to maxBatchSize. Rows that agree in all shapes form a
 * group, whichever requests they are from, and the plan cuts a group into runs: with buckets 1, 4
 * and 8, five rows of one shape and two of another may become the runs 4, 1 and 2 (padded to 4).
 *
 * A request fails alone. If its tensors are wrong, it is answered at once and adds no rows. If a
 * run fails, its rows are tried one by one, so that only those that make the model fail are
 * answered with the error. */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/reply.h"

/* --- a request's tensors --- */

static int
check_input(const struct cn_part *part, const struct cn_tensor_spec *spec, bool batched,
            struct cn_tensor *out, struct cn_error *err)
{
    const int64_t *dims = out->shape + batched;
    struct cn_arena arena;
    bool fits;
    int rc;

    if (!part || !cn_tensor_of_part(part, out))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has no tensor %.*s: send all inputs that the model declares",
                       CN_STR_ARG(spec->name));
    if ((rc = cn_tensor_check(out, err)) != 0)
        return rc;
    fits = out->type == spec->type && out->rank == spec->rank + batched;
    for (uint32_t d = 0; fits && d < spec->rank; d++)
        fits = spec->dims[d] < 0 || spec->dims[d] == dims[d];
    if (fits)
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_BAD_REQUEST, "input %.*s is %s%s, but the model takes %s%s%s",
                 CN_STR_ARG(spec->name), cn_datatype_word(out->type),
                 cn_shape_text(&arena, out->shape, out->rank), cn_datatype_word(spec->type),
                 cn_shape_text(&arena, spec->dims, spec->rank),
                 batched ? " after the batch dimension" : "");
    cn_arena_fini(&arena);
    return rc;
}

/* Returns true if the row has the same tensors as the row before; then only the data must be
 * checked. Rows of a batch mostly have the same names, types and shapes. `before` has the inputs of
 * the last row that passed the checks, whose types are in rt->types. */
static bool
same_inputs(struct module_runtime *rt, const struct cn_row *row, const struct cn_tensor *before,
            const char **data)
{
    const struct cn_model_io *io = rt->config.io;

    for (uint32_t i = 0; i < io->n_inputs; i++) {
        const struct cn_part *part = cn_row_part(row, io->inputs[i].name);

        if (!part || part->data.len != before[i].data.len ||
            !cn_str_eq(part->content_type, rt->types[i]))
            return false;
        data[i] = part->data.ptr;
    }
    return true;
}

static int
take_inputs(struct module_runtime *rt, struct module_item *item, struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    struct cn_tensor *inputs =
        cn_arena_alloc(&rt->arena, (io->n_inputs + 1) * sizeof(*item->inputs));

    for (uint32_t i = 0; i < io->n_inputs; i++) {
        const struct cn_part *part = cn_row_part(item->item->row, io->inputs[i].name);
        int rc = check_input(part, &io->inputs[i], io->max_batch_size > 0, &inputs[i], err);

        if (rc)
            return rc;
        rt->types[i] = part->content_type;
        item->data[i] = inputs[i].data.ptr;
    }
    item->inputs = inputs;
    return 0;
}

/* Returns the number of a request's rows: its first dimension, which all inputs must share. */
static int
count_rows(const struct module_runtime *rt, struct module_item *item, struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    int64_t rows = io->max_batch_size ? item->inputs[0].shape[0] : 1;

    for (uint32_t i = 1; i < io->n_inputs && io->max_batch_size; i++)
        if (item->inputs[i].shape[0] != rows)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "input %.*s has %" PRId64 " rows, but input %.*s has %" PRId64,
                           CN_STR_ARG(io->inputs[0].name), rows, CN_STR_ARG(io->inputs[i].name),
                           item->inputs[i].shape[0]);
    if (rt->load->stateful && rows != 1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a step of a sequence must have one row, not %" PRId64
                       ": a batch dimension of 1",
                       rows);
    if (rows < 1 || (io->max_batch_size && rows > io->max_batch_size))
        return cn_fail(err, CN_E_BAD_REQUEST, "%" PRId64 " rows; the model takes 1 to %" PRIu32,
                       rows, io->max_batch_size);
    item->n_rows = (uint32_t)rows;
    return 0;
}

/* Checks the inputs of a request. `before` has the inputs of the last row that passed the checks,
 * or is NULL. */
static int
take_item(struct module_runtime *rt, struct module_item *item, const struct cn_tensor *before,
          struct cn_error *err)
{
    struct cn_item *theirs = item->item;
    struct module_state *state;
    int rc = 0;

    if (before && same_inputs(rt, theirs->row, before, item->data))
        item->inputs = before;
    else
        rc = take_inputs(rt, item, err);
    if (rc == 0)
        rc = count_rows(rt, item, err);
    if (rc == 0 && rt->load->stateful && !theirs->state) {
        if ((rc = cn_module_state_begin(rt, theirs->row, &state, err)) == 0)
            theirs->state = state; /* the worker owns it from now on, even if the step fails */
    }
    return rc;
}

static void
fail_item(struct module_item *item, const struct cn_error *err)
{
    item->failed = true;
    if (err->code == CN_E_HANDLER_FAILED)
        cn_reply_refuse(&item->item->reply, 0, cn_str_from(err->message));
    else
        cn_reply_fail(&item->item->reply, err->code, "%s", err->message);
}

static void
add_rows(struct module_runtime *rt, uint32_t item, uint32_t n)
{
    while (rt->n_rows + n > rt->cap_rows) {
        struct module_row *rows = cn_alloc(2 * (size_t)rt->cap_rows * sizeof(*rows));

        memcpy(rows, rt->rows, rt->n_rows * sizeof(*rows));
        cn_free(rt->rows);
        rt->rows = rows;
        rt->cap_rows *= 2; /* at most batchSize times maxBatchSize */
    }
    for (uint32_t i = 0; i < n; i++)
        rt->rows[rt->n_rows++] = (struct module_row){.item = item, .index = i};
}

/* --- batches --- */

/* Returns true if two states of one declaration have the same dimensions, or are both None. */
static bool
same_dims(const struct module_place *a, const struct module_place *b)
{
    return a->none == b->none &&
           (a->none ||
            (a->rank == b->rank && memcmp(a->dims, b->dims, sizeof(a->dims[0]) * a->rank) == 0));
}

/* Returns true if two rows agree on the number that the module keeps, because a run has only one.
 */
static bool
same_numbers(const struct module_runtime *rt, const struct module_state *a,
             const struct module_state *b)
{
    for (uint32_t i = 0; i < rt->config.n_attributes; i++) {
        const struct cn_module_attribute *attribute = &rt->config.attributes[i];
        const int32_t state = attribute->state;

        if (!cn_module_is_number(attribute))
            continue;
        if (cn_module_place(a, state)->bytes != cn_module_place(b, state)->bytes ||
            memcmp(cn_module_place_data(a, state), cn_module_place_data(b, state),
                   cn_module_place(a, state)->bytes) != 0)
            return false;
    }
    return true;
}

/* If the YAML fixes all shapes, `alike` answers at once. Otherwise two states with the same layout
 * need no comparison of their dimensions. */
bool
cn_module_same_shape(const struct module_runtime *rt, const struct module_row *a,
                     const struct module_row *b)
{
    const struct module_item *left = &rt->items[a->item], *right = &rt->items[b->item];
    const struct module_state *mine = left->item->state, *theirs = right->item->state;
    const bool batched = rt->config.io->max_batch_size > 0;

    if (rt->alike || a->item == b->item)
        return true;
    for (uint32_t i = 0; i < rt->config.io->n_inputs; i++) {
        const struct cn_tensor *x = &left->inputs[i], *y = &right->inputs[i];

        if (memcmp(x->shape + batched, y->shape + batched,
                   sizeof(x->shape[0]) * (x->rank - batched)) != 0)
            return false;
    }
    for (uint32_t i = 0; mine && mine->layout != theirs->layout && i < mine->layout->n; i++)
        if (!same_dims(&mine->layout->places[i], &theirs->layout->places[i]))
            return false;
    return !mine || same_numbers(rt, mine, theirs);
}

static void
fail_rows(struct module_runtime *rt, const uint32_t *rows, uint32_t n, const struct cn_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        fail_item(&rt->items[rt->rows[rows[i]].item], err);
}

/* Fails the rows whose results nanPolicy refuses. Their states stay as they were. */
static void
fail_without_numbers(struct module_runtime *rt, const uint32_t *rows, uint32_t n)
{
    struct cn_error err;

    for (uint32_t i = 0; i < n; i++) {
        const struct module_row *row = &rt->rows[rows[i]];

        if (!row->no_number)
            continue;
        cn_fail(&err, CN_E_HANDLER_FAILED,
                "%s of %s gives NaN or an infinity in %s, which %s.nanPolicy refuses",
                rt->config.method, rt->load->handler, row->no_number, rt->config.kind->runtime);
        fail_item(&rt->items[row->item], &err);
    }
}

/* If a run fails, its rows are run one by one, so that only the rows that cause the failure fail.
 */
static void
run_cut(struct module_runtime *rt, const uint32_t *rows, uint32_t n, uint32_t bucket)
{
    struct cn_error err;

    if (cn_module_batch_run(rt, rows, n, bucket, &err) == 0) {
        fail_without_numbers(rt, rows, n);
        return;
    }
    if (n == 1) {
        cn_module_log_error(rt, "error");
        fail_rows(rt, rows, 1, &err);
        return;
    }
    bucket = rt->plan.rows[cn_module_plan_next(&rt->plan, 1)];
    for (uint32_t i = 0; i < n; i++)
        run_cut(rt, &rows[i], 1, bucket);
}

/* Runs rows of one shape, in the runs that cost least together. */
static void
run_group(struct module_runtime *rt, const uint32_t *rows, uint32_t n)
{
    const bool batched = rt->config.io->max_batch_size > 0;

    while (n > 0) {
        uint32_t bucket = batched ? rt->plan.rows[cn_module_plan_next(&rt->plan, n)] : 1;
        uint32_t k = rt->apart ? 1 : bucket < n ? bucket : n;

        run_cut(rt, rows, k, bucket);
        rows += k;
        n -= k;
    }
}

/* It compares each row with the first of each group. That is quadratic in the worst case, where
 * every row has a shape of its own, but a batch has few rows, and then each of them is a run that
 * costs far more. */
static void
run_rows(struct module_runtime *rt)
{
    uint32_t *group = cn_arena_alloc(&rt->arena, (rt->n_rows + 1) * sizeof(*group));

    for (uint32_t i = 0; i < rt->n_rows; i++) {
        uint32_t n = 0;

        if (rt->rows[i].taken)
            continue;
        for (uint32_t j = i; j < rt->n_rows; j++) {
            if (rt->rows[j].taken || !cn_module_same_shape(rt, &rt->rows[i], &rt->rows[j]))
                continue;
            rt->rows[j].taken = true;
            group[n++] = j;
        }
        run_group(rt, group, n);
    }
}

static void
answer(struct module_runtime *rt, struct module_item *item)
{
    const struct cn_model_io *io = rt->config.io;
    struct cn_reply *reply = &item->item->reply;
    const bool batched = io->max_batch_size > 0;
    struct cn_error err;

    cn_buf_reset(&reply->content_type); /* the handler has set nothing, so nothing needs a check */
    cn_buf_append_str(&reply->content_type, CN_STR(CN_TENSORS_TYPE));
    cn_write_u32(&reply->body, io->n_outputs);
    for (uint32_t i = 0; i < io->n_outputs; i++) {
        const struct module_output *from = &item->outputs[i];
        struct cn_tensor tensor; /* its other dimensions are not read */

        tensor.name = io->outputs[i].name;
        tensor.type = io->outputs[i].type;
        tensor.rank = from->rank + batched;
        tensor.data = (struct cn_str){from->data, from->bytes};
        tensor.shape[0] = item->n_rows;
        memcpy(tensor.shape + batched, from->dims, sizeof(from->dims[0]) * from->rank);
        cn_tensors_put_one(&reply->body, &tensor);
    }
    if (cn_reply_check_body(reply, &err))
        fail_item(item, &err);
}

void
cn_module_run(struct cn_runtime *base, struct cn_item **items, uint32_t n)
{
    struct module_runtime *rt = cn_module_checked(base);
    const uint32_t n_inputs = rt->config.io->n_inputs, n_outputs = rt->config.io->n_outputs;
    const struct cn_tensor *before = NULL;
    struct module_output *outputs;
    struct cn_error err;
    const char **data;

    cn_assert(n <= rt->cap_items);
    data = cn_arena_alloc(&rt->arena, ((size_t)n * n_inputs + 1) * sizeof(*data));
    outputs = cn_arena_alloc(&rt->arena, ((size_t)n * n_outputs + 1) * sizeof(*outputs));
    memset(outputs, 0, (size_t)n * n_outputs * sizeof(*outputs));
    rt->n_items = n;
    rt->n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        rt->items[i] = (struct module_item){.item = items[i],
                                            .data = data + (size_t)i * n_inputs,
                                            .outputs = outputs + (size_t)i * n_outputs};
        if (take_item(rt, &rt->items[i], before, &err)) {
            fail_item(&rt->items[i], &err);
            before = NULL; /* rt->types may be those of this row */
            continue;
        }
        before = rt->items[i].inputs;
        add_rows(rt, i, rt->items[i].n_rows);
    }
    run_rows(rt);
    for (uint32_t i = 0; i < n; i++)
        if (!rt->items[i].failed)
            answer(rt, &rt->items[i]);
    cn_arena_clear(&rt->arena);
}
