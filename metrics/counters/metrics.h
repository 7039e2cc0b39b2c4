/* metrics/counters/metrics.h - what the server counts: a set of values for each loop, and one for
 * each model version. metrics.def lists the metrics.
 *
 * A set is written by its loop only, with relaxed atomics and without a lock. Any thread may read
 * it; the sets are added up when somebody asks. */
#ifndef CN_METRICS_COUNTERS_METRICS_H
#define CN_METRICS_COUNTERS_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/buckets.h"
#include "core/errors/error.h"
#include "core/log/log_files.h"
#include "core/memory/buf.h"
#include "metrics/counters/unready.h"

/* The stages of a step that metrics of shape STAGES count; docs/metrics.md says from when to when
 * each is. */
enum cn_stage {
    CN_STAGE_READ,
    CN_STAGE_PARSE,
    CN_STAGE_QUEUE,
    CN_STAGE_BATCH_WAIT,
    CN_STAGE_HANDLER,
    CN_STAGE_COMMIT,
    CN_N_STAGES
};

/* How many values each shape has. REASONS has one for each enum cn_close_reason of proto/frame.h.
 */
enum {
    CN_VALUES_COUNTER = 1,
    CN_VALUES_GAUGE = 1,
    CN_VALUES_SECONDS = 1,
    CN_VALUES_ERRORS = CN_E_END_ - CN_E_FIRST_ - 1,
    CN_VALUES_REASONS = 11,
    CN_VALUES_LOGS = CN_N_LOG_FILES,
    CN_VALUES_UNREADY = CN_N_UNREADY,
    CN_VALUES_HIDDEN = 1,
    CN_VALUES_NAMED = 2,
    CN_VALUES_DURATION = CN_DURATION_VALUES,
    CN_VALUES_STAGES = CN_N_STAGES * CN_STAGE_VALUES,
    CN_VALUES_ROWS = CN_ROWS_VALUES,
};

enum cn_metric {
#define CN_METRIC(id, scope, shape, name, help) id,
#include "metrics/counters/metrics.def"
#undef CN_METRIC
    CN_METRIC_COUNT
};

/* The index of each metric's first value, and the number of all values. */
enum {
#define CN_METRIC(id, scope, shape, name, help)                                                    \
    id##_AT_, id##_LAST_ = id##_AT_ + CN_VALUES_##shape - 1,
#include "metrics/counters/metrics.def"
#undef CN_METRIC
    CN_METRIC_VALUES
};

struct cn_metrics {
    _Atomic uint64_t values[CN_METRIC_VALUES];
};

/* Add, subtract or set the value of a metric that has one value. On the set's loop. */
void cn_metrics_add(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n);
void cn_metrics_sub(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n);
void cn_metrics_set(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n);
/* Sets one value of a metric of shape LOGS. */
void cn_metrics_set_log(struct cn_metrics *metrics, enum cn_metric metric, enum cn_log_file file,
                        uint64_t n);
/* Sets one value of a metric of shape UNREADY. */
void cn_metrics_set_unready(struct cn_metrics *metrics, enum cn_metric metric,
                            enum cn_unready reason, uint64_t n);
/* Counts an error in a metric of shape ERRORS. `code` is a CN_E_... */
void cn_metrics_count_error(struct cn_metrics *metrics, enum cn_metric metric, int code);
/* Counts a closed sequence in a metric of shape REASONS. */
void cn_metrics_count_reason(struct cn_metrics *metrics, enum cn_metric metric, unsigned reason);
/* Adds to one of the two values of a metric of shape NAMED: of requests that named a version, or
 * did not. */
void cn_metrics_add_named(struct cn_metrics *metrics, enum cn_metric metric, bool named,
                          uint64_t n);
/* Adds a value to a histogram: microseconds for DURATION, a count for ROWS. */
void cn_metrics_observe(struct cn_metrics *metrics, enum cn_metric metric, uint64_t value);
/* Adds the same value n times. */
void cn_metrics_observe_many(struct cn_metrics *metrics, enum cn_metric metric, uint64_t value,
                             uint64_t n);
/* Adds microseconds to the histograms of a metric of shape STAGES. CN_STAGE_NONE: nothing is added
 * for that stage. */
#define CN_STAGE_NONE UINT64_MAX
void cn_metrics_observe_stages(struct cn_metrics *metrics, enum cn_metric metric,
                               const uint64_t us[CN_N_STAGES]);
/* Adds to a histogram what was counted elsewhere (core/containers/buckets.h): as many values as its
 * shape has. */
void cn_metrics_merge(struct cn_metrics *metrics, enum cn_metric metric, const uint64_t *values);

/* The value of a metric. If it has several, their sum; of a histogram, how many values were added,
 * and of STAGES, how many in all stages. Any thread. */
uint64_t cn_metrics_get(const struct cn_metrics *metrics, enum cn_metric metric);
/* The sum of all values that were added to a histogram. Any thread. */
uint64_t cn_metrics_sum(const struct cn_metrics *metrics, enum cn_metric metric);
/* One of the two values of a metric of shape NAMED. Any thread. */
uint64_t cn_metrics_get_named(const struct cn_metrics *metrics, enum cn_metric metric, bool named);
/* Copies all values, with relaxed loads. Any thread. */
void cn_metrics_copy(struct cn_metrics *to, const struct cn_metrics *from);

/* The metric families that a reader asked for by name; all of them if there are no names. */
struct cn_metric_filter {
    uint32_t n;
    const struct cn_str *names; /* names of families or of their samples (_bucket, _sum, _count) */
};
bool cn_metric_wanted(const struct cn_metric_filter *filter, const char *family);

/* A set, and the labels of its samples: model="m",version="1.0". */
struct cn_metrics_of {
    const struct cn_metrics *metrics;
    const char *labels;
};
/* Appends all metrics in Prometheus' text format 0.0.4: first the sum of the loops' sets, then each
 * model's set. */
void cn_metrics_print(const struct cn_metrics *const *loops, unsigned n_loops,
                      const struct cn_metrics_of *models, unsigned n_models,
                      const struct cn_metric_filter *filter, struct cn_buf *out);
/* Appends `text` as a label's value without the quotes: \ " and line ends are escaped. */
void cn_metrics_put_label(struct cn_buf *out, struct cn_str text);
/* Ends a sample's line behind its labels: the closing brace, the value and the line end. */
void cn_metrics_put_value(struct cn_buf *out, double value);

#endif
