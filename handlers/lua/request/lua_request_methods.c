/* handlers/lua/request/lua_request_methods.c - what a Lua handler does with a request: it answers
 * with req:reply, req:send and so on, or puts the answer off with req:defer. Worker's thread. */
#include "handlers/lua/request/lua_request_priv.h"
#include "handlers/open_item.h"
#include "handlers/reply.h"

static struct request *
check_unanswered(lua_State *L)
{
    struct request *req = cn_lua_request_check(L, 1);

    if (req->answered)
        luaL_error(L, "this request is already answered");
    return req;
}

/* The request at index 1 has its whole answer. */
static int
end_answer(lua_State *L)
{
    cn_lua_request_set_answered(L, 1);
    return 0;
}

/* req:reply(value) */
static int
request_reply(lua_State *L)
{
    struct request *req = check_unanswered(L);

    luaL_checkany(L, 2);
    cn_lua_set_reply(L, 2, &req->item->reply);
    return end_answer(L);
}

/* req:finish(): no further response. */
static int
request_finish(lua_State *L)
{
    cn_reply_begin(&check_unanswered(L)->item->reply);
    return end_answer(L);
}

/* req:fail(message [, status]) */
static int
request_fail(lua_State *L)
{
    struct request *req = check_unanswered(L);
    struct cn_str message;

    message.ptr = luaL_checklstring(L, 2, &message.len);
    cn_lua_refuse(L, 3, message, &req->item->reply);
    return end_answer(L);
}

/* req:send(chunk) */
static int
request_send(lua_State *L)
{
    struct request *req = check_unanswered(L);

    luaL_checkany(L, 2);
    cn_lua_add_chunk(L, 2, &req->item->reply);
    if (req->open)
        cn_open_item_wake(req->open);
    return 0;
}

/* req:respond(reply) -> bytes that wait to leave; or nil and why the answer is to end */
static int
request_respond(lua_State *L)
{
    struct request *req = check_unanswered(L);

    luaL_checkany(L, 2);
    cn_lua_add_piece(L, 2, &req->item->reply);
    if (req->open)
        cn_open_item_wake(req->open);
    if (req->item->stop != CN_STOP_NONE) {
        lua_pushnil(L);
        lua_pushstring(L, cn_stop_reason_word(req->item->stop));
        return 2;
    }
    lua_pushinteger(L, (lua_Integer)req->item->reply.chunk_bytes);
    return 1;
}

/* req:defer([function(req, reason)]) */
static int
request_defer(lua_State *L)
{
    struct request *req = check_unanswered(L);

    if (!lua_isnoneornil(L, 2))
        luaL_checktype(L, 2, LUA_TFUNCTION);
    if (req->item->stop != CN_STOP_NONE && !req->open)
        return luaL_error(L, "this request has been told to end (%s), so it cannot be deferred",
                          cn_stop_reason_word(req->item->stop));
    lua_settop(L, 2);
    cn_lua_request_set_kept(L, 1, KEPT_STOP);
    req->deferred = true;
    return 0;
}

void
cn_lua_push_request_methods(lua_State *L)
{
    static const luaL_Reg methods[] = {{"reply", request_reply},
                                       {"fail", request_fail},
                                       {"send", request_send},
                                       {"respond", request_respond},
                                       {"defer", request_defer},
                                       {"finish", request_finish},
                                       {NULL, NULL}};

    luaL_newlib(L, methods);
}
