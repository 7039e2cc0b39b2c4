/* worker/batch/answer_frames.c - answers into frames: the handler's, the stored ones, errors.
 * Owned by the worker's one thread.
 *
 * An answer is one frame, or several when the handler gave it in pieces. Status, content type and
 * headers (the "head") go with the first frame that has anything for the client; later frames have
 * a body only. Large bodies are not copied into the output: the handler has written them in the
 * body memory, or they are sent from the reply, which therefore must not change until the batch's
 * output was flushed.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "proto/wire.h"
#include "worker/worker_priv.h"

const char *
cn_id_shown(struct cn_str id, char out[128])
{
    id = cn_sequence_id_shown(id);
    for (size_t i = 0; i < id.len; i++) {
        unsigned char c = (unsigned char)id.ptr[i];

        if (c <= ' ' || c >= 0x7f || c == '"' || id.len > 100)
            return cn_log_quote(id.ptr, id.len, out, 128);
    }
    snprintf(out, 128, "%.*s", CN_STR_ARG(id));
    return out;
}

void
cn_batch_entry_decide(struct cn_batch_entry *entry)
{
    if (!cn_batch_entry_is(entry, CN_ROW_IS_DECIDED))
        cn_row_enter(entry->pending, CN_ROW_IS_DECIDED);
}

void
cn_batch_entry_fail(struct cn_batch_entry *entry, int code, const char *fmt, ...)
{
    char message[CN_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    cn_reply_fail(&entry->item.reply, code, "%s", message);
    cn_batch_entry_decide(entry);
}

/* Decodes the headers of a reply or a record, each of which is str16 name and str32 value. The
 * strings are borrowed from `bytes`. */
static void
headers_decode(struct cn_worker *worker, struct cn_str bytes, uint32_t n, struct cn_answer *answer)
{
    struct cn_reader reader;

    answer->n_headers = 0;
    if (n == 0)
        return;
    answer->headers = cn_arena_try_alloc(&worker->batch.arena, n * sizeof(*answer->headers));
    if (!answer->headers)
        return;
    cn_reader_init(&reader, bytes.ptr, bytes.len);
    for (uint32_t i = 0; i < n; i++) {
        struct cn_str name = cn_read_str16(&reader), value = cn_read_str32(&reader);

        if (reader.bad)
            return;
        answer->headers[answer->n_headers++] = (struct cn_header){name, value};
    }
}

static void
put(struct cn_worker *worker, const struct cn_answer *answer)
{
    cn_frame_put_answer(&worker->channel.out, answer);
}

void
cn_worker_refuse(struct cn_worker *worker, uint64_t job_id, int code, const char *message)
{
    put(worker, &(struct cn_answer){
                    .job_id = job_id,
                    .flags = CN_ANSWER_FINAL,
                    .error_code = code,
                    .body = cn_str_from(message),
                });
}

/* Sends the pieces that a stream has so far. The server is informed of the first yield even when it
 * brings no piece, because the row no longer occupies a place of the worker's batch. */
static void
put_pieces(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_answer *answer,
           bool first)
{
    struct cn_reply *reply = &entry->item.reply;

    for (uint32_t i = 0; i < reply->n_chunks || (first && i == 0); i++) {
        if (reply->head_out) {
            answer->status = 0;
            answer->content_type.len = answer->n_headers = 0;
        }
        answer->body = i < reply->n_chunks ? cn_buf_str(&reply->chunks[i].body) : CN_STR("");
        put(worker, answer);
        if (i < reply->n_chunks)
            cn_stream_sent(entry, answer->body);
        reply->head_out = reply->head_out || answer->body.len || answer->status ||
                          answer->content_type.len || answer->n_headers;
    }
}

/* Returns the step number for the answer: that of the step that was made, or, while the row
 * streams, that it will have; or the sequence's last one if the row only looked; or the one that
 * would be right if the row's number was wrong. */
static uint64_t
step_of(const struct cn_batch_entry *entry)
{
    if (entry->answer_flags & (CN_ANSWER_HERE | CN_ANSWER_ELSEWHERE))
        return entry->item.step;
    if (entry->item.reply.error_code)
        return entry->expected_step;
    if (entry->write == CN_WRITE_STEP || entry->committed)
        return entry->record.step;
    return entry->stream && entry->seq ? entry->seq->step + 1 : 0;
}

/* How many bytes of state the entry's step has stored. */
static uint64_t
stored_by(const struct cn_batch_entry *entry)
{
    return entry->write == CN_WRITE_STEP || entry->committed ? entry->state_bytes_len
                                                             : CN_STATE_BYTES_UNKNOWN;
}

/* Did the step open a sequence in the place of one that was open? The server may not know that one,
 * and would count both. */
static uint32_t
replaced_by(const struct cn_batch_entry *entry)
{
    return (entry->answer_flags & CN_ANSWER_OPENED) && entry->had_record && !entry->had_tombstone
               ? CN_ANSWER_REPLACED
               : 0;
}

static struct cn_answer
answer_of(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    const struct cn_reply *reply = &entry->item.reply;
    struct cn_answer answer = {
        .job_id = entry->row->job_id,
        .flags = entry->answer_flags | replaced_by(entry),
        .error_code = reply->error_code,
        .status = reply->status,
        .generation = entry->generation,
        .step = step_of(entry),
        .opened_wall_ms = entry->opened_wall_ms,
        .state_bytes = stored_by(entry),
        .content_type = cn_buf_str(&reply->content_type),
    };

    if (!reply->head_out || reply->error_code != 0)
        headers_decode(worker, cn_buf_str(&reply->headers), reply->n_headers, &answer);
    if (entry->stream)
        answer.flags |= CN_ANSWER_LIVE | (entry->committed ? CN_ANSWER_COMMITTED : 0u);
    return answer;
}

void
cn_batch_entry_put_pieces(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_answer answer = answer_of(worker, entry);

    put_pieces(worker, entry, &answer, !entry->stream->told);
    entry->stream->told = true;
}

void
cn_batch_entry_answer(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    const struct cn_reply *reply = &entry->item.reply;
    struct cn_answer answer;

    if (cn_batch_entry_is(entry, CN_ROW_IS_YIELDED)) {
        cn_batch_entry_put_pieces(worker, entry);
        return;
    }
    answer = answer_of(worker, entry);
    if (reply->head_out && reply->error_code == 0) {
        answer.status = 0;
        answer.content_type.len = answer.n_headers = 0;
    }
    for (uint32_t i = 0; i < reply->n_chunks; i++) {
        answer.body = cn_buf_str(&reply->chunks[i].body);
        put(worker, &answer);
    }
    answer.flags |= CN_ANSWER_FINAL;
    answer.body = cn_buf_str(&reply->body);
    /* The body may be borrowed: the reply stays as it is until the batch's answers have left. */
    cn_frame_lend_answer(&worker->channel.out, &worker->channel.borrowed,
                         worker->channel.body_memory, &answer);
    if (reply->body.from_allocator &&
        !cn_body_memory_is_written(worker->channel.body_memory, reply->body.data))
        cn_buf_disown(&entry->item.reply.body); /* it is the server's to read now */
    cn_row_enter(entry->pending, CN_ROW_IS_ANSWERED);
}

void
cn_batch_entry_tell_last(struct cn_worker *worker, struct cn_batch_entry *entry, uint64_t step)
{
    const struct cn_answer answer = {
        .job_id = entry->row->job_id,
        .flags = entry->answer_flags | CN_ANSWER_FINAL,
        .generation = entry->generation,
        .step = step,
        .opened_wall_ms = entry->opened_wall_ms,
        .state_bytes = CN_STATE_BYTES_UNKNOWN,
    };

    put(worker, &answer);
    cn_row_enter(entry->pending, CN_ROW_IS_ANSWERED);
}

/* The number of the sequence's next step: a client that cannot have its answer goes on there. The
 * first step of a new sequence has number 1. */
static uint64_t
step_behind(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    if (record->flags & CN_RECORD_TOMBSTONE)
        return 1;
    return entry->expected_step ? entry->expected_step : record->step + 1;
}

void
cn_batch_entry_replay(struct cn_worker *worker, struct cn_batch_entry *entry,
                      const struct cn_record *record)
{
    struct cn_str chunks = record->chunks, chunk;
    char message[256], shown[128];
    struct cn_answer answer = {
        .job_id = entry->row->job_id,
        .flags = (record->answer_flags & ~(uint32_t)CN_ANSWER_FINAL) | CN_ANSWER_REPLAYED,
        .generation = record->generation,
        .step = record->step,
        .opened_wall_ms = record->opened_wall_ms,
        .state_bytes = CN_STATE_BYTES_UNKNOWN,
    };

    /* The client may repeat the step long after the sequence was closed. */
    if ((record->flags & CN_RECORD_TOMBSTONE) && !(answer.flags & CN_ANSWER_ENDED))
        answer.flags |= CN_ANSWER_CLOSED_BEFORE;
    if (record->flags & CN_RECORD_HAS_ANSWER) {
        answer.status = record->status;
        answer.content_type = record->content_type;
        headers_decode(worker, record->headers, record->n_headers, &answer);
        while (cn_record_next_chunk(&chunks, &chunk)) {
            answer.body = chunk;
            put(worker, &answer);
        }
        answer.body = record->body;
    } else {
        answer.error_code = CN_E_ANSWER_NOT_KEPT;
        answer.step = step_behind(entry, record);
        cn_id_shown(entry->row->sequence_id, shown);
        if (record->flags & CN_RECORD_ANSWER_STREAMED)
            snprintf(message, sizeof(message),
                     "step %" PRIu64
                     " of sequence %s is committed, but its answer was streamed after that and "
                     "is not kept (continuousBatching)",
                     record->step, shown);
        else if (record->flags & CN_RECORD_ANSWER_TOO_LARGE)
            snprintf(message, sizeof(message),
                     "step %" PRIu64 " of sequence %s is committed, but its answer of %" PRIu64
                     " bytes was too large to keep (state.answerKeepBytes: %" PRIu64 ")",
                     record->step, shown, record->answer_bytes, worker->load.answer_keep_bytes);
        else
            snprintf(message, sizeof(message),
                     "step %" PRIu64
                     " of sequence %s is committed, but its answer was dropped when "
                     "the sequence was closed",
                     record->step, shown);
        answer.body = cn_str_from(message);
    }
    answer.flags |= CN_ANSWER_FINAL;
    put(worker, &answer);
    cn_row_enter(entry->pending, CN_ROW_IS_ANSWERED);
}
