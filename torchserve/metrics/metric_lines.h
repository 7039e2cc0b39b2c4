/* torchserve/metrics/metric_lines.h - TorchServe's metrics: which mode, and the line of its metrics
 * logs.
 *
 * The mode is set before loops run; a line is written on a loop and never waited for.
 */
#ifndef CN_TORCHSERVE_METRICS_METRIC_LINES_H
#define CN_TORCHSERVE_METRICS_METRIC_LINES_H

#include <stdbool.h>

#include "core/log/log_files.h"
#include "core/text/str.h"

/* In the order of --metrics-mode's words. */
enum cn_ts_mode {
    CN_TS_PROMETHEUS, /* all of them stand on /metrics */
    CN_TS_LOG,        /* all of them are lines of ts_metrics.log and model_metrics.log */
    CN_TS_LEGACY      /* ts_... stand on /metrics, the rest are lines */
};

void cn_ts_setup(enum cn_ts_mode mode);
enum cn_ts_mode cn_ts_mode(void);
/* This machine's name, for labels and lines. */
const char *cn_ts_host(void);
/* Are lines wanted? False in prometheus mode: then nothing needs to be formatted. */
bool cn_ts_logs(void);

/* Is this a name of the server's own metrics, ours or TorchServe's? Handlers may not use it. */
bool cn_ts_is_own(struct cn_str name);

/* Ids of requests in a line, with commas between them. */
#define CN_TS_REQUEST_IDS_MAX 2048

/* Before loops run: which of TorchServe's names are shown, on /metrics and in lines; all without
 * it. */
void cn_ts_show(bool (*shown)(const char *name, void *ctx), void *ctx);
/* False for what cn_ts_show has hidden; true for names that are none of the server's. */
bool cn_ts_is_shown(struct cn_str name);

/* TIME - Name.Unit:value|#dims|#hostname:H,timestamp:SECONDS, with ",requestID:ID" before the
 * timestamp when there is one (not NULL, not empty). `dims`: "Level:Host", as TorchServe writes
 * them. A whole number is "1.0" as Java writes it, and in model_metrics.log "1". */
void cn_ts_log(enum cn_log_file file, const char *name_and_unit, double value, const char *dims,
               const char *request_id);
/* The line, with its end; returns its length. For tests. */
#define CN_TS_LINE_MAX 8000 /* what a log file takes */
unsigned long cn_ts_format(enum cn_log_file file, const char *name_and_unit, double value,
                           const char *dims, const char *request_id, char out[CN_TS_LINE_MAX]);

#endif
