/* handlers/lua/values/lua_state_decode.c - reads a sequence's state: MessagePack becomes a Lua
 * table, as lua_state_encode.c has written it. Worker's thread.
 *
 * Reading has two parts, because Lua raises errors by longjmp. cn_lua_state_parse checks the bytes
 * outside of the VM and allocates what it needs. cn_lua_state_push then builds the tables in a
 * protected call and allocates only in the VM. The caller frees the parsed bytes in either case. */
#include <msgpack.h>
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/lua/values/lua_state_priv.h"

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
