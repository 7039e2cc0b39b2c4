/* handlers/lua/streams/lua_open.c - requests that stay open when their handler has returned.
 * Worker's thread.
 *
 * req:defer() asks for it. What the handler answers afterwards, in a call for another request or
 * from a timer, is collected in an item of the request's own (handlers/open_item.h), which leaves
 * when the worker runs the request's item again.
 *
 * The life of an open request: cn_lua_leave_open puts it into the registry, so that the collector
 * keeps it; the worker's item has it as its `resume`. Each run first tells the handler if the item
 * is to end (cn_lua_run_open, once), and last takes what the handler has answered
 * (cn_lua_settle_open). When the answer is over, has failed, or the worker gives it up,
 * cn_lua_drop_open ends it; a request that the handler still holds is invalid from then on.
 */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"
#include "handlers/open_item.h"

#define OPEN_MAGIC 0x4c4f504eu

struct lua_open {
    uint32_t magic; /* the first member, as in the struct of a coroutine */
    bool told;      /* the handler was told that the request is to end */
    int ref;        /* the request, in the registry */
    struct cn_open_item base;
};

bool
cn_lua_is_open(const void *resume)
{
    return *(const uint32_t *)resume == OPEN_MAGIC;
}

static struct lua_open *
open_of(void *resume)
{
    return cn_cast(struct lua_open, (struct lua_open *)resume, OPEN_MAGIC);
}

struct lua_open *
cn_lua_leave_open(lua_State *L, int request, struct cn_item *item)
{
    struct lua_open *open;
    int ref;

    lua_pushvalue(L, request);
    /* it may raise an error, so it comes before there is something to free */
    ref = luaL_ref(L, LUA_REGISTRYINDEX);
    open = cn_alloc(sizeof(*open));
    open->magic = OPEN_MAGIC;
    open->ref = ref;
    cn_open_item_init(&open->base, &lua_rt_of(L)->base, item);
    cn_lua_open_request_as(L, request, &open->base);
    return open;
}

void
cn_lua_drop_open(struct lua_rt *rt, void *resume)
{
    struct lua_open *open = open_of(resume);

    lua_rawgeti(rt->L, LUA_REGISTRYINDEX, open->ref);
    cn_lua_open_request_as(rt->L, lua_gettop(rt->L), NULL);
    lua_pop(rt->L, 1);
    luaL_unref(rt->L, LUA_REGISTRYINDEX, open->ref);
    cn_open_item_fini(&open->base);
    open->magic = 0;
    cn_free(open);
}

/* on_stop(req, reason) */
static int
stop_protected(lua_State *L)
{
    struct lua_open *open = lua_touserdata(L, 1);
    struct lua_rt *rt = lua_rt_of(L);

    lua_rawgeti(L, LUA_REGISTRYINDEX, open->ref);
    cn_lua_get_request_stop(L, 2);
    if (lua_isnil(L, 3))
        return 0;
    lua_pushvalue(L, 2);
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->stop_words);
    lua_rawgeti(L, -1, open->base.item.stop);
    lua_remove(L, -2);
    lua_call(L, 2, 0);
    return 0;
}

void
cn_lua_run_open(struct lua_rt *rt, struct cn_item *item)
{
    struct lua_open *open = open_of(item->resume);

    open->base.item.deadline_ms = item->deadline_ms;
    open->base.item.stop = item->stop;
    if (item->stop == CN_STOP_NONE || open->told || open->base.over)
        return;
    open->told = true;
    rt->current = item;
    cn_lua_arm(rt, cn_now_ms(), CN_NEVER);
    cn_lua_settle_failure(rt, cn_lua_protect(rt, stop_protected, open), &open->base.item);
    rt->current = NULL;
}

struct keep {
    struct lua_open *open;
    struct cn_item *item;
};

static int
keep_protected(lua_State *L)
{
    const struct keep *keep = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, keep->open->ref);
    cn_lua_keep_state(L, 2, keep->item);
    return 0;
}

void
cn_lua_settle_open(struct lua_rt *rt, struct cn_item *item)
{
    struct lua_open *open = open_of(item->resume);
    struct keep keep = {open, item};

    if (item->reply.error_code == 0)
        cn_open_item_take(&open->base, item);
    if (item->reply.error_code == 0 && !item->reply.more && rt->stateful)
        cn_lua_settle_failure(rt, cn_lua_protect(rt, keep_protected, &keep), item);
    if (item->reply.more)
        return;
    cn_lua_drop_open(rt, open);
    item->resume = NULL;
}
