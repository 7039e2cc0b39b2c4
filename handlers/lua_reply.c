/* handlers/lua_reply.c - what a Lua handler gives back becomes a reply. Worker's thread.
 *
 * A string is the body; a number or boolean its text; a table names what it
 * holds: json, text or body, and status, headers, content_type, end_sequence.
 */
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "handlers/lua_priv.h"
#include "proto/wire.h"

static void
check_size(lua_State *L, const struct cn_buf *buf)
{
    if (buf->failed)
        luaL_error(L, "the answer is over the limit of %I bytes (answerMaxBytes)",
                   (lua_Integer)buf->max_bytes);
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
            cn_buf_printf(out, "%lld", (long long)lua_tointeger(L, index));
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

static bool
is_token(const char *name, size_t len)
{
    static const char allowed[] = "!#$%&'*+-.^_`|~0123456789"
                                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return len > 0 && len <= 256 && strspn(name, allowed) == len;
}

/* Framing is the server's: a handler that set these could end an answer early. */
static bool
is_reserved(const char *name, size_t len)
{
    static const char *const names[] = {"content-length", "transfer-encoding", "connection"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (cn_str_eq_header((struct cn_str){name, len}, cn_str_from(names[i])))
            return true;
    return false;
}

static void
set_headers(lua_State *L, int index, struct cn_reply *reply)
{
    if (lua_type(L, index) != LUA_TTABLE)
        luaL_error(L, "reply.headers must be a table of names and values, got %s",
                   luaL_typename(L, index));
    lua_pushnil(L);
    while (lua_next(L, index)) {
        struct cn_str name, value;

        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "reply.headers: a header's name is a string");
        name.ptr = lua_tolstring(L, -2, &name.len);
        if (!is_token(name.ptr, name.len) || is_reserved(name.ptr, name.len))
            luaL_error(L, "reply.headers: '%s' is not a header that a handler can set", name.ptr);
        if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L, "reply.headers: the value of '%s' must be a string or number, got %s",
                       name.ptr, luaL_typename(L, -1));
        value.ptr = lua_tolstring(L, -1, &value.len);
        for (size_t i = 0; i < value.len; i++)
            if ((unsigned char)value.ptr[i] < 0x20 || value.ptr[i] == 0x7f)
                luaL_error(L, "reply.headers: the value of '%s' has a control character", name.ptr);
        cn_write_str16(&reply->headers, name);
        cn_write_str32(&reply->headers, value);
        reply->n_headers++;
        lua_pop(L, 1);
    }
    if (reply->headers.failed)
        luaL_error(L, "reply.headers are over %d bytes", (int)reply->headers.max_bytes);
}

static void
set_status(lua_State *L, int index, struct cn_reply *reply)
{
    lua_Integer status = lua_isinteger(L, index) ? lua_tointeger(L, index) : 0;

    if (status < 200 || status > 599)
        luaL_error(L, "reply.status must be an integer from 200 to 599, got %s",
                   luaL_tolstring(L, index, NULL));
    reply->status = (uint16_t)status;
}

static void
set_content_type(lua_State *L, int index, struct cn_reply *reply)
{
    const char *text;
    size_t len;

    if (lua_type(L, index) != LUA_TSTRING)
        luaL_error(L, "reply.content_type must be a string, got %s", luaL_typename(L, index));
    text = lua_tolstring(L, index, &len);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            luaL_error(L, "reply.content_type has a control character");
    cn_buf_reset(&reply->content_type);
    if (cn_buf_append(&reply->content_type, text, len) < 0)
        luaL_error(L, "reply.content_type is over %d bytes", (int)reply->content_type.max_bytes);
}

/* One of json, text, body. */
static void
set_content(lua_State *L, const char *key, int index, struct cn_reply *reply)
{
    const char *type = "application/octet-stream";

    if (strcmp(key, "json") == 0) {
        type = "application/json";
        cn_lua_json_encode(L, index, "reply.json", &reply->body);
    } else {
        if (!append_scalar(L, index, &reply->body))
            luaL_error(L, "reply.%s must be a string or number, got %s", key,
                       luaL_typename(L, index));
        if (key[0] == 't')
            type = "text/plain; charset=utf-8";
    }
    check_size(L, &reply->body);
    if (reply->content_type.len == 0)
        cn_buf_puts(&reply->content_type, type);
}

static void
set_table(lua_State *L, int index, struct cn_reply *reply)
{
    const char *content = NULL;

    lua_pushnil(L);
    while (lua_next(L, index)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "[1]";
        int value = lua_gettop(L);

        if (strcmp(key, "json") == 0 || strcmp(key, "text") == 0 || strcmp(key, "body") == 0) {
            if (content)
                luaL_error(L, "a reply has one of json, text and body, this one has %s and %s",
                           content, key);
            content = key; /* lives as long as its table */
            set_content(L, key, value, reply);
        } else if (strcmp(key, "status") == 0) {
            set_status(L, value, reply);
        } else if (strcmp(key, "headers") == 0) {
            set_headers(L, value, reply);
        } else if (strcmp(key, "content_type") == 0) {
            set_content_type(L, value, reply);
        } else if (strcmp(key, "end_sequence") == 0) {
            reply->end_sequence = lua_toboolean(L, value);
        } else {
            luaL_error(L, "unknown key '%s' in a reply: it may have json, text, body, status, "
                          "headers, content_type and end_sequence (to answer with a table as "
                          "JSON: return { json = ... })", key);
        }
        lua_pop(L, 1);
    }
}

void
cn_lua_set_reply(lua_State *L, int index, struct cn_reply *reply)
{
    index = lua_absindex(L, index);
    luaL_checkstack(L, LUA_MINSTACK, "reply");
    if (lua_type(L, index) == LUA_TTABLE)
        set_table(L, index, reply);
    else if (!append_scalar(L, index, &reply->body))
        luaL_error(L, "a reply is a string, a number or a table such as { json = ... }, got %s",
                   luaL_typename(L, index));
    check_size(L, &reply->body);
}

void
cn_lua_add_chunk(lua_State *L, int index, struct cn_reply *reply)
{
    size_t total = 0;
    uint32_t n = reply->n_chunks;
    struct cn_chunk *chunk;

    for (uint32_t i = 0; i < n; i++)
        total += reply->chunks[i].body.len;
    if ((n & (n + 1)) == 0) { /* 0, 1, 3, 7 ...: full; becomes 1, 3, 7, 15 */
        struct cn_chunk *more =
            cn_try_realloc(reply->chunks, (2 * (size_t)n + 1) * sizeof(*more));

        if (!more)
            luaL_error(L, "no memory for another piece of the answer");
        reply->chunks = more;
    }
    chunk = &reply->chunks[n];
    cn_buf_init(&chunk->body, reply->body.max_bytes);
    reply->n_chunks++;
    if (!append_scalar(L, index, &chunk->body))
        luaL_error(L, "a piece of an answer is a string or number, got %s",
                   luaL_typename(L, index));
    check_size(L, &chunk->body);
    if (reply->body.max_bytes && total + chunk->body.len > reply->body.max_bytes) {
        chunk->body.failed = 1;
        check_size(L, &chunk->body);
    }
}

/* --- failures --- */

/* Messages travel in JSON and headers: one line, printable, UTF-8. Cut to `out`. */
static void
clean_text(struct cn_str text, char *out, size_t out_bytes)
{
    size_t n = 0;
    bool utf8;

    while (n < text.len && text.ptr[n] != '\n' && n < out_bytes - 1)
        n++;
    while (n > 0 && n < text.len && ((unsigned char)text.ptr[n] & 0xc0) == 0x80)
        n--; /* not in the middle of a character */
    utf8 = cn_lua_is_utf8(text.ptr, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.ptr[i];

        out[i] = c < 0x20 || c == 0x7f ? ' ' : c >= 0x80 && !utf8 ? '?' : (char)c;
    }
    out[n] = '\0';
}

static int
code_of_status(lua_Integer status)
{
    switch (status) {
    case 404:
        return CN_E_NOT_FOUND;
    case 409:
        return CN_E_CONFLICT;
    case 413:
        return CN_E_TOO_LARGE;
    case 0:
        return CN_E_HANDLER_FAILED;
    }
    return status < 500 ? CN_E_BAD_REQUEST : CN_E_HANDLER_FAILED;
}

void
cn_lua_refuse(lua_State *L, struct cn_reply *reply, struct cn_str message, lua_Integer status)
{
    char text[600];

    if (status != 0 && (status < 400 || status > 599))
        luaL_error(L, "the status of a refusal must be from 400 to 599, got %I", status);
    clean_text(message, text, sizeof(text));
    cn_reply_fail(reply, code_of_status(status), "%s%s", status ? "" : "Prediction failed: ", text);
    reply->status = (uint16_t)status;
}

/* Argument: {message = ..., status = ...}; light userdata: the reply. Raises on other tables. */
static int
refuse_by_table(lua_State *L)
{
    struct cn_reply *reply = lua_touserdata(L, 2);
    struct cn_str message;
    lua_Integer status = 0;

    lua_pushliteral(L, "status");
    lua_rawget(L, 1);
    if (!lua_isnil(L, -1))
        status = luaL_checkinteger(L, -1);
    lua_pushliteral(L, "message");
    if (lua_rawget(L, 1) != LUA_TSTRING)
        return luaL_error(L, "error() was called with a table that has no message");
    message.ptr = lua_tolstring(L, -1, &message.len);
    cn_lua_refuse(L, reply, message, status);
    return 0;
}

void
cn_lua_fail_reply(lua_State *L, int pcall_rc, struct cn_reply *reply)
{
    struct lua_rt *rt = lua_rt_of(L);
    char text[600];

    if (rt->expired) {
        cn_reply_fail(reply, CN_E_HANDLER_DEADLINE,
                      "Prediction failed: %s reached its time limit of %llu ms", rt->file,
                      (unsigned long long)(rt->deadline_ms - rt->started_ms));
    } else if (pcall_rc == LUA_ERRMEM) {
        cn_reply_fail(reply, CN_E_OUT_OF_MEMORY,
                      "Prediction failed: %s and its states reached the memory limit of %zu bytes "
                      "(handler.limits.memoryBytes)", rt->file, rt->memory_max);
    } else if (lua_type(L, -1) == LUA_TTABLE) {
        lua_pushcfunction(L, refuse_by_table);
        lua_pushvalue(L, -2);
        lua_pushlightuserdata(L, reply);
        if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
            cn_reply_fail(reply, CN_E_HANDLER_FAILED,
                          "Prediction failed: %s raised a table without a message", rt->file);
            lua_pop(L, 1);
        }
    } else if (lua_type(L, -1) == LUA_TSTRING) {
        struct cn_str message;

        message.ptr = lua_tolstring(L, -1, &message.len);
        clean_text(message, text, sizeof(text));
        cn_reply_fail(reply, CN_E_HANDLER_FAILED, "Prediction failed: %s", text);
    } else {
        cn_reply_fail(reply, CN_E_HANDLER_FAILED, "Prediction failed: %s raised a %s value",
                      rt->file, luaL_typename(L, -1));
    }
    lua_pop(L, 1);
}
