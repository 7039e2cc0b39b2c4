/* proto/query.c - the frames QUERY and RESULT. Any thread. The conventions are those of frame.c.
 *
 * All three operations share one layout, in which the fields that an operation does not use are
 * zero or empty. query_fits() refuses a query that sets other fields, so the worker need not check
 * them.
 */
#include "proto/query.h"

#include "proto/frame_priv.h"

#define INFO_BYTES_MIN (2 + 4 + 4 + 8 * 8 + 1)

/* QUERY: u64 query id, u8 op, u32 flags, u32 limit, u64 min idle ms, u64 max bytes, str16 sequence
 * id, str16 prefix, str32 record. */
void
cn_frame_put_query(struct cn_buf *buf, const struct cn_query *query)
{
    size_t begun = frame_begin(buf, CN_FRAME_QUERY, 0);

    cn_write_u64(buf, query->query_id);
    cn_write_u8(buf, (uint8_t)query->op);
    cn_write_u32(buf, query->flags);
    cn_write_u32(buf, query->limit);
    cn_write_u64(buf, query->min_idle_ms);
    cn_write_u64(buf, query->max_bytes);
    cn_write_str16(buf, query->sequence_id);
    cn_write_str16(buf, query->prefix);
    cn_write_str32(buf, query->record);
    frame_end(buf, begun);
}

/* Does the query have the fields that its operation needs, and no others? */
static bool
query_fits(const struct cn_query *query)
{
    bool has_id = query->sequence_id.len > 0;

    if (query->sequence_id.len > CN_SEQUENCE_ID_MAX || query->prefix.len > CN_SEQUENCE_ID_MAX)
        return false;
    switch ((unsigned)query->op) {
    case CN_QUERY_LIST:
        return !(query->flags & ~(uint32_t)CN_QUERY_LIST_FLAGS) && query->limit > 0 &&
               query->limit <= CN_QUERY_LIMIT_MAX && query->record.len == 0;
    case CN_QUERY_READ:
        return has_id && !(query->flags & ~(uint32_t)CN_QUERY_READ_FLAGS) && query->limit == 0 &&
               query->prefix.len == 0 && query->record.len == 0;
    case CN_QUERY_WRITE:
        return has_id && !(query->flags & ~(uint32_t)CN_QUERY_WRITE_FLAGS) && query->limit == 0 &&
               query->prefix.len == 0;
    default:
        return false;
    }
}

int
cn_frame_get_query(const struct cn_frame *frame, struct cn_query *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->query_id = cn_read_u64(&reader);
    out->op = (enum cn_query_op)cn_read_u8(&reader);
    out->flags = cn_read_u32(&reader);
    out->limit = cn_read_u32(&reader);
    out->min_idle_ms = cn_read_u64(&reader);
    out->max_bytes = cn_read_u64(&reader);
    out->sequence_id = cn_read_str16(&reader);
    out->prefix = cn_read_str16(&reader);
    out->record = cn_read_str32(&reader);
    return reader_done(&reader) && query_fits(out) ? 0 : bad_payload(err, "QUERY");
}

/* A sequence of a RESULT: str16 id, u32 flags, u32 schema, u64 generation, step, opened, last,
 * closed, expires (wall ms), state bytes, answer bytes, u8 close reason. */
static void
write_info(struct cn_buf *buf, const struct cn_sequence_info *info)
{
    cn_write_str16(buf, info->id);
    cn_write_u32(buf, info->flags);
    cn_write_u32(buf, info->schema);
    cn_write_u64(buf, info->generation);
    cn_write_u64(buf, info->step);
    cn_write_u64(buf, info->opened_wall_ms);
    cn_write_u64(buf, info->last_wall_ms);
    cn_write_u64(buf, info->closed_wall_ms);
    cn_write_u64(buf, info->expires_wall_ms);
    cn_write_u64(buf, info->state_bytes);
    cn_write_u64(buf, info->answer_bytes);
    cn_write_u8(buf, info->close_reason);
}

static bool
read_info(struct cn_reader *reader, struct cn_sequence_info *info)
{
    info->id = cn_read_str16(reader);
    info->flags = cn_read_u32(reader);
    info->schema = cn_read_u32(reader);
    info->generation = cn_read_u64(reader);
    info->step = cn_read_u64(reader);
    info->opened_wall_ms = cn_read_u64(reader);
    info->last_wall_ms = cn_read_u64(reader);
    info->closed_wall_ms = cn_read_u64(reader);
    info->expires_wall_ms = cn_read_u64(reader);
    info->state_bytes = cn_read_u64(reader);
    info->answer_bytes = cn_read_u64(reader);
    info->close_reason = cn_read_u8(reader);
    return !reader->bad && info->id.len > 0 && info->id.len <= CN_SEQUENCE_ID_MAX &&
           ((info->flags & CN_INFO_CLOSED) != 0) == (info->close_reason != 0);
}

/* RESULT: u64 query id, u32 error code, str32 message, str16 next, str32 record, then `count`
 * sequences. */
void
cn_frame_put_result(struct cn_buf *buf, const struct cn_query_result *result)
{
    size_t begun = frame_begin(buf, CN_FRAME_RESULT, result->n_sequences);

    cn_write_u64(buf, result->query_id);
    cn_write_u32(buf, (uint32_t)result->error_code);
    cn_write_str32(buf, result->message);
    cn_write_str16(buf, result->next);
    cn_write_str32(buf, result->record);
    for (uint32_t i = 0; i < result->n_sequences; i++)
        write_info(buf, &result->sequences[i]);
    frame_end(buf, begun);
}

int
cn_frame_get_result(const struct cn_frame *frame, struct cn_arena *arena,
                    struct cn_query_result *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    *out = (struct cn_query_result){.n_sequences = frame->count};
    out->query_id = cn_read_u64(&reader);
    out->error_code = (int32_t)cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    out->next = cn_read_str16(&reader);
    out->record = cn_read_str32(&reader);
    if (reader.bad || frame->count > cn_reader_left(&reader) / INFO_BYTES_MIN ||
        out->next.len > CN_SEQUENCE_ID_MAX || out->error_code > 0)
        return bad_payload(err, "RESULT");
    out->sequences = cn_arena_try_alloc(arena, frame->count * sizeof(*out->sequences));
    if (!out->sequences)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u sequences", frame->count);
    for (uint32_t i = 0; i < frame->count; i++)
        if (!read_info(&reader, &out->sequences[i]))
            return bad_payload(err, "RESULT");
    return reader_done(&reader) ? 0 : bad_payload(err, "RESULT");
}
