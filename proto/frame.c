/* proto/frame.c - frames between server and worker. Any thread.
 *
 * A payload's layout stands above its encoder. str16 and str32 are a length of
 * 2 or 4 bytes and the bytes; numbers are little-endian.
 */
#include "proto/frame.h"

#include <math.h>
#include <string.h>

#include "proto/frame_priv.h"

#define SAMPLE_BYTES_MIN 17 /* type, two lengths, value, count of dimensions */
#define ROW_BYTES_MIN (8 + 4 + 4 + 8 + 2 + 2 + 2 + 4 + 4)
#define HEADER_BYTES_MIN (2 + 4)
#define PART_BYTES_MIN (2 + 2 + 4)

static bool
type_known(unsigned type)
{
    return (type >= CN_FRAME_LOAD && type <= CN_FRAME_FORK) ||
           (type >= CN_FRAME_LOADED && type <= CN_FRAME_PROGRESS);
}

/* Does the header fit its type? What carries nothing must be empty, and only lists count. */
static bool
shape_fits(unsigned type, uint32_t payload, uint32_t count)
{
    bool counts = type == CN_FRAME_BATCH || type == CN_FRAME_CLOSE || type == CN_FRAME_CANCEL ||
                  type == CN_FRAME_CREDIT || type == CN_FRAME_CLOSED || type == CN_FRAME_RESULT ||
                  type == CN_FRAME_REPORT;

    return (counts || count == 0) && (type != CN_FRAME_STOP || payload == 0);
}

long
cn_frame_next(const void *bytes, size_t len, size_t max_payload_bytes, struct cn_frame *out,
              struct cn_error *err)
{
    struct cn_reader reader;
    uint32_t payload, type, version, zero;

    if (len < CN_FRAME_HEADER_BYTES)
        return 0;
    cn_reader_init(&reader, bytes, CN_FRAME_HEADER_BYTES);
    payload = cn_read_u32(&reader);
    type = cn_read_u8(&reader);
    version = cn_read_u8(&reader);
    zero = cn_read_u16(&reader);
    out->count = cn_read_u32(&reader);
    if (version != CN_FRAME_VERSION)
        return cn_fail(err, CN_E_PROTOCOL, "frame of version %u, expected %u", version,
                       CN_FRAME_VERSION);
    if (!type_known(type) || zero != 0)
        return cn_fail(err, CN_E_PROTOCOL, "frame of unknown type %u", type);
    if (!shape_fits(type, payload, out->count))
        return cn_fail(err, CN_E_PROTOCOL, "frame of type %u with %u bytes and count %u", type,
                       payload, out->count);
    if (payload > max_payload_bytes)
        return cn_fail(err, CN_E_PROTOCOL, "frame of %u bytes, the limit is %zu", payload,
                       max_payload_bytes);
    if (len - CN_FRAME_HEADER_BYTES < payload)
        return 0;
    out->type = (enum cn_frame_type)type;
    out->payload = (struct cn_str){(const char *)bytes + CN_FRAME_HEADER_BYTES, payload};
    return (long)CN_FRAME_HEADER_BYTES + (long)payload;
}

/* LOAD: the fields of CN_LOAD_FIELDS in order, texts as str32, numbers as u64. */
void
cn_frame_put_load(struct cn_buf *buf, const struct cn_load *load)
{
    size_t begun = frame_begin(buf, CN_FRAME_LOAD, 0);

#define PUT_STR(name) cn_write_str32(buf, cn_str_from(load->name));
#define PUT_NUM(name) cn_write_u64(buf, load->name);
    CN_LOAD_FIELDS(PUT_STR, PUT_NUM)
#undef PUT_STR
#undef PUT_NUM
    frame_end(buf, begun);
}

/* A text without a NUL inside, copied. */
static const char *
read_text(struct cn_reader *reader, struct cn_arena *arena)
{
    struct cn_str text = cn_read_str32(reader);

    if (text.len && memchr(text.ptr, '\0', text.len)) {
        reader->bad = true;
        text.len = 0;
    }
    return cn_arena_strndup(arena, text.ptr, text.len);
}

int
cn_frame_get_load(const struct cn_frame *frame, struct cn_arena *arena, struct cn_load *out,
                  struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
#define GET_STR(name) out->name = read_text(&reader, arena);
#define GET_NUM(name) out->name = cn_read_u64(&reader);
    CN_LOAD_FIELDS(GET_STR, GET_NUM)
#undef GET_STR
#undef GET_NUM
    return reader_done(&reader) ? 0 : bad_payload(err, "LOAD");
}

/* LOADED: u32 error code (two's complement), str32 message, str32 device. */
void
cn_frame_put_loaded(struct cn_buf *buf, const struct cn_loaded *loaded)
{
    size_t begun = frame_begin(buf, CN_FRAME_LOADED, 0);

    cn_write_u32(buf, (uint32_t)loaded->error_code);
    cn_write_str32(buf, loaded->message);
    cn_write_str32(buf, loaded->device);
    frame_end(buf, begun);
}

int
cn_frame_get_loaded(const struct cn_frame *frame, struct cn_loaded *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->error_code = (int32_t)cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    out->device = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "LOADED");
}

/* PROGRESS: u32 done, u32 total, str32 what. */
void
cn_frame_put_progress(struct cn_buf *buf, const struct cn_progress *progress)
{
    size_t begun = frame_begin(buf, CN_FRAME_PROGRESS, 0);

    cn_write_u32(buf, progress->done);
    cn_write_u32(buf, progress->total);
    cn_write_str32(buf, progress->what);
    frame_end(buf, begun);
}

int
cn_frame_get_progress(const struct cn_frame *frame, struct cn_progress *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->done = cn_read_u32(&reader);
    out->total = cn_read_u32(&reader);
    out->what = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "PROGRESS");
}

/* FORK: str32 label. */
void
cn_frame_put_fork(struct cn_buf *buf, struct cn_str label)
{
    size_t begun = frame_begin(buf, CN_FRAME_FORK, 0);

    cn_write_str32(buf, label);
    frame_end(buf, begun);
}

int
cn_frame_get_fork(const struct cn_frame *frame, struct cn_str *label, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    *label = cn_read_str32(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "FORK");
}

/* FORKED: u32 pid, str32 message. */
void
cn_frame_put_forked(struct cn_buf *buf, const struct cn_forked *forked)
{
    size_t begun = frame_begin(buf, CN_FRAME_FORKED, 0);

    cn_write_u32(buf, forked->pid);
    cn_write_str32(buf, forked->message);
    frame_end(buf, begun);
}

int
cn_frame_get_forked(const struct cn_frame *frame, struct cn_forked *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->pid = cn_read_u32(&reader);
    out->message = cn_read_str32(&reader);
    if (!reader_done(&reader) || out->pid > INT32_MAX)
        return bad_payload(err, "FORKED");
    return 0;
}

/* STATS: nine u64 in the order of struct cn_worker_stats. */
void
cn_frame_put_stats(struct cn_buf *buf, const struct cn_worker_stats *stats)
{
    size_t begun = frame_begin(buf, CN_FRAME_STATS, 0);

    cn_write_u64(buf, stats->rss_bytes);
    cn_write_u64(buf, stats->cached_sequences);
    cn_write_u64(buf, stats->cached_bytes);
    cn_write_u64(buf, stats->stored_sequences);
    cn_write_u64(buf, stats->stored_bytes);
    cn_write_u64(buf, stats->batches);
    cn_write_u64(buf, stats->rows);
    cn_write_u64(buf, stats->streams);
    cn_write_u64(buf, stats->busy_us);
    frame_end(buf, begun);
}

int
cn_frame_get_stats(const struct cn_frame *frame, struct cn_worker_stats *out, struct cn_error *err)
{
    struct cn_reader reader;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->rss_bytes = cn_read_u64(&reader);
    out->cached_sequences = cn_read_u64(&reader);
    out->cached_bytes = cn_read_u64(&reader);
    out->stored_sequences = cn_read_u64(&reader);
    out->stored_bytes = cn_read_u64(&reader);
    out->batches = cn_read_u64(&reader);
    out->rows = cn_read_u64(&reader);
    out->streams = cn_read_u64(&reader);
    out->busy_us = cn_read_u64(&reader);
    return reader_done(&reader) ? 0 : bad_payload(err, "STATS");
}

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
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u closes", frame->count);
    for (i = 0; i < frame->count; i++) {
        closes[i].generation = cn_read_u64(&reader);
        reason = cn_read_u8(&reader);
        closes[i].sequence_id = cn_read_str16(&reader);
        if (reason < CN_CLOSE_ENDED || reason > CN_CLOSE_RESET || closes[i].sequence_id.len == 0 ||
            closes[i].sequence_id.len > CN_SEQUENCE_ID_MAX)
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
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u cancels", frame->count);
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
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u credits", frame->count);
    for (i = 0; i < frame->count; i++) {
        credits[i].job_id = cn_read_u64(&reader);
        credits[i].bytes = cn_read_u64(&reader);
    }
    *out = credits;
    return 0;
}

/* STOP: empty. */
void
cn_frame_put_stop(struct cn_buf *buf)
{
    frame_end(buf, frame_begin(buf, CN_FRAME_STOP, 0));
}

/* CLOSED: its count is that of the CLOSE. Empty when all are closed; else u32 done, u32 error code,
 * str32 message. */
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

/* u32 count, then per header str16 name, str32 value. */
static void
write_headers(struct cn_buf *buf, const struct cn_header *headers, uint32_t count)
{
    uint32_t i;

    cn_write_u32(buf, count);
    for (i = 0; i < count; i++) {
        cn_write_str16(buf, headers[i].name);
        cn_write_str32(buf, headers[i].value);
    }
}

static int
read_headers(struct cn_reader *reader, struct cn_arena *arena, struct cn_header **out,
             uint32_t *count_out, struct cn_error *err)
{
    uint32_t count = cn_read_u32(reader), i;
    struct cn_header *headers = NULL;

    if (reader->bad || count > cn_reader_left(reader) / HEADER_BYTES_MIN)
        return bad_payload(err, "header list of a");
    if (count) {
        headers = cn_arena_try_alloc(arena, count * sizeof(*headers));
        if (!headers)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u headers", count);
    }
    for (i = 0; i < count; i++) {
        headers[i].name = cn_read_str16(reader);
        headers[i].value = cn_read_str32(reader);
    }
    *out = headers;
    *count_out = count;
    return 0;
}

/* As cn_write_str32, but without the bytes where they are worth to be lent. */
static void
write_or_lend(struct cn_buf *buf, struct cn_lents *lents, uint32_t *unsent, struct cn_str text)
{
    if (!lents || text.len < CN_LENT_MIN_BYTES || text.len > UINT32_MAX) {
        cn_write_str32(buf, text);
        return;
    }
    cn_write_u32(buf, (uint32_t)text.len);
    if (!buf->failed)
        cn_lents_add(lents, buf, text, unsent);
}

/* ANSWER: u64 job id, u32 flags, u32 error code, u16 status, u64 generation, u64 step,
 * u64 opened (wall ms), str16 content type, headers, str32 body. */
void
cn_frame_lend_answer(struct cn_buf *buf, struct cn_lents *lents, const struct cn_answer *answer)
{
    const uint64_t before = lents ? lents->bytes : 0;
    size_t begun = frame_begin(buf, CN_FRAME_ANSWER, 0);

    cn_write_u64(buf, answer->job_id);
    cn_write_u32(buf, answer->flags);
    cn_write_u32(buf, (uint32_t)answer->error_code);
    cn_write_u16(buf, answer->status);
    cn_write_u64(buf, answer->generation);
    cn_write_u64(buf, answer->step);
    cn_write_u64(buf, answer->opened_wall_ms);
    cn_write_str16(buf, answer->content_type);
    write_headers(buf, answer->headers, answer->n_headers);
    write_or_lend(buf, lents, NULL, answer->body);
    frame_end_lent(buf, begun, lents ? lents->bytes - before : 0);
}

void
cn_frame_put_answer(struct cn_buf *buf, const struct cn_answer *answer)
{
    cn_frame_lend_answer(buf, NULL, answer);
}

int
cn_frame_get_answer(const struct cn_frame *frame, struct cn_arena *arena, struct cn_answer *out,
                    struct cn_error *err)
{
    struct cn_reader reader;
    int rc;

    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->job_id = cn_read_u64(&reader);
    out->flags = cn_read_u32(&reader);
    out->error_code = (int32_t)cn_read_u32(&reader);
    out->status = cn_read_u16(&reader);
    out->generation = cn_read_u64(&reader);
    out->step = cn_read_u64(&reader);
    out->opened_wall_ms = cn_read_u64(&reader);
    out->content_type = cn_read_str16(&reader);
    rc = read_headers(&reader, arena, &out->headers, &out->n_headers, err);
    if (rc)
        return rc;
    out->body = cn_read_str32(&reader);
    if (!reader_done(&reader) || out->error_code > 0 ||
        (out->status != 0 && (out->status < 100 || out->status > 999)))
        return bad_payload(err, "ANSWER");
    return 0;
}

/* REPORT: u32 rows, u32 batch, u64 us before, in and after the handler, u32 count of jobs and their u64 ids, then per sample u8 type, str16
 * name, str16 unit, u64 the value's bits (IEEE 754), dimensions as headers. */
void
cn_frame_put_report(struct cn_buf *buf, const struct cn_report *report)
{
    size_t begun = frame_begin(buf, CN_FRAME_REPORT, report->n_samples);
    uint64_t bits;
    uint32_t i;

    cn_write_u32(buf, report->rows);
    cn_write_u32(buf, report->batch);
    cn_write_u64(buf, report->before_us);
    cn_write_u64(buf, report->handler_us);
    cn_write_u64(buf, report->after_us);
    cn_write_u32(buf, report->n_jobs);
    for (i = 0; i < report->n_jobs; i++)
        cn_write_u64(buf, report->job_ids[i]);
    for (i = 0; i < report->n_samples; i++) {
        const struct cn_sample *sample = &report->samples[i];

        memcpy(&bits, &sample->value, sizeof(bits));
        cn_write_u8(buf, (uint8_t)sample->type);
        cn_write_str16(buf, sample->name);
        cn_write_str16(buf, sample->unit);
        cn_write_u64(buf, bits);
        write_headers(buf, sample->dims, sample->n_dims);
    }
    frame_end(buf, begun);
}

static int
read_sample(struct cn_reader *reader, struct cn_arena *arena, struct cn_sample *out,
            struct cn_error *err)
{
    unsigned type = cn_read_u8(reader);
    uint64_t bits;

    out->type = (enum cn_sample_type)type;
    out->name = cn_read_str16(reader);
    out->unit = cn_read_str16(reader);
    bits = cn_read_u64(reader);
    memcpy(&out->value, &bits, sizeof(bits));
    if (reader->bad || type > CN_SAMPLE_HISTOGRAM || !isfinite(out->value))
        return bad_payload(err, "REPORT");
    return read_headers(reader, arena, &out->dims, &out->n_dims, err);
}

int
cn_frame_get_report(const struct cn_frame *frame, struct cn_arena *arena, struct cn_report *out,
                    struct cn_error *err)
{
    struct cn_reader reader;
    uint32_t i;
    int rc = 0;

    *out = (struct cn_report){.n_samples = frame->count};
    cn_reader_init(&reader, frame->payload.ptr, frame->payload.len);
    out->rows = cn_read_u32(&reader);
    out->batch = cn_read_u32(&reader);
    out->before_us = cn_read_u64(&reader);
    out->handler_us = cn_read_u64(&reader);
    out->after_us = cn_read_u64(&reader);
    out->n_jobs = cn_read_u32(&reader);
    if (reader.bad || out->n_jobs > cn_reader_left(&reader) / sizeof(uint64_t) ||
        out->n_samples > cn_reader_left(&reader) / SAMPLE_BYTES_MIN)
        return bad_payload(err, "REPORT");
    out->job_ids = cn_arena_try_alloc(arena, (out->n_jobs + 1) * sizeof(*out->job_ids));
    out->samples = cn_arena_try_alloc(arena, (out->n_samples + 1) * sizeof(*out->samples));
    if (!out->job_ids || !out->samples)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for a report of %u jobs and %u samples",
                       out->n_jobs, out->n_samples);
    for (i = 0; i < out->n_jobs; i++)
        out->job_ids[i] = cn_read_u64(&reader);
    for (i = 0; rc == 0 && i < out->n_samples; i++)
        rc = read_sample(&reader, arena, &out->samples[i], err);
    if (rc)
        return rc;
    return reader_done(&reader) ? 0 : bad_payload(err, "REPORT");
}

size_t
cn_frame_begin_batch(struct cn_buf *buf)
{
    return frame_begin(buf, CN_FRAME_BATCH, 0);
}

/* A row of a BATCH: u64 job id, u32 flags, u32 deadline (ms left), u64 generation, str16 sequence id,
 * str16 request id, str16 idempotency key, headers, u32 count of parts and per part str16 name,
 * str16 content type, str32 data; with CN_ROW_MOVE: u8 op, u8 reason, u64 generation, u64 step,
 * str16 version, str16 runtime, str32 record. */
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
cn_frame_lend_row(struct cn_buf *buf, struct cn_lents *lents, uint32_t *unsent,
                  const struct cn_row *row)
{
    uint32_t i;

    cn_write_u64(buf, row->job_id);
    cn_write_u32(buf, row->flags);
    cn_write_u32(buf, row->deadline_ms);
    cn_write_u64(buf, row->generation);
    cn_write_str16(buf, row->sequence_id);
    cn_write_str16(buf, row->request_id);
    cn_write_str16(buf, row->idempotency_key);
    write_headers(buf, row->headers, row->n_headers);
    cn_write_u32(buf, row->n_parts);
    for (i = 0; i < row->n_parts; i++) {
        cn_write_str16(buf, row->parts[i].name);
        cn_write_str16(buf, row->parts[i].content_type);
        write_or_lend(buf, lents, unsent, row->parts[i].data);
    }
    if (row->flags & CN_ROW_MOVE)
        write_move(buf, row->move);
}

void
cn_frame_put_row(struct cn_buf *buf, const struct cn_row *row)
{
    cn_frame_lend_row(buf, NULL, NULL, row);
}

void
cn_frame_end_lent_batch(struct cn_buf *buf, size_t begun, uint32_t rows, uint64_t lent)
{
    frame_end_lent(buf, begun, lent);
    cn_patch_u32(buf, begun + 8, rows);
}

void
cn_frame_end_batch(struct cn_buf *buf, size_t begun, uint32_t rows)
{
    cn_frame_end_lent_batch(buf, begun, rows, 0);
}

static int
read_parts(struct cn_reader *reader, struct cn_arena *arena, struct cn_row *row,
           struct cn_error *err)
{
    uint32_t i;

    row->n_parts = cn_read_u32(reader);
    row->parts = NULL;
    if (reader->bad || row->n_parts > cn_reader_left(reader) / PART_BYTES_MIN)
        return bad_payload(err, "BATCH");
    if (row->n_parts) {
        row->parts = cn_arena_try_alloc(arena, row->n_parts * sizeof(*row->parts));
        if (!row->parts)
            return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u parts", row->n_parts);
    }
    for (i = 0; i < row->n_parts; i++) {
        row->parts[i].name = cn_read_str16(reader);
        row->parts[i].content_type = cn_read_str16(reader);
        row->parts[i].data = cn_read_str32(reader);
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
        move->reason > CN_CLOSE_RESET || !(row->flags & CN_ROW_STATEFUL) ||
        (move->reason == 0) != (move->op != CN_MOVE_BURY && move->op != CN_MOVE_TOLD))
        return bad_payload(err, "BATCH");
    return 0;
}

static int
read_row(struct cn_reader *reader, struct cn_arena *arena, struct cn_row *row, struct cn_error *err)
{
    int rc;

    row->job_id = cn_read_u64(reader);
    row->flags = cn_read_u32(reader);
    row->deadline_ms = cn_read_u32(reader);
    row->generation = cn_read_u64(reader);
    row->sequence_id = cn_read_str16(reader);
    row->request_id = cn_read_str16(reader);
    row->idempotency_key = cn_read_str16(reader);
    rc = read_headers(reader, arena, &row->headers, &row->n_headers, err);
    if (rc)
        return rc;
    rc = read_parts(reader, arena, row, err);
    row->move = NULL;
    if (rc == 0 && (row->flags & CN_ROW_MOVE))
        rc = read_move(reader, arena, row, err);
    if (rc)
        return rc;
    if (reader->bad || row->sequence_id.len > CN_SEQUENCE_ID_MAX ||
        row->idempotency_key.len > CN_IDEMPOTENCY_KEY_MAX ||
        (row->sequence_id.len == 0) == ((row->flags & CN_ROW_STATEFUL) != 0))
        return bad_payload(err, "BATCH");
    return 0;
}

/* Reads over a row's beginning and parts. The bytes of its first large one's data, else 0. */
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
    for (n = cn_read_u32(reader); n > 0 && !reader->bad; n--) {
        cn_read_str16(reader);
        cn_read_str32(reader);
    }
    for (n = cn_read_u32(reader); n > 0 && !reader->bad; n--) {
        cn_read_str16(reader);
        cn_read_str16(reader);
        bytes = cn_read_u32(reader);
        if (!reader->bad && bytes >= CN_LENT_MIN_BYTES)
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
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "no memory for %u rows", frame->count);
    for (i = 0; i < frame->count; i++) {
        rc = read_row(&reader, arena, &rows[i], err);
        if (rc)
            return rc;
    }
    if (!reader_done(&reader))
        return bad_payload(err, "BATCH");
    *out = rows;
    return 0;
}

const char *
cn_close_reason_word(enum cn_close_reason reason)
{
    static const char *const words[] = {"unknown",   "ended",   "idle",     "lifetime", "evicted",
                                        "cancelled", "deleted", "unloaded", "moved",    "reset"};

    return (unsigned)reason < sizeof(words) / sizeof(words[0]) ? words[reason] : words[0];
}

const char *
cn_stop_reason_word(enum cn_stop_reason reason)
{
    static const char *const words[] = {"unknown", "gone", "deadline", "ended", "cancelled"};

    return (unsigned)reason < sizeof(words) / sizeof(words[0]) ? words[reason] : words[0];
}
