/* handlers/modules/module_rows.c - rows into the tensors of a run, and out of its results. Worker's
 * thread.
 *
 * First all tensors of a run are described (struct module_piece), then row after row is copied. So
 * a row's state, which is one piece of memory, is read or written once from its beginning to its
 * end. Nothing is allocated for a tensor.
 *
 * A row's part of a tensor is not in one place if the batch axis is not the first one. With dims
 * [2, 64] of FP32, axis 1 and a bucket of 4, `outer` is 2 and `inner` is 256 bytes, and the tensor
 * [2, 4, 64] looks like this:
 *   h0 of row 0 | h0 of row 1 | h0 of row 2 | h0 of row 3 | h1 of row 0 | h1 of row 1 | ...
 * In the state's bytes, h0 and h1 of one row stand side by side. So piece o of row i begins behind
 * o * bucket + i others. With axis 0, `outer` is 1 and each row is copied at once. */
#include <inttypes.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/modules/module.h"
#include "handlers/modules/module_values.h"

struct module_piece
cn_module_piece_of(enum cn_datatype type, uint32_t rank, const int64_t *dims, uint32_t axis)
{
    struct module_piece piece = {
        .outer = 1, .inner = cn_datatype_bytes(type), .input = -1, .state = -1};

    for (uint32_t i = 0; i < rank; i++) {
        if (i < axis)
            piece.outer *= (size_t)dims[i];
        else
            piece.inner *= (size_t)dims[i];
    }
    piece.step = piece.inner;
    return piece;
}

/* Copies `n` pieces. A copy of a size that the compiler knows is a move and not a call. */
static void
copy(char *to, size_t to_step, const char *from, size_t from_step, size_t bytes, size_t n)
{
#define COPY_ALL(size)                                                                             \
    for (size_t i = 0; i < n; i++)                                                                 \
    memcpy(to + i * to_step, from + i * from_step, size)
    switch (bytes) {
    case 0:
        return;
    case 2:
        COPY_ALL(2);
        return;
    case 4:
        COPY_ALL(4);
        return;
    case 8:
        COPY_ALL(8);
        return;
    case 16:
        COPY_ALL(16);
        return;
    case 32:
        COPY_ALL(32);
        return;
    case 64:
        COPY_ALL(64);
        return;
    default:
        COPY_ALL(bytes);
    }
#undef COPY_ALL
}

/* --- into a run --- */

static void
copy_in(const struct module_piece *piece, uint32_t bucket, uint32_t i, const char *from)
{
    copy(piece->all + i * piece->step, bucket * piece->inner, from, piece->inner, piece->inner,
         piece->outer);
}

static void
copy_out(const struct module_piece *piece, uint32_t bucket, uint32_t i, char *to)
{
    copy(to, piece->inner, piece->all + i * piece->step, bucket * piece->inner, piece->inner,
         piece->outer);
}

void
cn_module_rows_gather(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    for (uint32_t i = 0; i < bucket; i++) {
        const struct module_row *row = &rt->rows[rows[i < k ? i : 0]];
        const struct module_item *item = &rt->items[row->item];
        const struct module_state *state = item->item->state;

        for (uint32_t p = 0; p < rt->n_pieces; p++) {
            const struct module_piece *piece = &rt->pieces[p];

            copy_in(piece, bucket, i,
                    piece->input >= 0 ? item->data[piece->input] + row->index * piece->inner
                                      : state->bytes + piece->at);
        }
    }
}

/* --- out of a run --- */

/* Returns the dimensions that one row has in a result. */
static uint32_t
row_dims(const struct module_runtime *rt, const struct ctt_tensor *from, uint32_t axis,
         int64_t *out)
{
    uint32_t rank = 0;

    for (uint32_t i = 0; i < (uint32_t)from->rank; i++)
        if (!cn_module_is_batched(rt) || i != axis)
            out[rank++] = from->dims[i];
    return rank;
}

/* Adds a result to the layout of the new states, and describes its pieces. */
static void
draft_state(struct module_runtime *rt, const struct ctt_tensor *from, int32_t state)
{
    const struct cn_state_spec *spec = &rt->config.io->state.items[state];
    struct module_place *place = &rt->draft->places[state];
    struct module_piece *piece = &rt->pieces[rt->n_pieces];
    const uint32_t axis = cn_module_axis_of(rt, state);
    struct cn_tensor none;

    place->none = from->datatype == 0;
    place->bytes = 0;
    if (place->none) {
        none = cn_state_none(spec);
        place->rank = none.rank;
        memcpy(place->dims, none.shape, sizeof(place->dims));
        return;
    }
    place->rank = row_dims(rt, from, axis, place->dims);
    *piece = cn_module_piece_of(spec->type, place->rank, place->dims, axis);
    piece->all = from->data;
    piece->state = state;
    place->bytes = piece->outer * piece->inner;
    rt->n_pieces++;
}

/* Adds a number of the module to the layout of the new states. It is the same for each row, and
 * keeps the dimensions that the state has. */
static void
draft_number(struct module_runtime *rt, const struct ctt_tensor *from, int32_t state,
             const struct module_state *before)
{
    const struct module_place *place = cn_module_place(before, state);

    rt->draft->places[state] = *place;
    rt->pieces[rt->n_pieces++] = (struct module_piece){
        .all = from->data, .outer = 1, .inner = place->bytes, .input = -1, .state = state};
}

/* Makes the layout that the states have after the run, and describes all of their pieces. */
static int
draft_states(struct module_runtime *rt, const struct module_state *before,
             struct module_layout **layout, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    int rc;

    rt->n_pieces = 0;
    for (uint32_t i = 0; i < config->n_results; i++)
        if (config->results[i].state >= 0)
            draft_state(rt, &rt->results[i], config->results[i].state);
    for (uint32_t i = 0; i < config->n_attributes; i++) {
        const struct cn_module_attribute *attribute = &config->attributes[i];

        if (cn_module_is_number(attribute))
            draft_number(rt, &rt->kept[i], attribute->state, before);
        else if (attribute->state >= 0)
            draft_state(rt, &rt->kept[i], attribute->state);
    }
    rc = cn_module_layout_settle(rt, layout, err);
    for (uint32_t p = 0; rc == 0 && p < rt->n_pieces; p++)
        rt->pieces[p].at = (*layout)->places[rt->pieces[p].state].at;
    return rc;
}

static void
write_states(struct module_runtime *rt, struct module_layout *layout, const uint32_t *rows,
             uint32_t k, uint32_t bucket)
{
    for (uint32_t i = 0; i < k; i++) {
        struct module_state *state = cn_module_state_of(rt, rows[i]);

        if (rt->rows[rows[i]].no_number)
            continue;
        cn_module_state_lay_out(rt, state, layout);
        for (uint32_t p = 0; p < rt->n_pieces; p++)
            copy_out(&rt->pieces[p], bucket, i, state->bytes + rt->pieces[p].at);
    }
}

static const int64_t *
keep_dims(struct module_runtime *rt, const int64_t *dims, uint32_t rank)
{
    int64_t *kept = cn_arena_alloc(&rt->arena, sizeof(dims[0]) * CN_TENSOR_RANK_MAX);

    memcpy(kept, dims, sizeof(dims[0]) * rank);
    return kept;
}

/* The outputs of an item lie in one piece, whichever runs its rows were in. Those of a run that
 * fails later are written again by the next one. */
static int
take_output(struct module_runtime *rt, const struct ctt_tensor *from, int32_t output,
            const uint32_t *rows, uint32_t k, uint32_t bucket, struct cn_error *err)
{
    const struct cn_tensor_spec *spec = &rt->config.io->outputs[output];
    int64_t dims[CN_TENSOR_RANK_MAX];
    const uint32_t rank = row_dims(rt, from, 0, dims);
    struct module_piece piece = cn_module_piece_of(spec->type, rank, dims, 0);
    const int64_t *kept = NULL; /* the same dimensions, for all requests of this run */

    piece.all = from->data;
    for (uint32_t i = 0; i < k; i++) {
        const struct module_row *row = &rt->rows[rows[i]];
        struct module_item *item = &rt->items[row->item];
        struct module_output *to = &item->outputs[output];

        if (!to->data) {
            if (!kept)
                kept = keep_dims(rt, dims, rank);
            to->rank = rank;
            to->dims = kept;
            to->bytes = piece.inner * item->n_rows;
            to->data = cn_arena_try_alloc(&rt->arena, to->bytes ? to->bytes : 1);
            if (!to->data)
                return cn_fail(err, CN_E_OUT_OF_MEMORY,
                               "not enough memory for an output of %zu bytes", to->bytes);
        } else if (memcmp(to->dims, dims, sizeof(dims[0]) * rank) != 0) {
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "the output %.*s has different shapes for the rows of one request",
                           CN_STR_ARG(spec->name));
        }
        copy_out(&piece, bucket, i, to->data + row->index * piece.inner);
    }
    return 0;
}

/* The order matters: everything that can fail (memory for outputs, the layout, memory for the
 * states) is done before the first byte of a state is written. A failed run leaves all states as
 * they were, and may be repeated row by row. */
int
cn_module_rows_scatter(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket,
                       struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    struct module_layout *layout;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < config->n_results; i++)
        if (config->results[i].output >= 0)
            rc = take_output(rt, &rt->results[i], config->results[i].output, rows, k, bucket, err);
    if (rc || config->io->state.n == 0)
        return rc;
    rc = draft_states(rt, cn_module_state_of(rt, rows[0]), &layout, err);
    for (uint32_t i = 0; rc == 0 && i < k; i++)
        rc = cn_module_state_reserve(cn_module_state_of(rt, rows[i]), layout->bytes, err);
    if (rc == 0)
        write_states(rt, layout, rows, k, bucket);
    return rc;
}

/* --- nanPolicy: refuse --- */

/* It only marks the rows. Their neighbours in the same run are not to blame: they keep their
 * results, and write_states() leaves out the marked ones. */
static void
mark_tensor(struct module_runtime *rt, const struct ctt_tensor *from, uint32_t axis,
            const char *what, struct cn_str name, const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    const enum cn_datatype type = (enum cn_datatype)from->datatype;
    int64_t dims[CN_TENSOR_RANK_MAX];
    struct module_piece piece;

    if (from->datatype == 0 || !cn_module_is_float(type))
        return;
    piece = cn_module_piece_of(type, row_dims(rt, from, axis, dims), dims, axis);
    for (uint32_t i = 0; i < k; i++)
        for (size_t o = 0; o < piece.outer; o++) {
            const char *at = (const char *)from->data + (o * bucket + i) * piece.inner;

            if (!rt->rows[rows[i]].no_number &&
                cn_module_has_no_number(type, at, piece.inner / cn_datatype_bytes(type)))
                rt->rows[rows[i]].no_number =
                    cn_arena_printf(&rt->arena, "%s %.*s", what, CN_STR_ARG(name));
        }
}

static void
mark_state(struct module_runtime *rt, const struct ctt_tensor *from, int32_t state,
           const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    mark_tensor(rt, from, cn_module_axis_of(rt, state), "state",
                rt->config.io->state.items[state].output, rows, k, bucket);
}

void
cn_module_rows_mark(struct module_runtime *rt, const uint32_t *rows, uint32_t k, uint32_t bucket)
{
    const struct cn_module_config *config = &rt->config;

    for (uint32_t i = 0; i < config->n_results; i++) {
        const struct cn_module_binding *binding = &config->results[i];

        if (binding->output >= 0)
            mark_tensor(rt, &rt->results[i], 0, "output", config->io->outputs[binding->output].name,
                        rows, k, bucket);
        if (binding->state >= 0)
            mark_state(rt, &rt->results[i], binding->state, rows, k, bucket);
    }
    for (uint32_t i = 0; i < config->n_attributes; i++) {
        const int32_t state = config->attributes[i].state;

        if (state >= 0 && !cn_module_is_number(&config->attributes[i]))
            mark_state(rt, &rt->kept[i], state, rows, k, bucket);
    }
}
