/* handlers/lua/lua_step.c - runs one row through step(state, req) or handle(req), in a coroutine.
 * Worker's thread.
 *
 * A step that yields is a stream: each value that it yields is a piece of its answer, and it goes
 * on when the worker runs its item again. A step that does not yield costs no coroutine: rt->idle
 * runs one such step after another. When a step yields, the coroutine becomes the stream's (struct
 * lua_step, the item's `resume`), and the next step makes a new one. A coroutine whose step
 * returned becomes idle again; one whose step failed is ended, because Lua cannot resume it.
 *
 * The request of a coroutine is in the registry under the coroutine's address. Both are set once
 * when the coroutine is made, so that later changes of that entry need no memory and cannot fail.
 *
 * A failure belongs to the row alone. Nothing here allocates in the VM outside of a protected call;
 * lua_resume is a protected call, too.
 */
#include <math.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"
#include "handlers/reply.h"

#define STEP_MAGIC 0x4c535450u
/* What a coroutine's pending to-be-closed variables may take when its row is given up. */
#define DROP_LIMIT_MS 1000
#define REST_MAX_S 86400.0

/* An item between two calls. Its request is in the registry under the coroutine. */
struct lua_step {
    uint32_t magic;
    lua_State *co;
    int ref;
};

/* --- in the coroutine --- */

/* Takes what step(state, req) returned: a reply, or nil, message [, status]. The results are at
 * request + 1, + 2 and + 3. A step that has streamed, or that will answer later, may return
 * nothing. */
static void
take_results(lua_State *L, int request, struct cn_item *item)
{
    struct lua_rt *rt = lua_rt_of(L);
    int reply = request + 1;
    const char *name = rt->mode == LUA_MODE_HANDLE ? "handle(req)" : "step(state, req)";

    if (cn_lua_request_answered(L, request)) {
        if (!lua_isnil(L, reply))
            luaL_error(L, "%s: %s answered with a method and also returned a reply", rt->file,
                       name);
    } else if (cn_lua_request_deferred(L, request)) {
        if (!lua_isnil(L, reply) || !lua_isnil(L, reply + 1))
            luaL_error(L, "%s: %s deferred its answer (req:defer) but also returned one", rt->file,
                       name);
        rt->opened = cn_lua_leave_open(L, request, item);
    } else if (!lua_isnil(L, reply)) {
        cn_lua_set_reply(L, reply, &item->reply);
    } else if (lua_type(L, reply + 1) == LUA_TSTRING) {
        struct cn_str message;

        message.ptr = lua_tolstring(L, reply + 1, &message.len);
        cn_lua_refuse(L, reply + 2, message, &item->reply);
    } else if (!item->resume && item->reply.n_chunks == 0) {
        luaL_error(L, "%s: %s returned nothing: return a reply, or nil and a message", rt->file,
                   name);
    } else {
        cn_reply_begin(&item->reply);
    }
}

/* The handler has returned, in this call or in a later one. */
static int
step_end(lua_State *L, int status, lua_KContext context)
{
    int request = 2;
    struct cn_item *item = cn_lua_request_item(L, request);

    (void)status, (void)context;
    take_results(L, request, item);
    if (item->reply.error_code == 0 && !lua_rt_of(L)->expired)
        cn_lua_keep_state(L, request, item);
    return 0;
}

static int
step_begin(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_item *item = lua_touserdata(L, 1);
    int request = 2, args = 1;

    cn_lua_push_request(L, item);
    lua_pushvalue(L, request);
    lua_rawsetp(L, LUA_REGISTRYINDEX, L);
    cn_lua_attach_state(L, request, item);
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_run);
    if (rt->mode == LUA_MODE_STEP) {
        cn_lua_get_request_state(L, request);
        args = 2;
    }
    lua_pushvalue(L, request);
    lua_callk(L, args, 3, 0, step_end);
    return step_end(L, LUA_OK, 0);
}

/* --- its coroutine --- */

static int
make_coroutine(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    lua_State *co = lua_newthread(L);

    /* This makes an entry for the coroutine now, so that a later write to it needs no memory. */
    lua_pushboolean(L, 0);
    lua_rawsetp(L, LUA_REGISTRYINDEX, co);
    rt->idle_ref = luaL_ref(L, LUA_REGISTRYINDEX);
    rt->idle = co;
    return 0;
}

/* Lets go of the coroutine's request. The key stays in the registry, so that this allocates
 * nothing. */
static void
forget_request(lua_State *co)
{
    lua_settop(co, 0);
    lua_pushboolean(co, 0);
    lua_rawsetp(co, LUA_REGISTRYINDEX, co);
}

/* Ends a coroutine whose step failed or was given up. */
static void
end_coroutine(struct lua_rt *rt, lua_State *co, int ref)
{
    lua_resetthread(co); /* closes what the handler marked <close> */
    lua_settop(co, 0);
    lua_pushnil(co);
    lua_rawsetp(co, LUA_REGISTRYINDEX, co);
    luaL_unref(rt->L, LUA_REGISTRYINDEX, ref);
}

/* Keeps a coroutine whose step has returned, for the next step. */
static void
keep_coroutine(struct lua_rt *rt, lua_State *co, int ref)
{
    if (rt->idle && rt->idle != co) {
        end_coroutine(rt, co, ref);
        return;
    }
    forget_request(co);
    rt->idle = co;
    rt->idle_ref = ref;
}

static struct lua_step *
step_of(void *resume)
{
    return cn_cast(struct lua_step, (struct lua_step *)resume, STEP_MAGIC);
}

static void
free_step(struct lua_step *step)
{
    step->magic = 0;
    cn_free(step);
}

/* --- what came of a call --- */

struct outcome {
    lua_State *co;
    struct cn_item *item;
    int rc, n_values; /* of lua_resume */
};

/* coroutine.yield(piece, seconds): both may be nil. */
static int
yielded_protected(lua_State *L)
{
    struct outcome *outcome = lua_touserdata(L, 1);
    struct cn_item *item = outcome->item;
    double seconds;

    lua_settop(L, 0);
    lua_xmove(outcome->co, L, outcome->n_values);
    lua_settop(L, 2);
    lua_rawgetp(L, LUA_REGISTRYINDEX, outcome->co);
    if (cn_lua_request_answered(L, 3))
        luaL_error(L,
                   "%s: coroutine.yield was called after the answer (req:reply, fail or finish); "
                   "yield pieces before it",
                   lua_rt_of(L)->file);
    lua_settop(L, 2);
    if (!lua_isnil(L, 1))
        cn_lua_add_piece(L, 1, &item->reply);
    if (!lua_isnil(L, 2)) {
        seconds = lua_isnumber(L, 2) ? lua_tonumber(L, 2) : -1;
        if (!(seconds >= 0 && seconds <= REST_MAX_S))
            luaL_error(L,
                       "%s: coroutine.yield(piece, seconds): seconds must be from 0 to %d, got %s",
                       lua_rt_of(L)->file, (int)REST_MAX_S, luaL_tolstring(L, 2, NULL));
        item->reply.rest_ms = (uint64_t)ceil(seconds * 1000);
    }
    /* The worker may commit the step now or give it up, so it must have the state. */
    lua_rawgetp(L, LUA_REGISTRYINDEX, outcome->co);
    cn_lua_keep_state(L, -1, item);
    return 0;
}

/* Fails the step with the error value on the top of the coroutine's stack, which was not
 * unwound. */
static int
failed_protected(lua_State *L)
{
    struct outcome *outcome = lua_touserdata(L, 1);

    lua_settop(L, 0);
    lua_xmove(outcome->co, L, 1);
    if (outcome->rc == LUA_ERRRUN)
        cn_lua_log_error(L, outcome->co);
    cn_lua_fail_reply(L, outcome->rc, &outcome->item->reply);
    return 0;
}

/* Takes what lua_resume left behind. True: the handler goes on in a later call. */
static bool
settle(struct lua_rt *rt, struct outcome *outcome)
{
    struct cn_item *item = outcome->item;
    int rc;

    if (outcome->rc == LUA_OK) {
        lua_settop(rt->L, 0);
        cn_lua_settle_failure(rt, LUA_OK, item);
        return false;
    }
    if (outcome->rc == LUA_YIELD) {
        if (outcome->n_values > 2)
            lua_pop(outcome->co, outcome->n_values - 2);
        outcome->n_values = outcome->n_values > 2 ? 2 : outcome->n_values;
        return !cn_lua_settle_failure(rt, cn_lua_protect(rt, yielded_protected, outcome), item);
    }
    rc = cn_lua_protect(rt, failed_protected, outcome);
    if (rc != LUA_OK) /* no memory to say more */
        cn_lua_fail_reply(rt->L, rc, &item->reply);
    return false;
}

/* --- a call --- */

/* Pushes the arguments onto the coroutine's stack, and returns their number. */
static int
push_start(lua_State *co, struct cn_item *item)
{
    lua_pushcfunction(co, step_begin);
    lua_pushlightuserdata(co, item);
    return 1;
}

/* What coroutine.yield returns: true, or nil and why the stream is to end. The words were made
 * before, so that this allocates nothing. */
static int
push_go_on(struct lua_rt *rt, lua_State *co, struct cn_item *item)
{
    lua_rawgetp(co, LUA_REGISTRYINDEX, co);
    cn_lua_renew_request(co, item);
    lua_pop(co, 1);
    if (item->stop == CN_STOP_NONE) {
        lua_pushboolean(co, 1);
        return 1;
    }
    lua_pushnil(co);
    lua_rawgeti(co, LUA_REGISTRYINDEX, rt->stop_words);
    lua_rawgeti(co, -1, item->stop);
    lua_remove(co, -2);
    return 2;
}

static void
call(struct lua_rt *rt, struct cn_item *item, lua_State *co, int ref, int n_args)
{
    struct lua_step *step = item->resume;
    struct outcome outcome = {.co = co, .item = item};
    bool goes_on;

    rt->running = co;
    outcome.rc = lua_resume(co, rt->L, n_args, &outcome.n_values);
    rt->running = NULL;
    goes_on = settle(rt, &outcome);
    item->reply.more = goes_on;
    if (goes_on && !step) {
        step = cn_alloc(sizeof(*step));
        *step = (struct lua_step){STEP_MAGIC, co, ref};
        item->resume = step;
        rt->idle = NULL;
    }
    if (goes_on)
        return;
    if (rt->opened && item->reply.error_code)
        cn_lua_drop_open(rt, rt->opened);
    if (step) {
        free_step(step);
        item->resume = NULL;
    } else {
        rt->idle = NULL;
    }
    if (outcome.rc == LUA_OK)
        keep_coroutine(rt, co, ref);
    else
        end_coroutine(rt, co, ref);
    if (item->reply.error_code == 0)
        item->resume = rt->opened;
    rt->opened = NULL;
}

void
cn_lua_run_step(struct lua_rt *rt, struct cn_item *item)
{
    struct lua_step *step = item->resume ? step_of(item->resume) : NULL;
    uint64_t now_ms = cn_now_ms();

    if (!step && cn_lua_fail_when_late(item, now_ms))
        return;
    rt->current = item;
    /* A stream is told that its deadline has passed; its call is not interrupted for that. */
    cn_lua_arm(rt, now_ms, step ? CN_NEVER : item->deadline_ms);
    if (step)
        call(rt, item, step->co, step->ref, push_go_on(rt, step->co, item));
    else if (rt->idle || !cn_lua_settle_failure(rt, cn_lua_protect(rt, make_coroutine, NULL), item))
        call(rt, item, rt->idle, rt->idle_ref, push_start(rt->idle, item));
    rt->current = NULL;
}

void
cn_lua_drop_step(struct lua_rt *rt, void *resume)
{
    struct lua_step *step = step_of(resume);

    cn_lua_arm_for(rt, DROP_LIMIT_MS, true);
    end_coroutine(rt, step->co, step->ref);
    cn_lua_disarm(rt);
    free_step(step);
}
