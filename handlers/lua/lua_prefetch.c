/* handlers/lua/lua_prefetch.c - prefetches what Lua has of a batch's states (decision 0019).
 * Worker's thread.
 *
 * This is the only file that knows how Lua lays out a table. It relies on that for speed alone.
 * Switched by the tuning `lua-layout`, and by `prefetch` with everything else that prefetches. */
#include <string.h>

#include "core/memory/prefetch.h"
#include "handlers/lua/lua_priv.h"

/* The offsets at which a table of Lua 5.4 has the addresses of its array and of its other entries,
 * and the size of a value in an array. Lua's API gives no such addresses. They are only hints for
 * cn_prefetch, so a wrong one costs time and nothing else; reading one is safe, because every table
 * is larger than the offsets. */
#define TABLE_ARRAY_AT 16
#define TABLE_ENTRIES_AT 24
#define TABLE_BYTES 56
#define VALUE_BYTES 16
#define ENTRIES_PREFETCH_BYTES 64
_Static_assert(LUA_VERSION_NUM == 504, "another Lua has its tables otherwise");

static uintptr_t
address_in(const void *table, size_t at)
{
    uintptr_t address;

    memcpy(&address, (const char *)table + at, sizeof(address));
    return address;
}

/* Prefetches the states of a batch. Among a million sequences each of them is several cache misses
 * away, one behind the other: its place in the table of states, the table object, and the object's
 * entries. Asking for all places first, then for all objects, then for all entries lets the misses
 * of different rows overlap. */
static void
prefetch_some_states(lua_State *L, int states, struct cn_item **items, uint32_t n)
{
    /* The address that a value at index 0 would have: Lua's first index is 1. */
    const uintptr_t values = address_in(lua_topointer(L, states), TABLE_ARRAY_AT) - VALUE_BYTES;
    const void *tables[CN_PREFETCH_MAX];
    uint32_t n_tables = 0;

    for (uint32_t i = 0; i < n; i++)
        if (items[i]->state)
            cn_prefetch(
                (const void *)(values + VALUE_BYTES * (uintptr_t)lua_ref_of_state(items[i]->state)),
                VALUE_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        if (!items[i]->state)
            continue;
        lua_rawgeti(L, states, lua_ref_of_state(items[i]->state));
        if ((tables[n_tables] = lua_topointer(L, -1)))
            cn_prefetch(tables[n_tables++], TABLE_BYTES);
        lua_pop(L, 1);
    }
    for (uint32_t i = 0; i < n_tables; i++)
        cn_prefetch((const void *)address_in(tables[i], TABLE_ENTRIES_AT), ENTRIES_PREFETCH_BYTES);
}

void
cn_lua_prefetch_states(struct lua_rt *rt, struct cn_item **items, uint32_t n)
{
    lua_State *L = rt->L;

    if (!rt->stateful || n < 2 || !cn_tuned(CN_TUNING_LUA_LAYOUT))
        return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->states);
    for (uint32_t i = 0; i < n; i += CN_PREFETCH_MAX)
        prefetch_some_states(L, lua_gettop(L), items + i,
                             n - i < CN_PREFETCH_MAX ? n - i : CN_PREFETCH_MAX);
    lua_pop(L, 1);
}
