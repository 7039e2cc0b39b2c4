/* management/repository/repository_order.c - an order to the repository: whether it may be carried
 * out, and its answer. Loop 0; the answer goes to the loop that the order came from.
 */
#include <string.h>

#include "management/repository/repository_priv.h"

int
cn_repository_check(struct cn_repository_order *order)
{
    const struct cn_management *management = order->management;
    struct cn_error *err = &order->err;
    struct cn_str name = order->name;
    bool blank = true;

    if (atomic_load(&management->draining))
        return cn_fail(err, CN_E_DRAINING, "the server is stopping");
    if (order->what == CN_REPOSITORY_INDEX)
        return 0;
    if (management->config->model_control_mode != CN_CONTROL_EXPLICIT ||
        !management->config->model_api)
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "explicit model load / unload is not allowed if polling is enabled "
                       "(--model-control-mode explicit allows it)");
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] != ' ' && name.ptr[i] != '\t')
            blank = false;
    if (blank)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "Model name cannot be empty. Please enter a valid name to deploy.");
    if (memchr(name.ptr, '/', name.len) || memmem(name.ptr, name.len, "..", 2) ||
        memchr(name.ptr, '\0', name.len))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "invalid model name '%.*s', model name must not contain path traversal "
                       "characters",
                       CN_STR_ARG(name));
    return 0;
}

static void
answer_there(struct cn_msg *msg)
{
    struct cn_repository_order *order = cn_container_of(msg, struct cn_repository_order, msg);
    struct cn_arena arena = order->arena;

    order->on_done(order); /* the order's memory may be freed now */
    cn_arena_fini(&arena);
}

void
cn_repository_answer(struct cn_repository_order *order)
{
    struct cn_management *management = order->management;

    order->msg.fn = answer_there;
    cn_loop_post(order->origin, &order->msg);
    cn_management_op_end(management);
}
