/* kserve/json/json_heads.h - the JSON heads of binary requests, parsed once.
 *
 * A client that sends its tensors as bytes writes the same head in front of them each time, or one
 * for each of its sequences; parsing it again was a fifth of the server's work for a small request.
 * Each thread keeps the last few, of at most CN_V2_HEAD_MAX bytes, and knows them by all their
 * bytes.
 */
#ifndef CN_KSERVE_JSON_JSON_HEADS_H
#define CN_KSERVE_JSON_JSON_HEADS_H

#include <jansson.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_V2_HEAD_MAX 1024 /* bytes; a longer one is parsed each time */
#define CN_V2_HEADS 64      /* a thread keeps so many: 64 kB, and what jansson makes of them */

/* As cn_v2_json_load. The document may be shared with later callers of this thread: only look at
 * it. */
int cn_v2_json_head(struct cn_str text, json_t **out, struct cn_error *err);

#endif
