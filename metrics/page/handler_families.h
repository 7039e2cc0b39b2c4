/* metrics/page/handler_families.h - the metrics that handlers define, as text for /metrics. On loop
 * 0. */
#ifndef CN_METRICS_PAGE_HANDLER_FAMILIES_H
#define CN_METRICS_PAGE_HANDLER_FAMILIES_H

#include "core/memory/buf.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"

/* Appends each family once, with the series of all models; versions of a model are added up. If two
 * models use one name for different types, the first one gets it, and a comment in the text names
 * the other. `models` are copies, which this function changes. */
void cn_handler_metrics_print(const struct cn_model_counted *models, unsigned n_models,
                              const struct cn_metric_filter *filter, struct cn_buf *out);

#endif
