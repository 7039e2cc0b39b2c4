/* metrics/page/infer_metrics.h - the statistics of typed models under the names that users of
 * Triton watch. */
#ifndef CN_METRICS_PAGE_INFER_METRICS_H
#define CN_METRICS_PAGE_INFER_METRICS_H

#include "core/memory/buf.h"
#include "metrics/counters/metrics.h"

struct cn_management;

/* Appends the families named nv_..., or nothing if no model is typed. On any loop. */
void cn_infer_metrics_print(struct cn_management *management, const struct cn_metric_filter *filter,
                            struct cn_buf *out);

#endif
