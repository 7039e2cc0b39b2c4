/* handlers/lua/lua_call.c - runs one batch through the handler: row by row (lua_step.c), or as a
 * whole by batch(items). Worker's thread.
 *
 * A batch may contain three kinds of items: new ones, streams that go on (lua_step.c), and open
 * ones that the handler answers later (lua_open.c). Open items are moved to the front and their
 * handlers are told there if the items are to end; what is behind them is the batch. They are
 * settled last, because the call for a new row may have answered one of them.
 *
 * batch(items) gets all new rows in one call. What fails in that call fails every row of it, except
 * those that the handler has refused by themselves. Requests are valid in their own call only:
 * call_serial changes at the beginning and at the end, and each use of a request compares it.
 *
 * Nothing here allocates in the VM outside of a protected call.
 */
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/lua/lua_priv.h"

/* --- batches --- */

static int
begin_batch_protected(lua_State *L)
{
    lua_newtable(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &lua_rt_of(L)->entries);
    return 0;
}

/* Makes the item's request and appends it to the batch's table. */
static int
add_item_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_item *item = lua_touserdata(L, 1);

    cn_lua_push_request(L, item);
    cn_lua_attach_state(L, 2, item);
    lua_rawgetp(L, LUA_REGISTRYINDEX, &rt->entries);
    lua_pushvalue(L, 2);
    lua_rawseti(L, -2, (lua_Integer)rt->n_entries + 1);
    return 0;
}

static int
batch_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);

    /* The handler gets a table of its own: what it does with it must not disturb the answers. */
    lua_rawgetp(L, LUA_REGISTRYINDEX, &rt->entries);
    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_run);
    lua_createtable(L, (int)rt->n_entries, 0);
    for (uint32_t i = 1; i <= rt->n_entries; i++) {
        lua_rawgeti(L, 2, i);
        lua_rawseti(L, -2, i);
    }
    lua_call(L, 1, 0);
    return 0;
}

/* Finds out whether the handler has answered the entry's request, and if so keeps its state. A
 * request that the handler has deferred counts as answered and stays open. */
static int
settle_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct lua_entry *entry = lua_touserdata(L, 1);

    lua_rawgetp(L, LUA_REGISTRYINDEX, &rt->entries);
    lua_rawgeti(L, 2, entry - rt->entries + 1);
    entry->answered = cn_lua_request_answered(L, 3);
    if (!entry->answered && cn_lua_request_deferred(L, 3)) {
        entry->item->resume = cn_lua_leave_open(L, 3, entry->item);
        entry->answered = true;
    }
    if (entry->answered && entry->item->reply.error_code == 0)
        cn_lua_keep_state(L, 3, entry->item);
    return 0;
}

/* Fails the whole batch with the error of `rc`, except items that the handler has refused by
 * themselves. */
static void
fail_slots(struct lua_rt *rt, int rc)
{
    struct cn_reply why;

    if (rc == LUA_OK)
        lua_pushnil(rt->L);
    cn_reply_init(&why, 0);
    cn_lua_fail_reply(rt->L, rc, &why);
    for (uint32_t i = 0; i < rt->n_entries; i++) {
        struct cn_reply *reply = &rt->entries[i].item->reply;

        if (reply->error_code != 0)
            continue;
        cn_reply_fail(reply, why.error_code, "%.*s", CN_STR_ARG(cn_buf_str(&why.body)));
        reply->status = why.status;
    }
    cn_reply_fini(&why);
}

static void
settle_slots(struct lua_rt *rt)
{
    uint32_t answered = 0;

    for (uint32_t i = 0; i < rt->n_entries; i++) {
        struct lua_entry *entry = &rt->entries[i];

        if (cn_lua_settle_failure(rt, cn_lua_protect(rt, settle_protected, entry), entry->item))
            entry->answered = true; /* no memory for the state: it has its error */
        answered += entry->answered;
    }
    if (answered == rt->n_entries)
        return;
    for (uint32_t i = 0; i < rt->n_entries; i++)
        if (!rt->entries[i].answered)
            cn_reply_fail(&rt->entries[i].item->reply, CN_E_HANDLER_FAILED,
                          "Prediction failed: %s: handler answered %u of %u items: batch(items) "
                          "must call it:reply, it:fail or it:defer for each item",
                          rt->file, answered, rt->n_entries);
    cn_log(CN_LOG_WARN,
           "event=handler_error model=%s version=%s error=\"batch(items) answered %u "
           "of %u items\"",
           rt->model, rt->version, answered, rt->n_entries);
}

/* Fills the entries. An item that fails here gets its error and no entry. */
static int
gather_slots(struct lua_rt *rt, struct cn_item **items, uint32_t n, uint64_t now_ms)
{
    uint64_t latest = 0;
    int rc;

    if (n > rt->cap_entries) {
        cn_free(rt->entries);
        rt->entries = cn_alloc(n * sizeof(*rt->entries)); /* n: at most the model's batchSize */
        rt->cap_entries = n;
    }
    rt->n_entries = 0;
    for (uint32_t i = 0; i < n; i++)
        if (items[i]->deadline_ms > latest)
            latest = items[i]->deadline_ms;
    /* One limit for the batch, that of its most patient item. */
    cn_lua_arm(rt, now_ms, latest);
    if ((rc = cn_lua_protect(rt, begin_batch_protected, NULL)) != LUA_OK)
        return rc;
    for (uint32_t i = 0; i < n; i++) {
        rt->current = items[i];
        if (cn_lua_fail_when_late(items[i], now_ms) ||
            cn_lua_settle_failure(rt, cn_lua_protect(rt, add_item_protected, items[i]), items[i]))
            continue;
        rt->entries[rt->n_entries++] = (struct lua_entry){.item = items[i]};
    }
    rt->current = NULL;
    return LUA_OK;
}

static void
run_batch(struct lua_rt *rt, struct cn_item **items, uint32_t n)
{
    int rc = gather_slots(rt, items, n, cn_now_ms());

    if (rc != LUA_OK) { /* no memory for the batch's own table */
        rt->n_entries = 0;
        for (uint32_t i = 0; i < n; i++)
            rt->entries[rt->n_entries++] = (struct lua_entry){.item = items[i]};
        fail_slots(rt, rc);
        return;
    }
    if (rt->n_entries == 0)
        return;
    rc = cn_lua_protect(rt, batch_protected, NULL);
    if (rc != LUA_OK || rt->expired)
        fail_slots(rt, rc);
    else
        settle_slots(rt);
    /* The requests are over. From here on only the handler itself may still hold one of them. */
    lua_settop(rt->L, 0);
    cn_lua_protect(rt, begin_batch_protected, NULL);
    lua_settop(rt->L, 0);
}

/* Tells the handlers of open items if these are to end, and moves the open items to the front.
 * Returns how many there are. */
static uint32_t
run_open(struct lua_rt *rt, struct cn_item **items, uint32_t n)
{
    uint32_t n_open = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct cn_item *item = items[i];

        if (!item->resume || !cn_lua_is_open(item->resume))
            continue;
        cn_lua_run_open(rt, item);
        items[i] = items[n_open];
        items[n_open++] = item;
    }
    return n_open;
}

void
cn_lua_run(struct lua_rt *rt, struct cn_item **items, uint32_t n)
{
    uint32_t n_open;

    rt->call_serial++;
    cn_lua_prefetch_states(rt, items, n);
    n_open = run_open(rt, items, n);
    if (rt->mode == LUA_MODE_BATCH && n > n_open)
        run_batch(rt, items + n_open, n - n_open);
    else
        for (uint32_t i = n_open; i < n; i++)
            cn_lua_run_step(rt, items[i]);
    /* The time limit of the last row's call is not that of the requests that are open. */
    cn_lua_disarm(rt);
    /* Last, since one row's call may have answered another. */
    for (uint32_t i = 0; i < n; i++)
        if (items[i]->resume && cn_lua_is_open(items[i]->resume))
            cn_lua_settle_open(rt, items[i]);
    rt->call_serial++; /* requests that the handler kept are over */
}

/* --- the handler about itself --- */

/* Nobody probes the modules that a handler loads: the handler alone decides what it gives to them,
 * and which rows together. So the description says, under the name that a TorchScript model's probe
 * has, that there was no probe, unless the handler itself has put something there. The JSON object
 * in `body` gets one more key. */
static void
say_no_probe(const struct lua_rt *rt, struct cn_buf *body)
{
    if (!rt->torch || body->len < 2 || body->data[body->len - 1] != '}')
        return;
    body->len--;
    if (body->data[body->len - 1] != '{')
        cn_buf_puts(body, ",");
    cn_buf_puts(body, "\"probe\":{\"result\":\"none\",\"reason\":\"");
    cn_buf_puts(
        body,
        rt->mode == LUA_MODE_BATCH
            ? "batch(items) of the handler composes the runs of its TorchScript modules: the "
              "server has not tried whether rows that run together change each other's results"
            : "the handler runs its TorchScript modules itself: the server has not tried whether "
              "a module keeps something from one sequence's run to the next one's");
    cn_buf_puts(body, "; docs/torch.md says under \\\"Rows in a Lua handler\\\" how to try it\"}}");
}

static int
describe_protected(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_item *item = lua_touserdata(L, 1);

    lua_rawgeti(L, LUA_REGISTRYINDEX, rt->fn_describe);
    lua_call(L, 0, 1);
    if (!lua_istable(L, -1))
        return luaL_error(L, "%s: describe() must return a table, got %s", rt->file,
                          luaL_typename(L, -1));
    cn_lua_json_encode(L, lua_gettop(L), "describe()", &item->reply.body);
    lua_pushliteral(L, "probe");
    if (lua_rawget(L, -2) == LUA_TNIL)
        say_no_probe(rt, &item->reply.body);
    return 0;
}

void
cn_lua_metadata(struct lua_rt *rt, struct cn_item *item)
{
    if (rt->fn_describe == LUA_NOREF) {
        cn_buf_puts(&item->reply.body, "{}");
        say_no_probe(rt, &item->reply.body);
        return;
    }
    cn_lua_arm(rt, cn_now_ms(), item->deadline_ms);
    cn_lua_settle_failure(rt, cn_lua_protect(rt, describe_protected, item), item);
    cn_lua_disarm(rt);
}
