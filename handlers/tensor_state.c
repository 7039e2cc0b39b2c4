/* handlers/tensor_state.c - declared state tensors: into a row's parts, out of its answer. Worker's
 * thread.
 *
 * The layer has the same interface (struct cn_runtime_ops) as the runtime below it, and replaces
 * rt->ops. A sequence's state is a buffer with its packed tensors (proto/state_tensors.h), which
 * are also the bytes in the store, so that encoding is a copy.
 *
 * A `call` represents an item from its first run to its last. It holds a copy of the worker's row
 * that has the state tensors as additional parts. That copy must live as long as the item may be
 * run again, because a handler that yields still reads it; so each call has an arena of its own,
 * in which it also lies itself. While the item rests, item->resume is the call, and call->resume is
 * the object of the runtime below.
 *
 * After the run the answer's tensors are searched for state outputs. Each set of outputs, also each
 * piece of a streamed answer, replaces the tensors that it names. State outputs that the client
 * must not see are then cut out of the packed answer in place.
 */
#include "handlers/tensor_state.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/arena.h"
#include "core/memory/mem.h"
#include "proto/state_tensors.h"

#define CALL_MAGIC 0x54534331u
#define STATE_MAGIC 0x54535331u

/* A sequence's state as the worker holds it. */
struct tensor_state {
    uint32_t magic;
    struct cn_buf bytes;
};

/* An item from its first run to its last; it lies in its own arena. */
struct call {
    uint32_t magic;
    struct cn_arena arena;
    struct cn_item *item;     /* the item in the present run */
    struct cn_row row;        /* the row that the handler gets */
    const struct cn_row *was; /* the worker's row */
    void *resume;             /* the value of cn_item.resume for the runtime below */
    struct cn_tensor *state;  /* the state before the step */
};

struct cn_tensor_state {
    const struct cn_runtime_ops *under;
    const struct cn_state_specs *specs;
    size_t state_max_bytes;
    struct cn_buf *files;   /* specs->n */
    struct cn_item **items; /* the items of a batch that the runtime below gets, and their calls */
    struct call **calls;
    uint32_t cap_items;
    struct cn_buf
        packed; /* the next state; swapped with the one before, so that no step allocates */
};

static const struct cn_runtime_ops *
under(const struct cn_runtime *rt)
{
    return rt->tensor_state->under;
}

/* --- states --- */

static struct tensor_state *
state_of(void *state)
{
    return cn_cast(struct tensor_state, (struct tensor_state *)state, STATE_MAGIC);
}

static struct tensor_state *
state_create(void)
{
    struct tensor_state *state = cn_alloc(sizeof(*state));

    state->magic = STATE_MAGIC;
    cn_buf_init(&state->bytes, 0);
    return state;
}

static void
over_state_free(struct cn_runtime *rt, void *opaque)
{
    struct tensor_state *state = opaque;

    (void)rt;
    if (!state)
        return;
    state = state_of(state);
    cn_buf_fini(&state->bytes);
    state->magic = 0;
    cn_free(state);
}

static int
over_state_encode(struct cn_runtime *rt, void *state, struct cn_buf *out, struct cn_error *err)
{
    const size_t limit = rt->tensor_state->state_max_bytes;
    const struct cn_buf *bytes = &state_of(state)->bytes;

    if ((limit && bytes->len > limit) || cn_buf_append_str(out, cn_buf_str(bytes)) < 0)
        return cn_fail(
            err, CN_E_STATE_TOO_LARGE,
            "the sequence's state tensors have %zu bytes, which exceeds %zu (state.maxBytes)",
            bytes->len, limit);
    return 0;
}

static int
over_state_decode(struct cn_runtime *rt, struct cn_str bytes, uint32_t from_schema, void **out,
                  struct cn_error *err)
{
    const struct cn_tensor_state *over = rt->tensor_state;
    const uint32_t schema = over->under->state_schema(rt);
    struct tensor_state *state;
    struct cn_tensor *tensors;
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    tensors = cn_arena_alloc(&arena, sizeof(*tensors) * over->specs->n);
    rc = cn_state_unpack(over->specs, bytes, &arena, tensors, err);
    cn_arena_fini(&arena);
    if (rc)
        return rc;
    if (from_schema != schema)
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "the stored state tensors have schema %u, but the handler declares %u: "
                       "states that the model's YAML declares are not migrated",
                       from_schema, schema);
    state = state_create();
    if (cn_buf_append_str(&state->bytes, bytes) < 0) {
        over_state_free(rt, state);
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a state of %zu bytes",
                       bytes.len);
    }
    *out = state;
    return 0;
}

/* --- before the run --- */

/* Takes the first value from an input of the sequence's first request. Returns 1 if the request
 * does not have that input. */
static int
begin_from_caller(const struct cn_state_specs *specs, const struct cn_state_spec *spec,
                  const struct cn_row *row, struct cn_tensor *out, struct cn_error *err)
{
    struct cn_tensor tensor;

    for (uint32_t i = 0; i < row->n_parts; i++)
        if (cn_str_eq(row->parts[i].name, spec->init_from) &&
            cn_tensor_of_part(&row->parts[i], &tensor)) {
            int rc = cn_tensor_check(&tensor, err);

            return rc ? rc
                      : cn_state_from_row(specs, spec, &tensor, "the initial state from input",
                                          CN_E_BAD_REQUEST, out, err);
        }
    return 1;
}

static int
begin_state(const struct cn_tensor_state *over, struct call *call, struct cn_error *err)
{
    const struct cn_state_specs *specs = over->specs;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < specs->n; i++) {
        const struct cn_state_spec *spec = &specs->items[i];

        rc = 1;
        if (spec->init == CN_STATE_CALLER)
            rc = begin_from_caller(specs, spec, call->was, &call->state[i], err);
        if (rc > 0)
            rc = cn_state_initial(spec, cn_buf_str(&over->files[i]), &call->arena, &call->state[i],
                                  err);
    }
    return rc;
}

/* Makes the row for the handler: the request's parts, then the state tensors. Parts that a client
 * sent under a state's name are left out: they may give the first value, and nothing else. */
static int
add_parts(const struct cn_state_specs *specs, struct call *call, struct cn_error *err)
{
    struct cn_row *row = &call->row;
    const struct cn_row *was = call->was;
    struct cn_part *parts =
        cn_arena_try_alloc(&call->arena, sizeof(*parts) * ((size_t)was->n_parts + specs->n));

    if (!parts)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a row with its state");
    *row = *was;
    row->parts = parts;
    row->n_parts = 0;
    for (uint32_t i = 0; i < was->n_parts; i++)
        if (!cn_state_of_input(specs, was->parts[i].name))
            parts[row->n_parts++] = was->parts[i];
    for (uint32_t i = 0; i < specs->n; i++) {
        struct cn_tensor tensor = call->state[i];

        tensor.name = specs->items[i].input;
        cn_state_to_row(specs, &specs->items[i], &tensor);
        parts[row->n_parts++] = cn_tensor_part(&tensor, &call->arena);
    }
    return 0;
}

static void
call_end(struct call *call)
{
    struct cn_arena arena = call->arena;

    call->magic = 0;
    cn_arena_fini(&arena);
}

/* Begins a call for an item that is run for the first time. Returns NULL when it failed; the item
 * has the error then. */
static struct call *
call_begin(const struct cn_tensor_state *over, struct cn_item *item)
{
    const struct cn_state_specs *specs = over->specs;
    struct cn_error err;
    struct cn_arena arena;
    struct cn_str bytes;
    struct call *call;
    char *copy;
    int rc;

    cn_arena_init(&arena);
    call = cn_arena_alloc(&arena, sizeof(*call));
    *call = (struct call){.magic = CALL_MAGIC, .arena = arena, .was = item->row};
    call->state = cn_arena_alloc(&call->arena, sizeof(*call->state) * specs->n);
    if (!item->state) {
        rc = begin_state(over, call, &err);
    } else {
        /* The state is copied, because an item that streams may outlive it. */
        bytes = cn_buf_str(&state_of(item->state)->bytes);
        copy = cn_arena_try_alloc(&call->arena, bytes.len);
        if (copy)
            memcpy(copy, bytes.ptr, bytes.len);
        bytes.ptr = copy;
        rc = copy ? cn_state_unpack(specs, bytes, &call->arena, call->state, &err)
                  : cn_fail(&err, CN_E_OUT_OF_MEMORY, "not enough memory for the state of a row");
    }
    if (rc == 0)
        rc = add_parts(specs, call, &err);
    if (rc == 0)
        return call;
    cn_reply_fail(&item->reply, rc, "%s", err.message);
    call_end(call);
    return NULL;
}

/* --- after the run --- */

/* Cuts the state outputs that the client must not see out of a packed set; `tensors` point into it.
 */
static void
cut_hidden(const struct cn_state_specs *specs, struct cn_buf *body, const struct cn_tensor *tensors,
           uint32_t n)
{
    size_t to = sizeof(uint32_t);
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        const struct cn_state_spec *spec = cn_state_of_output(specs, tensors[i].name);
        const char *from = tensors[i].name.ptr - sizeof(uint16_t); /* its length */
        size_t len = (size_t)(tensors[i].data.ptr + tensors[i].data.len - from);

        if (spec && !spec->visible)
            continue;
        memmove(body->data + to, from, len);
        to += len;
        kept++;
    }
    body->len = to;
    cn_patch_u32(body, 0, kept);
}

/* Makes `tensors` the item's state. They may point into the buffer that is replaced, so the new one
 * is packed first; then the two buffers are swapped, so that no step allocates. */
static int
keep(struct cn_tensor_state *over, struct cn_item *item, const struct cn_tensor *tensors,
     struct cn_error *err)
{
    struct tensor_state *state = item->state ? state_of(item->state) : state_create();
    struct cn_buf before = state->bytes;

    item->state = state;
    cn_buf_reset(&over->packed);
    cn_state_pack(over->specs, tensors, &over->packed);
    if (over->packed.failed)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the sequence's state");
    state->bytes = over->packed;
    over->packed = before;
    return 0;
}

/* Unpacks the item's state as it was before this set of outputs. */
static int
state_before(const struct cn_tensor_state *over, const struct cn_item *item,
             const struct call *call, struct cn_arena *arena, struct cn_tensor *out,
             struct cn_error *err)
{
    if (item->state)
        return cn_state_unpack(over->specs, cn_buf_str(&state_of(item->state)->bytes), arena, out,
                               err);
    memcpy(out, call->state, sizeof(*out) * over->specs->n);
    return 0;
}

/* Makes the state outputs of one packed set the item's state. */
static int
take_outputs(struct cn_tensor_state *over, struct cn_item *item, const struct call *call,
             struct cn_buf *body, struct cn_arena *arena, struct cn_error *err)
{
    const struct cn_state_specs *specs = over->specs;
    struct cn_tensor *next, *tensors;
    uint32_t n, taken = 0, hidden = 0;
    int rc;

    /* If the body is not a set of tensors, the front end refuses it. */
    if (body->len == 0 || cn_tensors_get(cn_buf_str(body), arena, &tensors, &n, NULL) != 0)
        return 0;
    next = cn_arena_alloc(arena, sizeof(*next) * specs->n);
    rc = state_before(over, item, call, arena, next, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const struct cn_state_spec *spec = cn_state_of_output(specs, tensors[i].name);

        if (!spec)
            continue;
        rc = cn_state_from_row(specs, spec, &tensors[i], "the state output", CN_E_HANDLER_FAILED,
                               &next[spec - specs->items], err);
        taken++;
        hidden += !spec->visible;
    }
    if (rc == 0 && taken > 0 && (call->was->flags & CN_ROW_STATEFUL)) /* else there is none */
        rc = keep(over, item, next, err);
    if (rc == 0 && hidden > 0)
        cut_hidden(specs, body, tensors, n);
    return rc;
}

/* Takes the state outputs of everything that the handler answered in this call. A step that returns
 * no state keeps the one that it found or began with. */
static int
take_reply(struct cn_tensor_state *over, struct cn_item *item, const struct call *call,
           struct cn_error *err)
{
    struct cn_reply *reply = &item->reply;
    struct cn_arena arena;
    int rc = 0;

    cn_arena_init(&arena);
    if (cn_str_eq(cn_buf_str(&reply->content_type), CN_STR(CN_TENSORS_TYPE))) {
        for (uint32_t i = 0; rc == 0 && i < reply->n_chunks; i++)
            rc = take_outputs(over, item, call, &reply->chunks[i].body, &arena, err);
        if (rc == 0)
            rc = take_outputs(over, item, call, &reply->body, &arena, err);
    }
    cn_arena_fini(&arena);
    if (rc == 0 && !item->state && (call->was->flags & CN_ROW_STATEFUL))
        rc = keep(over, item, call->state, err);
    return rc;
}

static void
settle(struct cn_runtime *rt, struct cn_item *item, struct call *call)
{
    struct cn_reply *reply = &item->reply;
    struct cn_error err;
    int rc = 0;

    call->resume = item->resume;
    item->resume = NULL;
    item->row = call->was;
    if (reply->error_code == 0)
        rc = take_reply(rt->tensor_state, item, call, &err);
    if (rc != 0) {
        if (reply->more)
            under(rt)->drop(rt, call->resume);
        cn_reply_fail(reply, rc, "%s", err.message);
    }
    if (reply->more)
        item->resume = call;
    else
        call_end(call);
}

static void
over_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    struct cn_tensor_state *over = rt->tensor_state;
    uint32_t n_run = 0;

    if (n > over->cap_items) {
        cn_free(over->items);
        cn_free(over->calls);
        over->items = cn_alloc(n * sizeof(*over->items)); /* n: at most the model's batchSize */
        over->calls = cn_alloc(n * sizeof(*over->calls));
        over->cap_items = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        struct cn_item *item = items[i];
        struct call *call = item->resume
                                ? cn_cast(struct call, (struct call *)item->resume, CALL_MAGIC)
                                : call_begin(over, item);

        if (!call)
            continue;
        item->row = &call->row;
        item->resume = call->resume;
        call->item = item;
        over->items[n_run] = item;
        over->calls[n_run++] = call;
    }
    if (n_run == 0)
        return;
    over->under->run(rt, over->items, n_run);
    for (uint32_t i = 0; i < n_run; i++) /* run may have reordered the items, but not the calls */
        settle(rt, over->calls[i]->item, over->calls[i]);
}

static void
over_drop(struct cn_runtime *rt, void *resume)
{
    struct call *call = cn_cast(struct call, (struct call *)resume, CALL_MAGIC);

    under(rt)->drop(rt, call->resume);
    call_end(call);
}

/* --- the other operations are passed to the runtime below --- */

static void
over_close(struct cn_runtime *rt)
{
    struct cn_tensor_state *over = rt->tensor_state;
    const struct cn_runtime_ops *ops = over->under;

    for (uint32_t i = 0; i < over->specs->n; i++)
        cn_buf_fini(&over->files[i]);
    cn_free(over->files);
    cn_free(over->items);
    cn_free(over->calls);
    cn_buf_fini(&over->packed);
    cn_free(over);
    rt->tensor_state = NULL;
    rt->ops = ops;
    ops->close(rt);
}

static const char *
over_describe(struct cn_runtime *rt)
{
    return under(rt)->describe(rt);
}

static uint32_t
over_state_schema(struct cn_runtime *rt)
{
    return under(rt)->state_schema(rt);
}

static void
over_metadata(struct cn_runtime *rt, struct cn_item *item)
{
    under(rt)->metadata(rt, item);
}

/* The state is not an object of the handler, so its close gets none. */
static void
over_on_close(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
              enum cn_close_reason reason)
{
    (void)state;
    under(rt)->on_close(rt, sequence_id, NULL, reason);
}

static const struct cn_runtime_ops over_ops = {
    .name = "tensor_state",
    .close = over_close,
    .describe = over_describe,
    .state_schema = over_state_schema,
    .run = over_run,
    .drop = over_drop,
    .metadata = over_metadata,
    .state_encode = over_state_encode,
    .state_decode = over_state_decode,
    .state_free = over_state_free,
    .on_close = over_on_close,
};

void
cn_tensor_state_attach(struct cn_runtime *rt, const struct cn_load *load, struct cn_buf *files)
{
    struct cn_tensor_state *over = cn_alloc(sizeof(*over));

    *over = (struct cn_tensor_state){.under = rt->ops,
                                     .specs = load->state,
                                     .state_max_bytes = load->state_max_bytes,
                                     .files = files};
    cn_buf_init(&over->packed, 0);
    rt->tensor_state = over;
    rt->ops = &over_ops;
}
