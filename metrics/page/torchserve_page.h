/* metrics/page/torchserve_page.h - TorchServe's metrics as text for /metrics, and the machine's
 * metrics as log lines at intervals. */
#ifndef CN_METRICS_PAGE_TORCHSERVE_PAGE_H
#define CN_METRICS_PAGE_TORCHSERVE_PAGE_H

#include "core/loop/loop.h"
#include "core/memory/buf.h"
#include "management/management.h"
#include "metrics/counters/metrics.h"
#include "metrics/page/system_metrics.h"

/* Appends the metrics that the mode (metrics_mode) has on /metrics. `loops` are the loops' sets. */
void cn_ts_print(const struct cn_metrics *const *loops, unsigned n_loops,
                 const struct cn_model_counted *models, unsigned n_models,
                 struct cn_cpu_times *times, const struct cn_metric_filter *filter,
                 struct cn_buf *out);

/* Logs the machine's metrics every `interval_s` seconds; 0: never. On loop 0, from its start on. In
 * a mode without log lines it does nothing. */
struct cn_system_log {
    struct cn_loop *loop;
    struct cn_timer timer;
    struct cn_cpu_times times;
    uint32_t interval_s;
};
void cn_system_log_begin(struct cn_system_log *log, struct cn_loop *loop, uint32_t interval_s);
void cn_system_log_end(struct cn_system_log *log);

#endif
