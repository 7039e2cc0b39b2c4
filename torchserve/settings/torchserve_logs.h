/* torchserve/settings/torchserve_logs.h - where the `torchserve` command has its log files. Main
 * thread, at start. */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_LOGS_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_LOGS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/server/server_config.h"

/* TorchServe's places, as defaults of --log-dir and --metrics-log-dir: what comes later under our
 * own names is stronger. `metrics` may be NULL or empty: as `logs`. */
int cn_torchserve_logs_place(struct cn_server_config *config, const char *logs, const char *metrics,
                             struct cn_error *err);

/* After all sources were read. True: the default places can't be written, so there are no files,
 * and `text` says so: a read-only container serves, too. Folders that were asked for by our own
 * options stay, and stop the start. */
bool cn_torchserve_logs_check(struct cn_server_config *config, char *text, size_t text_bytes);

#endif
