/* proto/frame_orders.c - the frames by which the server ends sequences and jobs, or lets streams go
 * on: CLOSE, CLOSED, CANCEL, CREDIT. Any thread.
 *
 * CLOSE names sequences and is handled in the order of the rows around it: rows sent before it run
 * first, rows sent after it meet the tombstones. CANCEL and CREDIT name jobs and take effect at
 * once, also for a row that waits behind others. CREDIT is the flow control of streamed answers: a
 * worker may send load->stream_bytes more than the client has taken, and then the stream rests
 * until a CREDIT says that the client has taken some of it.
 */
#include "proto/frame_priv.h"

/* CLOSE: per sequence u64 generation, u8 reason, str16 id. */
void
cn_frame_put_close(struct cn_buf *buf, const struct cn_close *closes, uint32_t count)
{
    size_t begun = frame_begin(buf, CN_FRAME_CLOSE, count);
    uint32_t i;

    for (i = 0; i < count; i++) {
        cn_write_u64(buf, closes[i].generation);
        cn_write_u8(buf, (uint8_t)closes[i].reason);
        cn_write_str16(buf, closes[i].sequence_id);
    }
    frame_end(buf, begun);
}

int
cn_frame_get_closes(const struct cn_frame *frame, struct cn_arena *arena, struct cn_close **out,
                    struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_close *closes;
    uint32_t i, reason;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    if (frame->count > cn_reader_left(&reader) / (8 + 1 + 2))
        return bad_payload(err, "CLOSE");
    closes = cn_arena_try_alloc(arena, frame->count * sizeof(*closes));
    if (!closes)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u closes", frame->count);
    for (i = 0; i < frame->count; i++) {
        closes[i].generation = cn_read_u64(&reader);
        reason = cn_read_u8(&reader);
        closes[i].sequence_id = cn_read_str16(&reader);
        if (reason < CN_CLOSE_ENDED || reason > CN_CLOSE_WORKER_LOST ||
            closes[i].sequence_id.len == 0 || closes[i].sequence_id.len > CN_SEQUENCE_ID_MAX)
            return bad_payload(err, "CLOSE");
        closes[i].reason = (enum cn_close_reason)reason;
    }
    if (!reader_done(&reader))
        return bad_payload(err, "CLOSE");
    *out = closes;
    return 0;
}

/* CANCEL: per job u64 id, u8 reason. */
void
cn_frame_put_cancel(struct cn_buf *buf, const struct cn_cancel *cancels, uint32_t count)
{
    size_t begun = frame_begin(buf, CN_FRAME_CANCEL, count);
    uint32_t i;

    for (i = 0; i < count; i++) {
        cn_write_u64(buf, cancels[i].job_id);
        cn_write_u8(buf, (uint8_t)cancels[i].reason);
    }
    frame_end(buf, begun);
}

int
cn_frame_get_cancels(const struct cn_frame *frame, struct cn_arena *arena, struct cn_cancel **out,
                     struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_cancel *cancels;
    uint32_t i, reason;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    if (frame->payload.len != (uint64_t)frame->count * 9)
        return bad_payload(err, "CANCEL");
    cancels = cn_arena_try_alloc(arena, frame->count * sizeof(*cancels));
    if (!cancels)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u cancels", frame->count);
    for (i = 0; i < frame->count; i++) {
        cancels[i].job_id = cn_read_u64(&reader);
        reason = cn_read_u8(&reader);
        if (reason < CN_STOP_GONE || reason > CN_STOP_CANCELLED)
            return bad_payload(err, "CANCEL");
        cancels[i].reason = (enum cn_stop_reason)reason;
    }
    *out = cancels;
    return 0;
}

/* CREDIT: per job u64 id, u64 bytes. */
void
cn_frame_put_credit(struct cn_buf *buf, const struct cn_credit *credits, uint32_t count)
{
    size_t begun = frame_begin(buf, CN_FRAME_CREDIT, count);
    uint32_t i;

    for (i = 0; i < count; i++) {
        cn_write_u64(buf, credits[i].job_id);
        cn_write_u64(buf, credits[i].bytes);
    }
    frame_end(buf, begun);
}

int
cn_frame_get_credits(const struct cn_frame *frame, struct cn_arena *arena, struct cn_credit **out,
                     struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_credit *credits;
    uint32_t i;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    if (frame->payload.len != (uint64_t)frame->count * 16)
        return bad_payload(err, "CREDIT");
    credits = cn_arena_try_alloc(arena, frame->count * sizeof(*credits));
    if (!credits)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u credits", frame->count);
    for (i = 0; i < frame->count; i++) {
        credits[i].job_id = cn_read_u64(&reader);
        credits[i].bytes = cn_read_u64(&reader);
    }
    *out = credits;
    return 0;
}

/* CLOSED: the header's count is that of the CLOSE. The payload is empty when all sequences are
 * closed; otherwise it is u32 done, u32 error code, str32 message. */
void
cn_frame_put_closed(struct cn_buf *buf, const struct cn_closed *closed)
{
    size_t begun = frame_begin(buf, CN_FRAME_CLOSED, closed->count);

    if (closed->done < closed->count) {
        cn_write_u32(buf, closed->done);
        cn_write_u32(buf, (uint32_t)closed->error_code);
        cn_write_str32(buf, closed->message);
    }
    frame_end(buf, begun);
}

int
cn_frame_get_closed(const struct cn_frame *frame, struct cn_closed *out, struct cn_error *err)
{
    struct cn_reader reader;

    *out = (struct cn_closed){.count = frame->count, .done = frame->count};
    if (frame->payload.len == 0)
        return 0;
    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->done = cn_read_u32(&reader);
    out->error_code = (int32_t)cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    return reader_done(&reader) && out->done < out->count && out->error_code < 0
               ? 0
               : bad_payload(err, "CLOSED");
}

const char *
cn_close_reason_word(enum cn_close_reason reason)
{
    static const char *const words[] = {"unknown", "ended",     "idle",       "lifetime",
                                        "evicted", "cancelled", "deleted",    "unloaded",
                                        "moved",   "reset",     "worker_lost"};

    return (unsigned)reason < sizeof(words) / sizeof(words[0]) ? words[reason] : words[0];
}

const char *
cn_stop_reason_word(enum cn_stop_reason reason)
{
    static const char *const words[] = {"unknown", "gone", "deadline", "ended", "cancelled"};

    return (unsigned)reason < sizeof(words) / sizeof(words[0]) ? words[reason] : words[0];
}
