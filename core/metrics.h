/* core/metrics.h - counters and gauges, one set a loop, summed when somebody looks.
 *
 * Written by its loop only (relaxed atomics, no lock), read by any thread.
 */
#ifndef CN_CORE_METRICS_H
#define CN_CORE_METRICS_H

#include <stdint.h>

#include "core/buf.h"

enum cn_metric {
#define CN_METRIC(id, name, type, help) id,
#include "core/metrics.def"
#undef CN_METRIC
    CN_METRIC_COUNT
};

struct cn_metrics {
    _Atomic uint64_t values[CN_METRIC_COUNT];
};

void cn_metrics_add(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n);
void cn_metrics_sub(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n);
uint64_t cn_metrics_get(const struct cn_metrics *metrics, enum cn_metric metric);
/* Prometheus text format 0.0.4 of the sum of `count` sets. */
void cn_metrics_print(const struct cn_metrics *const *sets, unsigned count, struct cn_buf *out);

#endif
