/* handlers/lua/lua_item.c - what steps, batches and open requests have in common: how an item gets
 * its state before a call, and what becomes of its state or failure after it. Worker's thread.
 *
 * A live state is a table in rt->states, and item->state is its reference there. A call gets the
 * table with its request. Afterwards the request's table takes that place, since the handler may
 * have set req.state to another one. A sequence's first call has no reference yet: init(seq) makes
 * the table, and the reference comes only when the call has succeeded, so that a failed first step
 * leaves nothing behind.
 */
#include "handlers/lua/lua_priv.h"

/* Fails if init() returned the table that the newest sequence has as its state. Two sequences with
 * one table would change each other's state until each is read from the store again. The usual
 * mistake is an init() that returns the same table each time, so comparing with the newest one
 * finds it. The state is at the top of the stack. */
static void
check_own_state(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);

    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->newest);
    lua_rawgeti(L, -1, 1);
    if (lua_rawequal(L, -1, -3))
        luaL_error(L,
                   "%s: a new sequence has the same table as another one for its state: make a "
                   "new one for each, within init(seq)",
                   rt->file);
    lua_pop(L, 2);
}

static void
set_newest_state(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, lua_rt_of(L)->newest);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, 1);
    lua_pop(L, 1);
}

void
cn_lua_attach_state(lua_State *L, int request, struct cn_item *item)
{
    struct lua_rt *rt = lua_rt_of(L);

    if (!rt->stateful)
        return;
    if (item->state) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
        lua_rawgeti(L, -1, lua_ref_of_state(item->state));
        lua_remove(L, -2);
    } else if (rt->fn_init != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_init);
        lua_pushvalue(L, request);
        lua_call(L, 1, 1);
        if (!lua_istable(L, -1))
            luaL_error(L,
                       "%s: init(seq) must return the state, a table; got %s (to refuse the "
                       "request: error({ status = 400, message = ... }))",
                       rt->file, luaL_typename(L, -1));
        check_own_state(L);
    } else {
        lua_newtable(L);
    }
    cn_lua_set_request_state(L, request, -1);
    lua_pop(L, 1);
}

void
cn_lua_keep_state(lua_State *L, int request, struct cn_item *item)
{
    struct lua_rt *rt = lua_rt_of(L);

    if (!rt->stateful)
        return;
    request = lua_absindex(L, request);
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
    cn_lua_get_request_state(L, request);
    if (item->state) {
        lua_rawseti(L, -2, lua_ref_of_state(item->state));
    } else {
        check_own_state(L);
        set_newest_state(L);
        item->state = lua_state_of_ref(luaL_ref(L, -2));
    }
    lua_pop(L, 1);
}

bool
cn_lua_settle_failure(struct lua_rt *rt, int rc, struct cn_item *item)
{
    if (rc == LUA_OK && !rt->expired)
        return false;
    if (rc == LUA_OK) /* the handler caught the error that the time limit raised, and returned */
        lua_pushnil(rt->L);
    cn_lua_fail_reply(rt->L, rc, &item->reply);
    return true;
}

bool
cn_lua_fail_when_late(struct cn_item *item, uint64_t now_ms)
{
    if (item->deadline_ms > now_ms)
        return false;
    cn_reply_fail(&item->reply, CN_E_HANDLER_DEADLINE,
                  "the request's deadline passed before its step began");
    return true;
}
