/* handlers/lua/request/lua_request_fields.c - what a Lua handler reads of a request, and what it
 * sets: req.body, req.headers, req.state and so on. Worker's thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "handlers/lua/request/lua_request_priv.h"
#include "handlers/reply.h"

enum field {
    FIELD_BODY = 1,
    FIELD_TEXT,
    FIELD_JSON,
    FIELD_PARTS,
    FIELD_HEADERS,
    FIELD_INPUTS,
    FIELD_PARAMETERS,
    FIELD_SEQUENCE_ID,
    FIELD_REQUEST_ID,
    FIELD_START,
    FIELD_END,
    FIELD_STEP,
    FIELD_DEADLINE,
    FIELD_CANCELLED,
    FIELD_EXPLAIN,
    FIELD_STATE,
    FIELD_REQ
};

static void
push_str(lua_State *L, struct cn_str text)
{
    lua_pushlstring(L, text.ptr ? text.ptr : "", text.len);
}

static int
push_text(lua_State *L, const struct cn_row *row)
{
    struct cn_str body = cn_row_body(row);

    if (!cn_utf8_is_valid(body))
        cn_lua_client_error(L, 400, "the request's body is not UTF-8 text");
    push_str(L, body);
    return 1;
}

static int
push_json(lua_State *L, const struct cn_row *row)
{
    cn_lua_request_get_kept(L, 1, KEPT_JSON);
    if (!lua_isnil(L, -1)) /* JSON's null is not nil */
        return 1;
    if (cn_lua_json_decode(L, cn_row_body(row), false) < 0)
        cn_lua_client_error(L, 400, "the request's body is not valid JSON: %s",
                            lua_tostring(L, -1));
    lua_pushvalue(L, -1);
    cn_lua_request_set_kept(L, 1, KEPT_JSON);
    return 1;
}

/* Pushes the table that is kept under `name`. Returns true if it was not there: then a new one is
 * pushed, and the caller fills it. */
static bool
open_cached(lua_State *L, const char *name)
{
    cn_lua_request_get_kept(L, 1, KEPT_TABLES);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        cn_lua_request_set_kept(L, 1, KEPT_TABLES);
    }
    if (lua_getfield(L, -1, name) == LUA_TTABLE) {
        lua_remove(L, -2);
        return false;
    }
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, name);
    lua_remove(L, -2);
    return true;
}

/* parts[i] in the order they came; parts.name: the last of that name, as in TorchServe. */
static int
push_parts(lua_State *L, const struct cn_row *row)
{
    if (!open_cached(L, "parts"))
        return 1;
    for (uint32_t i = 0; i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];

        lua_createtable(L, 0, 3);
        push_str(L, part->name);
        lua_setfield(L, -2, "name");
        push_str(L, part->data);
        lua_setfield(L, -2, "data");
        if (part->content_type.len > 0) {
            push_str(L, part->content_type);
            lua_setfield(L, -2, "content_type");
        }
        push_str(L, part->name);
        lua_pushvalue(L, -2);
        lua_rawset(L, -4);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    return 1;
}

/* What a v2 request says besides its tensors, by name: strings, numbers, booleans. */
static int
push_parameters(lua_State *L, const struct cn_row *row)
{
    if (!open_cached(L, "parameters"))
        return 1;
    for (uint32_t i = 0; i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];
        struct cn_str type = part->content_type;

        if (type.len < 10 || memcmp(type.ptr, "parameter/", 10) != 0)
            continue;
        push_str(L, part->name);
        push_str(L, part->data);
        type = (struct cn_str){type.ptr + 10, type.len - 10};
        if (cn_str_eq(type, CN_STR("bool")))
            lua_pushboolean(L, cn_str_eq(part->data, CN_STR("true")));
        else if (cn_str_eq(type, CN_STR("int64")))
            lua_pushinteger(L, strtoll(lua_tostring(L, -1), NULL, 10));
        else if (cn_str_eq(type, CN_STR("double")))
            lua_pushnumber(L, strtod(lua_tostring(L, -1), NULL)); /* infinities and NaN, too */
        else
            lua_pushvalue(L, -1);
        lua_remove(L, -2);
        lua_rawset(L, -3);
    }
    return 1;
}

/* Finds headers[name] if the name is spelled otherwise than the client spelled it. */
static int
headers_index(lua_State *L)
{
    struct cn_str wanted, name;

    if (lua_type(L, 2) != LUA_TSTRING)
        return 0;
    wanted.ptr = lua_tolstring(L, 2, &wanted.len);
    lua_pushnil(L);
    while (lua_next(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING) { /* other keys were set by the handler */
            name.ptr = lua_tolstring(L, -2, &name.len);
            if (cn_str_eq_header(name, wanted))
                return 1;
        }
        lua_pop(L, 1);
    }
    return 0;
}

static int
push_headers(lua_State *L, const struct cn_row *row)
{
    if (!open_cached(L, "headers"))
        return 1;
    /* backwards, so that of several headers with one name the first one counts */
    for (uint32_t i = row->n_headers; i-- > 0;) {
        push_str(L, row->headers[i].name);
        push_str(L, row->headers[i].value);
        lua_rawset(L, -3);
    }
    luaL_setmetatable(L, REQUEST_NAME ".headers");
    return 1;
}

static int
push_deadline(lua_State *L, const struct cn_item *item)
{
    uint64_t now = cn_now_ms();

    if (item->deadline_ms == CN_NEVER)
        lua_pushnumber(L, (lua_Number)INFINITY);
    else
        lua_pushnumber(L, item->deadline_ms > now ? (lua_Number)(item->deadline_ms - now) / 1000.0
                                                  : 0.0);
    return 1;
}

static int
push_flag(lua_State *L, bool flag)
{
    lua_pushboolean(L, flag);
    return 1;
}

/* req.name; upvalue 1: names to numbers of fields, or methods. */
static int
request_index(lua_State *L)
{
    struct request *req = cn_lua_request_check(L, 1);
    const struct cn_item *item = req->item;
    const struct cn_row *row = item->row;

    lua_pushvalue(L, 2);
    if (lua_rawget(L, lua_upvalueindex(1)) != LUA_TNUMBER)
        return 1; /* a method, or nil */
    switch ((enum field)lua_tointeger(L, -1)) {
    case FIELD_BODY:
        push_str(L, cn_row_body(row));
        return 1;
    case FIELD_TEXT:
        return push_text(L, row);
    case FIELD_JSON:
        return push_json(L, row);
    case FIELD_PARTS:
        return push_parts(L, row);
    case FIELD_HEADERS:
        return push_headers(L, row);
    case FIELD_INPUTS:
        if (open_cached(L, "inputs"))
            cn_lua_fill_inputs(L, row);
        return 1;
    case FIELD_PARAMETERS:
        return push_parameters(L, row);
    case FIELD_SEQUENCE_ID:
        if (!(row->flags & CN_ROW_STATEFUL))
            return 0;
        push_str(L, row->sequence_id);
        return 1;
    case FIELD_REQUEST_ID:
        push_str(L, row->request_id);
        return 1;
    case FIELD_START:
        return push_flag(L, req->fresh);
    case FIELD_END:
        return push_flag(L, row->flags & CN_ROW_END);
    case FIELD_STEP:
        lua_pushinteger(L, (lua_Integer)item->step);
        return 1;
    case FIELD_DEADLINE:
        return push_deadline(L, item);
    case FIELD_CANCELLED:
        return push_flag(L, item->stop != CN_STOP_NONE);
    case FIELD_EXPLAIN:
        return push_flag(L, row->flags & CN_ROW_EXPLAIN);
    case FIELD_STATE:
        cn_lua_request_get_kept(L, 1, KEPT_STATE);
        return 1;
    case FIELD_REQ:
        lua_settop(L, 1);
        return 1;
    }
    return 0;
}

/* Only the state can be replaced. */
static int
request_newindex(lua_State *L)
{
    cn_lua_request_check(L, 1);
    if (lua_type(L, 2) != LUA_TSTRING || strcmp(lua_tostring(L, 2), "state") != 0)
        return luaL_error(L, "the field '%s' of a request cannot be set (only state can)",
                          luaL_tolstring(L, 2, NULL));
    if (lua_rt_of(L)->tensor_state)
        return luaL_error(L, "the model declares its state as tensors: return the new ones in "
                             "outputs instead of setting req.state");
    if (!lua_istable(L, 3))
        return luaL_error(L, "a state must be a table, got %s ({} is an empty one)",
                          luaL_typename(L, 3));
    lua_settop(L, 3);
    cn_lua_request_set_kept(L, 1, KEPT_STATE);
    return 0;
}

void
cn_lua_add_request_fields(lua_State *L)
{
    static const struct {
        const char *name;
        enum field field;
    } fields[] = {
        {"body", FIELD_BODY},
        {"text", FIELD_TEXT},
        {"json", FIELD_JSON},
        {"parts", FIELD_PARTS},
        {"headers", FIELD_HEADERS},
        {"inputs", FIELD_INPUTS},
        {"parameters", FIELD_PARAMETERS},
        {"sequence_id", FIELD_SEQUENCE_ID},
        {"request_id", FIELD_REQUEST_ID},
        {"start", FIELD_START},
        {"end", FIELD_END},
        {"end_", FIELD_END},
        {"step", FIELD_STEP},
        {"deadline", FIELD_DEADLINE},
        {"cancelled", FIELD_CANCELLED},
        {"explain", FIELD_EXPLAIN},
        {"state", FIELD_STATE},
        {"req", FIELD_REQ},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        lua_pushinteger(L, (lua_Integer)fields[i].field);
        lua_setfield(L, -2, fields[i].name);
    }
    lua_pushcclosure(L, request_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, request_newindex);
    lua_setfield(L, -2, "__newindex");

    luaL_newmetatable(L, REQUEST_NAME ".headers");
    lua_pushcfunction(L, headers_index);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
