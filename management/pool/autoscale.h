/* management/pool/autoscale.h - how many workers a model should have, from its load.
 *
 * There is one more worker when a step has waited for `up_ms` and all workers are ready. There is
 * one less when for `down_ms` the others would have had time for all that was done, and none when
 * nothing came in that time. After a change the load is measured anew, so the number does not
 * swing. It has no clock and no loop: the caller says what time it is.
 */
#ifndef CN_MANAGEMENT_POOL_AUTOSCALE_H
#define CN_MANAGEMENT_POOL_AUTOSCALE_H

#include <stdbool.h>
#include <stdint.h>

enum cn_scale_reason {
    CN_SCALED_NOT,
    CN_SCALED_ORDER,  /* an operator or the registration ordered it */
    CN_SCALED_DEMAND, /* there was no worker, and a step came */
    CN_SCALED_QUEUE,  /* steps waited */
    CN_SCALED_IDLE    /* there was little or nothing to do */
};
/* "order" "demand" "queue" "idle"; "" for none. */
const char *cn_scale_reason_word(enum cn_scale_reason reason);

struct cn_autoscale {
    uint32_t up_ms, down_ms; /* down_ms 0: never less */
    /* Since when it has been as quiet as now, and the counters at that time. */
    uint64_t since_ms, busy_us, jobs;
};

struct cn_autoscale_seen {
    uint64_t now_ms;
    uint64_t wait_ms;     /* the longest wait for a worker since the last look */
    uint64_t busy_us;     /* all time in the handler since the start, of all workers */
    uint64_t jobs;        /* the number of jobs that came since the start */
    bool waiting, active; /* waiting: jobs wait for a worker; active: workers have jobs */
    bool settled;         /* as many workers are ready as there should be */
    uint32_t wanted, min, max;
};

/* How many workers there should be now: `wanted`, or one more or less; with `reason` why. */
uint32_t cn_autoscale_decide(struct cn_autoscale *autoscale, const struct cn_autoscale_seen *seen,
                             enum cn_scale_reason *reason);
/* The number was changed, so what was measured before no longer counts. */
void cn_autoscale_restart(struct cn_autoscale *autoscale, const struct cn_autoscale_seen *seen);

#endif
