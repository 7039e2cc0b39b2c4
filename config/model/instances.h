/* config/model/instances.h - the number of a model's workers, in the words of Triton's
 * configuration:
 *
 *   instance_group: [{count: 2, kind: KIND_CPU}]   # like minWorkers: 2 and maxWorkers: 2
 *
 * The counts of several groups are added. Any thread. */
#ifndef CN_CONFIG_MODEL_INSTANCES_H
#define CN_CONFIG_MODEL_INSTANCES_H

#include "config/model/model_config.h"
#include "config/yaml/yaml.h"

/* Is it the list instance_group? model_config.c leaves that one to this file. */
bool cn_instances_own(const struct cn_yaml *value);
/* The list in `map`; NULL if it has none. */
const struct cn_yaml *cn_instances_get(const struct cn_yaml *map);
/* Reads the sum of the counts. `name` is the document's. CN_E_CONFIG with name:line:column, also
 * for a kind other than the CPU. */
int cn_instances_read(const struct cn_yaml *list, const char *name, uint32_t *out,
                      struct cn_error *err);
/* Sets the numbers of workers from the document's list. CN_E_CONFIG also if the document has
 * minWorkers or maxWorkers as well. */
int cn_instances_apply(const struct cn_yaml_doc *doc, struct cn_model_config *config,
                       struct cn_error *err);

#endif
