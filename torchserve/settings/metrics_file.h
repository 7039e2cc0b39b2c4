/* torchserve/settings/metrics_file.h - TorchServe's metrics.yaml: which metrics there are.
 *
 *   ts_metrics:            the server's, by TorchServe's names
 *     counter: [{name: Requests2XX, unit: Count, dimensions: [Level, Hostname]}]
 *   model_metrics:         the handlers'
 *     gauge: [{name: HandlerTime, unit: ms, dimensions: [ModelName, Level]}]
 *
 * Read once, before loops run; then any thread may look.
 */
#ifndef CN_TORCHSERVE_SETTINGS_METRICS_FILE_H
#define CN_TORCHSERVE_SETTINGS_METRICS_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_METRICS_FILE_MAX 10000 /* metrics */
#define CN_METRIC_DIMS_MAX 16

enum cn_metric_kind { CN_METRIC_COUNTER, CN_METRIC_GAUGE, CN_METRIC_HISTOGRAM };
/* "counter", "gauge", "histogram". */
const char *cn_metric_kind_word(enum cn_metric_kind kind);

struct cn_metric_rule {
    char *name, *unit;
    enum cn_metric_kind kind;
    bool of_model; /* a handler's */
    uint32_t n_dims;
    char **dims; /* as they stand there; the server itself gives ModelName, Level and Hostname */
};

struct cn_metrics_file {
    uint32_t n;
    struct cn_metric_rule *rules; /* by name; no name twice */
};

/* CN_E_CONFIG with file, line, column and what was expected. `out` needs no fini then. */
int cn_metrics_file_parse(const char *name, struct cn_str bytes, struct cn_metrics_file *out,
                          struct cn_error *err);
int cn_metrics_file_read(const char *path, struct cn_metrics_file *out, struct cn_error *err);
void cn_metrics_file_fini(struct cn_metrics_file *file);
/* NULL: it isn't there. */
const struct cn_metric_rule *cn_metrics_file_find(const struct cn_metrics_file *file,
                                                  struct cn_str name);

/* The file in force: set before loops run, and borrowed; NULL: none, whatever handlers have counts.
 * `auto_detect`: what it does not name counts too. */
void cn_metric_rules_use(const struct cn_metrics_file *file, bool auto_detect);
const struct cn_metrics_file *cn_metric_rules(void);
bool cn_metric_rules_auto_detect(void);

#endif
