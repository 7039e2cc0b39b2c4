/* handlers/lua/lua_stack.c - continuo.stack and continuo.reply_stack: the rows of a batch as one
 * tensor, and one tensor as the replies of all rows, for batch(items). Worker's thread.
 *
 * Both work on the bytes and build no Lua table of values. The outputs of a batch are packed into
 * rt->stacked and then split over the items; if their rows do not fit, no item is answered.
 */
#include <string.h>

#include "core/memory/arena.h"
#include "handlers/lua/lua_priv.h"
#include "handlers/reply.h"
#include "proto/tensor.h"

#define ITEMS_MAX 65536 /* batchSize has no more */

/* Pushes the items of the table at index 1 as an array in a userdata, and returns the array. Raises
 * if the table has other values. */
static struct cn_item **
check_items(lua_State *L, lua_Integer *n)
{
    struct cn_item **items;

    luaL_checktype(L, 1, LUA_TTABLE);
    *n = luaL_len(L, 1); /* a metamethod may return any number here */
    if (*n < 0 || *n > ITEMS_MAX)
        luaL_error(L, "%I items: a batch may have 0 to %d", *n, ITEMS_MAX);
    items = lua_newuserdatauv(L, sizeof(struct cn_item *) * (size_t)(*n > 0 ? *n : 1), 0);
    for (lua_Integer i = 0; i < *n; i++) {
        lua_rawgeti(L, 1, i + 1);
        items[i] = cn_lua_request_item(L, -1);
        lua_pop(L, 1);
    }
    return items;
}

static bool
find_tensor(const struct cn_item *item, struct cn_str name, struct cn_tensor *out)
{
    struct cn_error err;

    for (uint32_t i = 0; i < item->row->n_parts; i++)
        if (cn_str_eq(item->row->parts[i].name, name) &&
            cn_tensor_of_part(&item->row->parts[i], out))
            return cn_tensor_check(out, &err) == 0;
    return false;
}

/* continuo.stack(items, name) -> a tensor, as in inputs; nil where an item has none of that name,
 * or one of another shape */
int
cn_lua_stack(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_tensor all = {.type = CN_DATATYPE_NONE}, one;
    struct cn_str name;
    struct cn_item **items;
    lua_Integer n;

    name.ptr = luaL_checklstring(L, 2, &name.len);
    items = check_items(L, &n);
    cn_buf_reset(&rt->scratch);
    for (lua_Integer i = 0; i < n; i++) {
        if (!find_tensor(items[i], name, &one) || !cn_tensor_stack(&all, &one, rt->batched)) {
            lua_pushnil(L);
            return 1;
        }
        cn_buf_append_str(&rt->scratch, one.data);
    }
    if (n == 0)
        return luaL_error(L, "continuo.stack: there are no items");
    if (rt->scratch.failed)
        return luaL_error(L, "continuo.stack: not enough memory for the tensor");
    all.data = cn_buf_str(&rt->scratch);
    cn_lua_push_tensor(L, &all);
    return 1;
}

static uint64_t
rows_of(const struct lua_rt *rt, const struct cn_item *item)
{
    struct cn_tensor first;

    return rt->batched && item->row->n_parts && cn_tensor_of_part(&item->row->parts[0], &first) &&
                   first.rank
               ? (uint64_t)first.shape[0]
               : 1;
}

/* Puts the item's rows of each tensor into its reply. It calls no function of Lua: an error would
 * jump over the code that frees the arena. */
static int
put_rows(const struct lua_rt *rt, struct cn_item *item, struct cn_tensor *rest, uint32_t n,
         struct cn_error *err)
{
    struct cn_reply *reply = &item->reply;
    struct cn_tensor rows;

    cn_write_u32(&reply->body, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!cn_tensor_take(&rest[i], rows_of(rt, item), rt->batched, &rows))
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "output '%.*s' has fewer rows than the items together",
                           CN_STR_ARG(rest[i].name));
        cn_tensors_put_one(&reply->body, &rows);
    }
    if (cn_reply_set_content_type(reply, CN_STR(CN_TENSORS_TYPE), err))
        return err->code;
    return cn_reply_check_body(reply, err);
}

static int
split(struct lua_rt *rt, struct cn_item **items, lua_Integer n, struct cn_error *err)
{
    struct cn_tensor *rest;
    struct cn_arena arena;
    uint32_t n_tensors;
    int rc;

    cn_arena_init(&arena);
    rc = cn_tensors_get(cn_buf_str(&rt->stacked.body), &arena, &rest, &n_tensors, err);
    for (lua_Integer i = 0; rc == 0 && i < n; i++)
        rc = put_rows(rt, items[i], rest, n_tensors, err);
    for (uint32_t i = 0; rc == 0 && i < n_tensors; i++)
        if (rest[i].shape[0] != 0)
            rc = cn_fail(err, CN_E_HANDLER_FAILED,
                         "output '%.*s' has more rows than the items together",
                         CN_STR_ARG(rest[i].name));
    cn_arena_fini(&arena);
    return rc;
}

/* continuo.reply_stack(items, outputs): `outputs` is what a reply has, with the rows of all items
 * behind each other. Raises if the number of rows is not that of the items; then no item is
 * answered. */
int
cn_lua_reply_stack(lua_State *L)
{
    struct lua_rt *rt = lua_rt_of(L);
    struct cn_error err;
    struct cn_item **items;
    lua_Integer n;

    luaL_checkany(L, 2);
    items = check_items(L, &n);
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        if (cn_lua_request_answered(L, -1))
            return luaL_error(L, "continuo.reply_stack: item %I is already answered", i);
        lua_pop(L, 1);
    }
    cn_buf_reset(&rt->stacked.body);
    cn_lua_set_outputs(L, 2, &rt->stacked);
    if (rt->stacked.body.failed)
        return luaL_error(L, "continuo.reply_stack: not enough memory for the outputs");
    for (lua_Integer i = 0; i < n; i++)
        cn_reply_begin(&items[i]->reply);
    if (split(rt, items, n, &err)) {
        for (lua_Integer i = 0; i < n; i++)
            cn_buf_reset(&items[i]->reply.body);
        return luaL_error(L, "continuo.reply_stack: %s", err.message);
    }
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 1, i);
        cn_lua_request_set_answered(L, -1);
        lua_pop(L, 1);
    }
    return 0;
}
