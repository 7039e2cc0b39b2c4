/* handlers/lua/lua_reply.c - makes a reply of what a Lua handler gives back. Worker's thread.
 *
 * A string is the body; a number or boolean is written as text. A table has one of json, text, body
 * and outputs, and besides that status, headers, content_type and end_sequence. Unknown keys are
 * errors, because a misspelt one would otherwise be ignored.
 *
 * A failure has three sources: the handler refuses a request with a message and a status, the
 * handler has a mistake, or the VM stops it because its time or memory is used up. Each has its own
 * error code, so that a client and the log can tell them apart (cn_lua_fail_reply).
 */
#include <string.h>

#include "handlers/lua/lua_priv.h"
#include "handlers/reply.h"

/* Raises the error of a check in reply.c. */
static void
check(lua_State *L, int rc, const struct cn_error *err)
{
    if (rc < 0)
        luaL_error(L, "reply: %s", err->message);
}

static void
check_size(lua_State *L, const struct cn_reply *reply)
{
    struct cn_error err;

    check(L, cn_reply_check_body(reply, &err), &err);
}

/* Strings, numbers and booleans as bytes; false for other types. */
static bool
append_scalar(lua_State *L, int index, struct cn_buf *out)
{
    const char *text;
    size_t len;

    switch (lua_type(L, index)) {
    case LUA_TSTRING:
        text = lua_tolstring(L, index, &len);
        cn_buf_append(out, text, len);
        return true;
    case LUA_TNUMBER: /* lua_tolstring would turn the handler's own number into a string */
        if (lua_isinteger(L, index)) {
            cn_buf_put_int(out, lua_tointeger(L, index));
        } else {
            text = luaL_tolstring(L, index, &len);
            cn_buf_append(out, text, len);
            lua_pop(L, 1);
        }
        return true;
    case LUA_TBOOLEAN:
        cn_buf_puts(out, lua_toboolean(L, index) ? "true" : "false");
        return true;
    }
    return false;
}

static void
set_headers(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_str name, value;
    struct cn_error err;

    if (lua_type(L, index) != LUA_TTABLE)
        luaL_error(L, "reply.headers must be a table of names and values, got %s",
                   luaL_typename(L, index));
    lua_pushnil(L);
    while (lua_next(L, index)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "reply.headers: the name of a header must be a string");
        name.ptr = lua_tolstring(L, -2, &name.len);
        if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L, "reply.headers: the value of '%s' must be a string or number, got %s",
                       name.ptr, luaL_typename(L, -1));
        value.ptr = lua_tolstring(L, -1, &value.len);
        check(L, cn_reply_put_header(reply, name, value, &err), &err);
        lua_pop(L, 1);
    }
}

static void
set_status(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_error err;

    if (!lua_isinteger(L, index))
        luaL_error(L, "reply.status must be an integer, got %s %s", luaL_typename(L, index),
                   luaL_tolstring(L, index, NULL));
    check(L, cn_reply_set_status(reply, lua_tointeger(L, index), &err), &err);
}

static void
set_content_type(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_error err;
    struct cn_str type;

    if (lua_type(L, index) != LUA_TSTRING)
        luaL_error(L, "reply.content_type must be a string, got %s", luaL_typename(L, index));
    type.ptr = lua_tolstring(L, index, &type.len);
    check(L, cn_reply_set_content_type(reply, type, &err), &err);
}

/* Nothing else is taken for true: not 0, and not the null of somebody's JSON. */
static bool
read_flag(lua_State *L, const char *key, int index)
{
    if (lua_type(L, index) != LUA_TBOOLEAN)
        luaL_error(L, "reply.%s must be true or false, got %s", key,
                   luaL_tolstring(L, index, NULL));
    return lua_toboolean(L, index);
}

/* Sets the content of the reply; `key` is json, text, body or outputs. */
static void
set_content(lua_State *L, const char *key, int index, struct cn_reply *reply)
{
    const char *type = "application/octet-stream";

    if (strcmp(key, "outputs") == 0) {
        type = CN_TENSORS_TYPE;
        cn_lua_set_outputs(L, index, reply);
    } else if (strcmp(key, "json") == 0) {
        type = "application/json";
        cn_lua_json_encode(L, index, "reply.json", &reply->body);
    } else {
        if (!append_scalar(L, index, &reply->body))
            luaL_error(L, "reply.%s must be a string or number, got %s", key,
                       luaL_typename(L, index));
        if (key[0] == 't')
            type = "text/plain; charset=utf-8";
    }
    check_size(L, reply);
    if (reply->content_type.len == 0 && !reply->head_out)
        cn_buf_puts(&reply->content_type, type);
}

/* Returns the key as a constant. The key's own text may be freed while the handler's metamethods
 * run. */
static const char *
content_key(const char *key)
{
    static const char *const keys[] = {"json", "text", "body", "outputs"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(key, keys[i]) == 0)
            return keys[i];
    return NULL;
}

static void
set_table(lua_State *L, int index, struct cn_reply *reply)
{
    const char *content = NULL, *of_content;

    lua_pushnil(L);
    while (lua_next(L, index)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int value = lua_gettop(L);

        if ((of_content = content_key(key))) {
            if (content)
                luaL_error(L,
                           "a reply may have only one of json, text, body and outputs; this one "
                           "has %s and %s",
                           content, key);
            content = of_content;
            set_content(L, content, value, reply);
        } else if (strcmp(key, "status") == 0) {
            set_status(L, value, reply);
        } else if (strcmp(key, "headers") == 0) {
            set_headers(L, value, reply);
        } else if (strcmp(key, "content_type") == 0) {
            set_content_type(L, value, reply);
        } else if (strcmp(key, "end_sequence") == 0) {
            reply->end_sequence = read_flag(L, key, value);
        } else if (strcmp(key, "stop_streams") == 0) {
            reply->stop_streams = read_flag(L, key, value);
        } else {
            luaL_error(
                L,
                "unknown key '%s' in a reply: it may have json, text, body, outputs, status, "
                "headers, content_type, end_sequence and stop_streams (to answer with a table as "
                "JSON: return { json = ... })",
                key);
        }
        lua_pop(L, 1);
    }
}

void
cn_lua_set_reply(lua_State *L, int index, struct cn_reply *reply)
{
    index = lua_absindex(L, index);
    luaL_checkstack(L, LUA_MINSTACK, "reply");
    cn_reply_begin(reply); /* there may have been an attempt whose error the handler caught */
    if (lua_type(L, index) == LUA_TTABLE)
        set_table(L, index, reply);
    else if (!append_scalar(L, index, &reply->body))
        luaL_error(L,
                   "a reply must be a string, a number or a table such as { json = ... }, got %s",
                   luaL_typename(L, index));
    check_size(L, reply);
}

void
cn_lua_add_chunk(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_error err;
    struct cn_str bytes;

    index = lua_absindex(L, index);
    if (lua_type(L, index) != LUA_TSTRING && lua_type(L, index) != LUA_TNUMBER)
        luaL_error(L, "a piece of an answer must be a string or number, got %s",
                   luaL_typename(L, index));
    /* converts a number in place, which changes nothing but this argument */
    bytes.ptr = lua_tolstring(L, index, &bytes.len);
    check(L, cn_reply_add_chunk(reply, bytes, &err), &err);
}

void
cn_lua_add_piece(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_error err;

    cn_lua_set_reply(L, index, reply);
    if (reply->end_sequence || reply->stop_streams)
        luaL_error(L, "end_sequence and stop_streams belong to the answer, not to a piece of it");
    check(L, cn_reply_body_to_chunk(reply, &err), &err);
}

/* --- failures --- */

void
cn_lua_refuse(lua_State *L, int status, struct cn_str message, struct cn_reply *reply)
{
    lua_Integer number = 0;
    int ok = 1;

    if (!lua_isnoneornil(L, status))
        number = lua_tointegerx(L, status, &ok);
    if (!ok || (number != 0 && (number < 400 || number > 599)))
        luaL_error(L, "the status of a refusal must be from 400 to 599, got %s",
                   luaL_tolstring(L, status, NULL));
    cn_reply_refuse(reply, number, message);
}

/* Refuses the request with the table {message = ..., status = ...}, the first argument. The second
 * one is the reply, as a light userdata. Raises on other tables. */
static int
refuse_by_table(lua_State *L)
{
    struct cn_reply *reply = lua_touserdata(L, 2);
    struct cn_str message;

    lua_pushliteral(L, "message");
    if (lua_rawget(L, 1) != LUA_TSTRING)
        return luaL_error(L, "it has no message");
    message.ptr = lua_tolstring(L, -1, &message.len);
    lua_pushliteral(L, "status");
    lua_rawget(L, 1);
    cn_lua_refuse(L, lua_gettop(L), message, reply);
    return 0;
}

/* The string library's buffers raise this as an ordinary error. */
static bool
is_no_memory(lua_State *L)
{
    return lua_type(L, -1) == LUA_TSTRING && strcmp(lua_tostring(L, -1), "not enough memory") == 0;
}

void
cn_lua_fail_reply(lua_State *L, int pcall_rc, struct cn_reply *reply)
{
    struct lua_rt *rt = lua_rt_of(L);

    if (rt->expired) {
        cn_reply_fail(reply, CN_E_HANDLER_DEADLINE,
                      "Prediction failed: %s reached its time limit of %llu ms", rt->file,
                      (unsigned long long)(rt->deadline_ms - rt->started_ms));
    } else if (pcall_rc == LUA_ERRMEM || is_no_memory(L)) {
        cn_reply_fail(reply, CN_E_OUT_OF_MEMORY,
                      "Prediction failed: %s and its states reached the memory limit of %zu bytes "
                      "(handler.limits.memoryBytes)",
                      rt->file, rt->memory_max);
    } else if (lua_type(L, -1) == LUA_TTABLE) {
        lua_pushcfunction(L, refuse_by_table);
        lua_pushvalue(L, -2);
        lua_pushlightuserdata(L, reply);
        if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
            cn_reply_fail(reply, CN_E_HANDLER_FAILED, "Prediction failed: %s raised a table: %s",
                          rt->file, lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?");
            lua_pop(L, 1);
        }
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        struct cn_str message;

        message.ptr = lua_tolstring(L, -1, &message.len);
        cn_reply_refuse(reply, 0, message);
    } else {
        cn_reply_fail(reply, CN_E_HANDLER_FAILED, "Prediction failed: %s raised a %s value",
                      rt->file, luaL_typename(L, -1));
    }
    lua_pop(L, 1);
}
