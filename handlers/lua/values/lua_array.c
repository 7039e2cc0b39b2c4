/* handlers/lua/values/lua_array.c - continuo.array(bytes, "i16"): numbers that stay in their bytes,
 * without a Lua table of them. Worker's thread.
 *
 * An array is a view: it borrows the bytes of a Lua string and keeps that string alive as its user
 * value. So a second of audio is read, sliced and summed without a copy, and the collector sees one
 * object instead of 16000 numbers. A view is never written to, because Lua's strings are
 * immutable. Elements are little-endian, as audio and tensors are; indices begin at 1.
 */
#include <math.h>
#include <string.h>

#include "handlers/lua/lua_priv.h"

#define ARRAY_NAME "continuo.array"
/* the VM's memory limit allows fewer; the bytes of this many fit into a size_t */
#define ELEMENTS_MAX INT32_MAX

enum kind { I8, U8, I16, U16, I32, U32, I64, F32, F64 };

static const char *const kind_names[] = {"i8",  "u8",  "i16", "u16", "i32",
                                         "u32", "i64", "f32", "f64", NULL};
static const unsigned char kind_bytes[] = {1, 1, 2, 2, 4, 4, 8, 4, 8};

struct array {
    const char *bytes; /* of the string that is user value 1 */
    lua_Integer n;
    enum kind kind;
};

static struct array *
check_array(lua_State *L)
{
    return luaL_checkudata(L, 1, ARRAY_NAME);
}

static bool
is_float(enum kind kind)
{
    return kind == F32 || kind == F64;
}

static int64_t
load_integer(const struct array *array, lua_Integer i)
{
    const char *at = array->bytes + (size_t)i * kind_bytes[array->kind];
    uint64_t raw = 0;

    /* little-endian, as all machines for which this is built */
    memcpy(&raw, at, kind_bytes[array->kind]);
    switch (array->kind) {
    case I8:
        return (int8_t)raw;
    case I16:
        return (int16_t)raw;
    case I32:
        return (int32_t)raw;
    default:
        return (int64_t)raw;
    }
}

static double
load_number(const struct array *array, lua_Integer i)
{
    double wide;
    float narrow;

    switch (array->kind) {
    case F32:
        memcpy(&narrow, array->bytes + 4 * (size_t)i, 4);
        return narrow;
    case F64:
        memcpy(&wide, array->bytes + 8 * (size_t)i, 8);
        return wide;
    default:
        return (double)load_integer(array, i);
    }
}

/* Zero-based; the caller checked the range. */
static void
push_element(lua_State *L, const struct array *array, lua_Integer i)
{
    if (is_float(array->kind))
        lua_pushnumber(L, load_number(array, i));
    else
        lua_pushinteger(L, load_integer(array, i));
}

static int
array_get(lua_State *L)
{
    struct array *array = check_array(L);
    lua_Integer i = luaL_checkinteger(L, 2);

    if (i < 1 || i > array->n)
        return 0;
    push_element(L, array, i - 1);
    return 1;
}

/* a[i], or a method. */
static int
array_index(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TNUMBER)
        return array_get(L);
    lua_settop(L, 2);
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
}

static int
array_len(lua_State *L)
{
    lua_pushinteger(L, check_array(L)->n);
    return 1;
}

static double
sum_of(const struct array *array, bool squares)
{
    double sum = 0;

    for (lua_Integer i = 0; i < array->n; i++) {
        double x = load_number(array, i);

        sum += squares ? x * x : x;
    }
    return sum;
}

/* Integers sum to an integer (wrapping, as Lua's do). */
static int
array_sum(lua_State *L)
{
    struct array *array = check_array(L);
    uint64_t sum = 0;

    if (is_float(array->kind)) {
        lua_pushnumber(L, sum_of(array, false));
        return 1;
    }
    for (lua_Integer i = 0; i < array->n; i++)
        sum += (uint64_t)load_integer(array, i);
    lua_pushinteger(L, (lua_Integer)sum);
    return 1;
}

static int
array_mean(lua_State *L)
{
    struct array *array = check_array(L);

    lua_pushnumber(L, array->n > 0 ? sum_of(array, false) / (double)array->n : 0.0);
    return 1;
}

/* Sum of squares. */
static int
array_energy(lua_State *L)
{
    lua_pushnumber(L, sum_of(check_array(L), true));
    return 1;
}

static int
array_rms(lua_State *L)
{
    struct array *array = check_array(L);

    lua_pushnumber(L, array->n > 0 ? sqrt(sum_of(array, true) / (double)array->n) : 0.0);
    return 1;
}

/* Pushes the largest element (sign 1) or the smallest one (sign -1), or nil for an empty array. */
static int
push_extreme(lua_State *L, double sign)
{
    struct array *array = check_array(L);
    lua_Integer at = 0;

    if (array->n == 0)
        return 0;
    for (lua_Integer i = 1; i < array->n; i++)
        if (sign * load_number(array, i) > sign * load_number(array, at))
            at = i;
    push_element(L, array, at);
    return 1;
}

static int
array_min(lua_State *L)
{
    return push_extreme(L, -1);
}

static int
array_max(lua_State *L)
{
    return push_extreme(L, 1);
}

/* Pushes a view of `n` elements of the array at index 1, from element `from` on, counted from 0.
 * The array's string is on the top of the stack. */
static int
push_view(lua_State *L, const struct array *whole, lua_Integer from, lua_Integer n)
{
    struct array *view = lua_newuserdatauv(L, sizeof(*view), 1);

    *view = (struct array){whole->bytes + (size_t)from * kind_bytes[whole->kind], n, whole->kind};
    luaL_setmetatable(L, ARRAY_NAME);
    lua_getiuservalue(L, 1, 1);
    lua_setiuservalue(L, -2, 1);
    return 1;
}

/* a:slice(i [, j]) as string.sub counts; shares the bytes. */
static int
array_slice(lua_State *L)
{
    struct array *array = check_array(L);
    lua_Integer from = luaL_checkinteger(L, 2), to = luaL_optinteger(L, 3, -1);

    if (from < 0)
        from = from < -array->n ? 1 : array->n + from + 1;
    else if (from == 0)
        from = 1;
    if (to < 0)
        to = to < -array->n ? 0 : array->n + to + 1;
    else if (to > array->n)
        to = array->n;
    return push_view(L, array, from <= to ? from - 1 : 0, from <= to ? to - from + 1 : 0);
}

static int
array_bytes(lua_State *L)
{
    struct array *array = check_array(L);

    lua_pushlstring(L, array->bytes, (size_t)array->n * kind_bytes[array->kind]);
    return 1;
}

static int
array_table(lua_State *L)
{
    struct array *array = check_array(L);

    if (array->n > 10000000)
        return luaL_error(L, "an array of %I elements is too long for a table", array->n);
    lua_createtable(L, (int)array->n, 0);
    for (lua_Integer i = 0; i < array->n; i++) {
        push_element(L, array, i);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Packs a table of numbers into bytes, which replace index 3. */
static void
pack_table(lua_State *L, enum kind kind)
{
    lua_Integer n = luaL_len(L, 1); /* a metamethod may return any number here */
    luaL_Buffer bytes;
    char *at;

    if (n < 0 || n > ELEMENTS_MAX)
        luaL_error(L, "a table of %I elements: an array may have 0 to %d", n, ELEMENTS_MAX);
    at = luaL_buffinitsize(L, &bytes, (size_t)n * kind_bytes[kind]);
    for (lua_Integer i = 1; i <= n; i++, at += kind_bytes[kind]) {
        int ok = 1;

        lua_rawgeti(L, 1, i);
        if (is_float(kind)) {
            double wide = lua_tonumberx(L, -1, &ok);
            float narrow = (float)wide;

            memcpy(at, kind == F64 ? (void *)&wide : (void *)&narrow, kind_bytes[kind]);
        } else {
            lua_Integer value = lua_tointegerx(L, -1, &ok);

            memcpy(at, &value, kind_bytes[kind]);
            if (load_integer(&(struct array){at, 1, kind}, 0) != value)
                luaL_error(L, "element %I is %I, which does not fit into %s", i, value,
                           kind_names[kind]);
        }
        if (!ok)
            luaL_error(L, "element %I is not %s number", i, is_float(kind) ? "a" : "a whole");
        lua_pop(L, 1);
    }
    luaL_pushresultsize(&bytes, (size_t)n * kind_bytes[kind]);
}

/* A view of the string at `bytes`, which is a whole number of elements. */
static void
push_array(lua_State *L, int bytes, enum kind kind)
{
    struct array *array = lua_newuserdatauv(L, sizeof(*array), 1);
    size_t len;

    *array = (struct array){lua_tolstring(L, bytes, &len), 0, kind};
    array->n = (lua_Integer)(len / kind_bytes[kind]);
    luaL_setmetatable(L, ARRAY_NAME);
    lua_pushvalue(L, bytes);
    lua_setiuservalue(L, -2, 1);
}

/* continuo.array(bytes or table, kind) */
static int
array_new(lua_State *L)
{
    enum kind kind = (enum kind)luaL_checkoption(L, 2, NULL, kind_names);
    size_t len;

    lua_settop(L, 2);
    if (lua_type(L, 1) == LUA_TTABLE) {
        pack_table(L, kind);
        lua_replace(L, 1);
    }
    luaL_checklstring(L, 1, &len);
    if (len % kind_bytes[kind] != 0)
        cn_lua_client_error(L, 400,
                            "%d bytes are not a multiple of the size of %s elements (%d bytes)",
                            (int)len, kind_names[kind], (int)kind_bytes[kind]);
    push_array(L, 1, kind);
    return 1;
}

/* Returns the kind of array for a datatype; -1 if Lua has no numbers for it. */
static int
kind_of(enum cn_datatype type)
{
    static const enum kind kinds[] = {
        [CN_DATATYPE_BOOL] = U8,    [CN_DATATYPE_UINT8] = U8,   [CN_DATATYPE_UINT16] = U16,
        [CN_DATATYPE_UINT32] = U32, [CN_DATATYPE_UINT64] = I64, [CN_DATATYPE_INT8] = I8,
        [CN_DATATYPE_INT16] = I16,  [CN_DATATYPE_INT32] = I32,  [CN_DATATYPE_INT64] = I64,
        [CN_DATATYPE_FP32] = F32,   [CN_DATATYPE_FP64] = F64};

    if (type == CN_DATATYPE_FP16 || type == CN_DATATYPE_BF16 || type == CN_DATATYPE_BYTES)
        return -1;
    return (int)kinds[type];
}

void
cn_lua_push_values(lua_State *L, enum cn_datatype type)
{
    const int bytes = lua_gettop(L), kind = kind_of(type);

    if (kind < 0)
        lua_pushnil(L);
    else
        push_array(L, bytes, (enum kind)kind);
    lua_remove(L, bytes);
}

bool
cn_lua_is_number_array(lua_State *L, int index)
{
    return luaL_testudata(L, index, ARRAY_NAME) != NULL;
}

bool
cn_lua_array_has(lua_State *L, int index, enum cn_datatype type, struct cn_str *bytes)
{
    const struct array *array = luaL_testudata(L, index, ARRAY_NAME);
    const int kind = kind_of(type);

    if (!array || (kind >= 0 && kind != (int)array->kind))
        return false;
    *bytes = (struct cn_str){array->bytes, (size_t)array->n * kind_bytes[array->kind]};
    return true;
}

void
cn_lua_open_array(lua_State *L)
{
    static const luaL_Reg methods[] = {{"get", array_get},
                                       {"sum", array_sum},
                                       {"mean", array_mean},
                                       {"energy", array_energy},
                                       {"rms", array_rms},
                                       {"min", array_min},
                                       {"max", array_max},
                                       {"slice", array_slice},
                                       {"bytes", array_bytes},
                                       {"table", array_table},
                                       {NULL, NULL}};

    luaL_newmetatable(L, ARRAY_NAME);
    luaL_newlib(L, methods);
    lua_pushcclosure(L, array_index, 1);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, array_len);
    lua_setfield(L, -2, "__len");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_pushcfunction(L, array_new);
}
