/* handlers/lua/lua_load.c - loads a handler. Worker's thread.
 *
 * The handler's file runs once and returns a table of functions. They become references in the
 * registry, so that a call looks up no name. One of batch, step and handle is required, and which
 * of them is there decides how rows are given to the handler (enum lua_mode). All other functions
 * are optional. load(ctx) is called last and may take as long as the model's startupTimeout allows.
 *
 * All of it runs in one protected call: whatever is wrong with the file ends as one error message
 * that names the file, and the runtime is closed.
 */
#include "handlers/lua/lua_priv.h"

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

int
cn_lua_load_handler(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    const struct cn_str *config_json = lua_touserdata(L, 1);
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

    cn_lua_note_globals(L);
    cn_lua_load_file(L, rt->file);
    lua_call(L, 0, 1);
    module = lua_gettop(L);
    if (!lua_istable(L, module))
        return luaL_error(L,
                          "%s must return a table of functions, got %s (end the file with "
                          "'return M')",
                          rt->file, luaL_typename(L, module));
    cn_lua_check_names(L, module);
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
    rt->fn_describe = take_function(L, module, "describe");
    call_load(rt, module, *config_json);
    if (rt->strict)
        cn_lua_lock_globals(L);
    return 0;
}
