/* cn_fuzz: core proto
 *
 * tests/fuzz/frame_to_server_fuzz.c - bytes as the server gets them from a worker, whose handler
 * may have written over its memory. As in the other direction: what is accepted is encoded again
 * as the very same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "proto/frame.h"
#include "proto/query.h"
#include "tests/fuzz/body_memory.h"
#include "tests/fuzz/fuzz.h"

static int
decode_and_encode(const struct cn_frame *frame, struct cn_arena *arena, struct cn_buf *out)
{
    struct cn_error err;
    struct cn_loaded loaded;
    struct cn_worker_stats stats;
    struct cn_query_result result;
    struct cn_answer answer;
    struct cn_closed closed;
    struct cn_report report;
    struct cn_progress progress;
    struct cn_forked forked;

    switch (frame->type) {
    case CN_FRAME_LOADED:
        if (cn_frame_get_loaded(frame, &loaded, &err) < 0)
            return -1;
        cn_frame_put_loaded(out, &loaded);
        return 0;
    case CN_FRAME_ANSWER:
        if (cn_frame_get_answer(frame, arena, &answer, &err) < 0)
            return -1;
        cn_frame_put_answer(out, &answer);
        return 0;
    case CN_FRAME_STATS:
        if (cn_frame_get_stats(frame, &stats, &err) < 0)
            return -1;
        cn_frame_put_stats(out, &stats);
        return 0;
    case CN_FRAME_REPORT:
        if (cn_frame_get_report(frame, arena, &report, &err) < 0)
            return -1;
        cn_frame_put_report(out, &report);
        return 0;
    case CN_FRAME_CLOSED:
        if (cn_frame_get_closed(frame, &closed, &err) < 0)
            return -1;
        cn_frame_put_closed(out, &closed);
        return 0;
    case CN_FRAME_RESULT:
        if (cn_frame_get_result(frame, arena, &result, &err) < 0)
            return -1;
        cn_frame_put_result(out, &result);
        return 0;
    case CN_FRAME_FORKED:
        if (cn_frame_get_forked(frame, &forked, &err) < 0)
            return -1;
        cn_frame_put_forked(out, &forked);
        return 0;
    case CN_FRAME_PROGRESS:
        if (cn_frame_get_progress(frame, &progress, &err) < 0)
            return -1;
        cn_frame_put_progress(out, &progress);
        return 0;
    case CN_FRAME_LOAD:
    case CN_FRAME_BATCH:
    case CN_FRAME_CLOSE:
    case CN_FRAME_CANCEL:
    case CN_FRAME_STOP:
    case CN_FRAME_CREDIT:
    case CN_FRAME_QUERY:
    case CN_FRAME_FORK:
    case CN_FRAME_MEMORY:
        return -1; /* this frame is not for the server */
    }
    cn_unreachable();
}

/* Decodes an answer whose body may lie in the body memory. Returns false when it cannot. */
static bool
decode_placed(struct cn_frame *frame, struct cn_arena *arena)
{
    struct cn_body_memory *memory;
    struct cn_answer answer;
    struct cn_error err;
    bool decoded;

    if (frame->type != CN_FRAME_ANSWER)
        return false;
    frame->body_memory = memory = fuzz_memory();
    decoded = cn_frame_get_answer(frame, arena, &answer, &err) == 0;
    if (decoded)
        fuzz_read_placed(memory, answer.body);
    cn_body_memory_free(memory);
    return decoded;
}

/* Returns how many of the bytes are valid frames. */
static size_t
run(const uint8_t *bytes, size_t len)
{
    const uint8_t *begin = bytes;
    struct cn_frame frame;
    struct cn_error err;
    struct cn_arena arena;
    struct cn_buf out;
    long size;

    cn_arena_init(&arena);
    cn_buf_init(&out, 0);
    while ((size = cn_frame_next(bytes, len, 1 << 20, &frame, &err)) > 0) {
        cn_assert((size_t)size <= len);
        cn_buf_reset(&out);
        if (decode_and_encode(&frame, &arena, &out) < 0 && !decode_placed(&frame, &arena))
            break;
        cn_assert(frame.body_memory ||
                  (out.len == (size_t)size && memcmp(out.data, bytes, out.len) == 0));
        bytes += size;
        len -= (size_t)size;
    }
    cn_buf_fini(&out);
    cn_arena_fini(&arena);
    return (size_t)(bytes - begin);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    run(bytes, len);
    return 0;
}

bool
cn_fuzz_is_valid(const uint8_t *bytes, size_t len)
{
    return run(bytes, len) == len;
}
