/* proto/frame_batch.c - the frame BATCH: rows on their way to the worker. Any thread.
 *
 * The server does not know how many rows a batch will have when it begins to write one, and the
 * rows may hold hundreds of megabytes. Two things follow from that:
 * - A batch is written in three calls. cn_frame_begin_batch leaves the length and the count open,
 *   and cn_frame_end_batch fills them in.
 * - The bytes of a large part (CN_BORROW_MIN_BYTES or more) are not copied into the output buffer.
 *   The buffer gets only the part's length; cn_frame_write_large notes at which place of the
 *   output the bytes belong, and writev sends them from the request's own memory. The frame's
 *   length counts them, so the reader sees no difference. The request must stay until *unsent,
 *   which counts its parts that are still to be sent, is 0.
 *
 * A part of CN_BODY_MEMORY_MIN_BYTES or more goes through the body memory if it has a place there
 * (proto/body_memory.h), and then the frame only says where it lies.
 *
 * On the other side the worker wants a large tensor to be aligned for its type, so that a handler
 * can compute on it where it lies. The worker reads a frame's first bytes, asks cn_frame_find_large
 * where the first large part will begin, and moves those bytes so that the part is aligned
 * (worker/channel.c).
 */
#include "proto/frame_priv.h"

#define ROW_BYTES_MIN (8 + 4 + 4 + 8 + 2 + 2 + 2 + 4 + 4)
#define PART_BYTES_MIN (2 + 2 + 4)

size_t
cn_frame_begin_batch(struct cn_buf *buf)
{
    return frame_begin(buf, CN_FRAME_BATCH, 0);
}

/* A row of a BATCH: u64 job id, u32 flags, u32 deadline (ms left), u64 generation, str16 sequence
 * id, str16 request id, str16 idempotency key, with CN_ROW_NUMBERED u64 step, with CN_ROW_KEEPS u8
 * keep, headers, u32 count of parts and per part str16 name, str16 content type, data
 * (cn_frame_write_large); with
 * CN_ROW_MOVE: u8 op, u8 reason, u64 generation, u64 step, str16 version, str16 runtime, str32
 * record. */
static void
write_move(struct cn_buf *buf, const struct cn_move *move)
{
    cn_write_u8(buf, move->op);
    cn_write_u8(buf, move->reason);
    cn_write_u64(buf, move->generation);
    cn_write_u64(buf, move->step);
    cn_write_str16(buf, move->version);
    cn_write_str16(buf, move->runtime);
    cn_write_str32(buf, move->record);
}

void
cn_frame_lend_row(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                  struct cn_body_memory *body_memory, uint32_t *unsent, const struct cn_row *row)
{
    uint32_t i;

    cn_write_u64(buf, row->job_id);
    cn_write_u32(buf, row->flags);
    cn_write_u32(buf, row->deadline_ms);
    cn_write_u64(buf, row->generation);
    cn_write_str16(buf, row->sequence_id);
    cn_write_str16(buf, row->request_id);
    cn_write_str16(buf, row->idempotency_key);
    if (row->flags & CN_ROW_NUMBERED)
        cn_write_u64(buf, row->step);
    if (row->flags & CN_ROW_KEEPS)
        cn_write_u8(buf, row->keep);
    cn_frame_write_headers(buf, row->headers, row->n_headers);
    cn_write_u32(buf, row->n_parts);
    for (i = 0; i < row->n_parts; i++) {
        cn_write_str16(buf, row->parts[i].name);
        cn_write_str16(buf, row->parts[i].content_type);
        cn_frame_write_large(buf, borrowed, body_memory, unsent, row->parts[i].data);
    }
    if (row->flags & CN_ROW_MOVE)
        write_move(buf, row->move);
}

void
cn_frame_put_row(struct cn_buf *buf, const struct cn_row *row)
{
    cn_frame_lend_row(buf, NULL, NULL, NULL, row);
}

void
cn_frame_end_borrowed_batch(struct cn_buf *buf, size_t begun, uint32_t rows, uint64_t borrowed)
{
    frame_end_borrowed(buf, begun, borrowed);
    cn_patch_u32(buf, begun + 8, rows);
}

void
cn_frame_end_batch(struct cn_buf *buf, size_t begun, uint32_t rows)
{
    cn_frame_end_borrowed_batch(buf, begun, rows, 0);
}

static int
read_parts(struct cn_reader *reader, struct cn_body_memory *body_memory, struct cn_arena *arena,
           struct cn_row *row, struct cn_error *err)
{
    uint32_t i;

    row->n_parts = cn_read_u32(reader);
    row->parts = NULL;
    if (reader->bad || row->n_parts > cn_reader_left(reader) / PART_BYTES_MIN)
        return bad_payload(err, "BATCH");
    if (row->n_parts) {
        row->parts = cn_arena_try_alloc(arena, row->n_parts * sizeof(*row->parts));
        if (!row->parts)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u parts", row->n_parts);
    }
    for (i = 0; i < row->n_parts; i++) {
        row->parts[i].name = cn_read_str16(reader);
        row->parts[i].content_type = cn_read_str16(reader);
        row->parts[i].data = cn_frame_read_large(reader, body_memory);
    }
    return 0;
}

static int
read_move(struct cn_reader *reader, struct cn_arena *arena, struct cn_row *row,
          struct cn_error *err)
{
    struct cn_move *move = cn_arena_alloc(arena, sizeof(*move));

    move->op = cn_read_u8(reader);
    move->reason = cn_read_u8(reader);
    move->generation = cn_read_u64(reader);
    move->step = cn_read_u64(reader);
    move->version = cn_read_str16(reader);
    move->runtime = cn_read_str16(reader);
    move->record = cn_read_str32(reader);
    row->move = move;
    if (reader->bad || move->op < CN_MOVE_LOOK || move->op > CN_MOVE_TOLD ||
        move->reason > CN_CLOSE_WORKER_LOST || !(row->flags & CN_ROW_STATEFUL) ||
        (move->reason == 0 && move->op == CN_MOVE_BURY) ||
        (move->reason != 0 && move->op != CN_MOVE_BURY && move->op != CN_MOVE_TOLD))
        return bad_payload(err, "BATCH");
    return 0;
}

static int
read_row(struct cn_reader *reader, struct cn_body_memory *body_memory, struct cn_arena *arena,
         struct cn_row *row, struct cn_error *err)
{
    int rc;

    row->job_id = cn_read_u64(reader);
    row->flags = cn_read_u32(reader);
    row->deadline_ms = cn_read_u32(reader);
    row->generation = cn_read_u64(reader);
    row->sequence_id = cn_read_str16(reader);
    row->request_id = cn_read_str16(reader);
    row->idempotency_key = cn_read_str16(reader);
    row->step = row->flags & CN_ROW_NUMBERED ? cn_read_u64(reader) : 0;
    row->keep = row->flags & CN_ROW_KEEPS ? cn_read_u8(reader) : 0;
    rc = cn_frame_read_headers(reader, arena, &row->headers, &row->n_headers, err);
    if (rc)
        return rc;
    rc = read_parts(reader, body_memory, arena, row, err);
    row->move = NULL;
    if (rc == 0 && (row->flags & CN_ROW_MOVE))
        rc = read_move(reader, arena, row, err);
    if (rc)
        return rc;
    if (reader->bad || row->sequence_id.len > CN_SEQUENCE_ID_MAX ||
        row->idempotency_key.len > CN_IDEMPOTENCY_KEY_MAX ||
        (row->step == 0) != ((row->flags & CN_ROW_NUMBERED) == 0) ||
        (row->keep < 2) != ((row->flags & CN_ROW_KEEPS) == 0) ||
        (row->sequence_id.len == 0) == ((row->flags & CN_ROW_STATEFUL) != 0))
        return bad_payload(err, "BATCH");
    return 0;
}

/* Skips one row's fields up to the data of its first large part, and returns the size of that data;
 * 0 when the row has no large part, or when its bytes have not all arrived (reader->bad). It must
 * follow the layout of read_row, except for the fields of CN_ROW_MOVE: it cannot skip those, so a
 * row that has them sets `bad`, which ends the search. */
static uint32_t
skip_to_large(struct cn_reader *reader)
{
    uint32_t flags, n, bytes;

    cn_read_u64(reader);
    flags = cn_read_u32(reader);
    cn_read_u32(reader);
    cn_read_u64(reader);
    for (n = 3; n > 0; n--)
        cn_read_str16(reader);
    if (flags & CN_ROW_NUMBERED)
        cn_read_u64(reader);
    if (flags & CN_ROW_KEEPS)
        cn_read_u8(reader);
    for (n = cn_read_u32(reader); n > 0 && !reader->bad; n--) {
        cn_read_str16(reader);
        cn_read_str32(reader);
    }
    for (n = cn_read_u32(reader); n > 0 && !reader->bad; n--) {
        cn_read_str16(reader);
        cn_read_str16(reader);
        bytes = cn_read_u32(reader);
        if (!reader->bad && bytes == CN_FRAME_PLACED)
            bytes = CN_FRAME_PLACE_BYTES; /* it lies elsewhere, and is aligned there */
        else if (!reader->bad && bytes >= CN_BORROW_MIN_BYTES)
            return bytes;
        cn_read_bytes(reader, bytes);
    }
    reader->bad = reader->bad || (flags & CN_ROW_MOVE);
    return 0;
}

size_t
cn_frame_find_large(const void *bytes, size_t len)
{
    struct cn_reader reader;
    uint32_t type, rows;

    cn_reader_init(&reader, bytes, len);
    cn_read_u32(&reader);
    type = cn_read_u8(&reader);
    cn_read_bytes(&reader, 3);
    rows = cn_read_u32(&reader);
    if (type != CN_FRAME_BATCH)
        return 0;
    for (; rows > 0 && !reader.bad; rows--)
        if (skip_to_large(&reader))
            return len - cn_reader_left(&reader);
    return 0;
}

int
cn_frame_get_batch(const struct cn_frame *frame, struct cn_arena *arena, struct cn_row **out,
                   struct cn_error *err)
{
    struct cn_reader reader;
    struct cn_row *rows;
    uint32_t i;
    int rc;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    if (frame->count == 0 || frame->count > cn_reader_left(&reader) / ROW_BYTES_MIN)
        return bad_payload(err, "BATCH");
    rows = cn_arena_try_alloc(arena, frame->count * sizeof(*rows));
    if (!rows)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for %u rows", frame->count);
    for (i = 0; i < frame->count; i++) {
        rc = read_row(&reader, frame->body_memory, arena, &rows[i], err);
        if (rc)
            return rc;
    }
    if (!reader_done(&reader))
        return bad_payload(err, "BATCH");
    *out = rows;
    return 0;
}
