/* handlers/lua/values/lua_state_codec.c - a sequence's state: a Lua table to MessagePack and back.
 * Worker's thread.
 *
 * What is written must come back as it was, since the same step may find its state in memory or,
 * after a restart, from the store. Integers stay integers, floats stay floats (nan and -0.0 too),
 * and strings are bytes. A table with the keys 1..n and no others is an array, any other table is a
 * map. Three values that Lua has no type for keep theirs:
 *   a JSON list       extension type 1 around its array, so that an empty one stays a list
 *   a tensor          extension type 2 around its map, without `values`, which `data` contains
 *   continuo.null     nil
 * What could not come back is an error that names the key, for example "state.users[3].callback":
 * functions, userdata, other metatables, one table in two places, more than 16 levels.
 *
 * Reading has two parts, because Lua raises errors by longjmp. cn_lua_state_parse checks the bytes
 * outside of the VM and allocates what it needs. cn_lua_state_push then builds the tables in a
 * protected call and allocates only in the VM. The caller frees the parsed bytes in either case.
 */
#include <msgpack.h>
#include <stdio.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/lua/lua_priv.h"

#define EXT_JSON_LIST 1
#define EXT_TENSOR 2

/* --- writing --- */

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

/* --- reading --- */

struct cn_lua_state_bytes {
    msgpack_unpacked root;
};

/* A walk over the bytes before they are parsed. The store's checksum has found damage, but somebody
 * may have made the bytes on purpose, and the parser trusts each count that it reads. So the walk
 * checks that each count fits into the bytes that are left, and bounds the nesting. */
struct walker {
    const unsigned char *at, *end;
};

static bool walk_value(struct walker *walk, int depth);

static bool
walk_be(struct walker *walk, unsigned bytes, uint64_t *out)
{
    *out = 0;
    if ((size_t)(walk->end - walk->at) < bytes)
        return false;
    while (bytes-- > 0)
        *out = *out << 8 | *walk->at++;
    return true;
}

static bool
walk_skip(struct walker *walk, uint64_t bytes)
{
    if ((uint64_t)(walk->end - walk->at) < bytes)
        return false;
    walk->at += bytes;
    return true;
}

static bool
walk_values(struct walker *walk, uint64_t count, int depth)
{
    if (depth > LUA_STATE_DEPTH_MAX || count > (uint64_t)(walk->end - walk->at))
        return false;
    while (count-- > 0)
        if (!walk_value(walk, depth))
            return false;
    return true;
}

/* One of our extensions holds exactly one array or map. It does not count as a level of its own. */
static bool
walk_ext(struct walker *walk, uint64_t len, int depth)
{
    struct walker inner;
    unsigned char type;
    bool fits;

    if (walk->at == walk->end)
        return false;
    type = *walk->at++;
    if (len > (uint64_t)(walk->end - walk->at) || len == 0)
        return false;
    inner = (struct walker){walk->at, walk->at + len};
    walk->at += len;
    if (type == EXT_JSON_LIST)
        fits = (*inner.at & 0xf0) == 0x90 || *inner.at == 0xdc || *inner.at == 0xdd;
    else
        fits = type == EXT_TENSOR &&
               ((*inner.at & 0xf0) == 0x80 || *inner.at == 0xde || *inner.at == 0xdf);
    return fits && walk_value(&inner, depth) && inner.at == inner.end;
}

static bool
walk_value(struct walker *walk, int depth)
{
    unsigned char type;
    uint64_t n;

    if (walk->at == walk->end)
        return false;
    type = *walk->at++;
    if (type <= 0x7f || type >= 0xe0 || type == 0xc0 || type == 0xc2 || type == 0xc3)
        return true;
    if (type <= 0x8f)
        return walk_values(walk, 2 * (uint64_t)(type & 15), depth + 1);
    if (type <= 0x9f)
        return walk_values(walk, type & 15, depth + 1);
    if (type <= 0xbf)
        return walk_skip(walk, type & 31);
    switch (type) {
    case 0xc7: /* ext8, 16, 32 */
    case 0xc8:
    case 0xc9:
        return walk_be(walk, 1u << (type - 0xc7), &n) && walk_ext(walk, n, depth);
    case 0xcb: /* double */
    case 0xcf: /* uint64 */
    case 0xd3: /* int64 */
        return walk_skip(walk, 8);
    case 0xcc: /* uint8, 16, 32 */
    case 0xcd:
    case 0xce:
        return walk_skip(walk, 1u << (type - 0xcc));
    case 0xd0: /* int8, 16, 32 */
    case 0xd1:
    case 0xd2:
        return walk_skip(walk, 1u << (type - 0xd0));
    case 0xd9: /* str8, 16, 32 */
    case 0xda:
    case 0xdb:
        return walk_be(walk, 1u << (type - 0xd9), &n) && walk_skip(walk, n);
    case 0xdc: /* array16, 32 */
    case 0xdd:
        return walk_be(walk, 2u << (type - 0xdc), &n) && walk_values(walk, n, depth + 1);
    case 0xde: /* map16, 32 */
    case 0xdf:
        return walk_be(walk, 2u << (type - 0xde), &n) && walk_values(walk, 2 * n, depth + 1);
    }
    return false; /* bin, float32, fixext: we never write them */
}

int
cn_lua_state_parse(struct cn_str bytes, struct cn_lua_state_bytes **out, struct cn_error *err)
{
    struct walker walk = {(const unsigned char *)bytes.ptr,
                          (const unsigned char *)bytes.ptr + bytes.len};
    struct cn_lua_state_bytes *parsed;
    size_t offset = 0;

    if (bytes.len == 0 || !walk_value(&walk, 0) || walk.at != walk.end)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the stored state (%zu bytes) was not written by a Lua handler", bytes.len);
    parsed = cn_alloc(sizeof(*parsed));
    msgpack_unpacked_init(&parsed->root);
    if (msgpack_unpack_next(&parsed->root, bytes.ptr, bytes.len, &offset) !=
            MSGPACK_UNPACK_SUCCESS ||
        (parsed->root.data.type != MSGPACK_OBJECT_MAP &&
         parsed->root.data.type != MSGPACK_OBJECT_ARRAY &&
         parsed->root.data.type != MSGPACK_OBJECT_EXT)) {
        cn_lua_state_bytes_free(parsed);
        return cn_fail(err, CN_E_STATE_STORE, "the stored state (%zu bytes) does not hold a table",
                       bytes.len);
    }
    *out = parsed;
    return 0;
}

void
cn_lua_state_bytes_free(struct cn_lua_state_bytes *parsed)
{
    if (!parsed)
        return;
    msgpack_unpacked_destroy(&parsed->root);
    cn_free(parsed);
}

static void push_object(lua_State *L, const msgpack_object *object);

static void
push_array(lua_State *L, const msgpack_object_array *array)
{
    lua_createtable(L, (int)array->size, 0);
    for (uint32_t i = 0; i < array->size; i++) {
        push_object(L, &array->ptr[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void
push_map(lua_State *L, const msgpack_object_map *map)
{
    lua_createtable(L, 0, (int)map->size);
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object *key = &map->ptr[i].key;

        if (key->type == MSGPACK_OBJECT_NIL || key->type == MSGPACK_OBJECT_MAP ||
            key->type == MSGPACK_OBJECT_ARRAY || key->type == MSGPACK_OBJECT_EXT ||
            (key->type == MSGPACK_OBJECT_FLOAT64 && key->via.f64 != key->via.f64))
            luaL_error(L, "the stored state has a key that no Lua table can have");
        push_object(L, key);
        push_object(L, &map->ptr[i].val);
        lua_rawset(L, -3);
    }
}

/* Pushes the content of our extension, which is MessagePack again and was checked by walk_ext. A
 * userdata holds the parsed document, so that it is freed if a push runs out of memory. */
static void
push_extension(lua_State *L, const msgpack_object_ext *ext)
{
    struct cn_lua_state_bytes **holder =
        lua_newuserdatauv(L, sizeof(struct cn_lua_state_bytes *), 0);
    struct cn_str bytes = {ext->ptr, ext->size};
    struct cn_error err;

    *holder = NULL;
    luaL_setmetatable(L, CN_LUA_STATE_HOLDER);
    if (cn_lua_state_parse(bytes, holder, &err) < 0)
        luaL_error(L, "%s", err.message);
    if (ext->type == EXT_TENSOR) {
        push_map(L, &(*holder)->root.data.via.map);
        cn_lua_mark_tensor(L);
    } else {
        push_array(L, &(*holder)->root.data.via.array);
        cn_lua_mark_array(L);
    }
    cn_lua_state_bytes_free(*holder);
    *holder = NULL;
    lua_replace(L, -2);
}

static void
push_object(lua_State *L, const msgpack_object *object)
{
    luaL_checkstack(L, LUA_MINSTACK, "state");
    switch (object->type) {
    case MSGPACK_OBJECT_BOOLEAN:
        lua_pushboolean(L, object->via.boolean);
        return;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        if (object->via.u64 > (uint64_t)LUA_MAXINTEGER)
            luaL_error(L, "the stored state has an integer that Lua cannot hold");
        lua_pushinteger(L, (lua_Integer)object->via.u64);
        return;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        lua_pushinteger(L, object->via.i64);
        return;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        lua_pushnumber(L, object->via.f64);
        return;
    case MSGPACK_OBJECT_STR:
        lua_pushlstring(L, object->via.str.ptr, object->via.str.size);
        return;
    case MSGPACK_OBJECT_BIN:
        lua_pushlstring(L, object->via.bin.ptr, object->via.bin.size);
        return;
    case MSGPACK_OBJECT_ARRAY:
        push_array(L, &object->via.array);
        return;
    case MSGPACK_OBJECT_MAP:
        push_map(L, &object->via.map);
        return;
    case MSGPACK_OBJECT_EXT:
        push_extension(L, &object->via.ext);
        return;
    case MSGPACK_OBJECT_NIL:
        lua_pushlightuserdata(L, NULL);
        return;
    }
    luaL_error(L, "the stored state has a value of unknown type");
}

void
cn_lua_state_push(lua_State *L, const struct cn_lua_state_bytes *parsed)
{
    push_object(L, &parsed->root.data);
}

static int
holder_gc(lua_State *L)
{
    struct cn_lua_state_bytes **holder = luaL_checkudata(L, 1, CN_LUA_STATE_HOLDER);

    cn_lua_state_bytes_free(*holder);
    *holder = NULL;
    return 0;
}

void
cn_lua_open_state_codec(lua_State *L)
{
    luaL_newmetatable(L, CN_LUA_STATE_HOLDER);
    lua_pushcfunction(L, holder_gc);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
}
