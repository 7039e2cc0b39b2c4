/* config/yaml/yaml_write.h - writes a YAML tree as text: JSON for handlers, or YAML that gives the
 * same tree. Any thread. */
#ifndef CN_CONFIG_YAML_YAML_WRITE_H
#define CN_CONFIG_YAML_YAML_WRITE_H

#include "config/yaml/yaml.h"
#include "core/memory/buf.h"

enum cn_yaml_form {
    CN_YAML_AS_JSON, /* infinities and NaN become strings, since JSON has no such numbers */
    CN_YAML_AS_YAML  /* on one line, with numbers as they were written */
};

/* Appends a string in double quotes, valid in JSON and in YAML. */
void cn_yaml_write_text(struct cn_str text, struct cn_buf *out);
/* Appends a value without its key. If memory runs out, out->failed is set. */
void cn_yaml_write(const struct cn_yaml *node, enum cn_yaml_form form, struct cn_buf *out);

#endif
