/* handlers/lua/lua_collector.c - how Lua's garbage collector works (decision 0019). Worker's
 * thread. Switched by the tuning `lua-steps`. */
#include "core/tuning/tuning.h"
#include "handlers/lua/lua_priv.h"

/* How much work the collector does for each byte that is allocated (LUA_GCINC, step multiplier).
 * With Lua's default of 100 it goes through all memory while half a percent of it is allocated:
 * with the states of a million sequences each of its steps held up a batch for 5 ms. With 4 it
 * needs a tenth of the memory in use for one round, which is little beside the pause of 200 %
 * before it, and its steps take a third of a millisecond. */
#define COLLECT_STEP 4

void
cn_lua_collect_in_steps(lua_State *L)
{
    if (cn_tuned(CN_TUNING_LUA_STEPS))
        lua_gc(L, LUA_GCINC, 0, COLLECT_STEP, 0);
}
