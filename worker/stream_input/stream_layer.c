/* worker/stream_input/stream_layer.c - runs the windows of requests through the runtime below.
 * Worker's thread.
 *
 * The layer has the interface of the runtime below it, most of whose functions it passes on. A
 * `call` represents an item from its first run to its last. It has an item of its own for the
 * runtime below, whose reply gets the answer to one window after the other (window_answers.h). A
 * handler may yield within a window: then the worker's item yields, without a piece for the client,
 * and the call goes on with that window when the item comes again.
 *
 * The windows are not copied: each is a part of the row that points into the samples of the rest,
 * which are dropped when all windows have run.
 */
#include "worker/stream_input/stream_layer.h"

#include <inttypes.h>
#include <math.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "proto/tensor.h"
#include "worker/stream_input/cutter.h"
#include "worker/stream_input/window_answers.h"

#define CALL_MAGIC 0x53494331u
#define STATE_MAGIC 0x53495331u
#define N_ADDED 2 /* headers that a window has besides those of its request */

/* A sequence's state as the worker holds it. */
struct stream_state {
    uint32_t magic;
    struct cn_stream_rest rest;
    void *inner; /* the handler's; NULL before the first window */
};

/* An item from its first run to its last. */
struct call {
    uint32_t magic;
    struct cn_item *item; /* the worker's item in the present run */
    struct cn_item inner; /* what the runtime below gets */
    struct cn_row row;    /* its row */
    struct cn_part *samples;
    struct cn_header *added; /* the headers behind those of the request */
    char number[24], zeros[16];
    int16_t *integers; /* the window, for a model that takes INT16 */
    uint32_t n_windows, window, padding;
    struct cn_window_answers answers;
    struct cn_arena arena;
};

struct cn_stream_layer {
    struct cn_runtime_ops ops;
    const struct cn_runtime_ops *under;
    struct cn_stream_settings settings;
    const struct cn_model_io *io;
    uint64_t answer_max_bytes;
    struct cn_filters *filters;
    struct cn_str input, type; /* of a typed model: the tensor's name, and type and shape as text */
    struct cn_item **items;    /* what the runtime below gets, and the calls */
    struct call **calls;
    uint32_t cap_items;
    struct cn_arena arena;
};

/* --- states --- */

static struct stream_state *
state_of(void *state)
{
    return cn_cast(struct stream_state, (struct stream_state *)state, STATE_MAGIC);
}

static struct stream_state *
state_create(void)
{
    struct stream_state *state = cn_alloc(sizeof(*state));

    state->magic = STATE_MAGIC;
    cn_stream_rest_init(&state->rest);
    return state;
}

static void
over_state_free(struct cn_runtime *rt, void *opaque)
{
    struct stream_state *state = opaque;

    if (!state)
        return;
    state = state_of(state);
    if (state->inner)
        rt->stream_layer->under->state_free(rt, state->inner);
    cn_stream_rest_fini(&state->rest);
    state->magic = 0;
    cn_free(state);
}

static int
over_state_encode(struct cn_runtime *rt, void *opaque, struct cn_buf *out, struct cn_error *err)
{
    const struct cn_stream_layer *over = rt->stream_layer;
    const struct stream_state *state = state_of(opaque);

    cn_stream_rest_put(&state->rest, over->settings.otherwise.rate, state->inner != NULL, out);
    return state->inner ? over->under->state_encode(rt, state->inner, out, err) : 0;
}

static int
over_state_decode(struct cn_runtime *rt, struct cn_str bytes, uint32_t from_schema, void **out,
                  struct cn_error *err)
{
    const struct cn_stream_layer *over = rt->stream_layer;
    struct stream_state *state = state_create();
    bool has_state;
    int rc;

    rc = cn_stream_rest_get(&state->rest, over->settings.otherwise.rate, &bytes, &has_state, err);
    if (rc == 0 && has_state)
        rc = over->under->state_decode(rt, bytes, from_schema, &state->inner, err);
    if (rc != 0) {
        over_state_free(rt, state);
        return rc;
    }
    *out = state;
    return 0;
}

/* --- a call --- */

static void
call_free(struct call *call)
{
    cn_reply_fini(&call->inner.reply);
    cn_answers_fini(&call->answers);
    cn_arena_fini(&call->arena);
    call->magic = 0;
    cn_free(call);
}

/* Reads the request's samples into the state's rest. */
static int
feed(struct cn_stream_layer *over, struct call *call, struct stream_state *state,
     const struct cn_chunk_source **found, struct cn_error *err)
{
    const struct cn_row *row = call->item->row;
    const struct cn_sound_format before =
        state->rest.format.rate ? state->rest.format : over->settings.otherwise;
    struct cn_chunk_source *chunk = cn_arena_alloc(&call->arena, sizeof(*chunk));
    int rc = cn_chunk_find(&over->settings, row, over->input, &before, chunk, err);

    *found = chunk;
    if (rc == 0)
        rc = cn_cutter_feed(&over->settings, over->filters, &state->rest, chunk,
                            row->flags & CN_ROW_END, &call->padding, err);
    if (rc == 0)
        call->n_windows = cn_cutter_windows(&over->settings, &state->rest);
    return rc;
}

/* Makes the row for the windows: that of the request, with other samples and two more headers. */
static void
make_row(struct cn_stream_layer *over, struct call *call, const struct cn_chunk_source *chunk)
{
    const struct cn_row *was = call->item->row;
    const uint32_t n_parts = was->n_parts + (chunk->part ? 0 : 1);
    struct cn_part *parts = cn_arena_alloc(&call->arena, sizeof(*parts) * n_parts);
    struct cn_header *headers =
        cn_arena_alloc(&call->arena, sizeof(*headers) * (was->n_headers + (size_t)N_ADDED));

    call->row = *was;
    call->row.parts = parts;
    call->row.n_parts = n_parts;
    call->row.headers = headers;
    if (was->n_parts)
        memcpy(parts, was->parts, sizeof(*parts) * was->n_parts);
    if (was->n_headers)
        memcpy(headers, was->headers, sizeof(*headers) * was->n_headers);
    call->added = headers + was->n_headers;
    call->samples = &parts[chunk->part ? chunk->part - was->parts : was->n_parts];
    if (!chunk->part)
        call->samples->name = over->input.len ? over->input : CN_STR("body");
    call->samples->content_type = over->type.len ? over->type : CN_STR("application/octet-stream");
    if (over->io && over->io->inputs[0].type == CN_DATATYPE_INT16)
        call->integers =
            cn_arena_alloc(&call->arena, sizeof(*call->integers) * over->settings.window);
}

/* Begins a call for an item that is run for the first time. Returns NULL when it failed; the item
 * has the error then. */
static struct call *
call_begin(struct cn_stream_layer *over, struct cn_item *item)
{
    struct call *call = cn_alloc(sizeof(*call));
    const struct cn_chunk_source *chunk;
    struct cn_error err;
    int rc;

    call->magic = CALL_MAGIC;
    call->item = item;
    cn_arena_init(&call->arena);
    cn_reply_init(&call->inner.reply, over->answer_max_bytes);
    cn_answers_init(&call->answers, over->settings.answers, over->io, over->answer_max_bytes);
    if (!item->state)
        item->state = state_create();
    rc = feed(over, call, state_of(item->state), &chunk, &err);
    if (rc == 0) {
        make_row(over, call, chunk);
        return call;
    }
    cn_reply_fail(&item->reply, rc, "%s", err.message);
    call_free(call);
    return NULL;
}

/* --- windows --- */

static struct cn_str
as_integers(const float *samples, uint32_t n, int16_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float value = samples[i] * 32768.0f;

        out[i] = value >= 32767.0f ? 32767 : value <= -32768.0f ? -32768 : (int16_t)lrintf(value);
    }
    return (struct cn_str){(const char *)out, n * sizeof(*out)};
}

/* Sets the call's row to its present window.
 *
 * START belongs to the first window and END to the last one, though the request has both: the
 * handler would otherwise reset its state with each window. */
static void
begin_window(const struct cn_stream_layer *over, struct call *call)
{
    const struct stream_state *state = state_of(call->item->state);
    const struct cn_row *was = call->item->row;
    const uint32_t window = over->settings.window;
    const bool last = call->window + 1 == call->n_windows;
    const char *bytes =
        state->rest.samples.data + (size_t)call->window * over->settings.hop * sizeof(float);
    const float *samples = (const float *)(const void *)bytes;

    call->row.flags =
        was->flags & ~(uint32_t)((call->window ? CN_ROW_START : 0) | (last ? 0 : CN_ROW_END));
    call->samples->data = call->integers ? as_integers(samples, window, call->integers)
                                         : (struct cn_str){bytes, window * sizeof(float)};
    snprintf(call->number, sizeof(call->number), "%" PRIu64, state->rest.windows + call->window);
    call->added[0] = (struct cn_header){CN_STR("ts-stream-window"), cn_str_from(call->number)};
    call->row.n_headers = was->n_headers + 1;
    if (last && call->padding) {
        snprintf(call->zeros, sizeof(call->zeros), "%" PRIu32, call->padding);
        call->added[1] = (struct cn_header){CN_STR("ts-stream-padding"), cn_str_from(call->zeros)};
        call->row.n_headers++;
    }
}

/* --- the end of a call --- */

/* A row without a sequence keeps no state. */
static void
drop_state_of_nobody(struct cn_runtime *rt, struct cn_item *item)
{
    if (item->row->flags & CN_ROW_STATEFUL)
        return;
    over_state_free(rt, item->state);
    item->state = NULL;
}

static void
call_fail(struct call *call, int code, const char *message)
{
    struct cn_reply *reply = &call->item->reply;
    const struct cn_reply *inner = &call->inner.reply;

    if (call->n_windows > 1)
        cn_reply_fail(reply, code, "window %" PRIu32 " of the request's %" PRIu32 ": %s",
                      call->window, call->n_windows, message);
    else
        cn_reply_fail(reply, code, "%s", message);
    if (inner->error_code) {
        reply->status = inner->status;
        reply->close_reason = inner->close_reason;
    }
    reply->more = false;
}

static void
call_end(struct cn_runtime *rt, struct call *call)
{
    struct cn_stream_layer *over = rt->stream_layer;
    struct cn_item *item = call->item;
    struct cn_error err;
    int rc = 0;

    item->resume = NULL;
    item->reply.more = false;
    if (item->reply.error_code == 0)
        rc = cn_answers_finish(&call->answers, &item->reply, &err);
    if (rc)
        call_fail(call, rc, err.message);
    if (item->reply.error_code == 0) {
        item->reply.end_sequence = call->inner.reply.end_sequence;
        item->reply.stop_streams = call->inner.reply.stop_streams;
        cn_cutter_drop(&over->settings, &state_of(item->state)->rest, call->window);
    }
    drop_state_of_nobody(rt, item);
    call_free(call);
}

/* The handler yields within a window. Its pieces are kept until the window is answered. */
static bool
call_park(struct cn_runtime *rt, struct call *call)
{
    const uint64_t rest_ms = call->inner.reply.rest_ms;
    struct cn_item *item = call->item;
    struct cn_error err;
    int rc = cn_answers_take_pieces(&call->answers, &call->inner.reply, &err);

    if (rc) {
        rt->stream_layer->under->drop(rt, call->inner.resume);
        call->inner.resume = NULL;
        call_fail(call, rc, err.message);
        return false;
    }
    item->reply.more = true;
    item->reply.rest_ms = rest_ms;
    item->resume = call;
    return true;
}

/* Takes what the runtime below has made of the call's window. Returns true if the call has another
 * window to run at once. */
static bool
call_settle(struct cn_runtime *rt, struct call *call)
{
    struct cn_reply *inner = &call->inner.reply;
    struct cn_error err;
    bool ended;
    int rc;

    state_of(call->item->state)->inner = call->inner.state;
    if (inner->error_code == 0 && inner->more && call_park(rt, call))
        return false;
    if (inner->error_code) {
        const struct cn_str message = cn_buf_str(&inner->body);
        char text[CN_ERROR_MESSAGE_MAX];

        snprintf(text, sizeof(text), "%.*s", CN_STR_ARG(message));
        call_fail(call, inner->error_code, text);
    } else if (call->item->reply.error_code == 0) {
        ended = inner->end_sequence;
        rc = cn_answers_take(&call->answers, inner, &err);
        if (rc)
            call_fail(call, rc, err.message);
        else if (++call->window < call->n_windows && !ended)
            return true;
    }
    call_end(rt, call);
    return false;
}

/* --- the run --- */

/* A handler that has a piece and goes on working: the piece stays in the reply. */
static enum cn_stop_reason
keep_piece(void *worker, struct cn_item *item)
{
    (void)worker;
    return item->stop;
}

/* Runs the present window of each of these calls. Returns how many have another one.
 *
 * The present windows of all requests run as one batch, so short and long requests can share it;
 * calls that have no further window leave the batch. Windows of one request run one after the
 * other, because each needs the state that the one before left. */
static uint32_t
run_windows(struct cn_runtime *rt, uint32_t n)
{
    struct cn_stream_layer *over = rt->stream_layer;
    enum cn_stop_reason (*send)(void *, struct cn_item *) = rt->send;
    uint32_t left = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct call *call = over->calls[i];

        call->inner.row = &call->row;
        call->inner.deadline_ms = call->item->deadline_ms;
        call->inner.step = call->item->step;
        call->inner.stop = call->item->stop;
        call->inner.state = state_of(call->item->state)->inner;
        over->items[i] = &call->inner;
    }
    rt->send = send ? keep_piece : NULL;
    over->under->run(rt, over->items, n);
    rt->send = send;
    for (uint32_t i = 0; i < n; i++)
        if (call_settle(rt, over->calls[i])) {
            over->calls[left] = over->calls[i];
            begin_window(over, over->calls[left++]);
        }
    return left;
}

static void
make_room(struct cn_stream_layer *over, uint32_t n)
{
    if (n <= over->cap_items)
        return;
    cn_free(over->items);
    cn_free(over->calls);
    over->items = cn_alloc(n * sizeof(*over->items)); /* n: at most the model's batchSize */
    over->calls = cn_alloc(n * sizeof(*over->calls));
    over->cap_items = n;
}

static void
over_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    struct cn_stream_layer *over = rt->stream_layer;
    uint32_t n_run = 0;

    make_room(over, n);
    for (uint32_t i = 0; i < n; i++) {
        struct cn_item *item = items[i];
        struct call *call;

        if (item->resume) {
            call = cn_cast(struct call, (struct call *)item->resume, CALL_MAGIC);
            call->item = item;
            item->resume = NULL;
            over->calls[n_run++] = call;
            continue;
        }
        call = call_begin(over, item);
        if (!call) {
            drop_state_of_nobody(rt, item);
        } else if (call->n_windows == 0) {
            call_end(rt, call);
        } else {
            begin_window(over, call);
            over->calls[n_run++] = call;
        }
    }
    while (n_run > 0)
        n_run = run_windows(rt, n_run);
}

static void
over_drop(struct cn_runtime *rt, void *resume)
{
    struct call *call = cn_cast(struct call, (struct call *)resume, CALL_MAGIC);

    rt->stream_layer->under->drop(rt, call->inner.resume);
    call_free(call);
}

static void
over_on_close(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
              enum cn_close_reason reason)
{
    rt->stream_layer->under->on_close(rt, sequence_id, state ? state_of(state)->inner : NULL,
                                      reason);
}

static void
over_close(struct cn_runtime *rt)
{
    struct cn_stream_layer *over = rt->stream_layer;
    const struct cn_runtime_ops *ops = over->under;

    cn_filters_destroy(over->filters);
    cn_free(over->items);
    cn_free(over->calls);
    cn_arena_fini(&over->arena);
    cn_free(over);
    rt->stream_layer = NULL;
    rt->ops = ops;
    ops->close(rt);
}

/* The type and shape of a window as the model declares its first input. */
static struct cn_str
window_type(const struct cn_stream_layer *over, struct cn_arena *arena)
{
    const struct cn_tensor_spec *spec = &over->io->inputs[0];
    const uint32_t skip = over->io->max_batch_size > 0;
    struct cn_tensor tensor = {.type = spec->type, .rank = spec->rank + skip, .shape = {1}};
    uint64_t fixed = 1;

    for (uint32_t i = 0; i < spec->rank; i++)
        fixed *= spec->dims[i] < 0 ? 1 : (uint64_t)spec->dims[i];
    for (uint32_t i = 0; i < spec->rank; i++)
        tensor.shape[i + skip] =
            spec->dims[i] < 0 ? (int64_t)(over->settings.window / fixed) : spec->dims[i];
    return cn_tensor_part(&tensor, arena).content_type;
}

void
cn_stream_layer_attach(struct cn_runtime *rt, const struct cn_load *load,
                       const struct cn_model_config *config, const struct cn_model_io *io)
{
    struct cn_stream_layer *over = cn_alloc(sizeof(*over));

    over->under = rt->ops;
    over->ops = *rt->ops;
    over->ops.run = over_run;
    over->ops.drop = over_drop;
    over->ops.close = over_close;
    over->ops.state_encode = over_state_encode;
    over->ops.state_decode = over_state_decode;
    over->ops.state_free = over_state_free;
    over->ops.on_close = over_on_close;
    cn_stream_settings_init(&over->settings, config);
    over->io = io;
    over->answer_max_bytes = load->answer_max_bytes;
    over->filters = cn_filters_create();
    cn_arena_init(&over->arena);
    if (io) {
        over->input = io->inputs[0].name;
        over->type = window_type(over, &over->arena);
    }
    rt->stream_layer = over;
    rt->ops = &over->ops;
}
