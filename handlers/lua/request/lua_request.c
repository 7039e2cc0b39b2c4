/* handlers/lua/request/lua_request.c - the request as a Lua handler sees it: the object and what it
 * keeps. Worker's thread.
 *
 * A request is one userdata for each item. Its fields (lua_request_fields.c) are made when they are
 * asked for, because most handlers read one or two of them; tables such as headers and inputs are
 * then kept, so that a second look is cheap. The row's bytes belong to the worker and are gone
 * after the call. Therefore a request has the serial number of its call, and each use checks it: a
 * handler that keeps a request gets an error instead of another client's bytes.
 *
 * req:defer() makes a request outlive its call. It then stands for an item of its own
 * (handlers/open_item.h), `open` points to that, and the serial number counts for nothing until the
 * answer is over. */
#include "handlers/lua/request/lua_request_priv.h"
#include "handlers/open_item.h"

void
cn_lua_request_get_kept(lua_State *L, int index, enum kept what)
{
    const struct request *req = cn_lua_request_at(L, index);

    lua_getiuservalue(L, index, 1);
    if (req->keeps_more) {
        lua_rawgeti(L, -1, what);
        lua_remove(L, -2);
    } else if (what != KEPT_STATE) {
        lua_pop(L, 1);
        lua_pushnil(L);
    }
}

void
cn_lua_request_set_kept(lua_State *L, int index, enum kept what)
{
    struct request *req = cn_lua_request_at(L, index);

    index = lua_absindex(L, index);
    if (!req->keeps_more && what != KEPT_STATE) {
        lua_createtable(L, KEPT_COUNT, 0);
        lua_getiuservalue(L, index, 1);
        lua_rawseti(L, -2, KEPT_STATE);
        lua_setiuservalue(L, index, 1);
        req->keeps_more = true;
    }
    if (!req->keeps_more) {
        lua_setiuservalue(L, index, 1);
        return;
    }
    lua_getiuservalue(L, index, 1);
    lua_insert(L, -2);
    lua_rawseti(L, -2, what);
    lua_pop(L, 1);
}

struct request *
cn_lua_request_check(lua_State *L, int index)
{
    struct request *req;

    if (!lua_has_metatable(L, index, lua_rt_of(L)->request_mt))
        luaL_checkudata(L, index, REQUEST_NAME);
    req = cn_lua_request_at(L, index);
    if (!req->open && req->serial != lua_rt_of(L)->call_serial)
        luaL_error(L, "this request has ended: keep what you need from it in the state");
    return req;
}

void
cn_lua_push_request(lua_State *L, struct cn_item *item)
{
    struct request *req = lua_newuserdatauv(L, sizeof(*req), 1);

    *req = (struct request){.magic = REQUEST_MAGIC,
                            .serial = lua_rt_of(L)->call_serial,
                            .fresh = item->state == NULL,
                            .item = item};
    lua_rawgetp(L, LUA_REGISTRYINDEX, lua_rt_of(L)->request_mt);
    lua_setmetatable(L, -2);
}

void
cn_lua_renew_request(lua_State *L, struct cn_item *item)
{
    struct request *req = cn_lua_request_at(L, -1);

    req->serial = lua_rt_of(L)->call_serial;
    req->item = item;
}

struct cn_item *
cn_lua_request_item(lua_State *L, int request)
{
    return cn_lua_request_check(L, request)->item;
}

void
cn_lua_set_request_state(lua_State *L, int request, int state)
{
    request = lua_absindex(L, request);
    lua_pushvalue(L, state);
    cn_lua_request_set_kept(L, request, KEPT_STATE);
}

void
cn_lua_get_request_state(lua_State *L, int request)
{
    cn_lua_request_get_kept(L, request, KEPT_STATE);
}

void
cn_lua_request_set_answered(lua_State *L, int request)
{
    struct request *req = cn_lua_request_check(L, request);

    req->answered = true;
    if (!req->open)
        return;
    req->open->over = true;
    cn_open_item_wake(req->open);
}

bool
cn_lua_request_answered(lua_State *L, int request)
{
    return cn_lua_request_check(L, request)->answered;
}

bool
cn_lua_request_deferred(lua_State *L, int request)
{
    return cn_lua_request_at(L, request)->deferred;
}

void
cn_lua_open_request_as(lua_State *L, int request, struct cn_open_item *open)
{
    struct request *req = cn_lua_request_at(L, request);

    req->open = open;
    req->item = open ? &open->item : NULL;
    /* calls are counted from 1, so no call has this request once it is not open any more */
    req->serial = 0;
}

void
cn_lua_get_request_stop(lua_State *L, int request)
{
    cn_lua_request_get_kept(L, request, KEPT_STOP);
}

void
cn_lua_open_request(lua_State *L)
{
    luaL_newmetatable(L, REQUEST_NAME);
    cn_lua_push_request_methods(L);
    cn_lua_add_request_fields(L);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_rt_of(L)->request_mt = lua_topointer(L, -1);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, lua_rt_of(L)->request_mt);
    lua_pop(L, 1);
}
