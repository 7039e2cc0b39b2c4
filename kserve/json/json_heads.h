/* kserve/json/json_heads.h - a cache for the JSON heads of binary requests.
 *
 * A client that sends its tensors as binary data writes the same JSON before them each time, or one
 * JSON for each of its sequences. Parsing it again took a fifth of the server's CPU time for a
 * small request. So each thread keeps the documents of the last heads of at most CN_V2_HEAD_MAX
 * bytes, and finds a document again if all bytes of the head are the same.
 */
#ifndef CN_KSERVE_JSON_JSON_HEADS_H
#define CN_KSERVE_JSON_JSON_HEADS_H

#include <jansson.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_V2_HEAD_MAX 1024 /* bytes; longer heads are parsed each time */
#define CN_V2_HEADS 64      /* heads that a thread keeps: 64 kB, plus jansson's documents */

/* Works like cn_v2_json_load, through the cache. Later callers of this thread may get the
 * same document, so it must not be changed. json_decref() it. */
int cn_v2_json_head(struct cn_str text, json_t **out, struct cn_error *err);

#endif
