/* worker/batch/kept_answers.c - the answers of the last few steps of a sequence. Owned by the
 * worker's one thread.
 *
 * An answer is a whole record, encoded, so that it has one format and one parser with the answer of
 * the last step, and its own checksum. It costs about 60 bytes more than the answer itself. */
#include "worker/batch/kept_answers.h"

#include <string.h>

#define ANSWER_FLAGS                                                                               \
    ((uint32_t)(CN_RECORD_HAS_ANSWER | CN_RECORD_ANSWER_TOO_LARGE | CN_RECORD_ANSWER_STREAMED |    \
                CN_RECORD_ASKED))

void
cn_kept_append(const struct cn_record *record, struct cn_buf *out)
{
    struct cn_record answer = *record;
    struct cn_buf encoded;

    answer.flags &= ANSWER_FLAGS;
    answer.closed_wall_ms = answer.expires_wall_ms = 0;
    answer.close_reason = 0;
    answer.keys = answer.state = answer.earlier = (struct cn_str){NULL, 0};
    cn_buf_init(&encoded, 0);
    if (cn_record_encode(&answer, &encoded, NULL))
        out->failed = 1;
    else
        cn_record_put_chunk(out, cn_buf_str(&encoded));
    cn_buf_fini(&encoded);
    cn_buf_append_str(out, record->earlier);
}

struct cn_str
cn_kept_cut(struct cn_str list, uint32_t n, uint64_t max_bytes)
{
    struct cn_str rest = list, chunk;
    size_t used = 0;

    for (; n > 0 && cn_record_next_chunk(&rest, &chunk) && list.len - rest.len <= max_bytes; n--)
        used = list.len - rest.len;
    return (struct cn_str){used ? list.ptr : NULL, used};
}

bool
cn_kept_find(const struct cn_record *record, uint64_t step, struct cn_record *out)
{
    struct cn_str rest = record->earlier, chunk;

    while (cn_record_next_chunk(&rest, &chunk)) {
        if (cn_record_decode(chunk, out, NULL) || out->generation != record->generation)
            return false;
        if (out->step == step) {
            out->flags |= record->flags & CN_RECORD_TOMBSTONE;
            return true;
        }
    }
    return false;
}
