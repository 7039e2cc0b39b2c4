/* worker/process/config_json.h - the model's YAML as JSON, for handler runtimes, which know no
 * YAML. Any thread. */
#ifndef CN_WORKER_PROCESS_CONFIG_JSON_H
#define CN_WORKER_PROCESS_CONFIG_JSON_H

#include "core/errors/error.h"
#include "core/memory/buf.h"

/* Appends the document in `path` as one JSON object. CN_E_CONFIG with name, line and column. */
int cn_config_json(const char *path, struct cn_buf *out, struct cn_error *err);

#endif
