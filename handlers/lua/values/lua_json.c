/* handlers/lua/values/lua_json.c - JSON to Lua values (parsed by jansson) and back. Worker's
 * thread.
 *
 * Integers stay integers and floats stay floats. JSON's null becomes continuo.null, since a nil in
 * a table would be a hole. A list gets a metatable that marks it, so that an empty list does not
 * come back as {}. Objects are written with their keys sorted: Lua's own order differs from process
 * to process, and a step that is run again must give the same bytes.
 *
 * Lua raises errors by longjmp, which frees nothing of C. Therefore a parsed document is held by a
 * userdata whose __gc frees it, and text is written into a buffer that the runtime owns.
 */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/utf8.h"
#include "handlers/lua/lua_priv.h"

#define JSON_DEPTH_MAX 128
#define PATH_SHOWN_MAX 240 /* bytes of a path that a message of 512 bytes shows */
#define HOLDER_NAME "continuo.json_holder"
#define ARRAY_MT_NAME "continuo.json_array"

/* --- the array mark --- */

bool
cn_lua_is_array(lua_State *L, int index)
{
    return lua_has_metatable(L, index, lua_rt_of(L)->array_mt);
}

void
cn_lua_mark_array(lua_State *L)
{
    luaL_setmetatable(L, ARRAY_MT_NAME);
}

/* continuo.json.array(t): marks t, or a new table, as a list. */
static int
lua_json_array(lua_State *L)
{
    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (lua_getmetatable(L, 1) && lua_topointer(L, -1) != lua_rt_of(L)->array_mt)
        return luaL_error(L, "a table with a metatable of its own cannot be a JSON array");
    lua_settop(L, 1);
    cn_lua_mark_array(L);
    return 1;
}

/* --- reading --- */

/* Holds a parsed document, so that the collector frees it when a push runs out of memory. */
static int
holder_gc(lua_State *L)
{
    json_t **holder = luaL_checkudata(L, 1, HOLDER_NAME);

    json_decref(*holder);
    *holder = NULL;
    return 0;
}

/* Pushes a value. Returns false, and pushes nothing, for a missing one; null is a missing one if
 * `null_is_nil`. */
static bool
push_value(lua_State *L, json_t *value, bool null_is_nil)
{
    const char *key;
    json_t *item;
    size_t i;

    luaL_checkstack(L, 6, "JSON is nested too deeply");
    switch (json_typeof(value)) {
    case JSON_NULL:
        if (null_is_nil)
            return false;
        lua_pushlightuserdata(L, NULL);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        lua_pushboolean(L, json_is_true(value));
        return true;
    case JSON_INTEGER:
        lua_pushinteger(L, json_integer_value(value));
        return true;
    case JSON_REAL:
        lua_pushnumber(L, json_real_value(value));
        return true;
    case JSON_STRING:
        lua_pushlstring(L, json_string_value(value), json_string_length(value));
        return true;
    case JSON_ARRAY:
        lua_createtable(L, (int)json_array_size(value), 0);
        cn_lua_mark_array(L);
        json_array_foreach(value, i, item)
        {
            push_value(L, item, false); /* a hole would end the list */
            lua_rawseti(L, -2, (lua_Integer)i + 1);
        }
        return true;
    case JSON_OBJECT:
        lua_createtable(L, 0, (int)json_object_size(value));
        json_object_foreach(value, key, item)
        {
            lua_pushstring(L, key);
            if (push_value(L, item, null_is_nil))
                lua_rawset(L, -3);
            else
                lua_pop(L, 1);
        }
        return true;
    }
    return false;
}

/* jansson reads up to 2048 levels, which is too deep for this file's recursion and for Lua's
 * stack. */
static bool
is_too_deep(json_t *value, int depth)
{
    const char *key;
    json_t *item;
    size_t i;

    if (depth > JSON_DEPTH_MAX)
        return true;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) if (is_too_deep(item, depth + 1)) return true;
    } else if (json_is_object(value)) {
        json_object_foreach(value, key, item) if (is_too_deep(item, depth + 1)) return true;
    }
    return false;
}

int
cn_lua_json_decode(lua_State *L, struct cn_str text, bool null_is_nil)
{
    json_error_t why;
    json_t **holder = lua_newuserdatauv(L, sizeof(*holder), 0);

    *holder = NULL;
    luaL_setmetatable(L, HOLDER_NAME);
    *holder =
        json_loadb(text.ptr ? text.ptr : "", text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!*holder || is_too_deep(*holder, 1)) {
        if (*holder)
            lua_pushfstring(L, "nested deeper than %d", JSON_DEPTH_MAX);
        else
            lua_pushfstring(L, "line %d, column %d: %s", why.line, why.column, why.text);
        lua_replace(L, -2); /* the holder goes to the collector */
        return -1;
    }
    if (!push_value(L, *holder, null_is_nil))
        lua_pushnil(L);
    json_decref(*holder);
    *holder = NULL;
    lua_replace(L, -2);
    return 0;
}

/* continuo.json.decode(text): the value, or nil and why not. */
static int
lua_json_decode(lua_State *L)
{
    struct cn_str text;

    text.ptr = luaL_checklstring(L, 1, &text.len);
    if (cn_lua_json_decode(L, text, false) == 0)
        return 1;
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
}

/* --- writing --- */

/* Where a value stands, for messages: a chain on the C stack. */
struct path {
    const struct path *up;
    const char *name; /* NULL: an index */
    lua_Integer index;
};

static void
add_path(luaL_Buffer *out, const struct path *path)
{
    char number[32];

    if (path->up)
        add_path(out, path->up);
    if (path->name) {
        if (path->up)
            luaL_addchar(out, '.');
        luaL_addstring(out, path->name);
    } else {
        snprintf(number, sizeof(number), "[%lld]", (long long)path->index);
        luaL_addstring(out, number);
    }
}

_Noreturn void
cn_lua_path_error(lua_State *L, const char *what)
{
    struct cn_str path;
    size_t tail;

    path.ptr = lua_tolstring(L, -1, &path.len);
    if (path.len > PATH_SHOWN_MAX) {
        tail = path.len - PATH_SHOWN_MAX / 2;
        while (tail < path.len && ((unsigned char)path.ptr[tail] & 0xc0) == 0x80)
            tail++; /* not from within a character */
        lua_pushlstring(L, path.ptr, cn_utf8_cut(path, PATH_SHOWN_MAX / 2));
        lua_pushliteral(L, " ... ");
        lua_pushlstring(L, path.ptr + tail, path.len - tail);
        lua_concat(L, 3);
    }
    lua_pushliteral(L, ": ");
    lua_pushstring(L, what);
    lua_concat(L, 3);
    lua_error(L);
    __builtin_unreachable();
}

static _Noreturn void
encode_error(lua_State *L, const struct path *path, const char *what)
{
    luaL_Buffer text;

    luaL_buffinit(L, &text);
    add_path(&text, path);
    luaL_pushresult(&text);
    cn_lua_path_error(L, what);
}

static void
write_string(lua_State *L, const struct path *path, const char *text, size_t len,
             struct cn_buf *out)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;

    if (!cn_utf8_is_valid((struct cn_str){text, len}))
        encode_error(L, path, "the string is not UTF-8, so it cannot be part of JSON");
    cn_buf_append(out, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        const char *brief = c == '"'    ? "\\\""
                            : c == '\\' ? "\\\\"
                            : c == '\n' ? "\\n"
                            : c == '\r' ? "\\r"
                            : c == '\t' ? "\\t"
                                        : NULL;

        if (c >= 0x20 && !brief)
            continue;
        cn_buf_append(out, text + from, i - from);
        cn_buf_append(out, brief ? brief : escape, brief ? 2 : 6);
        from = i + 1;
    }
    cn_buf_append(out, text + from, len - from);
    cn_buf_append(out, "\"", 1);
}

static void
write_float(lua_State *L, const struct path *path, double value, struct cn_buf *out)
{
    if (!isfinite(value))
        encode_error(L, path,
                     isnan(value) ? "nan is not a JSON number" : "inf is not a JSON number");
    cn_buf_put_double(out, value);
}

static void write_value(lua_State *L, int index, const struct path *path, int depth,
                        struct cn_buf *out);

struct json_key {
    const char *text;
    size_t len;
};

static int
compare_keys(const void *a, const void *b)
{
    const struct json_key *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Pushes a copy of the table at `index`. If that is a weak table, the collector could otherwise
 * empty it, and free its keys, while it is written. */
static void
push_strong(lua_State *L, int index, lua_Integer count)
{
    lua_createtable(L, 0, count < INT_MAX ? (int)count : INT_MAX);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
    }
}

static void
write_object(lua_State *L, int index, lua_Integer count, const struct path *path, int depth,
             struct cn_buf *out)
{
    const int top = lua_gettop(L);
    struct json_key *keys;
    lua_Integer n = 0;

    if (lua_getmetatable(L, index)) {
        push_strong(L, index, count);
        index = lua_gettop(L);
    }
    keys = lua_newuserdatauv(L, (size_t)(count ? count : 1) * sizeof(*keys), 0);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        if (lua_type(L, -1) != LUA_TSTRING)
            encode_error(L, path,
                         "a table for JSON must have only string keys (an object) or only the keys "
                         "1, 2, 3 ... (a list)");
        keys[n].text = lua_tolstring(L, -1, &keys[n].len); /* lives as long as its table */
        n++;
    }
    qsort(keys, (size_t)n, sizeof(*keys), compare_keys);
    cn_buf_append(out, "{", 1);
    for (lua_Integer i = 0; i < n; i++) {
        struct path here = {.up = path, .name = keys[i].text};

        if (i > 0)
            cn_buf_append(out, ",", 1);
        write_string(L, &here, keys[i].text, keys[i].len, out);
        cn_buf_append(out, ":", 1);
        lua_pushlstring(L, keys[i].text, keys[i].len);
        lua_rawget(L, index);
        write_value(L, lua_gettop(L), &here, depth + 1, out);
        lua_pop(L, 1);
    }
    cn_buf_append(out, "}", 1);
    lua_settop(L, top);
}

static void
write_table(lua_State *L, int index, const struct path *path, int depth, struct cn_buf *out)
{
    bool marked = cn_lua_is_array(L, index);
    lua_Integer count = 0, max = 0;
    bool list = true;

    if (depth > JSON_DEPTH_MAX)
        encode_error(L, path, "nested too deeply (does a table contain itself?)");
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        count++;
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1)
            list = false;
        else if (lua_tointeger(L, -1) > max)
            max = lua_tointeger(L, -1);
    }
    if (marked && !(list && max == count))
        encode_error(L, path,
                     "a list must have the keys 1, 2, 3 ... without gaps (use continuo.null)");
    if (!marked && !(list && max == count && count > 0)) {
        write_object(L, index, count, path, depth, out);
        return;
    }
    cn_buf_append(out, "[", 1);
    for (lua_Integer i = 1; i <= count; i++) {
        struct path here = {.up = path, .index = i};

        if (i > 1)
            cn_buf_append(out, ",", 1);
        lua_rawgeti(L, index, i);
        write_value(L, lua_gettop(L), &here, depth + 1, out);
        lua_pop(L, 1);
    }
    cn_buf_append(out, "]", 1);
}

static void
write_value(lua_State *L, int index, const struct path *path, int depth, struct cn_buf *out)
{
    const char *text;
    char what[64];
    size_t len;

    if (out->failed) /* a table in many places would go on for very long */
        return;
    luaL_checkstack(L, 10, "JSON");
    switch (lua_type(L, index)) {
    case LUA_TNIL:
        cn_buf_puts(out, "null");
        return;
    case LUA_TBOOLEAN:
        cn_buf_puts(out, lua_toboolean(L, index) ? "true" : "false");
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index))
            cn_buf_put_int(out, lua_tointeger(L, index));
        else
            write_float(L, path, lua_tonumber(L, index), out);
        return;
    case LUA_TSTRING:
        text = lua_tolstring(L, index, &len);
        write_string(L, path, text, len, out);
        return;
    case LUA_TLIGHTUSERDATA:
        cn_buf_puts(out, "null");
        return;
    case LUA_TTABLE:
        write_table(L, index, path, depth, out);
        return;
    }
    if (cn_lua_is_number_array(L, index))
        encode_error(L, path, "a continuo.array cannot be part of JSON; use its :table()");
    snprintf(what, sizeof(what), "a %s cannot be part of JSON", luaL_typename(L, index));
    encode_error(L, path, what);
}

void
cn_lua_json_encode(lua_State *L, int index, const char *name, struct cn_buf *out)
{
    struct path root = {.name = name};

    write_value(L, lua_absindex(L, index), &root, 1, out);
}

/* continuo.json.encode(value) */
static int
lua_json_encode(lua_State *L)
{
    struct cn_buf *out = &lua_rt_of(L)->scratch;

    luaL_checkany(L, 1);
    lua_settop(L, 1);
    cn_buf_reset(out);
    cn_lua_json_encode(L, 1, "value", out);
    if (out->failed)
        return luaL_error(L, "the JSON text exceeds the handler's memory limit");
    lua_pushlstring(L, out->data ? out->data : "", out->len);
    return 1;
}

void
cn_lua_open_json(lua_State *L)
{
    static const luaL_Reg functions[] = {{"array", lua_json_array},
                                         {"decode", lua_json_decode},
                                         {"encode", lua_json_encode},
                                         {NULL, NULL}};

    if (luaL_newmetatable(L, HOLDER_NAME)) {
        lua_pushcfunction(L, holder_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_pop(L, 1);
    luaL_newmetatable(L, ARRAY_MT_NAME);
    lua_rt_of(L)->array_mt = lua_topointer(L, -1);
    lua_pushliteral(L, "array");
    lua_setfield(L, -2, "__metatable"); /* cannot be changed by a handler */
    lua_pop(L, 1);
    luaL_newlib(L, functions);
}
