/* management/models/swap_orders.c - what a version's queue is told when the version becomes the
 * default, or is no longer the default. Loop 0.
 */
#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "management/models/lifecycle_priv.h"

struct order {
    struct cn_model_queue *queue; /* still lives: the message that ends it would come after ours */
    enum cn_swap_policy policy;
    bool retired;
};

/* On the queue's loop. */
static void
do_order(void *ctx)
{
    struct order *order = ctx;

    cn_model_queue_set_swap_policy(order->queue, order->policy);
    cn_model_queue_set_retired(order->queue, order->retired);
    cn_free(order);
}

void
cn_swap_tell_queue(const struct cn_version *version)
{
    struct order *order = cn_alloc(sizeof *order);

    *order = (struct order){version->queue, version->swap_policy, version->retired};
    cn_call_on(cn_model_queue_loop(version->queue), do_order, order);
}

void
cn_swap_take_back(struct cn_version *version)
{
    cn_timer_cancel(&version->retire_timer);
    version->retire_wall_ms = 0;
    version->retired = false;
}

void
cn_swap_default_again(struct cn_version *version, bool for_now)
{
    bool was_retired = version->retired;

    if (for_now && !was_retired)
        return;
    cn_swap_take_back(version);
    if (was_retired)
        cn_swap_tell_queue(version);
}
