/* handlers/lua/request/lua_request_methods.c - what a Lua handler does with a request: it answers
 * with req:reply, req:send and so on, or puts the answer off with req:defer. Worker's thread. */
#include "handlers/lua/request/lua_request_priv.h"
#include "handlers/open_item.h"

static struct request *
check_unanswered(lua_State *L)
{
    struct request *req = cn_lua_request_check(L, 1);

    if (req->answered)
        luaL_error(L, "this request is already answered");
    return req;
}

/* Tells the worker that the handler has put something into the reply of an open request. `over`: it
 * was the last piece. */
static void
wake(struct cn_open_item *open, bool over)
{
    open->over = open->over || over;
    cn_open_item_wake(open);
}

static int
end_answer(struct request *req)
{
    req->answered = true;
    if (req->open)
        wake(req->open, true);
    return 0;
}

/* req:reply(value) */
static int
request_reply(lua_State *L)
{
    struct request *req = check_unanswered(L);

    luaL_checkany(L, 2);
    cn_lua_set_reply(L, 2, &req->item->reply);
    return end_answer(req);
}

/* req:finish(): no further response. */
static int
request_finish(lua_State *L)
{
    return end_answer(check_unanswered(L));
}

/* req:fail(message [, status]) */
static int
request_fail(lua_State *L)
{
    struct request *req = check_unanswered(L);
    struct cn_str message;

    message.ptr = luaL_checklstring(L, 2, &message.len);
    cn_lua_refuse(L, 3, message, &req->item->reply);
    return end_answer(req);
}

/* req:send(chunk) */
static int
request_send(lua_State *L)
{
    struct request *req = check_unanswered(L);

    luaL_checkany(L, 2);
    cn_lua_add_chunk(L, 2, &req->item->reply);
    if (req->open)
        wake(req->open, false);
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
        wake(req->open, false);
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
