/* config/model/overlay.h - a configuration that a client sends with a load, laid over the YAML of
 * the model's archive.
 *
 * It is taken setting by setting, as they stand at the top of the document: what it says counts,
 * and what it does not say stays as the archive has it. It may be in our words or in those of
 * Triton, so one setting can have several names (inputs, input; minWorkers, instance_group). What
 * GET .../config shows of the archive's own settings stays as the archive says it, since that form
 * has no words for all of it: a client can change one value and send it all back. Any thread.
 */
#ifndef CN_CONFIG_MODEL_OVERLAY_H
#define CN_CONFIG_MODEL_OVERLAY_H

#include "config/model/model_config.h"
#include "config/yaml/yaml.h"
#include "core/memory/buf.h"

/* Appends the document of both, as YAML. `below`: the archive's; NULL: it has none. `base`: what
 * holds where the archive says nothing. `model` stands in messages. CN_E_CONFIG with
 * name:line:column, where `above` or both together make no configuration. */
int cn_overlay_write(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                     const char *model, const struct cn_model_config *base, struct cn_buf *out,
                     struct cn_error *err);

#endif
