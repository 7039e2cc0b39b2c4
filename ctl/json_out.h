/* ctl/json_out.h - prints JSON. */
#ifndef CN_CTL_JSON_OUT_H
#define CN_CTL_JSON_OUT_H

#include <jansson.h>
#include <stdbool.h>

#include "core/memory/buf.h"

/* Appends the value and a newline, and releases the value. */
void cn_ctl_json_print(json_t *value, bool one_line, struct cn_buf *out);

#endif
