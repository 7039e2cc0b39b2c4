/* proto/frame_answer.c - the frames ANSWER and REPORT. Any thread.
 *
 * A row gets one ANSWER, or several when its answer is streamed; the last one has CN_ANSWER_FINAL.
 * Each handler call is reported by one REPORT, which is sent before the answers of its rows: the
 * server then knows the times of the call when it logs those answers. A REPORT also carries the
 * numbers that the handler measured under names of its own. They come from the model's code, so
 * a value that is not finite is refused here, before it could reach /metrics.
 */
#include <math.h>
#include <string.h>

#include "proto/frame_priv.h"

#define SAMPLE_BYTES_MIN 17 /* type, two lengths, value, count of dimensions */

/* ANSWER: u64 job id, u32 flags, u32 error code, u16 status, u64 generation, u64 step,
 * u64 opened (wall ms), u64 bytes of state, str16 content type, headers, body
 * (cn_frame_write_large). */
void
cn_frame_lend_answer(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                     struct cn_body_memory *body_memory, const struct cn_answer *answer)
{
    const uint64_t before = borrowed ? borrowed->bytes : 0;
    size_t begun = frame_begin(buf, CN_FRAME_ANSWER, 0);

    cn_write_u64(buf, answer->job_id);
    cn_write_u32(buf, answer->flags);
    cn_write_u32(buf, (uint32_t)answer->error_code);
    cn_write_u16(buf, answer->status);
    cn_write_u64(buf, answer->generation);
    cn_write_u64(buf, answer->step);
    cn_write_u64(buf, answer->opened_wall_ms);
    cn_write_u64(buf, answer->state_bytes);
    cn_write_str16(buf, answer->content_type);
    cn_frame_write_headers(buf, answer->headers, answer->n_headers);
    cn_frame_write_large(buf, borrowed, body_memory, NULL, answer->body);
    frame_end_borrowed(buf, begun, borrowed ? borrowed->bytes - before : 0);
}

void
cn_frame_put_answer(struct cn_buf *buf, const struct cn_answer *answer)
{
    cn_frame_lend_answer(buf, NULL, NULL, answer);
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
    out->state_bytes = cn_read_u64(&reader);
    out->content_type = cn_read_str16(&reader);
    rc = cn_frame_read_headers(&reader, arena, &out->headers, &out->n_headers, err);
    if (rc)
        return rc;
    out->body = cn_frame_read_large(&reader, frame->body_memory);
    if (!reader_done(&reader) || out->error_code > 0 ||
        (out->status != 0 && (out->status < 100 || out->status > 999)))
        return bad_payload(err, "ANSWER");
    return 0;
}

/* REPORT: u32 rows, u32 batch, u64 us before, in and after the handler, u32 count of jobs and their
 * u64 ids, then per sample u8 type, str16 name, str16 unit, u64 the value's bits (IEEE 754),
 * dimensions as headers. */
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
        cn_frame_write_headers(buf, sample->dims, sample->n_dims);
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
    return cn_frame_read_headers(reader, arena, &out->dims, &out->n_dims, err);
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
    if (out->n_jobs + out->n_samples == 0)
        return reader_done(&reader) ? 0 : bad_payload(err, "REPORT");
    out->job_ids = cn_arena_try_alloc(arena, (out->n_jobs + 1) * sizeof(*out->job_ids));
    out->samples = cn_arena_try_alloc(arena, (out->n_samples + 1) * sizeof(*out->samples));
    if (!out->job_ids || !out->samples)
        return cn_fail(err, CN_E_OUT_OF_MEMORY,
                       "not enough memory for a report of %u jobs and %u samples", out->n_jobs,
                       out->n_samples);
    for (i = 0; i < out->n_jobs; i++)
        out->job_ids[i] = cn_read_u64(&reader);
    for (i = 0; rc == 0 && i < out->n_samples; i++)
        rc = read_sample(&reader, arena, &out->samples[i], err);
    if (rc)
        return rc;
    return reader_done(&reader) ? 0 : bad_payload(err, "REPORT");
}
