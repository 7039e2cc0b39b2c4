/* frontend/page/rates.h - what happened between two looks at a model's counters: steps per second,
 * quantiles of their time, batch size. Any thread, no state. */
#ifndef CN_FRONTEND_PAGE_RATES_H
#define CN_FRONTEND_PAGE_RATES_H

#include <jansson.h>
#include <stdint.h>

#include "core/containers/buckets.h"
#include "metrics/counters/metrics.h"

/* The counters at one moment. */
struct cn_rates_point {
    uint64_t at_us; /* by cn_now_us(); 0: there was no look */
    uint64_t jobs, refused, errors, calls, rows, busy_us;
    uint64_t steps_us[CN_DURATION_VALUES], queue_us[CN_DURATION_VALUES];
};

void cn_rates_take(struct cn_rates_point *point, const struct cn_metrics *metrics, uint64_t at_us);
/* Adds the counters of another model, for the server's sum. */
void cn_rates_add(struct cn_rates_point *sum, const struct cn_rates_point *point);

/* Returns the quantile `q` (0 to 1), in microseconds, of the values that were added to a duration
 * histogram between two readings. Values are taken as evenly spread inside a bucket; what is above
 * the last bucket counts as its end. Negative: none were added. */
double cn_rates_quantile_us(const uint64_t before[CN_DURATION_VALUES],
                            const uint64_t now[CN_DURATION_VALUES], double q);

/* The rates as a JSON object, which is the caller's. Where there is nothing to divide by, a member
 * is null. All are null if there was no look `before`, or if a counter went back (the model was
 * loaded again). */
json_t *cn_rates_json(const struct cn_rates_point *before, const struct cn_rates_point *now);

#endif
