/* management/pool/strike.c - kills one worker of a pool, on its loop, and answers on loop 0. */
#include "core/loop/loop_call.h"
#include "management/pool/worker_pool_priv.h"

static void
answer_strike(void *ctx)
{
    struct cn_worker_pool_strike *strike = ctx;

    strike->on_done(strike);
}

static void
do_strike(void *ctx)
{
    struct cn_worker_pool_strike *strike = ctx;
    struct cn_list *node;

    strike->pid = 0;
    cn_list_for_each(node, &strike->pool->members) {
        struct cn_worker_process *worker = cn_worker_pool_member_of(node)->worker;

        if (cn_worker_index(worker) == strike->index)
            strike->pid = cn_worker_strike(worker, "an operator asked for it");
    }
    cn_call_on(strike->pool->spec.home, answer_strike, strike);
}

void
cn_worker_pool_strike(struct cn_worker_pool *pool, struct cn_worker_pool_strike *strike)
{
    strike->pool = pool;
    cn_call_on(pool->spec.loop, do_strike, strike);
}
