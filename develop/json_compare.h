/* develop/json_compare.h - compares what a test expects with what a model has answered. Any thread.
 */
#ifndef CN_DEVELOP_JSON_COMPARE_H
#define CN_DEVELOP_JSON_COMPARE_H

#include <jansson.h>
#include <stdbool.h>

#include "config/yaml/yaml.h"

/* The value as JSON; the caller releases it. */
json_t *cn_json_of_yaml(const struct cn_yaml *value);

/* Are the values equal? Numbers may differ by a millionth of the larger one, since models compute
 * with rounding errors. */
bool cn_json_matches(const json_t *expected, const json_t *got);

#endif
