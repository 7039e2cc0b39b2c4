/* cn_fuzz: core proto
 *
 * tests/fuzz/frame_to_worker_fuzz.c - bytes as a worker gets them from the server.
 * What the decoders accept must come out of the encoders as the very same bytes:
 * so no field is skipped, misread or invented.
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
    struct cn_load load;
    struct cn_close *closes;
    struct cn_query query;
    struct cn_memory_order memory;
    struct cn_str label;
    struct cn_row *rows;
    struct cn_cancel *cancels;
    struct cn_credit *credits;
    size_t begun;
    uint32_t i;

    switch (frame->type) {
    case CN_FRAME_LOAD:
        if (cn_frame_get_load(frame, arena, &load, &err) < 0)
            return -1;
        cn_frame_put_load(out, &load);
        return 0;
    case CN_FRAME_BATCH:
        if (cn_frame_get_batch(frame, arena, &rows, &err) < 0)
            return -1;
        begun = cn_frame_begin_batch(out);
        for (i = 0; i < frame->count; i++)
            cn_frame_put_row(out, &rows[i]);
        cn_frame_end_batch(out, begun, frame->count);
        return 0;
    case CN_FRAME_CLOSE:
        if (cn_frame_get_closes(frame, arena, &closes, &err) < 0)
            return -1;
        cn_frame_put_close(out, closes, frame->count);
        return 0;
    case CN_FRAME_CANCEL:
        if (cn_frame_get_cancels(frame, arena, &cancels, &err) < 0)
            return -1;
        cn_frame_put_cancel(out, cancels, frame->count);
        return 0;
    case CN_FRAME_CREDIT:
        if (cn_frame_get_credits(frame, arena, &credits, &err) < 0)
            return -1;
        cn_frame_put_credit(out, credits, frame->count);
        return 0;
    case CN_FRAME_STOP:
        cn_frame_put_stop(out);
        return 0;
    case CN_FRAME_QUERY:
        if (cn_frame_get_query(frame, &query, &err) < 0)
            return -1;
        cn_frame_put_query(out, &query);
        return 0;
    case CN_FRAME_FORK:
        if (cn_frame_get_fork(frame, &label, &err) < 0)
            return -1;
        cn_frame_put_fork(out, label);
        return 0;
    case CN_FRAME_MEMORY:
        if (cn_frame_get_memory(frame, &memory, &err) < 0)
            return -1;
        cn_frame_put_memory(out, &memory);
        return 0;
    case CN_FRAME_LOADED:
    case CN_FRAME_ANSWER:
    case CN_FRAME_STATS:
    case CN_FRAME_CLOSED:
    case CN_FRAME_RESULT:
    case CN_FRAME_REPORT:
    case CN_FRAME_FORKED:
    case CN_FRAME_PROGRESS:
        return -1; /* this frame is not for a worker */
    }
    cn_unreachable();
}

/* Decodes rows whose parts may lie in the body memory. Returns false when it cannot. */
static bool
decode_placed(struct cn_frame *frame, struct cn_arena *arena)
{
    struct cn_body_memory *memory;
    struct cn_error err;
    struct cn_row *rows;
    bool decoded;

    if (frame->type != CN_FRAME_BATCH)
        return false;
    frame->body_memory = memory = fuzz_memory();
    decoded = cn_frame_get_batch(frame, arena, &rows, &err) == 0;
    for (uint32_t i = 0; decoded && i < frame->count; i++)
        for (uint32_t j = 0; j < rows[i].n_parts; j++)
            fuzz_read_placed(memory, rows[i].parts[j].data);
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
    cn_assert(cn_frame_find_large(bytes, len) <= len);
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
