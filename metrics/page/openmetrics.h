/* metrics/page/openmetrics.h - the metrics page in OpenMetrics, the format in which a histogram can
 * name traces (exemplars). On loop 0. */
#ifndef CN_METRICS_PAGE_OPENMETRICS_H
#define CN_METRICS_PAGE_OPENMETRICS_H

#include "core/memory/buf.h"
#include "management/management.h"

#define CN_OPENMETRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends `page`, which is Prometheus' text format 0.0.4, as OpenMetrics 1.0.0, with the exemplars
 * of the models' step durations. */
void cn_openmetrics_print(struct cn_str page, const struct cn_model_counted *models,
                          unsigned n_models, struct cn_buf *out);

#endif
