/* metrics/page/infer_metrics.h - typed models' statistics under the names that Triton's users
 * watch. */
#ifndef CN_METRICS_PAGE_INFER_METRICS_H
#define CN_METRICS_PAGE_INFER_METRICS_H

#include "core/memory/buf.h"
#include "metrics/counters/metrics.h"

struct cn_management;

/* Appends the nv_... families, on any loop; nothing when no model is typed. */
void cn_infer_metrics_print(struct cn_management *management, const struct cn_metric_filter *filter,
                            struct cn_buf *out);

#endif
