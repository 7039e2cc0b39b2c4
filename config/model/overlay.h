/* config/model/overlay.h - a configuration that a client sends with a load, laid over the YAML of
 * the model's archive.
 *
 * It is applied setting by setting at the top level of the document: what it sets counts, and what
 * it does not set stays as in the archive. It may use our names or Triton's, so a setting can have
 * several names (inputs, input; minWorkers, instance_group). A client may read GET .../config,
 * change one value and send all of it back. That form has no words for everything that the
 * archive's YAML can say, so a part that comes back as it was shown leaves the archive's setting as
 * it is. Any thread. */
#ifndef CN_CONFIG_MODEL_OVERLAY_H
#define CN_CONFIG_MODEL_OVERLAY_H

#include "config/model/model_config.h"
#include "config/yaml/yaml.h"
#include "core/memory/buf.h"

/* Appends the combined document, as YAML. `below` is the archive's; NULL: it has none. `base` has
 * the settings that hold where the archive says nothing. `model` is used in messages. CN_E_CONFIG
 * with name:line:column, if `above`, or both together, are not a valid configuration. */
int cn_overlay_write(const struct cn_yaml_doc *below, const struct cn_yaml_doc *above,
                     const char *model, const struct cn_model_config *base, struct cn_buf *out,
                     struct cn_error *err);

#endif
