/* management/pool/autoscale.c - decides how many workers a model should have. It has no state
 * but the caller's, no clock and no loop, so tests can go through a day in a moment.
 *
 * One more worker needs a step that waited; one less needs a quiet time. Because the two are so
 * different, the number does not swing. After each change everything is measured anew, and a worker
 * that is still loading is waited for (docs/decisions/0025-workers-follow-queue-time.md).
 */
#include "management/pool/autoscale.h"

/* A worker can go if the others would have been busy for less than this part of the time. At more
 * than that, steps would begin to wait, and it would be started again. */
#define REST_BUSY_PERCENT 60

const char *
cn_scale_reason_word(enum cn_scale_reason reason)
{
    static const char *const words[] = {"", "order", "demand", "queue", "idle"};

    return words[reason];
}

void
cn_autoscale_restart(struct cn_autoscale *autoscale, const struct cn_autoscale_seen *seen)
{
    autoscale->since_ms = seen->now_ms;
    autoscale->busy_us = seen->busy_us;
    autoscale->jobs = seen->jobs;
}

/* Was there so little to do since the last restart that one worker can go? */
static bool
can_spare_one(const struct cn_autoscale *autoscale, const struct cn_autoscale_seen *seen)
{
    uint64_t span_us = (seen->now_ms - autoscale->since_ms) * 1000;
    uint64_t busy_us = seen->busy_us - autoscale->busy_us;

    if (seen->wanted <= seen->min)
        return false;
    if (seen->wanted == 1)
        return seen->jobs == autoscale->jobs && !seen->waiting && !seen->active;
    return busy_us < span_us / 100 * REST_BUSY_PERCENT * (seen->wanted - 1);
}

uint32_t
cn_autoscale_decide(struct cn_autoscale *autoscale, const struct cn_autoscale_seen *seen,
                    enum cn_scale_reason *reason)
{
    bool spare;

    *reason = CN_SCALED_NOT;
    if (seen->wanted == 0) {
        if (!seen->waiting || seen->max == 0)
            return 0;
        cn_autoscale_restart(autoscale, seen);
        *reason = CN_SCALED_DEMAND;
        return 1;
    }
    if (seen->wait_ms >= autoscale->up_ms) {
        cn_autoscale_restart(autoscale, seen);
        if (!seen->settled || seen->wanted >= seen->max)
            return seen->wanted;
        *reason = CN_SCALED_QUEUE;
        return seen->wanted + 1;
    }
    if (autoscale->down_ms == 0 || seen->now_ms - autoscale->since_ms < autoscale->down_ms)
        return seen->wanted;
    spare = can_spare_one(autoscale, seen);
    cn_autoscale_restart(autoscale, seen);
    if (!spare)
        return seen->wanted;
    *reason = CN_SCALED_IDLE;
    return seen->wanted - 1;
}
