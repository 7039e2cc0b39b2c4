/* kserve/json/json_words.h - JSON with what v2 clients write beyond the standard. Any thread.
 *
 * NaN, Infinity and -Infinity may stand as bare words, integers go up to UINT64_MAX, and nesting is
 * limited. jansson knows none of that. So the text is scanned once, and if one of these occurs, a
 * copy is made in which it is a string that begins with a control character. A string that begins
 * with that character itself gets a second one, which cn_v2_json_text() removes. A member that
 * occurs twice is refused, because two readers could use different ones.
 */
#ifndef CN_KSERVE_JSON_JSON_WORDS_H
#define CN_KSERVE_JSON_JSON_WORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"

#define CN_V2_DEPTH_MAX 100
#define CN_V2_DOCUMENT_MAX (1u << 30) /* bytes of memory that a document may take */

/* Parses a document of the v2 protocol; json_decref() it. Returns CN_E_INTERNAL (the protocol's
 * 500) when it is not JSON, and CN_E_BAD_REQUEST when it is nested too deeply or has too many
 * values. */
int cn_v2_json_load(struct cn_str text, json_t **out, struct cn_error *err);

/* The member of an object; NULL: there is none. For the small objects of a request this saves the
 * hash of the key that json_object_get() computes. */
json_t *cn_v2_json_get(const json_t *object, const char *key);

/* Is it a string, and not one that stands for a number? */
bool cn_v2_json_is_string(const json_t *value);
/* The text of such a string; it belongs to the value. */
struct cn_str cn_v2_json_text(const json_t *value);
/* Reads an integer from 0 to UINT64_MAX. Returns false for any other value. */
bool cn_v2_json_uint(const json_t *value, uint64_t *out);
/* Reads any number, also NaN and the infinities. */
bool cn_v2_json_number(const json_t *value, double *out);
/* Writes the value as it stood in the document, without spaces. Returns false when there is not
 * enough memory. */
bool cn_v2_json_write(const json_t *value, struct cn_buf *out);

#endif
