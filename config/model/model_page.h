/* config/model/model_page.h - docs/model-config.md: every key of a model's YAML, from the
 * tables. */
#ifndef CN_CONFIG_MODEL_MODEL_PAGE_H
#define CN_CONFIG_MODEL_MODEL_PAGE_H

#include <stdio.h>

/* As Markdown. Main thread. */
void cn_model_config_page(FILE *out);

#endif
