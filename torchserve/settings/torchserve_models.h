/* torchserve/settings/torchserve_models.h - the keys `models` and `model_snapshot` of
 * config.properties. */
#ifndef CN_TORCHSERVE_SETTINGS_TORCHSERVE_MODELS_H
#define CN_TORCHSERVE_SETTINGS_TORCHSERVE_MODELS_H

#include "config/server/server_options.h"

/* {"name": {"version": {"minWorkers": 1, ...}}}. Numbers below 1 and of the wrong type count as not
 * given, as TorchServe has it. CN_E_CONFIG, which names `where`: the JSON has another form. */
int cn_torchserve_models_parse(const char *where, const char *json, struct cn_model_settings **out,
                               uint32_t *count, struct cn_error *err);
/* {"name", "modelCount", "created", "models": {...}}: as above, but each needs a marName, and
 * minWorkers may be 0. */
int cn_torchserve_snapshot_parse(const char *where, const char *json,
                                 struct cn_model_settings **out, uint32_t *count,
                                 struct cn_error *err);

#endif
