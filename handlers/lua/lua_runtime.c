/* handlers/lua/lua_runtime.c - the runtime "lua": a model's VM, its states, its end. Worker's
 * thread.
 *
 * There is one VM in each worker process, and one thread runs it. Whatever a handler does wrong
 * ends in an error reply for the item (or the batch) that it did it in, and the VM goes on. Three
 * limits hold for it: memory by the VM's allocator (limited_alloc), time by a hook (lua_protect.c),
 * and what it can reach by the sandbox (lua_sandbox.c). A call that no hook can stop ends the
 * process (lua_watch.c).
 *
 * Live states are tables in rt->states, a table in the registry, and the worker holds them by
 * reference. A state is encoded by the state codec in its own protected call: an error there, such
 * as a function in the state, fails the step.
 *
 * Nothing outside of a protected call may allocate in the VM, because an error there has nobody to
 * catch it and ends the process (on_panic).
 */
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

/* How long migrate and close may take if no limit is configured. No request has a deadline for
 * them. */
#define BACKGROUND_CALL_MS 5000

/* The pages of the slab may take this many times the limit of the blocks in use, since there is
 * unused room between blocks. */
#define PAGES_TIMES 2

static struct lua_rt *
lua_rt(struct cn_runtime *rt)
{
    return cn_cast(struct lua_rt, (struct lua_rt *)rt, LUA_RT_MAGIC);
}

/* --- memory, errors --- */

/* The VM's allocator. It returns NULL if the limit is reached or there is no memory. That may
 * happen even to a block that is to become smaller, because a smaller block lies in another part of
 * the slab. Lua 5.4 then collects garbage and tries again; if that fails too, it keeps the old
 * block or raises an error. */
static void *
limited_alloc(void *ud, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct lua_rt *rt = ud;
    void *fresh;

    if (!ptr)
        old_bytes = 0; /* Lua passes the kind of object there */
    if (new_bytes == 0) {
        cn_slab_free(&rt->blocks, ptr, old_bytes);
        rt->memory_used -= old_bytes;
        return NULL;
    }
    if (new_bytes > old_bytes && rt->memory_max &&
        rt->memory_used - old_bytes + new_bytes > rt->memory_max)
        return NULL;
    fresh = cn_slab_resize(&rt->blocks, ptr, old_bytes, new_bytes);
    if (!fresh)
        return NULL;
    rt->memory_used = rt->memory_used - old_bytes + new_bytes;
    return fresh;
}

static int
on_panic(lua_State *L)
{
    cn_panic(__FILE__, __LINE__, "Lua error outside a protected call: %s",
             lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?");
}

/* Calls `fn` like cn_lua_protect and turns a failure into `err`: with `code` if the handler has
 * raised an error, or with the code for used up time or memory. */
static int
protect_err(struct lua_rt *rt, lua_CFunction fn, void *arg, int code, struct cn_error *err)
{
    int rc = cn_lua_protect(rt, fn, arg);
    struct cn_reply reply;

    if (rc == LUA_OK && !rt->expired)
        return 0;
    if (rc == LUA_OK)
        lua_pushnil(rt->L);
    if (rc == LUA_ERRRUN && !rt->expired && lua_type(rt->L, -1) == LUA_TSTRING) {
        cn_fail(err, code, "%s", lua_tostring(rt->L, -1));
        if (err) /* only the first line; the log has all of it */
            err->message[strcspn(err->message, "\n")] = '\0';
    } else {
        cn_reply_init(&reply, 0);
        cn_lua_fail_reply(rt->L, rc, &reply);
        code = reply.error_code == CN_E_HANDLER_FAILED ? code : reply.error_code;
        cn_fail(err, code, "%.*s", CN_STR_ARG(cn_buf_str(&reply.body)));
        cn_reply_fini(&reply);
    }
    lua_settop(rt->L, 0);
    return code;
}

static void
runtime_close(struct cn_runtime *base)
{
    struct lua_rt *rt;

    if (!base)
        return;
    rt = lua_rt(base);
    cn_lua_watch_close(rt);
    cn_lua_drop_timers(rt);
    if (rt->L)
        lua_close(rt->L);
    cn_slab_fini(&rt->blocks);
    cn_lua_close_torch(rt);
    cn_buf_fini(&rt->scratch);
    cn_reply_fini(&rt->stacked);
    cn_samples_fini(&rt->base.samples);
    cn_free(rt->entries);
    cn_free(rt->model);
    cn_free(rt->version);
    cn_free(rt->dir);
    cn_free(rt->torch_library);
    cn_free(rt->file);
    rt->magic = 0;
    cn_free(rt);
}

static int
runtime_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
             struct cn_error *err)
{
    struct lua_rt *rt = cn_alloc(sizeof(*rt));
    int rc;

    rt->base.ops = &cn_lua_runtime_ops;
    cn_samples_init(&rt->base.samples, load);
    rt->magic = LUA_RT_MAGIC;
    cn_list_init(&rt->timers);
    rt->model = cn_strdup(load->model_name ? load->model_name : "");
    rt->version = cn_strdup(load->model_version ? load->model_version : "");
    rt->dir = cn_strdup(load->model_dir ? load->model_dir : ".");
    rt->file = cn_strdup(load->handler && *load->handler ? load->handler : "handler.lua");
    rt->torch_library = cn_strdup(load->torch_library ? load->torch_library : "");
    rt->worker_index = load->worker_index;
    rt->stateful = load->stateful && !load->state;
    rt->tensor_state = load->state != NULL;
    rt->batched = load->max_batch_size > 0;
    rt->strict = load->strict_globals;
    rt->memory_max = load->memory_max_bytes;
    cn_slab_init(&rt->blocks, cn_slab_usual(), rt->memory_max * PAGES_TIMES);
    rt->step_time_ms = load->step_time_ms;
    rt->state_max_bytes = load->state_max_bytes;
    rt->deadline_ms = CN_NEVER;
    rt->fn_run = rt->fn_init = rt->fn_migrate = rt->fn_close = rt->fn_describe = LUA_NOREF;
    rt->states = rt->newest = rt->stop_words = rt->idle_ref = LUA_NOREF;
    cn_buf_init(&rt->scratch, rt->memory_max);
    cn_reply_init(&rt->stacked, rt->memory_max);
    snprintf(rt->describe, sizeof(rt->describe), "%s", LUA_RELEASE);

    rt->L = lua_newstate(limited_alloc, rt);
    if (!rt->L) {
        runtime_close(&rt->base);
        return cn_fail(err, CN_E_LOAD_FAILED, "not enough memory for a Lua state");
    }
    *(struct lua_rt **)lua_getextraspace(rt->L) = rt;
    lua_atpanic(rt->L, on_panic);
    cn_lua_collect_in_steps(rt->L);
    cn_lua_disarm(rt); /* loading is under the server's startupTimeout */
    rc = protect_err(rt, cn_lua_load_handler, &config_json, CN_E_LOAD_FAILED, err);
    if (rc < 0) {
        runtime_close(&rt->base);
        return rc;
    }
    *out = &rt->base;
    return 0;
}

static int
runtime_serve(struct cn_runtime *rt, const struct cn_load *load, struct cn_error *err)
{
    (void)load;
    return cn_lua_watch_open(lua_rt(rt), err);
}

static const char *
runtime_describe(struct cn_runtime *rt)
{
    return lua_rt(rt)->describe;
}

static uint32_t
runtime_state_schema(struct cn_runtime *rt)
{
    return lua_rt(rt)->schema;
}

static void
runtime_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    cn_lua_run(lua_rt(rt), items, n);
}

static void
runtime_metadata(struct cn_runtime *rt, struct cn_item *item)
{
    cn_lua_metadata(lua_rt(rt), item);
}

static void
runtime_drop(struct cn_runtime *rt, void *resume)
{
    if (cn_lua_is_open(resume))
        cn_lua_drop_open(lua_rt(rt), resume);
    else
        cn_lua_drop_step(lua_rt(rt), resume);
}

/* --- states --- */

struct encode_args {
    int ref;
    struct cn_buf *out;
};

static int
encode_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct encode_args *args = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
    lua_rawgeti(L, -1, args->ref);
    cn_lua_state_encode(L, -1, args->out);
    return 0;
}

static int
runtime_state_encode(struct cn_runtime *base, void *state, struct cn_buf *out, struct cn_error *err)
{
    struct lua_rt *rt = lua_rt(base);
    struct encode_args args = {lua_ref_of_state(state), out};
    size_t begun = out->len;
    int rc = protect_err(rt, encode_protected, &args, CN_E_HANDLER_FAILED, err);

    if (rc < 0)
        return rc;
    if (out->failed || (rt->state_max_bytes && out->len - begun > rt->state_max_bytes))
        return cn_fail(err, CN_E_STATE_TOO_LARGE,
                       "the sequence's state is larger than %zu bytes (state.maxBytes)",
                       rt->state_max_bytes ? rt->state_max_bytes : out->max_bytes);
    return 0;
}

struct decode_args {
    struct cn_lua_state_bytes *parsed;
    uint32_t from_schema;
    void *state;
};

/* Calls migrate(state, from_schema, from_version) -> state. The third argument is nil unless
 * another version of the model has written the state. The old state is on the top of the stack and
 * is replaced. */
static void
migrate(struct lua_rt *rt, uint32_t from_schema)
{
    lua_State *L = rt->L;

    if (rt->fn_migrate == LUA_NOREF)
        luaL_error(L,
                   "%s: a stored state has schema %I, but the handler declares %I and has no "
                   "migrate(state, from)",
                   rt->file, (lua_Integer)from_schema, (lua_Integer)rt->schema);
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_migrate);
    lua_pushvalue(L, -2);
    lua_pushinteger(L, (lua_Integer)from_schema);
    lua_pushstring(L, rt->base.from_version); /* nil for NULL */
    lua_call(L, 3, 2);
    if (lua_isnil(L, -2) && !lua_isnil(L, -1))
        luaL_error(L, "%s: migrate(state, from) failed: %s", rt->file, luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    if (lua_isnil(L, -1)) { /* changed in place */
        lua_pop(L, 1);
        return;
    }
    if (!lua_istable(L, -1))
        luaL_error(L, "%s: migrate(state, from) must return the state, a table; got %s", rt->file,
                   luaL_typename(L, -1));
    lua_replace(L, -2);
}

static int
decode_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct decode_args *args = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
    cn_lua_state_push(L, args->parsed);
    if (args->from_schema != rt->schema)
        migrate(rt, args->from_schema);
    args->state = lua_state_of_ref(luaL_ref(L, -2));
    return 0;
}

static void
arm_background(struct lua_rt *rt, bool apart)
{
    cn_lua_arm_for(rt, rt->step_time_ms ? rt->step_time_ms : BACKGROUND_CALL_MS, apart);
}

static int
runtime_state_decode(struct cn_runtime *base, struct cn_str bytes, uint32_t from_schema,
                     void **state, struct cn_error *err)
{
    struct lua_rt *rt = lua_rt(base);
    struct decode_args args = {.from_schema = from_schema};
    int rc = cn_lua_state_parse(bytes, &args.parsed, err);

    if (rc < 0)
        return rc;
    if (from_schema != rt->schema)
        arm_background(rt, !base->decodes_for_row);
    rc = protect_err(rt, decode_protected, &args, CN_E_HANDLER_FAILED, err);
    cn_lua_disarm(rt);
    cn_lua_state_bytes_free(args.parsed);
    if (rc < 0)
        return rc;
    *state = args.state;
    return 0;
}

static void
runtime_state_free(struct cn_runtime *base, void *state)
{
    struct lua_rt *rt = lua_rt(base);

    if (!state)
        return;
    /* Sets slots that are there already, so it allocates nothing. */
    lua_rawgeti(rt->L, LUA_REGISTRYINDEX, rt->states);
    luaL_unref(rt->L, -1, lua_ref_of_state(state));
    lua_pop(rt->L, 1);
}

/* --- the end of a sequence --- */

struct close_args {
    struct cn_str sequence_id;
    int ref; /* 0: no state */
    enum cn_close_reason reason;
};

static int
close_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct close_args *args = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_close);
    lua_createtable(L, 0, 1);
    lua_pushlstring(L, args->sequence_id.ptr ? args->sequence_id.ptr : "", args->sequence_id.len);
    lua_setfield(L, -2, "sequence_id");
    if (args->ref) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
        lua_rawgeti(L, -1, args->ref);
        lua_remove(L, -2);
    } else {
        lua_pushnil(L);
    }
    lua_pushstring(L, cn_close_reason_word(args->reason));
    lua_call(L, 3, 0);
    return 0;
}

static void
runtime_on_close(struct cn_runtime *base, struct cn_str sequence_id, void *state,
                 enum cn_close_reason reason)
{
    struct lua_rt *rt = lua_rt(base);
    struct close_args args = {sequence_id, lua_ref_of_state(state), reason};
    struct cn_error err;
    char quoted[1200];

    if (rt->fn_close == LUA_NOREF)
        return;
    arm_background(rt, true);
    if (protect_err(rt, close_protected, &args, CN_E_HANDLER_FAILED, &err) < 0)
        cn_log(CN_LOG_WARN, "event=handler_close_failed model=%s version=%s error=%s", rt->model,
               rt->version, cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    cn_lua_disarm(rt);
}

const struct cn_runtime_ops cn_lua_runtime_ops = {
    .name = "lua",
    .open = runtime_open,
    .close = runtime_close,
    .serve = runtime_serve,
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
