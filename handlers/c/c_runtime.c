/* handlers/c/c_runtime.c - runs a handler that is a shared library. Worker's thread.
 *
 * The library is native code in the worker's process. If it crashes, the worker crashes, and the
 * server restarts it; nothing here tries to catch that. What can be caught are mistakes in the use
 * of the interface: an item that is not answered, a handle that is used after its call. They fail
 * one item, with a message.
 *
 * Handles. A handler gets pointers to structs whose only public member is the table of functions
 * (include/continuo/handler.h). They are the first members of our own structs, which have a magic
 * number, so that a handle that was kept too long is recognised: its magic number is cleared when
 * the call is over.
 *
 * States. A handler has either a flat state, whose bytes are stored as they are, or objects of its
 * own, which save() writes and restore() reads. Both are stored in this machine's byte order and
 * alignment, as the rest of the store is. A state that the handler never asked for is stored as
 * zero bytes.
 *
 * One run may get two kinds of items: those that run() of the handler gets, and deferred ones, for
 * which it is not called (c_open.c). Deferred ones are settled last, because a call for one item
 * may have answered another.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "handlers/c/c_priv.h"
#include "handlers/reply.h"

static struct c_runtime *
c_rt(struct cn_runtime *rt)
{
    return cn_cast(struct c_runtime, (struct c_runtime *)rt, C_RUNTIME_MAGIC);
}

/* --- loading --- */

/* Copies the library's description after checking its ABI: this is the only place that compares
 * versions. A description from an older minor version is shorter; its missing members are zero. */
static int
take_description(struct c_runtime *rt, struct cn_error *err)
{
    const struct continuo_handler *theirs = dlsym(rt->library, "continuo_handler");
    struct continuo_handler *handler = &rt->handler;
    bool some, all;

    if (!theirs)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s exports no symbol continuo_handler", rt->file);
    if (theirs->abi >> 16 != CONTINUO_HANDLER_ABI_MAJOR)
        return cn_fail(
            err, CN_E_LOAD_FAILED,
            "%s was built for handler ABI %u.%u, but this server has ABI %d.%d; build it "
            "again with this server's continuo/handler.h",
            rt->file, theirs->abi >> 16, theirs->abi & 0xffff, CONTINUO_HANDLER_ABI_MAJOR,
            CONTINUO_HANDLER_ABI_MINOR);
    if ((theirs->abi & 0xffff) > CONTINUO_HANDLER_ABI_MINOR)
        return cn_fail(
            err, CN_E_LOAD_FAILED,
            "%s was built for handler ABI %u.%u, which is newer than this server's %d.%d; "
            "upgrade the server, or build the handler with its continuo/handler.h",
            rt->file, theirs->abi >> 16, theirs->abi & 0xffff, CONTINUO_HANDLER_ABI_MAJOR,
            CONTINUO_HANDLER_ABI_MINOR);
    if (theirs->size < offsetof(struct continuo_handler, run) + sizeof(theirs->run))
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s: continuo_handler.size is %u; set it to sizeof(struct continuo_handler)",
                       rt->file, theirs->size);
    memcpy(handler, theirs, theirs->size < sizeof(*handler) ? theirs->size : sizeof(*handler));
    if (handler->state_schema == 0)
        handler->state_schema = 1;

    if (!handler->run)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s: continuo_handler.run is not set", rt->file);
    some = handler->create || handler->destroy || handler->save || handler->restore;
    all = handler->create && handler->destroy && handler->save && handler->restore;
    if (some && !all)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s: set all of create, destroy, save and restore, or none of them",
                       rt->file);
    if (rt->tensor_state && (some || handler->migrate))
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s: create, save, restore and migrate are for a state that the handler "
                       "keeps itself, but this model's YAML declares its state as tensors",
                       rt->file);
    if (handler->migrate && (some || handler->state_bytes == 0))
        return cn_fail(err, CN_E_LOAD_FAILED, "%s: migrate needs %s", rt->file,
                       some ? "a flat state (with save and restore, restore does the migration)"
                            : "state_bytes");
    return 0;
}

static int
open_library(struct c_runtime *rt, struct cn_error *err)
{
    char path[4096];
    struct stat info;

    if (strstr(rt->file, "..") || rt->file[0] == '/' ||
        snprintf(path, sizeof(path), "%s/%s", rt->dir, rt->file) >= (int)sizeof(path))
        return cn_fail(err, CN_E_LOAD_FAILED, "%s is not a file of the model", rt->file);
    if (stat(path, &info) < 0 || !S_ISREG(info.st_mode))
        return cn_fail(err, CN_E_LOAD_FAILED, "the model has no file %s", rt->file);
    rt->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!rt->library)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s: %s", rt->file, dlerror());
    return take_description(rt, err);
}

static void
free_runtime(struct c_runtime *rt)
{
    if (rt->library)
        dlclose(rt->library);
    json_decref(rt->config);
    cn_samples_fini(&rt->base.samples);
    cn_buf_fini(&rt->load_error);
    cn_free(rt->items);
    cn_free(rt->handles);
    cn_free(rt->name);
    cn_free(rt->version);
    cn_free(rt->dir);
    cn_free(rt->file);
    rt->magic = 0;
    cn_free(rt);
}

static int
call_load(struct c_runtime *rt, struct cn_error *err)
{
    int rc;

    if (!rt->handler.load)
        return 0;
    rc = rt->handler.load(&rt->model.handle);
    if (rc == 0)
        return 0;
    if (rt->load_error.len > 0)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s: %.*s", rt->file,
                       CN_STR_ARG(cn_buf_str(&rt->load_error)));
    return cn_fail(err, CN_E_LOAD_FAILED, "%s: load returned %d", rt->file, rc);
}

static int
runtime_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
             struct cn_error *err)
{
    struct c_runtime *rt = cn_alloc(sizeof(*rt));
    json_error_t why;
    int rc;

    rt->base.ops = &cn_c_runtime_ops;
    cn_samples_init(&rt->base.samples, load);
    rt->magic = C_RUNTIME_MAGIC;
    cn_list_init(&rt->timers);
    rt->model = (struct c_model){{&cn_c_api}, rt};
    rt->name = cn_strdup(load->model_name ? load->model_name : "");
    rt->version = cn_strdup(load->model_version ? load->model_version : "");
    rt->dir = cn_strdup(load->model_dir ? load->model_dir : ".");
    rt->file = cn_strdup(load->handler && *load->handler ? load->handler : "handler.so");
    rt->worker_index = (unsigned)load->worker_index;
    rt->stateful = load->stateful && !load->state;
    rt->tensor_state = load->state != NULL;
    rt->batched = load->max_batch_size > 0;
    rt->state_max_bytes = load->state_max_bytes;
    cn_buf_init(&rt->load_error, 0);
    rt->config =
        config_json.len > 0 ? json_loadb(config_json.ptr, config_json.len, 0, &why) : json_object();
    if (!rt->config)
        rc = cn_fail(err, CN_E_LOAD_FAILED, "the model's configuration: %s", why.text);
    else if ((rc = open_library(rt, err)) == 0)
        rc = call_load(rt, err);
    if (rc < 0) {
        free_runtime(rt);
        return rc;
    }
    *out = &rt->base;
    return 0;
}

static void
runtime_close(struct cn_runtime *base)
{
    struct c_runtime *rt;

    if (!base)
        return;
    rt = c_rt(base);
    cn_c_drop_timers(rt);
    if (rt->handler.unload)
        rt->handler.unload(&rt->model.handle);
    free_runtime(rt);
}

static const char *
runtime_describe(struct cn_runtime *rt)
{
    (void)rt;
    return "C, ABI 1.0";
}

static uint32_t
runtime_state_schema(struct cn_runtime *rt)
{
    return c_rt(rt)->handler.state_schema;
}

/* --- batches --- */

static void
begin_items(struct c_runtime *rt, struct cn_item **items, uint32_t n)
{
    if (n > rt->cap_items) {
        cn_free(rt->items);
        cn_free(rt->handles);
        rt->items = cn_alloc(n * sizeof(*rt->items)); /* n: at most the model's batchSize */
        rt->handles = cn_alloc(n * sizeof(*rt->handles));
        rt->cap_items = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        rt->items[i] = (struct c_item){.handle = {&cn_c_api},
                                       .magic = C_ITEM_MAGIC,
                                       .rt = rt,
                                       .item = items[i],
                                       .stream = items[i]->resume,
                                       .fresh = items[i]->state == NULL};
        cn_arena_init(&rt->items[i].arena);
        rt->handles[i] = &rt->items[i].handle;
    }
}

/* If the item was deferred in this call, its stream keeps the deferred item from now on. */
static void
leave_open(struct c_item *item)
{
    struct c_open *open = item->open;

    if (!open)
        return;
    if (item->item->reply.error_code) {
        cn_c_open_destroy(open);
        return;
    }
    item->stream->open = open;
    item->item->reply.more = true;
}

/* Finishes the items after run(). An item that was not answered fails. An item that succeeded
 * without asking for its state gets an empty one, which the worker stores. */
static void
end_items(struct c_runtime *rt, uint32_t n, int rc)
{
    uint32_t answered = 0;

    for (uint32_t i = 0; i < n; i++)
        answered += rt->items[i].answered;
    for (uint32_t i = 0; i < n; i++) {
        struct c_item *item = &rt->items[i];
        struct cn_reply *reply = &item->item->reply;

        if (rc != 0 && reply->error_code == 0)
            cn_reply_fail(reply, CN_E_HANDLER_FAILED, "Prediction failed: %s: run returned %d",
                          rt->file, rc);
        else if (!item->answered)
            cn_reply_fail(reply, CN_E_HANDLER_FAILED,
                          "Prediction failed: %s: handler answered %u of %u items", rt->file,
                          answered, n);
        leave_open(item);
        if (reply->more && !item->stream)
            item->stream = cn_c_stream_create();
        if (!reply->more) {
            cn_c_stream_destroy(item->stream);
            item->stream = NULL;
        }
        item->item->resume = item->stream;
        if (reply->error_code == 0 && rt->stateful && !item->item->state)
            item->item->state = cn_c_state_create();
        json_decref(item->json);
        cn_arena_fini(&item->arena);
        item->magic = 0; /* a handle that the handler has kept is recognised by this */
    }
    if (rc != 0 || answered < n)
        cn_log(CN_LOG_WARN,
               "event=handler_error model=%s version=%s returned=%d answered=%u "
               "items=%u",
               rt->name, rt->version, rc, answered, n);
}

static bool
is_open(const struct cn_item *item)
{
    const struct c_stream *stream = item->resume;

    return stream && stream->open;
}

/* Sorts deferred items, which the handler's run() does not get, to the front, and returns their
 * number. */
static uint32_t
run_open(struct cn_item **items, uint32_t n)
{
    uint32_t n_open = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct cn_item *item = items[i];

        if (!is_open(item))
            continue;
        cn_c_run_open(((struct c_stream *)item->resume)->open, item);
        items[i] = items[n_open];
        items[n_open++] = item;
    }
    return n_open;
}

static void
runtime_run(struct cn_runtime *base, struct cn_item **items, uint32_t n)
{
    struct c_runtime *rt = c_rt(base);
    uint32_t n_open = run_open(items, n);
    int rc;

    if (n > n_open) {
        begin_items(rt, items + n_open, n - n_open);
        rc = rt->handler.run(&rt->model.handle, rt->handles, n - n_open);
        end_items(rt, n - n_open, rc);
    }
    /* This comes last, because a call for one item may have answered another. */
    for (uint32_t i = 0; i < n; i++)
        if (is_open(items[i]))
            cn_c_settle_open(items[i]);
}

static void
runtime_metadata(struct cn_runtime *base, struct cn_item *item)
{
    struct c_runtime *rt = c_rt(base);
    struct c_item *mine;
    int rc;

    if (!rt->handler.describe) {
        cn_buf_puts(&item->reply.body, "{}");
        return;
    }
    begin_items(rt, &item, 1);
    mine = &rt->items[0];
    rc = rt->handler.describe(&rt->model.handle, &mine->handle);
    if (rc != 0 && item->reply.error_code == 0)
        cn_reply_fail(&item->reply, CN_E_HANDLER_FAILED, "%s: describe returned %d", rt->file, rc);
    else if (item->reply.more || mine->open || !mine->answered)
        cn_reply_fail(&item->reply, CN_E_HANDLER_FAILED, "%s: describe did not reply", rt->file);
    json_decref(mine->json);
    cn_arena_fini(&mine->arena);
    cn_c_open_destroy(mine->open);
    cn_c_stream_destroy(mine->stream);
    mine->magic = 0;
    cn_c_state_destroy(rt, item->state); /* it has no sequence, whatever the handler asked for */
    item->state = NULL;
}

static void
runtime_drop(struct cn_runtime *rt, void *resume)
{
    (void)rt;
    cn_c_stream_destroy(resume);
}

/* --- state to bytes and back --- */

static int
runtime_state_encode(struct cn_runtime *base, void *state_, struct cn_buf *out,
                     struct cn_error *err)
{
    struct c_runtime *rt = c_rt(base);
    struct c_state *state = cn_cast(struct c_state, state_, C_STATE_MAGIC);
    struct c_writer writer = {{&cn_c_api}, out};
    size_t begun = out->len;
    int rc = 0;

    if (state->object)
        rc = rt->handler.save(&rt->model.handle, state->object, &writer.handle);
    else
        cn_buf_append(out, state->flat, state->bytes);
    if (out->failed || (rt->state_max_bytes && out->len - begun > rt->state_max_bytes))
        return cn_fail(err, CN_E_STATE_TOO_LARGE,
                       "the sequence's state is larger than %zu bytes (state.maxBytes)",
                       rt->state_max_bytes ? rt->state_max_bytes : out->max_bytes);
    if (rc != 0)
        return cn_fail(err, CN_E_HANDLER_FAILED, "%s: save returned %d", rt->file, rc);
    return 0;
}

static int
decode_flat(struct c_runtime *rt, struct cn_str bytes, uint32_t from_schema, struct c_state *state,
            struct cn_error *err)
{
    bool migrates = from_schema != rt->handler.state_schema;

    if (bytes.len == 0) /* no state was ever asked for */
        return 0;
    if (migrates && !rt->handler.migrate)
        return cn_fail(
            err, CN_E_HANDLER_FAILED,
            "%s: a stored state has schema %u, but the handler declares %u and has no migrate()",
            rt->file, from_schema, rt->handler.state_schema);
    if (!migrates && rt->handler.state_bytes && bytes.len != rt->handler.state_bytes)
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "%s: a stored state of schema %u has %zu bytes, but state_bytes is %u: "
                       "increment state_schema and add migrate()",
                       rt->file, from_schema, bytes.len, rt->handler.state_bytes);
    state->bytes = migrates ? rt->handler.state_bytes : bytes.len;
    state->flat = cn_try_alloc(state->bytes);
    if (!state->flat)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a state of %zu bytes",
                       state->bytes);
    if (!migrates) {
        memcpy(state->flat, bytes.ptr, bytes.len);
        return 0;
    }
    memset(state->flat, 0, state->bytes);
    if (rt->handler.migrate(&rt->model.handle, from_schema, bytes.ptr, bytes.len, state->flat) != 0)
        return cn_fail(err, CN_E_HANDLER_FAILED, "%s: migrate cannot read a state of schema %u",
                       rt->file, from_schema);
    return 0;
}

static int
runtime_state_decode(struct cn_runtime *base, struct cn_str bytes, uint32_t from_schema, void **out,
                     struct cn_error *err)
{
    struct c_runtime *rt = c_rt(base);
    struct c_state *state = cn_c_state_create();
    int rc = 0;

    if (!rt->handler.restore) {
        rc = decode_flat(rt, bytes, from_schema, state, err);
    } else if (bytes.len > 0) { /* no bytes: the object was never asked for */
        state->object = rt->handler.restore(&rt->model.handle, from_schema, bytes.ptr, bytes.len);
        if (!state->object)
            rc = cn_fail(err, CN_E_HANDLER_FAILED,
                         "%s: restore cannot read a state of %zu bytes and schema %u", rt->file,
                         bytes.len, from_schema);
    }
    if (rc < 0) {
        cn_c_state_destroy(rt, state);
        return rc;
    }
    *out = state;
    return 0;
}

static void
runtime_state_free(struct cn_runtime *rt, void *state)
{
    cn_c_state_destroy(c_rt(rt), state);
}

static void
runtime_on_close(struct cn_runtime *base, struct cn_str sequence_id, void *state_,
                 enum cn_close_reason reason)
{
    struct c_runtime *rt = c_rt(base);
    struct c_state *state = state_;

    if (!rt->handler.close)
        return;
    rt->handler.close(
        &rt->model.handle,
        (struct continuo_bytes){sequence_id.ptr ? sequence_id.ptr : "", sequence_id.len},
        !state          ? NULL
        : state->object ? state->object
                        : state->flat,
        cn_close_reason_word(reason));
}

const struct cn_runtime_ops cn_c_runtime_ops = {
    .name = "c",
    .open = runtime_open,
    .close = runtime_close,
    .describe = runtime_describe,
    .state_schema = runtime_state_schema,
    .run = runtime_run,
    .drop = runtime_drop,
    .metadata = runtime_metadata,
    .state_encode = runtime_state_encode,
    .state_decode = runtime_state_decode,
    .state_free = runtime_state_free,
    .on_close = runtime_on_close,
};
