/* handlers/modules/module_state.c - holds the state tensors of one sequence in memory, and turns
 * them into the bytes that are stored and back. Worker's thread. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/modules/module.h"

struct module_state *
cn_module_state_create(const struct module_runtime *rt)
{
    const uint32_t n = rt->config.io->state.n;
    struct module_state *state = cn_alloc(sizeof(*state) + n * sizeof(state->tensors[0]));

    state->magic = MODULE_STATE_MAGIC;
    state->n = n;
    return state;
}

void
cn_module_state_destroy(struct module_state *state)
{
    if (!state)
        return;
    cn_assert(state->magic == MODULE_STATE_MAGIC);
    for (uint32_t i = 0; i < state->n; i++)
        cn_free(state->tensors[i].data);
    state->magic = 0;
    cn_free(state);
}

int
cn_module_tensor_reserve(struct module_tensor *tensor, size_t bytes, struct cn_error *err)
{
    char *data;

    if (bytes <= tensor->cap && tensor->data)
        return 0;
    data = cn_try_realloc(tensor->data, bytes ? bytes : 1);
    if (!data)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a tensor of %zu bytes",
                       bytes);
    tensor->data = data;
    tensor->cap = bytes;
    return 0;
}

static int
take_tensor(struct module_tensor *out, const struct cn_tensor *tensor, struct cn_error *err)
{
    int rc = cn_module_tensor_reserve(out, tensor->data.len, err);

    out->none = cn_state_is_none(tensor);
    if (rc)
        return rc;
    out->rank = tensor->rank;
    memcpy(out->dims, tensor->shape, sizeof(out->dims[0]) * tensor->rank);
    out->bytes = tensor->data.len;
    if (out->bytes)
        memcpy(out->data, tensor->data.ptr, out->bytes);
    return 0;
}

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
          struct module_tensor *out, struct cn_error *err)
{
    const struct cn_state_specs *specs = &rt->config.io->state;
    const struct cn_state_spec *spec = &specs->items[i];
    struct cn_tensor given, tensor;
    int rc;

    if (spec->init == CN_STATE_CALLER && find_given(row, spec->init_from, &given))
        rc = cn_state_from_row(specs, spec, &given, "the initial state from input",
                               CN_E_BAD_REQUEST, &tensor, err);
    else
        rc = cn_state_initial(spec, cn_buf_str(&rt->init_files[i]), arena, &tensor, err);
    return rc ? rc : take_tensor(out, &tensor, err);
}

int
cn_module_state_begin(struct module_runtime *rt, const struct cn_row *row,
                      struct module_state **out, struct cn_error *err)
{
    struct module_state *state = cn_module_state_create(rt);
    struct cn_arena arena;
    int rc = 0;

    cn_arena_init(&arena);
    for (uint32_t i = 0; rc == 0 && i < state->n; i++)
        rc = begin_one(rt, i, row, &arena, &state->tensors[i], err);
    cn_arena_fini(&arena);
    if (rc) {
        cn_module_state_destroy(state);
        return rc;
    }
    *out = state;
    return 0;
}

/* Fails with a message that names the largest tensor and the key with the limit. */
static int
too_large(const struct module_runtime *rt, const struct module_state *state, size_t max,
          struct cn_error *err)
{
    const struct module_tensor *largest = &state->tensors[0];
    const struct cn_state_spec *spec;
    struct cn_arena arena;
    size_t all = 0;
    int rc;

    for (uint32_t i = 0; i < state->n; i++) {
        all += state->tensors[i].bytes;
        if (state->tensors[i].bytes > largest->bytes)
            largest = &state->tensors[i];
    }
    spec = &rt->config.io->state.items[largest - state->tensors];
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
    const struct cn_state_specs *specs = &rt->config.io->state;
    struct module_state *state = cn_cast(struct module_state, state_, MODULE_STATE_MAGIC);
    const size_t begun = out->len, max = rt->load->state_max_bytes;

    cn_state_pack_begin(specs, out);
    for (uint32_t i = 0; i < state->n; i++) {
        const struct module_tensor *from = &state->tensors[i];
        struct cn_tensor tensor; /* its other dimensions are not looked at */

        if (from->none) {
            tensor = cn_state_none(&specs->items[i]);
            cn_tensors_put_one(out, &tensor);
            continue;
        }
        tensor.name = specs->items[i].input;
        tensor.type = specs->items[i].type;
        tensor.rank = from->rank;
        memcpy(tensor.shape, from->dims, sizeof(from->dims[0]) * from->rank);
        tensor.data = (struct cn_str){from->data, from->bytes};
        cn_tensors_put_one(out, &tensor);
    }
    if (out->failed || (max && out->len - begun > max))
        return too_large(rt, state, max ? max : out->max_bytes, err);
    return 0;
}

int
cn_module_state_decode(struct cn_runtime *base, struct cn_str bytes, uint32_t from_schema,
                       void **out, struct cn_error *err)
{
    struct module_runtime *rt = module_rt(base);
    struct module_state *state = cn_module_state_create(rt);
    struct cn_tensor *tensors;
    struct cn_arena arena;
    int rc;

    (void)from_schema; /* the bytes name and describe each tensor */
    cn_arena_init(&arena);
    tensors = cn_arena_alloc(&arena, (state->n + 1) * sizeof(*tensors));
    rc = cn_state_unpack(&rt->config.io->state, bytes, &arena, tensors, err);
    for (uint32_t i = 0; rc == 0 && i < state->n; i++)
        rc = take_tensor(&state->tensors[i], &tensors[i], err);
    cn_arena_fini(&arena);
    if (rc) {
        cn_module_state_destroy(state);
        return rc;
    }
    *out = state;
    return 0;
}
