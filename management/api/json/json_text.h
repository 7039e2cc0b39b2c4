/* management/api/json/json_text.h - JSON in management's form: indented by two spaces, with a final
 * newline.
 */
#ifndef CN_MANAGEMENT_API_JSON_JSON_TEXT_H
#define CN_MANAGEMENT_API_JSON_JSON_TEXT_H

#include <jansson.h>

#include "core/memory/buf.h"

/* A JSON string, also for text that is not UTF-8. Never NULL; `text` must not be NULL. */
json_t *cn_json_text(const char *text);
/* Appends the value and a newline. The value is taken. */
void cn_json_print(json_t *value, struct cn_buf *out);

#endif
