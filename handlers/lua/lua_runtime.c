/* handlers/lua/lua_runtime.c - a model's Lua handler: its VM, its states, its end.
 *
 * One VM a worker process, one thread. Whatever a handler does wrong ends in an
 * error reply for the item (or batch) that it did it in; the VM goes on. Live
 * states are tables in the registry, and the worker holds them by reference.
 */
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

/* What migrate and close may take where no limit is configured: nobody waits for them. */
#define BACKGROUND_CALL_MS 5000
/* How much the collector does for so much that is allocated: by default (100) it goes through all
 * there is within half a percent of it, and with the states of a million sequences each of its
 * steps held up a batch for 5 ms, while server and clients had nothing to do. At this it takes a
 * tenth of the memory in use, which the pause of 200 % before hardly notices, in steps of a third
 * of a millisecond. */
#define COLLECT_STEP 4

/* What blocks in use take is limited; so is, to so much of that, what lies between them. */
#define PAGES_TIMES 2

static struct lua_rt *
lua_rt(struct cn_runtime *rt)
{
    return cn_cast(struct lua_rt, (struct lua_rt *)rt, LUA_RT_MAGIC);
}

/* --- memory, errors --- */

/* The VM's allocator. NULL where the limit is reached, or there is no memory: also for a block that
 * is to become smaller, since that one lies elsewhere; Lua 5.4 then collects, tries again, and
 * keeps the old one or raises. */
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

/* The message's first line, which begins with file:line, and what is below it, are an event's.
 * Lua's heading and its last line, C code of this file, tell nobody anything. */
static void
log_error_lines(const struct lua_rt *rt, const char *message, const char *traceback)
{
    static const char heading[] = "stack traceback:\n", last[] = "\n\t[C]: in ?";
    char error[1200], sequence[300] = "", quoted[320], trace[1900], quoted_trace[2000];
    size_t first = strcspn(message, "\n"), len;
    const char *rest = message + first;

    if (rt->current && rt->current->row->sequence_id.len) {
        struct cn_str id = cn_sequence_id_shown(rt->current->row->sequence_id);

        snprintf(sequence, sizeof(sequence), " sequence=%s",
                 cn_log_quote(id.ptr, id.len, quoted, 280));
    }
    if (strncmp(traceback, heading, sizeof(heading) - 1) == 0)
        traceback += sizeof(heading) - 1;
    len = strlen(traceback);
    if (len >= sizeof(last) - 1 && strcmp(traceback + len - (sizeof(last) - 1), last) == 0)
        len -= sizeof(last) - 1;
    else if (strcmp(traceback, last + 1) == 0)
        len = 0;
    snprintf(trace, sizeof(trace), "%s%s%.*s", *rest ? rest + 1 : "", *rest && len ? "\n" : "",
             (int)len, traceback);
    cn_log(CN_LOG_WARN, "event=handler_error model=%s version=%s%s error=%s%s%s", rt->model,
           rt->version, sequence, cn_log_quote(message, first, error, sizeof(error)),
           trace[0] ? " traceback=" : "",
           trace[0] ? cn_log_quote(trace, strlen(trace), quoted_trace, sizeof(quoted_trace)) : "");
}

/* Tables are refusals by the handler, which are nothing to log. */
void
cn_lua_log_error(lua_State *L, lua_State *of)
{
    struct lua_rt *rt = lua_rt_of(L);

    if (lua_type(L, 1) == LUA_TTABLE)
        return;
    if (lua_type(L, 1) != LUA_TSTRING) {
        luaL_tolstring(L, 1, NULL);
        lua_replace(L, 1);
    }
    luaL_traceback(L, of, NULL, L == of); /* 1: without the message handler itself */
    log_error_lines(rt, lua_tostring(L, 1), lua_tostring(L, -1));
    lua_settop(L, 1);
}

/* The message handler of every call: the traceback goes to the log, the error on to the reply. */
static int
on_error(lua_State *L)
{
    cn_lua_log_error(L, L);
    return 1;
}

int
cn_lua_protect(struct lua_rt *rt, lua_CFunction fn, void *arg)
{
    lua_State *L = rt->L;

    lua_settop(L, 0);
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, fn);
    lua_pushlightuserdata(L, arg);
    return lua_pcall(L, 1, 0, 1);
}

/* As cn_lua_protect, with the failure in `err`. */
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
        if (err) /* one line: more stands in the log */
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

/* --- loading --- */

struct open_args {
    struct cn_str config_json;
};

/* The reference of module[name]: a function, or LUA_NOREF when it is not there. */
static int
take_function(lua_State *L, int module, const char *name)
{
    int type = lua_getfield(L, module, name);

    if (type == LUA_TNIL) {
        lua_pop(L, 1);
        return LUA_NOREF;
    }
    if (type != LUA_TFUNCTION)
        luaL_error(L, "%s: %s must be a function, got %s", lua_rt_of(L)->file, name,
                   luaL_typename(L, -1));
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

static void
take_entry_point(struct lua_rt *rt, int module)
{
    lua_State *L = rt->L;

    if ((rt->fn_run = take_function(L, module, "batch")) != LUA_NOREF) {
        rt->mode = LUA_MODE_BATCH;
    } else if ((rt->fn_run = take_function(L, module, "step")) != LUA_NOREF) {
        rt->mode = LUA_MODE_STEP;
    } else if ((rt->fn_run = take_function(L, module, "handle")) != LUA_NOREF) {
        rt->mode = LUA_MODE_HANDLE;
        if (rt->stateful)
            luaL_error(L,
                       "%s: handle(req) gets no state, but the model has sequenceBatching: define "
                       "step(state, req)",
                       rt->file);
    } else {
        luaL_error(L,
                   "%s: the handler has neither step(state, req) nor batch(items) nor "
                   "handle(req)",
                   rt->file);
    }
    rt->base.runs_rows_apart = rt->mode != LUA_MODE_BATCH;
}

static lua_Integer
take_number(lua_State *L, int module, const char *name, lua_Integer fallback)
{
    lua_Integer value = fallback;

    if (lua_getfield(L, module, name) != LUA_TNIL) {
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 0 ||
            lua_tointeger(L, -1) > (lua_Integer)UINT32_MAX)
            luaL_error(L, "%s: %s must be a whole number", lua_rt_of(L)->file, name);
        value = lua_tointeger(L, -1);
    }
    lua_pop(L, 1);
    return value;
}

/* The argument of load(ctx). */
static void
push_context(struct lua_rt *rt, struct cn_str config_json)
{
    lua_State *L = rt->L;

    lua_createtable(L, 0, 5);
    lua_pushstring(L, rt->model);
    lua_setfield(L, -2, "model");
    lua_pushstring(L, rt->version);
    lua_setfield(L, -2, "version");
    lua_pushstring(L, rt->dir);
    lua_setfield(L, -2, "dir");
    lua_pushinteger(L, (lua_Integer)rt->worker_index);
    lua_setfield(L, -2, "worker");
    if (config_json.len == 0)
        lua_newtable(L);
    else if (cn_lua_json_decode(L, config_json, true) < 0)
        luaL_error(L, "the model's configuration: %s", lua_tostring(L, -1));
    lua_setfield(L, -2, "config");
}

static void
call_load(struct lua_rt *rt, int module, struct cn_str config_json)
{
    lua_State *L = rt->L;

    if (lua_getfield(L, module, "load") == LUA_TNIL)
        return;
    if (!lua_isfunction(L, -1))
        luaL_error(L, "%s: load must be a function, got %s", rt->file, luaL_typename(L, -1));
    push_context(rt, config_json);
    lua_call(L, 1, 2);
    if (lua_toboolean(L, -2) || (lua_isnil(L, -2) && lua_isnil(L, -1)))
        return;
    luaL_error(L, "%s: load(ctx) failed: %s", rt->file,
               lua_isnil(L, -1) ? "it returned false" : luaL_tolstring(L, -1, NULL));
}

static int
open_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct open_args *args = lua_touserdata(L, 1);
    lua_Integer api;
    int module;

    cn_lua_open_sandbox(L);
    lua_newtable(L);
    rt->states = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_createtable(L, 1, 0);
    lua_createtable(L, 0, 1);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    rt->newest = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_createtable(L, CN_STOP_CANCELLED, 0);
    for (int reason = CN_STOP_GONE; reason <= CN_STOP_CANCELLED; reason++) {
        lua_pushstring(L, cn_stop_reason_word((enum cn_stop_reason)reason));
        lua_rawseti(L, -2, reason);
    }
    rt->stop_words = luaL_ref(L, LUA_REGISTRYINDEX);

    cn_lua_load_file(L, rt->file);
    lua_call(L, 0, 1);
    module = lua_gettop(L);
    if (!lua_istable(L, module))
        return luaL_error(L,
                          "%s must return a table of functions, got %s (end the file with "
                          "'return M')",
                          rt->file, luaL_typename(L, module));
    api = take_number(L, module, "api", 1);
    if (api != 1)
        return luaL_error(L, "%s: the handler has api = %I; this server supports api = 1", rt->file,
                          api);
    rt->schema = (uint32_t)take_number(L, module, "state_schema", 1);
    take_entry_point(rt, module);
    rt->fn_init = take_function(L, module, "init");
    rt->fn_migrate = take_function(L, module, "migrate");
    if (rt->tensor_state && (rt->fn_init != LUA_NOREF || rt->fn_migrate != LUA_NOREF))
        return luaL_error(L,
                          "%s: init and migrate are for a state that the handler keeps itself, but "
                          "this model's YAML declares its state as tensors: remove these "
                          "functions, or the list of state tensors",
                          rt->file);
    rt->fn_close = take_function(L, module, "close");
    if (rt->fn_close == LUA_NOREF && take_function(L, module, "on_close") != LUA_NOREF)
        return luaL_error(L,
                          "%s: on_close is never called: the function that is called when a "
                          "sequence ends must be named close(seq, state, reason)",
                          rt->file);
    rt->fn_describe = take_function(L, module, "describe");
    call_load(rt, module, args->config_json);
    return 0;
}

static void
runtime_close(struct cn_runtime *base)
{
    struct lua_rt *rt;

    if (!base)
        return;
    rt = lua_rt(base);
    cn_lua_drop_timers(rt);
    if (rt->L)
        lua_close(rt->L);
    cn_slab_fini(&rt->blocks);
    cn_lua_close_torch(rt);
    cn_buf_fini(&rt->scratch);
    cn_reply_fini(&rt->stacked);
    cn_samples_fini(&rt->base.samples);
    cn_free(rt->slots);
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
    struct open_args args = {config_json};
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
    rt->memory_max = load->memory_max_bytes;
    cn_slab_init(&rt->blocks, CN_SLAB_USUAL, rt->memory_max * PAGES_TIMES);
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
    lua_gc(rt->L, LUA_GCINC, 0, COLLECT_STEP, 0);
    cn_lua_disarm(rt); /* loading is under the server's startupTimeout */
    rc = protect_err(rt, open_protected, &args, CN_E_LOAD_FAILED, err);
    if (rc < 0) {
        runtime_close(&rt->base);
        return rc;
    }
    *out = &rt->base;
    return 0;
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

/* migrate(state, from_schema, from_version) -> state; the last is nil but for a swap. The old one
 * is on the top and is replaced. */
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
arm_background(struct lua_rt *rt)
{
    cn_lua_arm_for(rt, rt->step_time_ms ? rt->step_time_ms : BACKGROUND_CALL_MS);
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
        arm_background(rt);
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
    arm_background(rt);
    if (protect_err(rt, close_protected, &args, CN_E_HANDLER_FAILED, &err) < 0)
        cn_log(CN_LOG_WARN, "event=handler_close_failed model=%s version=%s error=%s", rt->model,
               rt->version, cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    cn_lua_disarm(rt);
}

const struct cn_runtime_ops cn_lua_runtime_ops = {
    .name = "lua",
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
