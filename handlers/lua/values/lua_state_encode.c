/* handlers/lua/values/lua_state_encode.c - writes a sequence's state: a Lua table becomes
 * MessagePack. Worker's thread.
 *
 * What is written must come back as it was (lua_state_decode.c), since the same step may find its
 * state in memory or, after a restart, from the store. Integers stay integers, floats stay floats
 * (nan and -0.0 too), and strings are bytes. A table with the keys 1..n and no others is an array,
 * any other table is a map. Three values that Lua has no type for keep theirs: a JSON list
 * extension type 1 around its array, so that an empty one stays a list a tensor          extension
 * type 2 around its map, without `values`, which `data` contains continuo.null     nil What could
 * not come back is an error that names the key, for example "state.users[3].callback": functions,
 * userdata, other metatables, one table in two places, more than 16 levels. */
#include <msgpack.h>
#include <stdio.h>
#include <string.h>

#include "handlers/lua/values/lua_state_priv.h"

struct encoder {
    lua_State *L;
    struct cn_buf *out;
    msgpack_packer packer;
    int root;                      /* stack index of the state */
    int seen;                      /* stack index of the set of tables met: nil until one nests */
    int depth;                     /* tables open */
    int keys[LUA_STATE_DEPTH_MAX]; /* stack index of the key in each, for messages */
};

static int
append(void *data, const char *bytes, size_t len)
{
    return cn_buf_append(data, bytes, len);
}

static bool
is_identifier(const char *text, size_t len)
{
    if (len == 0 || len > 100 || (text[0] >= '0' && text[0] <= '9'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!(text[i] == '_' || (text[i] >= '0' && text[i] <= '9') ||
              (text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z')))
            return false;
    return true;
}

/* Raises "state.users[3].callback: <what>". */
static _Noreturn void
refuse(struct encoder *enc, const char *what)
{
    lua_State *L = enc->L;
    luaL_Buffer text;

    luaL_checkstack(L, LUA_MINSTACK, "state");
    luaL_buffinit(L, &text);
    luaL_addstring(&text, "state");
    for (int i = 0; i < enc->depth; i++) {
        const char *key;
        size_t len;

        if (lua_type(L, enc->keys[i]) != LUA_TSTRING) {
            luaL_addchar(&text, '[');
            /* no time limit holds here, so no metamethod may run */
            if (lua_istable(L, enc->keys[i]) || lua_isuserdata(L, enc->keys[i]))
                lua_pushstring(L, luaL_typename(L, enc->keys[i]));
            else
                luaL_tolstring(L, enc->keys[i], NULL);
            luaL_addvalue(&text);
            luaL_addchar(&text, ']');
            continue;
        }
        key = lua_tolstring(L, enc->keys[i], &len);
        if (is_identifier(key, len)) {
            luaL_addchar(&text, '.');
            luaL_addlstring(&text, key, len);
        } else {
            luaL_addstring(&text, "[\"");
            luaL_addlstring(&text, key, len < 100 ? len : 100);
            luaL_addstring(&text, "\"]");
        }
    }
    luaL_pushresult(&text);
    cn_lua_path_error(L, what);
}

static void put_table(struct encoder *enc, int index);

/* Writes the value on the top of the stack. */
static void
put_value(struct encoder *enc)
{
    lua_State *L = enc->L;
    const char *text;
    char what[80];
    size_t len;

    switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN:
        if (lua_toboolean(L, -1))
            msgpack_pack_true(&enc->packer);
        else
            msgpack_pack_false(&enc->packer);
        return;
    case LUA_TNUMBER:
        if (lua_isinteger(L, -1))
            msgpack_pack_int64(&enc->packer, lua_tointeger(L, -1));
        else
            msgpack_pack_double(&enc->packer, lua_tonumber(L, -1));
        return;
    case LUA_TSTRING:
        text = lua_tolstring(L, -1, &len);
        msgpack_pack_str(&enc->packer, len);
        msgpack_pack_str_body(&enc->packer, text, len);
        return;
    case LUA_TLIGHTUSERDATA:
        msgpack_pack_nil(&enc->packer);
        return;
    case LUA_TTABLE:
        put_table(enc, lua_gettop(L));
        return;
    }
    if (cn_lua_is_number_array(L, -1))
        refuse(enc, "a continuo.array cannot be stored; store its :bytes()");
    snprintf(what, sizeof(what), "a %s cannot be stored", luaL_typename(L, -1));
    refuse(enc, what);
}

/* Refuses a table that is in the state twice, because it would come back as two tables. */
static void
check_seen(struct encoder *enc, int index)
{
    lua_State *L = enc->L;

    if (enc->depth == 0) /* the root is the first table, so there is nothing to compare it with */
        return;
    if (lua_isnil(L, enc->seen)) {
        lua_newtable(L);
        lua_replace(L, enc->seen);
        lua_pushvalue(L, enc->root);
        lua_pushboolean(L, 1);
        lua_rawset(L, enc->seen);
    }
    lua_pushvalue(L, index);
    if (lua_rawget(L, enc->seen) != LUA_TNIL)
        refuse(enc, "this table occurs twice in the state; store a copy");
    lua_pop(L, 1);
    lua_pushvalue(L, index);
    lua_pushboolean(L, 1);
    lua_rawset(L, enc->seen);
}

/* Counts the keys; true when they are 1..count. */
static bool
measure(struct encoder *enc, int index, uint32_t *count)
{
    lua_State *L = enc->L;
    lua_Integer max = 0;
    bool list = true;

    *count = 0;
    lua_pushnil(L);
    while (lua_next(L, index)) {
        lua_pop(L, 1);
        ++*count;
        if (!list)
            continue;
        if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1)
            list = false;
        else if (lua_tointeger(L, -1) > max)
            max = lua_tointeger(L, -1);
    }
    return list && max == (lua_Integer)*count;
}

static void
put_array(struct encoder *enc, int index, uint32_t count)
{
    lua_State *L = enc->L;

    msgpack_pack_array(&enc->packer, count);
    lua_pushnil(L); /* this slot holds the key, for messages */
    enc->keys[enc->depth++] = lua_gettop(L);
    for (uint32_t i = 1; i <= count; i++) {
        lua_pushinteger(L, i);
        lua_replace(L, -2);
        lua_rawgeti(L, index, i);
        put_value(enc);
        lua_pop(L, 1);
    }
    enc->depth--;
    lua_pop(L, 1);
}

static void
put_map(struct encoder *enc, int index, uint32_t count)
{
    lua_State *L = enc->L;

    msgpack_pack_map(&enc->packer, count);
    lua_pushnil(L);
    enc->keys[enc->depth++] = lua_gettop(L);
    while (lua_next(L, index)) {
        int key = lua_type(L, -2);

        if (key != LUA_TSTRING && key != LUA_TNUMBER && key != LUA_TBOOLEAN)
            refuse(enc, "only strings, numbers and booleans can be keys");
        lua_pushvalue(L, -2);
        put_value(enc);
        lua_pop(L, 1);
        put_value(enc);
        lua_pop(L, 1);
    }
    enc->depth--;
}

/* Writes the header of an extension (ext32) whose length is filled in later. Returns where its
 * content begins. */
static size_t
begin_extension(struct encoder *enc, char type)
{
    const char header[6] = {(char)0xc9, 0, 0, 0, 0, type};

    cn_buf_append(enc->out, header, sizeof(header));
    return enc->out->len;
}

static void
end_extension(struct encoder *enc, size_t begun)
{
    size_t len = enc->out->len - begun;

    if (enc->out->failed)
        return;
    for (int i = 0; i < 4; i++)
        enc->out->data[begun - 5 + (size_t)i] = (char)(len >> (24 - 8 * i));
}

/* Removes the tensor's `values`, which are made again when a handler asks for them. */
static void
drop_values(lua_State *L, int index)
{
    lua_pushliteral(L, "data");
    if (lua_rawget(L, index) == LUA_TSTRING) {
        lua_pushliteral(L, "values");
        lua_pushnil(L);
        lua_rawset(L, index);
    }
    lua_pop(L, 1);
}

static void
put_table(struct encoder *enc, int index)
{
    lua_State *L = enc->L;
    uint32_t count;
    bool list, json_list = false, tensor = false;
    size_t begun;

    luaL_checkstack(L, LUA_MINSTACK, "state");
    if (enc->depth == LUA_STATE_DEPTH_MAX)
        refuse(enc, "tables are nested deeper than 16 (does one contain itself?)");
    check_seen(enc, index);
    if (lua_getmetatable(L, index)) {
        lua_pop(L, 1);
        json_list = cn_lua_is_array(L, index);
        tensor = cn_lua_is_tensor(L, index);
        if (!json_list && !tensor)
            refuse(enc, "a table with a metatable cannot be stored");
    }
    if (tensor)
        drop_values(L, index);
    list = measure(enc, index, &count);
    if (json_list) {
        if (!list)
            refuse(enc,
                   "a JSON list must have the keys 1, 2, 3 ... without gaps (use continuo.null)");
        begun = begin_extension(enc, EXT_JSON_LIST);
        put_array(enc, index, count);
        end_extension(enc, begun);
    } else if (tensor) {
        begun = begin_extension(enc, EXT_TENSOR);
        put_map(enc, index, count);
        end_extension(enc, begun);
    } else if (list && count > 0) {
        put_array(enc, index, count);
    } else {
        put_map(enc, index, count);
    }
}

void
cn_lua_state_encode(lua_State *L, int index, struct cn_buf *out)
{
    struct encoder enc = {.L = L, .out = out};

    enc.root = lua_absindex(L, index);
    luaL_checkstack(L, LUA_MINSTACK, "state");
    msgpack_packer_init(&enc.packer, out, append);
    lua_pushnil(L);
    enc.seen = lua_gettop(L);
    put_table(&enc, enc.root);
    lua_pop(L, 1);
}
