/* config/yaml/yaml_scalar.h - the kind of an unquoted scalar; for config/yaml/yaml.c only. */
#ifndef CN_CONFIG_YAML_YAML_SCALAR_H
#define CN_CONFIG_YAML_YAML_SCALAR_H

#include "config/yaml/yaml.h"

/* Sets kind and value from node->text, which ends with a NUL. */
void cn_yaml_resolve(struct cn_yaml *node);

#endif
