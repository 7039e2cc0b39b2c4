/* torchserve/settings/torchserve_logs.h - where the `torchserve` command keeps its log files. Main
 * thread, at start. */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_LOGS_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_LOGS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/server/server_config.h"

/* Makes TorchServe's log folders the defaults of --log-dir and --metrics-log-dir. Values that are
 * set later under our own names replace them. If `metrics` is NULL or empty, the metrics go to
 * "logs", wherever the other logs go. */
int cn_torchserve_logs_place(struct cn_server_config *config, const char *logs, const char *metrics,
                             struct cn_error *err);

/* Checks the folders after all sources were read. Returns true if the default folders cannot be
 * written. Then there are no log files and `text` says so, since a container whose disk is
 * read-only should serve, too. Folders that were set by our own options are kept; if they cannot be
 * written, the server does not start. */
bool cn_torchserve_logs_check(struct cn_server_config *config, char *text, size_t text_bytes);

#endif
