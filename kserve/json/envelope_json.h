/* kserve/json/envelope_json.h - the JSON of a service envelope: takes the instances out of a
 * request's body, and writes an instance's answer. Any thread, no state. */
#ifndef CN_KSERVE_JSON_ENVELOPE_JSON_H
#define CN_KSERVE_JSON_ENVELOPE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/text/str.h"

/* Returns the array "instances" of the body {"instances": [...]}, which belongs to the caller.
 * Returns NULL with CN_E_BAD_REQUEST if the body is not such an object, or if it has more than
 * `max` instances. */
json_t *cn_envelope_open(struct cn_str body, uint32_t max, struct cn_error *err);
/* Returns one instance as JSON text, to be freed with free(); NULL if there is not enough memory.
 */
char *cn_envelope_instance_text(const json_t *instances, uint32_t i);
/* Appends a handler's answer to `out`: as it is if the handler calls it JSON, and as a JSON string
 * otherwise. Returns CN_E_HANDLER_FAILED if it is neither valid JSON nor UTF-8 text. out->failed is
 * set if there is not enough memory. */
int cn_envelope_put_answer(struct cn_str answer, bool is_json, struct cn_buf *out,
                           struct cn_error *err);

#endif
