/* handlers/lua/values/lua_tensor.c - typed tensors of a request and of a reply. Worker's thread.
 *
 * An input is a table with four fields: datatype ("FP32"), shape ({1, 16}), data (its bytes) and
 * values, which is a continuo.array over the bytes, or for BYTES a table of strings. An output is
 * given in the same way; its data may also be a continuo.array or a plain table of values.
 *
 * `values` is made when a handler first asks for it, by the metatable's __index, and then stays in
 * the table. The metatable also tells the state codec that a table is a tensor, so that it leaves
 * out `values` and writes only the bytes.
 */
#include <string.h>

#include "handlers/lua/lua_priv.h"
#include "handlers/reply.h"
#include "proto/tensor.h"

#define TENSOR_NAME "continuo.tensor"

static void
push_strings(lua_State *L, struct cn_str data)
{
    struct cn_reader reader;
    struct cn_str element;
    lua_Integer n = 0;

    lua_newtable(L);
    cn_reader_init(&reader, data.ptr, data.len);
    while (cn_tensor_next(&reader, &element)) {
        lua_pushlstring(L, element.ptr ? element.ptr : "", element.len);
        lua_rawseti(L, -2, ++n);
    }
}

/* __index(tensor, key): its values, which then stay in the table. */
static int
tensor_index(lua_State *L)
{
    enum cn_datatype type;
    struct cn_str word, data;

    lua_settop(L, 2);
    if (lua_type(L, 2) != LUA_TSTRING || strcmp(lua_tostring(L, 2), "values") != 0)
        return 0;
    lua_pushliteral(L, "datatype");
    if (lua_rawget(L, 1) != LUA_TSTRING)
        return 0;
    word.ptr = lua_tolstring(L, -1, &word.len);
    type = cn_datatype_parse(word);
    lua_pushliteral(L, "data");
    if (type == CN_DATATYPE_NONE || lua_rawget(L, 1) != LUA_TSTRING)
        return 0;
    if (type == CN_DATATYPE_BYTES) {
        data.ptr = lua_tolstring(L, -1, &data.len);
        push_strings(L, data);
    } else {
        cn_lua_push_values(L, type);
    }
    lua_pushvalue(L, 2);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
    return 1;
}

void
cn_lua_open_tensor(lua_State *L)
{
    luaL_newmetatable(L, TENSOR_NAME);
    lua_rt_of(L)->tensor_mt = lua_topointer(L, -1);
    lua_pushcfunction(L, tensor_index);
    lua_setfield(L, -2, "__index");
    lua_pushliteral(L, "tensor");
    lua_setfield(L, -2, "__metatable"); /* cannot be changed by a handler */
    lua_pop(L, 1);
}

bool
cn_lua_is_tensor(lua_State *L, int index)
{
    return lua_has_metatable(L, index, lua_rt_of(L)->tensor_mt);
}

void
cn_lua_mark_tensor(lua_State *L)
{
    luaL_setmetatable(L, TENSOR_NAME);
}

void
cn_lua_push_tensor(lua_State *L, const struct cn_tensor *tensor)
{
    lua_createtable(L, 0, 4);
    lua_pushstring(L, cn_datatype_word(tensor->type));
    lua_setfield(L, -2, "datatype");
    lua_createtable(L, (int)tensor->rank, 0);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        lua_pushinteger(L, tensor->shape[i]);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
    lua_setfield(L, -2, "shape");
    lua_pushlstring(L, tensor->data.ptr ? tensor->data.ptr : "", tensor->data.len);
    lua_setfield(L, -2, "data");
    cn_lua_mark_tensor(L);
}

void
cn_lua_fill_inputs(lua_State *L, const struct cn_row *row)
{
    struct cn_tensor tensor;

    luaL_checkstack(L, LUA_MINSTACK, "inputs");
    for (uint32_t i = 0; i < row->n_parts; i++) {
        if (!cn_tensor_of_part(&row->parts[i], &tensor))
            continue;
        lua_pushlstring(L, tensor.name.ptr, tensor.name.len);
        cn_lua_push_tensor(L, &tensor);
        lua_rawset(L, -3);
    }
}

/* --- outputs --- */

static enum cn_datatype
read_type(lua_State *L, int output, const char *what, const char *name)
{
    enum cn_datatype type = CN_DATATYPE_NONE;
    struct cn_str word;

    if (lua_getfield(L, output, "datatype") == LUA_TSTRING) {
        word.ptr = lua_tolstring(L, -1, &word.len);
        type = cn_datatype_parse(word);
    }
    if (type == CN_DATATYPE_NONE)
        luaL_error(L, "%s '%s' needs a datatype such as \"FP32\" or \"BYTES\"", what, name);
    lua_pop(L, 1);
    return type;
}

static bool
is_in_range(enum cn_datatype type, lua_Integer value)
{
    const unsigned bits = 8 * cn_datatype_bytes(type);

    if (bits == 64) /* every integer fits, because UINT64 has the same bits as int64 in Lua */
        return true;
    if (type == CN_DATATYPE_UINT8 || type == CN_DATATYPE_UINT16 || type == CN_DATATYPE_UINT32)
        return value >= 0 && value < (lua_Integer)1 << bits;
    return value >= -((lua_Integer)1 << (bits - 1)) && value < (lua_Integer)1 << (bits - 1);
}

/* Appends one value: a boolean for BOOL (or 0 and 1, as the `values` of an input have them), a
 * string for BYTES, a number for other types. Raises on other values. */
static void
pack_value(lua_State *L, enum cn_datatype type, const char *what, const char *name, lua_Integer i,
           struct cn_buf *out)
{
    const unsigned bytes = cn_datatype_bytes(type);
    lua_Integer integer;
    double wide;
    float narrow;
    struct cn_str text;
    int ok = 1;

    switch (type) {
    case CN_DATATYPE_BOOL:
        integer = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : lua_toboolean(L, -1);
        ok = lua_isboolean(L, -1) || (lua_isinteger(L, -1) && (integer == 0 || integer == 1));
        cn_write_u8(out, (uint8_t)integer);
        break;
    case CN_DATATYPE_FP32:
    case CN_DATATYPE_FP64:
        wide = lua_tonumberx(L, -1, &ok);
        narrow = (float)wide;
        cn_buf_append(out, bytes == 4 ? (const void *)&narrow : &wide, bytes);
        break;
    case CN_DATATYPE_BYTES:
        ok = lua_type(L, -1) == LUA_TSTRING;
        if (ok) {
            text.ptr = lua_tolstring(L, -1, &text.len);
            cn_write_str32(out, text);
        }
        break;
    case CN_DATATYPE_FP16:
    case CN_DATATYPE_BF16:
        luaL_error(L, "%s '%s': data of type %s must be given as bytes", what, name,
                   cn_datatype_word(type));
        break;
    default:
        integer = lua_tointegerx(L, -1, &ok);
        if (ok && !is_in_range(type, integer))
            luaL_error(L, "%s '%s': element %I is %I, which does not fit into %s", what, name, i,
                       integer, cn_datatype_word(type));
        cn_buf_append(out, &integer, bytes); /* its low bytes; machines here are little-endian */
        break;
    }
    if (!ok) {
        const char *given = luaL_typename(L, -1);

        luaL_error(L, "%s '%s': element %I is %s %s, not %s", what, name, i, given,
                   luaL_tolstring(L, -1, NULL), cn_datatype_word(type));
    }
}

/* Appends the elements of the table or array at the top, which is popped. Returns their number. */
static lua_Integer
pack_values(lua_State *L, enum cn_datatype type, const char *what, const char *name,
            struct cn_buf *out)
{
    lua_Integer n = luaL_len(L, -1);

    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        pack_value(L, type, what, name, i, out);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return n;
}

/* Appends the output's bytes to the runtime's scratch buffer. Returns the number of elements if
 * `data` is a table, or -1 if it is bytes. */
static lua_Integer
pack_data(lua_State *L, int output, enum cn_datatype type, const char *what, const char *name,
          struct cn_buf *out)
{
    struct cn_str data;
    size_t len;

    if (lua_getfield(L, output, "data") == LUA_TNIL) {
        lua_pop(L, 1);
        lua_getfield(L, output, "values");
    }
    switch (lua_type(L, -1)) {
    case LUA_TSTRING:
        lua_tolstring(L, -1, &len);
        cn_buf_append(out, lua_tostring(L, -1), len);
        lua_pop(L, 1);
        return -1;
    case LUA_TUSERDATA: /* an array of another kind is read like a table of values */
        if (cn_lua_array_has(L, -1, type, &data)) {
            cn_buf_append_str(out, data);
            lua_pop(L, 1);
            return -1;
        }
        if (cn_lua_is_number_array(L, -1))
            return pack_values(L, type, what, name, out);
        break;
    case LUA_TTABLE:
        return pack_values(L, type, what, name, out);
    }
    return luaL_error(L, "%s '%s' needs data: bytes, a continuo.array or a table of values", what,
                      name);
}

static void
read_shape(lua_State *L, int output, lua_Integer n, struct cn_tensor *tensor, const char *what,
           const char *name)
{
    lua_Integer rank;

    if (lua_getfield(L, output, "shape") == LUA_TNIL) {
        unsigned bytes = cn_datatype_bytes(tensor->type);

        if (n < 0 && bytes)
            n = (lua_Integer)(tensor->data.len / bytes);
        if (n < 0)
            luaL_error(L,
                       "%s '%s': the bytes of strings need a shape such as {1, 2}; or give the "
                       "strings: data = {\"text\"}",
                       what, name);
        tensor->rank = 1;
        tensor->shape[0] = n;
        lua_pop(L, 1);
        return;
    }
    /* The length is asked for once, because that may run code of the handler. */
    rank = lua_istable(L, -1) ? luaL_len(L, -1) : -1;
    if (rank < 0 || rank > CN_TENSOR_RANK_MAX)
        luaL_error(L, "%s '%s': a shape must be a table of up to %d sizes", what, name,
                   CN_TENSOR_RANK_MAX);
    tensor->rank = (uint32_t)rank;
    for (lua_Integer i = 0; i < rank; i++) {
        int ok;

        lua_geti(L, -1, i + 1);
        tensor->shape[i] = lua_tointegerx(L, -1, &ok);
        if (!ok || tensor->shape[i] < 0)
            luaL_error(L, "%s '%s': size %I of its shape is not an integer of at least 0", what,
                       name, i + 1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

void
cn_lua_read_tensor(lua_State *L, int index, const char *what, const char *name,
                   struct cn_tensor *out)
{
    struct cn_buf *scratch = &lua_rt_of(L)->scratch;
    struct cn_error err;
    lua_Integer n = -1;

    memset(out, 0, sizeof(*out));
    luaL_checkstack(L, LUA_MINSTACK, what);
    index = lua_absindex(L, index);
    out->name = cn_str_from(name);
    out->type = read_type(L, index, what, name);
    if (lua_getfield(L, index, "data") != LUA_TSTRING) {
        lua_pop(L, 1);
        cn_buf_reset(scratch);
        n = pack_data(L, index, out->type, what, name, scratch);
        if (scratch->failed)
            luaL_error(L, "%s '%s': not enough memory for its data", what, name);
        lua_pushlstring(L, scratch->len ? scratch->data : "", scratch->len);
    }
    out->data.ptr = lua_tolstring(L, -1, &out->data.len);
    read_shape(L, index, n, out, what, name);
    if (cn_tensor_check(out, &err))
        luaL_error(L, "%s: %s", what, err.message);
}

/* Packs the output at the top, whose name is the string below it, and appends it to the reply's
 * body. */
static void
put_output(lua_State *L, struct cn_reply *reply, struct cn_buf *scratch)
{
    const int output = lua_gettop(L);
    struct cn_tensor tensor = {0};
    struct cn_error err;
    lua_Integer n;
    const char *name;

    if (lua_type(L, output - 1) != LUA_TSTRING || !lua_istable(L, output))
        luaL_error(L, "reply.outputs must be a table of names and tables, such as "
                      "{ OUT = { datatype = \"FP32\", shape = {1}, data = {0.5} } }");
    name = lua_tolstring(L, output - 1, &tensor.name.len);
    tensor.name.ptr = name;
    tensor.type = read_type(L, output, "output", name);
    cn_buf_reset(scratch);
    n = pack_data(L, output, tensor.type, "output", name, scratch);
    if (scratch->failed)
        luaL_error(L, "output '%s': not enough memory for its data", name);
    tensor.data = cn_buf_str(scratch);
    read_shape(L, output, n, &tensor, "output", name);
    /* reading the shape may have run code of the handler, and so may have moved the buffer */
    tensor.data = cn_buf_str(scratch);
    if (cn_tensor_check(&tensor, &err))
        luaL_error(L, "output: %s", err.message);
    cn_tensors_put_one(&reply->body, &tensor);
}

void
cn_lua_set_outputs(lua_State *L, int index, struct cn_reply *reply)
{
    struct cn_buf *scratch = &lua_rt_of(L)->scratch;
    const size_t begun = reply->body.len;
    uint32_t n = 0;

    index = lua_absindex(L, index);
    luaL_checkstack(L, LUA_MINSTACK, "outputs");
    if (!lua_istable(L, index))
        luaL_error(L, "reply.outputs must be a table of names and tables, got %s",
                   luaL_typename(L, index));
    cn_write_u32(&reply->body, 0);
    lua_pushnil(L);
    while (lua_next(L, index)) {
        if (++n > CN_TENSORS_MAX)
            luaL_error(L, "reply.outputs has more than %d tensors", CN_TENSORS_MAX);
        put_output(L, reply, scratch);
        lua_settop(L, lua_gettop(L) - 1);
    }
    if (!reply->body.failed)
        cn_patch_u32(&reply->body, begun, n);
}
