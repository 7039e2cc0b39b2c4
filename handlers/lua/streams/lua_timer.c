/* handlers/lua/streams/lua_timer.c - continuo.after(seconds, function): calls a function later,
 * between two batches. Worker's thread.
 *
 * A timer belongs to the runtime and not to a request: it outlives the call that set it, and its
 * function usually answers requests that the handler has deferred. The function is kept in the
 * registry until then. It runs under the model's time limit for a step. No client waits for it, so
 * an error in it goes to the log only.
 */
#include <math.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

#define TIMERS_MAX 65536
#define AFTER_MAX_S 86400.0
#define TIMER_MAGIC 0x4c54494du

struct lua_timer {
    struct cn_timer timer;
    struct cn_list link; /* rt->timers */
    uint32_t magic;
    struct lua_rt *rt;
    int ref; /* the function */
};

static void
free_timer(struct lua_timer *timer)
{
    cn_timer_cancel(&timer->timer);
    cn_list_remove(&timer->link);
    timer->rt->n_timers--;
    timer->magic = 0;
    cn_free(timer);
}

static int
call_protected(lua_State *L)
{
    const int *ref = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, *ref);
    luaL_unref(L, LUA_REGISTRYINDEX, *ref);
    lua_call(L, 0, 0);
    return 0;
}

/* Nobody gets the error of such a call: it is logged, with its traceback where Lua has one. */
static void
time_came(struct cn_timer *base)
{
    struct lua_timer *timer = cn_container_of(base, struct lua_timer, timer);
    struct lua_rt *rt = timer->rt;
    int ref = timer->ref, rc;

    cn_assert(timer->magic == TIMER_MAGIC);
    free_timer(timer);
    cn_lua_arm_timer(rt);
    rc = cn_lua_protect(rt, call_protected, &ref);
    if (rt->expired || rc == LUA_ERRMEM)
        cn_log(CN_LOG_WARN, "event=handler_error model=%s version=%s error=\"continuo.after: %s\"",
               rt->model, rt->version,
               rt->expired ? "the function reached its time limit" : "no memory");
    lua_settop(rt->L, 0);
    cn_lua_disarm(rt);
}

/* continuo.after(seconds, function) */
static int
after(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    lua_Number seconds = luaL_checknumber(L, 1);
    struct lua_timer *timer;
    int ref;

    luaL_checktype(L, 2, LUA_TFUNCTION);
    if (!(seconds >= 0 && seconds <= AFTER_MAX_S))
        return luaL_error(L, "continuo.after: seconds must be from 0 to %d", (int)AFTER_MAX_S);
    if (!rt->base.wheel)
        return luaL_error(L, "continuo.after cannot be called while the model is being loaded");
    if (rt->n_timers >= TIMERS_MAX)
        return luaL_error(L, "continuo.after: %d calls are already waiting", TIMERS_MAX);
    lua_settop(L, 2);
    ref = luaL_ref(L, LUA_REGISTRYINDEX);
    timer = cn_alloc(sizeof(*timer));
    timer->magic = TIMER_MAGIC;
    timer->rt = rt;
    timer->ref = ref;
    cn_timer_init(&timer->timer, time_came);
    cn_list_push_back(&rt->timers, &timer->link);
    rt->n_timers++;
    cn_timer_set(rt->base.wheel, &timer->timer, cn_now_ms() + (uint64_t)ceil(seconds * 1000));
    return 0;
}

void
cn_lua_open_timers(lua_State *L)
{
    lua_pushcfunction(L, after);
}

void
cn_lua_drop_timers(struct lua_rt *rt)
{
    while (!cn_list_empty(&rt->timers))
        free_timer(cn_container_of(rt->timers.next, struct lua_timer, link));
}
