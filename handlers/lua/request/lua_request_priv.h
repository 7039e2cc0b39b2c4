/* handlers/lua/request/lua_request_priv.h - the request object, for the files of this folder only.
 * Worker's thread. */
#ifndef CN_HANDLERS_LUA_REQUEST_LUA_REQUEST_PRIV_H
#define CN_HANDLERS_LUA_REQUEST_LUA_REQUEST_PRIV_H

#include "core/errors/panic.h"
#include "handlers/lua/lua_priv.h"

#define REQUEST_NAME "continuo.request"
#define REQUEST_MAGIC 0x4c525251u

/* The values that a request keeps. Most requests keep nothing but the state, which is then their
 * one user value. A request that keeps more has a table with all values as its user value. The
 * table is avoided because each step makes a request, and each byte of it is work for the
 * collector. */
enum kept { KEPT_STATE = 1, KEPT_JSON, KEPT_TABLES, KEPT_STOP, KEPT_COUNT = KEPT_STOP };

struct request {
    uint32_t magic;
    bool answered : 1;
    bool fresh : 1;    /* the sequence had no state before */
    bool deferred : 1; /* the handler will answer it after it has returned */
    bool keeps_more : 1;
    /* set once the handler has returned without an answer; `serial` is not checked then */
    struct cn_open_item *open;
    uint64_t serial;
    struct cn_item *item;
};

/* Returns the request at an index at which there can be nothing else. */
static inline struct request *
cn_lua_request_at(lua_State *L, int index)
{
    struct request *req = lua_touserdata(L, index);

    cn_assert(req && req->magic == REQUEST_MAGIC);
    return req;
}

/* Pushes what is kept, or nil. */
void cn_lua_request_get_kept(lua_State *L, int index, enum kept what);
/* Keeps the value on the top, and pops it. */
void cn_lua_request_set_kept(lua_State *L, int index, enum kept what);
/* Returns the request at an index. Raises if there is none, or one of an earlier call.
 * luaL_checkudata looks the name up, which takes time, so it is called only to raise the error. */
struct request *cn_lua_request_check(lua_State *L, int index);

/* lua_request_fields.c: takes the table of methods on the top, in which names that are not
 * fields are looked up, and gives the metatable below it the functions that read and set fields. */
void cn_lua_add_request_fields(lua_State *L);
/* lua_request_methods.c: pushes the table of methods. */
void cn_lua_push_request_methods(lua_State *L);

#endif
