/* scheduler/swap/peers.c - which other versions of its model a step may be forwarded to. On the
 * queue's loop.
 *
 * The scheduler does not know the models. The queue's family, which the management gives it, lists
 * the queues of all versions of a model; a serial number that rises with each registration tells
 * younger versions from older ones.
 */
#include "scheduler/swap/peers.h"

#include "scheduler/queue/model_queue_priv.h"

int
cn_swap_find_peer(const struct cn_model_queue *queue, uint32_t below, uint32_t exactly,
                  struct cn_model_queue **out, struct cn_error *err)
{
    struct cn_model_queue *other;
    unsigned i;
    int rc;

    *out = NULL;
    for (i = 0;; i++) {
        rc = queue->family.version_at(queue->family.ctx, cn_str_from(queue->name), i, &other, err);
        if (rc || !other)
            return rc;
        if (other == queue || !other->stateful || other->serial >= below ||
            (exactly && other->serial != exactly) || (*out && other->serial < (*out)->serial))
            continue;
        *out = other;
    }
}

bool
cn_swap_may_leave(const struct cn_model_queue *queue, const struct cn_job *job)
{
    struct cn_model_queue *peer;

    if (!job->any_version || !queue->stateful || !queue->family.version_at ||
        (job->row.flags & CN_ROW_GENERATED_ID))
        return false;
    return cn_swap_find_peer(queue, UINT32_MAX, 0, &peer, NULL) || peer;
}
