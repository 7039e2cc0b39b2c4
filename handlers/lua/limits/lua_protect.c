/* handlers/lua/limits/lua_protect.c - calls into the handler: their errors and their time
 * limit. Worker's thread.
 *
 * Every call into the VM goes through cn_lua_protect, or through lua_resume in lua_step.c, so that
 * an error that the handler raises ends its call and nothing else. The first function that learns
 * of an error is on_error: it runs before the stack unwinds, writes the traceback to the log, and
 * leaves the error value for the caller, which makes the client's reply of it (lua_reply.c).
 *
 * The time limit is a count hook: after every HOOK_EVERY instructions Lua calls time_hook, which
 * compares the clock with rt->deadline_ms and raises an error when the time is up. A handler may
 * catch that error with pcall and go on. Therefore rt->expired is set first and the hook then
 * fires at each instruction: the next one outside of the pcall raises again, until the handler is
 * left. The caller looks at rt->expired as well as at the result, because a handler that catches
 * the error in its last instruction returns as if nothing had happened.
 *
 * What the hook cannot stop, lua_watch.c does.
 *
 * A hook belongs to one coroutine, so each new coroutine gets its own (cn_lua_hook_coroutine). One
 * that outlives a call whose time was up keeps the hook that fires at each instruction until it
 * runs again: time_hook then sees that there is time and sets the usual count.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

/* Instructions between two looks at the clock, which take about 50 us. */
#define HOOK_EVERY 4000

/* --- errors --- */

void
cn_lua_client_error(lua_State *L, int status, const char *fmt, ...)
{
    va_list args;

    lua_createtable(L, 0, 2);
    lua_pushinteger(L, status);
    lua_setfield(L, -2, "status");
    va_start(args, fmt);
    lua_pushvfstring(L, fmt, args);
    va_end(args);
    lua_setfield(L, -2, "message");
    lua_error(L);
    __builtin_unreachable();
}

/* Logs the first line of the message, which begins with file:line, and what is below it as one
 * event. The traceback loses Lua's heading and its last line, which is C code of this file. */
static void
log_error_lines(const struct lua_rt *rt, const char *message, const char *traceback)
{
    static const char heading[] = "stack traceback:\n", last[] = "\n\t[C]: in ?";
    char error[1200], sequence[300] = "", quoted[320], trace[1900], quoted_trace[2000];
    size_t first = strcspn(message, "\n"), len;
    const char *rest = message + first;

    if (rt->current && rt->current->row->sequence_id.len) {
        struct cn_str id = cn_sequence_id_shown(rt->current->row->sequence_id);

        snprintf(sequence, sizeof(sequence), " sequence=%s",
                 cn_log_quote(id.ptr, id.len, quoted, 280));
    }
    if (strncmp(traceback, heading, sizeof(heading) - 1) == 0)
        traceback += sizeof(heading) - 1;
    len = strlen(traceback);
    if (len >= sizeof(last) - 1 && strcmp(traceback + len - (sizeof(last) - 1), last) == 0)
        len -= sizeof(last) - 1;
    else if (strcmp(traceback, last + 1) == 0)
        len = 0;
    snprintf(trace, sizeof(trace), "%s%s%.*s", *rest ? rest + 1 : "", *rest && len ? "\n" : "",
             (int)len, traceback);
    cn_log(CN_LOG_WARN, "event=handler_error model=%s version=%s%s error=%s%s%s", rt->model,
           rt->version, sequence, cn_log_quote(message, first, error, sizeof(error)),
           trace[0] ? " traceback=" : "",
           trace[0] ? cn_log_quote(trace, strlen(trace), quoted_trace, sizeof(quoted_trace)) : "");
}

void
cn_lua_log_error(lua_State *L, lua_State *of)
{
    struct lua_rt *rt = lua_rt_of(L);

    if (lua_type(L, 1) == LUA_TTABLE)
        return;
    if (lua_type(L, 1) != LUA_TSTRING) {
        luaL_tolstring(L, 1, NULL);
        lua_replace(L, 1);
    }
    cn_lua_add_hint(L);
    luaL_traceback(L, of, NULL, L == of); /* 1: without the message handler itself */
    log_error_lines(rt, lua_tostring(L, 1), lua_tostring(L, -1));
    lua_settop(L, 1);
}

/* The message handler of every call: the traceback goes to the log, the error on to the reply. */
static int
on_error(lua_State *L)
{
    cn_lua_log_error(L, L);
    return 1;
}

int
cn_lua_protect(struct lua_rt *rt, lua_CFunction fn, void *arg)
{
    lua_State *L = rt->L;

    lua_settop(L, 0);
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, fn);
    lua_pushlightuserdata(L, arg);
    return lua_pcall(L, 1, 0, 1);
}

/* --- the time limit --- */

static void
time_hook(lua_State *L, lua_Debug *ar)
{
    struct lua_rt *rt = lua_rt_of(L);

    (void)ar;
    if (!rt->expired && (rt->deadline_ms == CN_NEVER || cn_now_ms() < rt->deadline_ms)) {
        if (lua_gethookcount(L) == 1) /* a coroutine that outlived a call whose time was up */
            lua_sethook(L, time_hook, LUA_MASKCOUNT, HOOK_EVERY);
        return;
    }
    /* From now on at each instruction, here and below: a pcall in the handler may catch this
     * error, and then meets the next one. */
    rt->expired = true;
    lua_sethook(L, time_hook, LUA_MASKCOUNT, 1);
    lua_sethook(rt->L, time_hook, LUA_MASKCOUNT, 1);
    luaL_error(L, "time limit of %d ms reached", (int)(rt->deadline_ms - rt->started_ms));
}

/* `limit_ms` is the end of the model's own limit, which the client's deadline may precede. */
static void
arm(struct lua_rt *rt, uint64_t now_ms, uint64_t deadline_ms, uint64_t limit_ms, bool apart)
{
    if (rt->expired || !lua_gethook(rt->L))
        lua_sethook(rt->L, time_hook, LUA_MASKCOUNT, HOOK_EVERY);
    rt->expired = false;
    rt->started_ms = now_ms;
    rt->deadline_ms = deadline_ms;
    cn_lua_watch_call(rt, limit_ms, apart);
}

void
cn_lua_arm(struct lua_rt *rt, uint64_t now_ms, uint64_t deadline_ms)
{
    const uint64_t limit_ms = rt->step_time_ms ? now_ms + rt->step_time_ms : CN_NEVER;

    arm(rt, now_ms, limit_ms < deadline_ms ? limit_ms : deadline_ms, limit_ms, false);
}

void
cn_lua_arm_timer(struct lua_rt *rt)
{
    const uint64_t now_ms = cn_now_ms();
    const uint64_t limit_ms = rt->step_time_ms ? now_ms + rt->step_time_ms : CN_NEVER;

    arm(rt, now_ms, limit_ms, limit_ms, true);
}

void
cn_lua_arm_for(struct lua_rt *rt, uint64_t limit_ms, bool apart)
{
    uint64_t now_ms = cn_now_ms();

    arm(rt, now_ms, now_ms + limit_ms, now_ms + limit_ms, apart);
}

void
cn_lua_disarm(struct lua_rt *rt)
{
    arm(rt, 0, CN_NEVER, CN_NEVER, false);
}

void
cn_lua_hook_next(struct lua_rt *rt)
{
    lua_State *running = rt->running;

    lua_sethook(running ? running : rt->L, time_hook, LUA_MASKCOUNT, 1);
}

void
cn_lua_hook_coroutine(lua_State *L, lua_State *coroutine)
{
    if (coroutine)
        lua_sethook(coroutine, time_hook, LUA_MASKCOUNT, lua_rt_of(L)->expired ? 1 : HOOK_EVERY);
}
