/* torchserve/metrics/metric_lines.h - TorchServe's metrics: the mode, and the lines of its metrics
 * logs.
 *
 * The mode is set before the loops run. Lines are written by loops, which never wait for the disk.
 */
#ifndef CN_TORCHSERVE_METRICS_METRIC_LINES_H
#define CN_TORCHSERVE_METRICS_METRIC_LINES_H

#include <stdbool.h>

#include "core/log/log_files.h"
#include "core/text/str.h"

/* The modes, in the order of --metrics-mode's words. */
enum cn_ts_mode {
    CN_TS_PROMETHEUS, /* all metrics are shown on /metrics */
    CN_TS_LOG,        /* all metrics are written to ts_metrics.log and model_metrics.log */
    CN_TS_LEGACY      /* metrics named ts_... are shown on /metrics, the rest are in the logs */
};

void cn_ts_setup(enum cn_ts_mode mode);
enum cn_ts_mode cn_ts_mode(void);
/* Returns this machine's name, for labels and lines. */
const char *cn_ts_host(void);
/* Returns whether lines are wanted. They are not in prometheus mode; then nothing needs to be
 * formatted. */
bool cn_ts_logs(void);

/* Returns whether this is a name of one of the server's own metrics, in our spelling or
 * TorchServe's. Handlers may not use such a name. */
bool cn_ts_is_own(struct cn_str name);

/* The longest list of request ids in a line, with commas between them. */
#define CN_TS_REQUEST_IDS_MAX 2048

/* Sets which of TorchServe's metrics are shown, on /metrics and in lines. Call it before the loops
 * run. Without this call all are shown. */
void cn_ts_show(bool (*shown)(const char *name, void *ctx), void *ctx);
/* Returns false for a metric that cn_ts_show has hidden, and true for names that are not the
 * server's. */
bool cn_ts_is_shown(struct cn_str name);

/* Writes a line: TIME - Name.Unit:value|#dims|#hostname:H,timestamp:SECONDS. If `request_id` is
 * neither NULL nor empty, ",requestID:ID" stands before the timestamp. `dims` is, for example,
 * "Level:Host", as TorchServe writes it. A whole number is written "1.0", as Java does, and "1" in
 * model_metrics.log. */
void cn_ts_log(enum cn_log_file file, const char *name_and_unit, double value, const char *dims,
               const char *request_id);
/* Writes such a line and its end to `out`, and returns its length. For tests. */
#define CN_TS_LINE_MAX 8000 /* what a log file accepts */
unsigned long cn_ts_format(enum cn_log_file file, const char *name_and_unit, double value,
                           const char *dims, const char *request_id, char out[CN_TS_LINE_MAX]);

#endif
