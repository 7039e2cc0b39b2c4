/* handlers/lua/lua_metrics.c - continuo.metrics: numbers that a handler measures, for /metrics.
 * Worker's thread.
 *
 * The functions are counter(name, value [, dimensions [, unit]]), gauge(...) and histogram(...)
 * with the same arguments. They return true, or nil and the reason if this call of the handler has
 * measured too many values. A wrong name or value raises an error.
 */
#include <string.h>

#include "handlers/lua/lua_priv.h"

/* Takes the dimensions from the table at `index`, whose values are strings, numbers and booleans;
 * nil means that there are none. Texts that had to be made stay on the stack until the sample is
 * copied. */
static uint32_t
take_dims(lua_State *L, int index, struct cn_header dims[CN_SAMPLE_DIMS_MAX])
{
    uint32_t n = 0;

    if (lua_isnoneornil(L, index))
        return 0;
    luaL_checktype(L, index, LUA_TTABLE);
    luaL_checkstack(L, CN_SAMPLE_DIMS_MAX + 4, "dimensions");
    lua_pushnil(L);
    while (lua_next(L, index)) {
        int type = lua_type(L, -1);

        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "the name of a dimension must be a string, got %s", luaL_typename(L, -2));
        if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN)
            luaL_error(L, "dimension %s must be a string, number or boolean, got %s",
                       lua_tostring(L, -2), luaL_typename(L, -1));
        if (n == CN_SAMPLE_DIMS_MAX)
            luaL_error(L, "a metric has at most %d dimensions", CN_SAMPLE_DIMS_MAX);
        dims[n].name.ptr = lua_tolstring(L, -2, &dims[n].name.len);
        dims[n].value.ptr = luaL_tolstring(L, -1, &dims[n].value.len);
        n++;
        /* replaces the value by its text, which stays on the stack below the key */
        lua_replace(L, -2);
        lua_insert(L, -2);
    }
    return n;
}

static int
measure(lua_State *L, enum cn_sample_type type)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_header dims[CN_SAMPLE_DIMS_MAX];
    struct cn_sample sample = {.type = type, .dims = dims};
    struct cn_error err;
    int rc;

    sample.name.ptr = luaL_checklstring(L, 1, &sample.name.len);
    sample.value = luaL_checknumber(L, 2);
    sample.unit.ptr = luaL_optlstring(L, 4, "", &sample.unit.len);
    lua_settop(L, 4);
    sample.n_dims = take_dims(L, 3, dims);
    rc = cn_samples_add(&rt->base.samples, &sample, &err);
    if (rc == CN_E_HANDLER_FAILED)
        return luaL_error(L, "%s", err.message);
    if (rc == 0) {
        lua_pushboolean(L, 1);
        return 1;
    }
    cn_samples_log(&rt->base.samples, &err);
    lua_pushnil(L);
    lua_pushstring(L, err.message);
    return 2;
}

static int
lua_counter(lua_State *L)
{
    return measure(L, CN_SAMPLE_COUNTER);
}

static int
lua_gauge(lua_State *L)
{
    return measure(L, CN_SAMPLE_GAUGE);
}

static int
lua_histogram(lua_State *L)
{
    return measure(L, CN_SAMPLE_HISTOGRAM);
}

void
cn_lua_open_metrics(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"counter", lua_counter}, {"gauge", lua_gauge}, {"histogram", lua_histogram}, {NULL, NULL}};

    luaL_newlib(L, functions);
}
