/* config/model/model_page.h - the page docs/model-config.md, which lists every key of a model's
 * YAML, made from the tables. */
#ifndef CN_CONFIG_MODEL_MODEL_PAGE_H
#define CN_CONFIG_MODEL_MODEL_PAGE_H

#include <stdio.h>

/* Prints the page as Markdown. Main thread. */
void cn_model_config_page(FILE *out);

#endif
