/* handlers/modules/module_state.c - the state tensors of one sequence in memory: the bytes that are
 * stored. Worker's thread.
 *
 * The bytes have a head before the data of each tensor, with its name, type and shape. While shapes
 * stay as they are, a step overwrites only the data, and the heads stay too: the layout says where
 * the data of each tensor lies. When a step changes a shape, its states get a new layout, and the
 * heads are written again.
 *
 * So the bytes in memory are at any time what is written to the store, and a commit copies them
 * without any conversion:
 *   magic, version, zero, number of tensors
 *   name, type and shape of h | data of h | name, type and shape of c | data of c
 * The layout has the offsets of the two blocks of data. A state that grows with each step, such as
 * a cache of keys and values, needs a new layout each time; a model with fixed shapes has one
 * layout for all of its sequences.
 *
 * A layout counts its references: one of the runtime for its newest one, and one of each state that
 * has it. */
#include <inttypes.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/modules/module.h"

/* --- layouts --- */

struct module_layout *
cn_module_layout_create(uint32_t n)
{
    struct module_layout *layout = cn_alloc(sizeof(*layout) + n * sizeof(layout->places[0]));

    layout->refs = 1;
    layout->n = n;
    return layout;
}

void
cn_module_layout_unref(struct module_layout *layout)
{
    if (layout && --layout->refs == 0)
        cn_free(layout);
}

static bool
is_same(const struct module_layout *a, const struct module_layout *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct module_place *x = &a->places[i], *y = &b->places[i];

        if (x->none != y->none || x->rank != y->rank || x->bytes != y->bytes ||
            memcmp(x->dims, y->dims, sizeof(x->dims[0]) * x->rank) != 0)
            return false;
    }
    return true;
}

/* The caller describes the new states in rt->draft, which is never shared. If they look like the
 * last ones, which is the usual case, the last layout is used again and the draft is overwritten
 * next time. Otherwise the draft becomes the layout, and a new draft is made. */
int
cn_module_layout_settle(struct module_runtime *rt, struct module_layout **out, struct cn_error *err)
{
    const struct cn_state_specs *specs = &rt->config.io->state;
    struct module_layout *draft = rt->draft;
    size_t at = CN_STATE_TENSORS_HEAD_BYTES;

    *out = rt->layout;
    if (rt->layout && is_same(rt->layout, draft))
        return 0;
    for (uint32_t i = 0; i < draft->n; i++) {
        struct module_place *place = &draft->places[i];

        if (place->bytes > UINT32_MAX)
            return cn_fail(err, CN_E_STATE_TOO_LARGE,
                           "the state %.*s would have %zu bytes, but a tensor of a state can have "
                           "at most %" PRIu32,
                           CN_STR_ARG(specs->items[i].input), place->bytes, UINT32_MAX);
        place->at = at + cn_tensors_head_bytes(specs->items[i].input.len, place->rank);
        at = place->at + place->bytes;
    }
    draft->bytes = at;
    cn_module_layout_unref(rt->layout);
    *out = rt->layout = draft;
    rt->draft = cn_module_layout_create(draft->n);
    return 0;
}

/* --- states --- */

static struct module_state *
state_create(void)
{
    struct module_state *state = cn_alloc(sizeof(*state));

    state->magic = MODULE_STATE_MAGIC;
    return state;
}

void
cn_module_state_destroy(struct module_state *state)
{
    if (!state)
        return;
    cn_assert(state->magic == MODULE_STATE_MAGIC);
    cn_module_layout_unref(state->layout);
    cn_free(state->bytes);
    state->magic = 0;
    cn_free(state);
}

int
cn_module_state_reserve(struct module_state *state, size_t bytes, struct cn_error *err)
{
    char *more;

    if (bytes <= state->cap)
        return 0;
    more = cn_try_realloc(state->bytes, bytes);
    if (!more)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a state of %zu bytes",
                       bytes);
    state->bytes = more;
    state->cap = bytes;
    return 0;
}

void
cn_module_state_lay_out(const struct module_runtime *rt, struct module_state *state,
                        struct module_layout *layout)
{
    const struct cn_state_specs *specs = &rt->config.io->state;
    struct cn_buf out = {.data = state->bytes, .cap = state->cap};

    if (state->layout == layout)
        return;
    cn_assert(state->cap >= layout->bytes);
    layout->refs++;
    cn_module_layout_unref(state->layout);
    state->layout = layout;
    cn_state_pack_begin(specs, &out);
    for (uint32_t i = 0; i < layout->n; i++) {
        const struct module_place *place = &layout->places[i];
        struct cn_tensor tensor; /* its other dimensions are not looked at */
        char *data;

        tensor.name = specs->items[i].input;
        tensor.type = specs->items[i].type;
        tensor.rank = place->rank;
        memcpy(tensor.shape, place->dims, sizeof(place->dims[0]) * place->rank);
        tensor.data = (struct cn_str){NULL, place->bytes};
        data = cn_tensors_put_head(&out, &tensor);
        cn_assert(data == state->bytes + place->at);
    }
}

struct module_state *
cn_module_state_copy(const struct module_state *from, struct cn_error *err)
{
    struct module_state *copy = state_create();

    if (cn_module_state_reserve(copy, from->layout->bytes, err)) {
        cn_module_state_destroy(copy);
        return NULL;
    }
    memcpy(copy->bytes, from->bytes, from->layout->bytes);
    copy->layout = from->layout;
    copy->layout->refs++;
    return copy;
}

/* A state of these tensors, in the order of the declaration. */
static int
state_of(struct module_runtime *rt, const struct cn_tensor *tensors, struct module_state **out,
         struct cn_error *err)
{
    struct module_state *state = state_create();
    struct module_layout *layout;
    int rc;

    for (uint32_t i = 0; i < rt->draft->n; i++) {
        struct module_place *place = &rt->draft->places[i];

        place->bytes = tensors[i].data.len;
        place->rank = tensors[i].rank;
        place->none = cn_state_is_none(&tensors[i]);
        memcpy(place->dims, tensors[i].shape, sizeof(place->dims[0]) * place->rank);
    }
    rc = cn_module_layout_settle(rt, &layout, err);
    if (rc == 0)
        rc = cn_module_state_reserve(state, layout->bytes, err);
    if (rc) {
        cn_module_state_destroy(state);
        return rc;
    }
    cn_module_state_lay_out(rt, state, layout);
    for (uint32_t i = 0; i < layout->n; i++)
        if (tensors[i].data.len)
            memcpy(cn_module_place_data(state, (int32_t)i), tensors[i].data.ptr,
                   tensors[i].data.len);
    *out = state;
    return 0;
}

/* --- how it begins --- */

/* Finds the tensor that the client has sent as the first value. Returns false if there is none. */
static bool
find_given(const struct cn_row *row, struct cn_str name, struct cn_tensor *out)
{
    for (uint32_t i = 0; row && i < row->n_parts; i++)
        if (cn_str_eq(row->parts[i].name, name) && cn_tensor_of_part(&row->parts[i], out))
            return true;
    return false;
}

static int
begin_one(struct module_runtime *rt, uint32_t i, const struct cn_row *row, struct cn_arena *arena,
          struct cn_tensor *out, struct cn_error *err)
{
    const struct cn_state_specs *specs = &rt->config.io->state;
    const struct cn_state_spec *spec = &specs->items[i];
    struct cn_tensor given;

    if (spec->init == CN_STATE_CALLER && find_given(row, spec->init_from, &given))
        return cn_state_from_row(specs, spec, &given, "the initial state from input",
                                 CN_E_BAD_REQUEST, out, err);
    return cn_state_initial(spec, cn_buf_str(&rt->init_files[i]), arena, out, err);
}

int
cn_module_state_begin(struct module_runtime *rt, const struct cn_row *row,
                      struct module_state **out, struct cn_error *err)
{
    const uint32_t n = rt->draft->n;
    struct cn_tensor *tensors;
    struct cn_arena arena;
    int rc = 0;

    cn_arena_init(&arena);
    tensors = cn_arena_alloc(&arena, (n + 1) * sizeof(*tensors));
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = begin_one(rt, i, row, &arena, &tensors[i], err);
    if (rc == 0)
        rc = state_of(rt, tensors, out, err);
    cn_arena_fini(&arena);
    return rc;
}

/* --- bytes --- */

/* Fails with a message that names the largest tensor and the key with the limit. */
static int
too_large(const struct module_runtime *rt, const struct module_state *state, size_t max,
          struct cn_error *err)
{
    const struct module_layout *layout = state->layout;
    const struct module_place *largest = &layout->places[0];
    const struct cn_state_spec *spec;
    struct cn_arena arena;
    size_t all = 0;
    int rc;

    for (uint32_t i = 0; i < layout->n; i++) {
        all += layout->places[i].bytes;
        if (layout->places[i].bytes > largest->bytes)
            largest = &layout->places[i];
    }
    spec = &rt->config.io->state.items[largest - layout->places];
    cn_arena_init(&arena);
    rc =
        cn_fail(err, CN_E_STATE_TOO_LARGE,
                "the sequence's state is over %zu bytes (state.maxBytes): its tensors take %zu "
                "bytes, besides their names and shapes; the largest is %.*s, %s%s, with %zu bytes. "
                "Raise state: {maxBytes: ...} in the model's YAML, or end the sequence sooner",
                max, all, CN_STR_ARG(spec->input), cn_datatype_word(spec->type),
                cn_shape_text(&arena, largest->dims, largest->rank), largest->bytes);
    cn_arena_fini(&arena);
    return rc;
}

int
cn_module_state_encode(struct cn_runtime *base, void *state_, struct cn_buf *out,
                       struct cn_error *err)
{
    struct module_runtime *rt = module_rt(base);
    struct module_state *state = cn_cast(struct module_state, state_, MODULE_STATE_MAGIC);
    const size_t bytes = state->layout->bytes, max = rt->load->state_max_bytes;

    if ((max && bytes > max) || cn_buf_append(out, state->bytes, bytes))
        return too_large(rt, state, max ? max : out->max_bytes, err);
    return 0;
}

/* The stored tensors are compared with the declarations and copied into a layout of this runtime.
 * `from_schema` says nothing here, since the bytes describe themselves. */
int
cn_module_state_decode(struct cn_runtime *base, struct cn_str bytes, uint32_t from_schema,
                       void **out, struct cn_error *err)
{
    struct module_runtime *rt = module_rt(base);
    struct module_state *state;
    struct cn_tensor *tensors;
    struct cn_arena arena;
    int rc;

    (void)from_schema; /* the bytes name and describe each tensor */
    cn_arena_init(&arena);
    tensors = cn_arena_alloc(&arena, (rt->draft->n + 1) * sizeof(*tensors));
    rc = cn_state_unpack(&rt->config.io->state, bytes, &arena, tensors, err);
    if (rc == 0)
        rc = state_of(rt, tensors, &state, err);
    cn_arena_fini(&arena);
    if (rc == 0)
        *out = state;
    return rc;
}
