/* kserve/json/json_values.h - converts the numbers and strings of a JSON array to a tensor's bytes.
 * Any thread. */
#ifndef CN_KSERVE_JSON_JSON_VALUES_H
#define CN_KSERVE_JSON_JSON_VALUES_H

#include <jansson.h>

#include "kserve/request.h"

/* Fills tensor->data, in the arena, from `data`, which may be nested in any way: only the number of
 * values matters. The tensor's name, type and shape are set. */
int cn_v2_values(const json_t *data, size_t max_bytes, struct cn_arena *arena,
                 struct cn_tensor *tensor, struct cn_error *err);

#define CN_V2_PARAMS_MAX 1024 /* most parameters of one request */

/* Reads a parameter for the model, a string, number or boolean, into the arena. Returns
 * CN_E_BAD_REQUEST for other values. */
int cn_v2_json_param(const char *key, const json_t *value, struct cn_arena *arena,
                     struct cn_v2_param *out, struct cn_error *err);

#endif
