/* handlers/c/c_item.c - the checks with which every function of a C handler's item begins (is the
 * handle an item, and may it still be answered), how an item fails, and the states that items
 * carry. Worker's thread. */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/c/c_priv.h"
#include "handlers/reply.h"

struct c_item *
cn_c_item(struct continuo_item *item)
{
    return cn_cast(struct c_item, (struct c_item *)item, C_ITEM_MAGIC);
}

void
cn_c_refuse(struct c_item *item, long long status, const char *message)
{
    item->answered = true;
    cn_reply_refuse(&item->item->reply, status, cn_str_from(message));
    if (item->open)
        cn_open_item_wake(&item->open->base);
}

void
cn_c_fail(struct c_item *item, const char *message)
{
    cn_c_refuse(item, 0, message);
}

bool
cn_c_has_failed(const struct c_item *item)
{
    return item->item->reply.error_code != 0;
}

int
cn_c_open_answer(struct c_item *item)
{
    if (cn_c_has_failed(item))
        return -1;
    if (!item->answered) {
        if (item->open)
            cn_open_item_wake(&item->open->base);
        return 0;
    }
    cn_c_refuse(item, 0, "the handler answered an item twice");
    return -1;
}

/* --- states --- */

struct c_state *
cn_c_state_create(void)
{
    struct c_state *state = cn_alloc(sizeof(*state));

    state->magic = C_STATE_MAGIC;
    return state;
}

void
cn_c_state_destroy(struct c_runtime *rt, struct c_state *state)
{
    if (!state)
        return;
    cn_assert(state->magic == C_STATE_MAGIC);
    if (state->object)
        rt->handler.destroy(&rt->model.handle, state->object);
    cn_free(state->flat);
    state->magic = 0;
    cn_free(state);
}
