/* config/yaml/yaml_write.h - a YAML tree as text again: JSON for handlers, or YAML that gives the
 * same tree. Any thread. */
#ifndef CN_CONFIG_YAML_YAML_WRITE_H
#define CN_CONFIG_YAML_YAML_WRITE_H

#include "config/yaml/yaml.h"
#include "core/memory/buf.h"

enum cn_yaml_form {
    CN_YAML_AS_JSON, /* infinities and NaN become strings, which JSON has not as numbers */
    CN_YAML_AS_YAML  /* on one line; scalars as they were written */
};

/* A string in double quotes. */
void cn_yaml_write_text(struct cn_str text, struct cn_buf *out);
/* The value, without its key. out->failed when there is no memory for it. */
void cn_yaml_write(const struct cn_yaml *node, enum cn_yaml_form form, struct cn_buf *out);

#endif
