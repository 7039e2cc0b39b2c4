/* v2/json_values.h - numbers and strings of a JSON array, straight into a tensor's bytes. */
#ifndef CN_V2_JSON_VALUES_H
#define CN_V2_JSON_VALUES_H

#include <jansson.h>

#include "core/arena.h"
#include "core/error.h"
#include "proto/tensor.h"

/* Fills tensor->data (in the arena) from `data`, nested to any shape: the nesting is not looked at,
 * only the number of values. name, type and shape are set. */
int cn_v2_values(const json_t *data, size_t max_bytes, struct cn_arena *arena,
                 struct cn_tensor *tensor, struct cn_error *err);

#endif
