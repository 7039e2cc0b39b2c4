/* torchserve/settings/torchserve_models.h - reads the keys `models` and `model_snapshot` of
 * config.properties. */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_MODELS_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_MODELS_H

#include "config/server/server_options.h"

/* Reads {"name": {"version": {"minWorkers": 1, ...}}}. A number below 1 or a value of the wrong
 * type counts as not given, as in TorchServe. Returns CN_E_CONFIG, with `where` in the message, if
 * the JSON has another form. */
int cn_torchserve_models_parse(const char *where, const char *json, struct cn_model_settings **out,
                               uint32_t *count, struct cn_error *err);
/* Reads {"name", "modelCount", "created", "models": {...}}. The models have the form above, but
 * each needs a marName, and minWorkers may be 0. */
int cn_torchserve_snapshot_parse(const char *where, const char *json,
                                 struct cn_model_settings **out, uint32_t *count,
                                 struct cn_error *err);

#endif
