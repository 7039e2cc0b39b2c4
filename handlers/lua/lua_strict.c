/* handlers/lua/lua_strict.c - globals of a handler are read-only once it is loaded. Worker's
 * thread.
 *
 * A forgotten `local` makes a variable that all sequences of a worker share, that other workers do
 * not have, and that is lost with its worker: the answers are right with one client and wrong with
 * two. So assigning a global is an error from the first step on.
 *
 * Lua calls __newindex only for keys that a table lacks. Therefore the globals that the handler
 * made while it was loaded move to a table of their own, from which they can still be read; the
 * libraries stay where they are, so that reading them costs what it did. rawset(_G, ...) still
 * works, for those who mean it, and so does a metatable that the handler itself has given to _G.
 */
#include "handlers/lua/lua_priv.h"

static const char known_key; /* registry: the set of the sandbox's globals */

void
cn_lua_note_globals(lua_State *L)
{
    lua_newtable(L);
    lua_pushglobaltable(L);
    lua_pushnil(L);
    while (lua_next(L, -2)) {
        lua_pop(L, 1);
        lua_pushvalue(L, -1);
        lua_pushboolean(L, 1);
        lua_rawset(L, -5);
    }
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &known_key);
}

/* __newindex of the globals. */
static int
refuse_global(lua_State *L)
{
    const char *name = luaL_tolstring(L, 2, NULL);

    return luaL_error(
        L,
        "the global '%s' is assigned outside of load: all sequences of a worker would "
        "share it, and it is lost with the worker. Write 'local %s' where it begins, "
        "or keep it in the state; 'handler: {strict: false}' in the model's YAML "
        "allows globals",
        name, name);
}

void
cn_lua_lock_globals(lua_State *L)
{
    int globals, known, own;

    lua_pushglobaltable(L);
    globals = lua_gettop(L);
    if (lua_getmetatable(L, globals)) {
        lua_pop(L, 2);
        return;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &known_key);
    known = lua_gettop(L);
    lua_newtable(L);
    own = lua_gettop(L);
    lua_pushnil(L);
    while (lua_next(L, globals)) {
        lua_pushvalue(L, -2);
        if (lua_rawget(L, known) == LUA_TNIL) {
            lua_pop(L, 1);
            lua_pushvalue(L, -2);
            lua_insert(L, -2);
            lua_rawset(L, own);
            lua_pushvalue(L, -1); /* setting a field to nil is allowed during the walk */
            lua_pushnil(L);
            lua_rawset(L, globals);
        } else {
            lua_pop(L, 2);
        }
    }
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, own);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, refuse_global);
    lua_setfield(L, -2, "__newindex");
    lua_setmetatable(L, globals);
    lua_settop(L, globals - 1);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &known_key);
}
