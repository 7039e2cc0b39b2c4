/* frontend/intake/unread.c - a list of unread answers for each loop, and one sum. The sum is
 * atomic, and everything else belongs to its loop. */
#include "frontend/intake/unread.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "core/loop/loop.h"
#include "metrics/counters/metrics.h"

#define LOOPS_MAX 64 /* of the option --loops */

static _Atomic uint64_t sum, limit = UINT64_MAX;
static struct cn_list lists[LOOPS_MAX];

static struct cn_list *
list_of(const struct cn_loop *loop)
{
    struct cn_list *list = &lists[cn_loop_index(loop) % LOOPS_MAX];

    if (!list->next)
        cn_list_init(list);
    return list;
}

void
cn_unread_set_limit(uint64_t bytes)
{
    atomic_store(&limit, bytes);
}

void
cn_unread_sub(struct cn_loop *loop, struct cn_unread *unread, size_t bytes)
{
    if (bytes >= unread->bytes) {
        cn_unread_done(loop, unread);
        return;
    }
    unread->bytes -= bytes;
    atomic_fetch_sub_explicit(&sum, bytes, memory_order_relaxed);
    cn_metrics_sub(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, bytes);
}

void
cn_unread_done(struct cn_loop *loop, struct cn_unread *unread)
{
    if (!unread->bytes)
        return;
    atomic_fetch_sub_explicit(&sum, unread->bytes, memory_order_relaxed);
    cn_metrics_sub(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, unread->bytes);
    unread->bytes = 0;
    cn_list_remove(&unread->link);
}

void
cn_unread_add(struct cn_loop *loop, struct cn_unread *unread, size_t bytes)
{
    struct cn_list *list = list_of(loop);

    if (!unread->bytes && bytes < CN_UNREAD_LEAST)
        return;
    if (!unread->bytes)
        cn_list_push_back(list, &unread->link);
    unread->bytes += bytes;
    atomic_fetch_add_explicit(&sum, bytes, memory_order_relaxed);
    cn_metrics_add(cn_loop_metrics(loop), CN_M_UNREAD_BYTES, bytes);
    while (atomic_load_explicit(&sum, memory_order_relaxed) > limit && !cn_list_empty(list)) {
        struct cn_unread *oldest = cn_container_of(list->next, struct cn_unread, link);

        cn_unread_done(loop, oldest);
        cn_metrics_add(cn_loop_metrics(loop), CN_M_UNREAD_CUT, 1);
        oldest->drop(oldest);
    }
}
