/* kserve/json/json_heads.h - a cache for the JSON of requests: a head that comes again is not read
 * again.
 *
 * A client writes the same JSON before its binary tensors each time, and what differs from one
 * request to the next, such as the numbers of a sequence, is cut out first (json_numbers.h). So
 * each thread keeps the requests that it has read from the last heads of at most CN_V2_HEAD_MAX
 * bytes. When all bytes of a head are the same, the request is copied, and only its data are new.
 */
#ifndef CN_KSERVE_JSON_JSON_HEADS_H
#define CN_KSERVE_JSON_JSON_HEADS_H

#include "core/text/str.h"
#include "kserve/request.h"

#define CN_V2_HEAD_MAX 1024 /* bytes; longer heads are read each time */
#define CN_V2_HEADS 64 /* heads that a thread keeps: 64 kB of text, and up to 6 kB of each one */

enum cn_v2_from {
    CN_V2_FROM_TAIL, /* the binary data behind the JSON */
    CN_V2_FROM_SHARED_MEMORY,
    CN_V2_FROM_CUT, /* an array that was cut out of the JSON */
    CN_V2_FROM_HEAD /* what is left of the JSON */
};

/* Where the data of an input come from. */
struct cn_v2_source {
    enum cn_v2_from from;
    uint32_t cut; /* CN_V2_FROM_CUT: the number of the array */
};

/* A request that was read from this head; NULL if none is kept. `out` becomes a copy whose texts
 * and lists lie in the arena. Fields that are cut out of a head are empty or 0, and of each input's
 * data only the length is set, if it is binary. Returns where the data are, one source for each
 * input, valid until the thread's next call here. */
const struct cn_v2_source *cn_v2_head_find(struct cn_str head, struct cn_arena *arena,
                                           struct cn_v2_request *out);
/* Keeps a copy of a request that has just been read, `sources` as above. Does nothing if the head
 * is too long, or has data of an input itself. */
void cn_v2_head_keep(struct cn_str head, const struct cn_v2_request *request,
                     const struct cn_v2_source *sources);

#endif
