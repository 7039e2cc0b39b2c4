/* handlers/lua/lua_sandbox.c - what a Lua handler can reach. Worker's thread.
 *
 * A handler has neither the io, package and debug libraries nor byte code, which can break the VM,
 * nor finalizers: hooks do not run in them, so the time limit could not stop them. `require` finds
 * files of the model only (lua_module.c). Functions that make coroutines or catch errors are
 * replaced by versions that keep the time limit (lua_protect.c).
 *
 * The process is what protects other models from a hostile handler. The sandbox only keeps honest
 * handlers from mistakes that would cost them their state.
 */
#include "core/log/log.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

/* coroutine.create; upvalue: the library's own. */
static int
sandbox_co_create(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    cn_lua_hook_coroutine(L, lua_tothread(L, -1));
    return 1;
}

/* coroutine.wrap: the thread is the upvalue of the function that it gives. */
static int
sandbox_co_wrap(lua_State *L)
{
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    if (lua_getupvalue(L, -1, 1)) {
        cn_lua_hook_coroutine(L, lua_tothread(L, -1));
        lua_pop(L, 1);
    }
    return 1;
}

/* The message handler for xpcall; its upvalue is the handler's own message handler. When the time
 * is up, that one must not run: Lua switches hooks off while an error of the hook is handled, so
 * nothing could stop it. */
static int
quick_message_handler(lua_State *L)
{
    lua_settop(L, 1);
    if (lua_rt_of(L)->expired)
        return 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 1, 1);
    return 1;
}

/* xpcall; upvalue: the library's own. */
static int
sandbox_xpcall(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, quick_message_handler, 1);
    lua_replace(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

/* load, for text only: byte code can break the VM. */
static int
sandbox_load(lua_State *L)
{
    int n = lua_gettop(L) < 3 ? 3 : lua_gettop(L);

    lua_settop(L, n);
    lua_pushliteral(L, "t");
    lua_replace(L, 3);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
}

static int
sandbox_setmetatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L,
                              "__gc is not available in handlers: use close(seq, state, reason)");
        lua_pop(L, 1);
    }
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
}

static int
sandbox_collectgarbage(lua_State *L)
{
    static const char *const names[] = {"collect", "count", "step", NULL};

    switch (luaL_checkoption(L, 1, "collect", names)) {
    case 1:
        lua_pushnumber(L, (lua_Number)lua_rt_of(L)->memory_used / 1024);
        return 1;
    case 2:
        lua_pushboolean(L, lua_gc(L, LUA_GCSTEP, 0));
        return 1;
    default:
        lua_pushinteger(L, lua_gc(L, LUA_GCCOLLECT));
        return 1;
    }
}

static void
log_line(lua_State *L, enum cn_log_level level, const char *text, size_t len)
{
    struct lua_rt *rt = lua_rt_of(L);
    char quoted[2048];

    cn_log(level, "event=handler_log model=%s version=%s text=%s", rt->model, rt->version,
           cn_log_quote(text, len, quoted, sizeof(quoted)));
}

static int
sandbox_print(lua_State *L)
{
    int n = lua_gettop(L);
    luaL_Buffer line;
    size_t len;
    const char *text;

    luaL_buffinit(L, &line);
    for (int i = 1; i <= n; i++) {
        if (i > 1)
            luaL_addchar(&line, '\t');
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&line);
    }
    luaL_pushresult(&line);
    text = lua_tolstring(L, -1, &len);
    log_line(L, CN_LOG_INFO, text, len);
    return 0;
}

/* continuo.log(level, message) */
static int
sandbox_log(lua_State *L)
{
    int level = cn_log_level_parse(luaL_checkstring(L, 1));
    const char *text;
    size_t len;

    if (level < 0)
        return luaL_error(L, "unknown log level '%s': use error, warn, info or debug",
                          lua_tostring(L, 1));
    if (!cn_log_enabled((enum cn_log_level)level))
        return 0;
    text = luaL_tolstring(L, 2, &len);
    log_line(L, (enum cn_log_level)level, text, len);
    return 0;
}

/* continuo.now(): seconds since 1970. */
static int
sandbox_now(lua_State *L)
{
    lua_pushnumber(L, (lua_Number)cn_wall_ms() / 1000.0);
    return 1;
}

/* --- the globals --- */

/* Replaces table[name] by `fn` with the old value as its upvalue; table on the top. */
static void
wrap_field(lua_State *L, const char *name, lua_CFunction fn)
{
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, fn, 1);
    lua_setfield(L, -2, name);
}

static void
drop_field(lua_State *L, const char *name)
{
    lua_pushnil(L);
    lua_setfield(L, -2, name);
}

static void
open_libraries(lua_State *L)
{
    static const luaL_Reg libraries[] = {
        {LUA_GNAME, luaopen_base},       {LUA_COLIBNAME, luaopen_coroutine},
        {LUA_TABLIBNAME, luaopen_table}, {LUA_STRLIBNAME, luaopen_string},
        {LUA_MATHLIBNAME, luaopen_math}, {LUA_UTF8LIBNAME, luaopen_utf8},
    };
    static const char *const os_kept[] = {"time", "clock", "date", "difftime"};

    for (size_t i = 0; i < sizeof(libraries) / sizeof(libraries[0]); i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    luaL_requiref(L, LUA_OSLIBNAME, luaopen_os, 0);
    lua_newtable(L);
    for (size_t i = 0; i < sizeof(os_kept) / sizeof(os_kept[0]); i++) {
        lua_getfield(L, -2, os_kept[i]);
        lua_setfield(L, -2, os_kept[i]);
    }
    lua_setglobal(L, LUA_OSLIBNAME);
    lua_pop(L, 1);
}

static void
open_globals(lua_State *L)
{
    lua_pushglobaltable(L);
    drop_field(L, "dofile");
    drop_field(L, "loadfile");
    wrap_field(L, "load", sandbox_load);
    wrap_field(L, "xpcall", sandbox_xpcall);
    wrap_field(L, "setmetatable", sandbox_setmetatable);
    lua_pushcfunction(L, sandbox_collectgarbage);
    lua_setfield(L, -2, "collectgarbage");
    lua_pushcfunction(L, sandbox_print);
    lua_setfield(L, -2, "print");
    cn_lua_open_require(L);
    lua_setfield(L, -2, "require");

    lua_getfield(L, -1, LUA_COLIBNAME);
    wrap_field(L, "create", sandbox_co_create);
    wrap_field(L, "wrap", sandbox_co_wrap);
    lua_pop(L, 1);
    lua_getfield(L, -1, LUA_STRLIBNAME);
    drop_field(L, "dump");
    lua_pop(L, 2);
}

static int
null_tostring(lua_State *L)
{
    lua_pushliteral(L, "null");
    return 1;
}

/* The `continuo` table. */
static void
open_continuo(lua_State *L)
{
    lua_newtable(L);

    /* The null value is the only light userdata that a handler sees. */
    lua_pushlightuserdata(L, NULL);
    lua_newtable(L);
    lua_pushcfunction(L, null_tostring);
    lua_setfield(L, -2, "__tostring");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "null");

    cn_lua_open_json(L);
    lua_setfield(L, -2, "json");
    cn_lua_open_array(L);
    lua_setfield(L, -2, "array");
    cn_lua_open_metrics(L);
    lua_setfield(L, -2, "metrics");
    cn_lua_open_timers(L);
    lua_setfield(L, -2, "after");
    lua_pushcfunction(L, cn_lua_stack);
    lua_setfield(L, -2, "stack");
    lua_pushcfunction(L, cn_lua_reply_stack);
    lua_setfield(L, -2, "reply_stack");
    lua_getglobal(L, LUA_STRLIBNAME);
    lua_getfield(L, -1, "pack");
    lua_setfield(L, -3, "pack");
    lua_getfield(L, -1, "unpack");
    lua_setfield(L, -3, "unpack");
    lua_pop(L, 1);
    lua_pushcfunction(L, sandbox_log);
    lua_setfield(L, -2, "log");
    lua_pushcfunction(L, sandbox_now);
    lua_setfield(L, -2, "now");
    lua_setglobal(L, "continuo");
}

void
cn_lua_open_sandbox(lua_State *L)
{
    open_libraries(L);
    open_globals(L);
    open_continuo(L);
    cn_lua_open_tensor(L);
    cn_lua_open_torch(L);
    cn_lua_open_request(L);
    cn_lua_open_state_codec(L);
}
