/* kserve/json/json_words.h - what v2 clients write into JSON and JSON has no word for. Any thread.
 *
 * NaN, Infinity and -Infinity stand as bare words; integers go up to UINT64_MAX; nesting is
 * bounded. jansson knows none of it. So the text is looked over once, and where one of these occurs
 * a copy is made in which it is a string that begins with a control character. A string that begins
 * so itself gets one more of them there, which cn_v2_json_text() takes away again. A member that
 * comes twice is refused: two readers would take different ones.
 */
#ifndef CN_KSERVE_JSON_JSON_WORDS_H
#define CN_KSERVE_JSON_JSON_WORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"

#define CN_V2_DEPTH_MAX 100

/* A document of the v2 protocol; json_decref() it. CN_E_INTERNAL (the protocol's 500): no JSON;
 * CN_E_BAD_REQUEST: nested too deep. */
int cn_v2_json_load(struct cn_str text, json_t **out, struct cn_error *err);

/* Strings but for those that stand for a number. */
bool cn_v2_json_is_string(const json_t *value);
/* What such a string says; the value's. */
struct cn_str cn_v2_json_text(const json_t *value);
/* An integer from 0 to UINT64_MAX. */
bool cn_v2_json_uint(const json_t *value, uint64_t *out);
/* Any number, NaN and the infinities too. */
bool cn_v2_json_number(const json_t *value, double *out);
/* The value as it stood in the document, without spaces. False: no memory. */
bool cn_v2_json_write(const json_t *value, struct cn_buf *out);

#endif
