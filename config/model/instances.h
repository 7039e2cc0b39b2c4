/* config/model/instances.h - how many workers a model has, in the words of Triton's configuration:
 *
 *   instance_group: [{count: 2, kind: KIND_CPU}]   # as minWorkers: 2 and maxWorkers: 2
 *
 * The counts of several groups add up. Any thread. */
#ifndef CN_CONFIG_MODEL_INSTANCES_H
#define CN_CONFIG_MODEL_INSTANCES_H

#include "config/model/model_config.h"
#include "config/yaml/yaml.h"

/* Is it that list, and not for model_config.c? */
bool cn_instances_own(const struct cn_yaml *value);
/* The list of `map`; NULL: it has none. */
const struct cn_yaml *cn_instances_get(const struct cn_yaml *map);
/* The sum. `name`: of the document. CN_E_CONFIG with name:line:column, also for a kind that is not
 * the CPU. */
int cn_instances_read(const struct cn_yaml *list, const char *name, uint32_t *out,
                      struct cn_error *err);
/* CN_E_CONFIG also when the document has minWorkers or maxWorkers, too. */
int cn_instances_apply(const struct cn_yaml_doc *doc, struct cn_model_config *config,
                       struct cn_error *err);

#endif
