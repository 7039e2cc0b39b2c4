/* torchserve/settings/metrics_file.h - reads TorchServe's metrics.yaml, which says which metrics
 * exist.
 *
 *   ts_metrics:            the server's metrics, by TorchServe's names
 *     counter: [{name: Requests2XX, unit: Count, dimensions: [Level, Hostname]}]
 *   model_metrics:         the handlers' metrics
 *     gauge: [{name: HandlerTime, unit: ms, dimensions: [ModelName, Level]}]
 *
 * The file is read once, before the loops run. After that, any thread may call the functions that
 * only look.
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
/* Returns "counter", "gauge" or "histogram". */
const char *cn_metric_kind_word(enum cn_metric_kind kind);

struct cn_metric_rule {
    char *name, *unit;
    enum cn_metric_kind kind;
    bool of_model; /* made by a handler, not by the server */
    uint32_t n_dims;
    char **dims; /* as in the file; the server itself fills in ModelName, Level and Hostname */
};

struct cn_metrics_file {
    uint32_t n;
    struct cn_metric_rule *rules; /* sorted by name; no name occurs twice */
};

/* Reads the file's text. Returns CN_E_CONFIG, and a message with file, line, column and what was
 * expected, if it is wrong; then `out` needs no fini. */
int cn_metrics_file_parse(const char *name, struct cn_str bytes, struct cn_metrics_file *out,
                          struct cn_error *err);
int cn_metrics_file_read(const char *path, struct cn_metrics_file *out, struct cn_error *err);
void cn_metrics_file_fini(struct cn_metrics_file *file);
/* Returns NULL if the file does not name this metric. */
const struct cn_metric_rule *cn_metrics_file_find(const struct cn_metrics_file *file,
                                                  struct cn_str name);

/* Sets the file that the server uses, before the loops run. It is borrowed. With NULL there is no
 * file, and all metrics of handlers are shown. `auto_detect` says that metrics of handlers that the
 * file does not name are shown, too. */
void cn_metric_rules_use(const struct cn_metrics_file *file, bool auto_detect);
const struct cn_metrics_file *cn_metric_rules(void);
bool cn_metric_rules_auto_detect(void);

#endif
