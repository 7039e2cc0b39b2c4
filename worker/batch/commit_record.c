/* worker/batch/commit_record.c - makes the record that a row of a batch leaves in the store: the
 * step's numbers and times, its keys, its answer, and the state that the handler left. Owned by the
 * worker's one thread.
 *
 * The records of a batch are encoded one behind the other in batch->records, so a batch needs no
 * memory for a single one.
 */
#include "worker/batch/commit_record.h"

#include <inttypes.h>
#include <string.h>

#include "worker/batch/kept_answers.h"

static void
record_answer(struct cn_worker *worker, struct cn_batch_entry *entry, uint64_t bytes)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_reply *reply = &entry->item.reply;
    struct cn_record *record = &entry->record;

    const struct cn_stream *stream = entry->stream;

    record->answer_flags = entry->answer_flags;
    if (cn_batch_entry_is(entry, CN_ROW_IS_YIELDED)) {
        record->flags |= CN_RECORD_ANSWER_STREAMED;
        return;
    }
    if (stream)
        bytes += stream->bytes;
    record->answer_bytes = bytes;
    if (bytes > worker->load.answer_keep_bytes) {
        record->flags |= CN_RECORD_ANSWER_TOO_LARGE;
        return;
    }
    record->flags |= CN_RECORD_HAS_ANSWER;
    record->status = reply->status;
    record->content_type = cn_buf_str(&reply->content_type);
    record->headers = cn_buf_str(&reply->headers);
    record->n_headers = reply->n_headers;
    record->body = cn_buf_str(&reply->body);
    cn_buf_reset(&batch->chunks);
    if (stream)
        cn_buf_append_str(&batch->chunks, cn_buf_str(&stream->kept));
    for (uint32_t i = 0; i < reply->n_chunks; i++)
        cn_record_put_chunk(&batch->chunks, cn_buf_str(&reply->chunks[i].body));
    record->n_chunks = reply->n_chunks + (stream ? stream->n_pieces : 0);
    record->chunks = cn_buf_str(&batch->chunks);
}

/* Encodes the entry's state behind the rest of its record. */
static int
append_state(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    struct cn_buf *out = &worker->batch.records;
    const uint64_t limit = worker->load.state_max_bytes;
    const size_t begun = out->len;
    int rc;

    out->max_bytes =
        begun + limit + 1; /* one byte too many is enough to see that it is too large */
    rc = worker->rt->ops->state_encode(worker->rt, entry->item.state, out, err);
    out->max_bytes = 0;
    if (rc == CN_E_STATE_TOO_LARGE) /* the runtime knows which part of it is large */
        return rc;
    if (out->failed || out->len - begun > limit)
        return cn_fail(err, CN_E_STATE_TOO_LARGE,
                       "its state exceeds the limit of %" PRIu64 " bytes (state.maxBytes)", limit);
    entry->state_bytes_len = out->len - begun;
    return rc;
}

int
cn_commit_record_write(struct cn_worker *worker, struct cn_batch_entry *entry, struct cn_error *err)
{
    struct cn_buf *out = &worker->batch.records;
    int rc;

    entry->record_at = out->len;
    entry->state_bytes_len = 0;
    rc = cn_record_begin(&entry->record, out, err);
    if (rc == 0 && entry->write == CN_WRITE_CLAIM) /* an import that is written as it was */
        cn_buf_append_str(out, entry->record.state);
    else if (rc == 0 && (entry->record.flags & CN_RECORD_HAS_STATE))
        rc = append_state(worker, entry, err);
    if (rc == 0)
        rc = cn_record_end(out, entry->record_at, err);
    if (rc != 0) {
        out->len = entry->record_at;
        out->failed = 0;
    }
    entry->record_len = out->len - entry->record_at;
    return rc;
}

struct cn_str
cn_commit_record_bytes(const struct cn_worker *worker, const struct cn_batch_entry *entry)
{
    return (struct cn_str){worker->batch.records.data + entry->record_at, entry->record_len};
}

/* Puts the step's key, if it has one, in front of the keys of earlier steps. */
static void
record_keys(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_record *record = &entry->record;
    const struct cn_row *row = entry->row;
    const size_t room = cn_states_keys_room(&worker->states);
    struct cn_str before = cn_sequence_keys(entry->seq);
    char *keys;

    record->keys = before;
    if (row->idempotency_key.len || (row->flags & CN_ROW_NUMBERED)) {
        record->flags |= CN_RECORD_ASKED;
        record->request_hash = entry->request_hash;
    }
    if (row->idempotency_key.len == 0)
        return;
    if (before.len > room - CN_KEY_HASH_BYTES)
        before.len = room - CN_KEY_HASH_BYTES;
    keys = cn_arena_alloc(&worker->batch.arena, CN_KEY_HASH_BYTES + before.len);
    memcpy(keys, entry->key_hash, CN_KEY_HASH_BYTES);
    if (before.len)
        memcpy(keys + CN_KEY_HASH_BYTES, before.ptr, before.len);
    record->keys = (struct cn_str){keys, CN_KEY_HASH_BYTES + before.len};
    record->flags |= CN_RECORD_KEYED;
}

/* Adds the answers of the steps before this one, for a client that may not have seen them. They
 * have as much room together as one answer. */
static void
record_earlier(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    const struct cn_sequence_state *seq = entry->seq;

    if (entry->row->keep > 1)
        entry->record.earlier = cn_kept_cut((struct cn_str){seq->kept, seq->kept_len},
                                            entry->row->keep - 1u, worker->load.answer_keep_bytes);
}

int
cn_commit_record_step(struct cn_worker *worker, struct cn_batch_entry *entry, uint64_t answer_bytes,
                      uint64_t now, struct cn_error *err)
{
    struct cn_record *record = &entry->record;
    const struct cn_sequence_state *seq = entry->seq;
    bool end = (entry->row->flags & CN_ROW_END) || entry->item.reply.end_sequence;

    *record = (struct cn_record){
        .generation = seq->generation,
        .step = seq->step + 1,
        .last_job = entry->row->job_id,
        .opened_wall_ms = seq->opened_wall_ms,
        .last_wall_ms = now,
        .expires_wall_ms = cn_states_expires_at(&worker->states, seq->opened_wall_ms, now),
        .schema = worker->rt->ops->state_schema(worker->rt),
    };
    record_keys(worker, entry);
    if (end)
        entry->answer_flags |= CN_ANSWER_ENDED;
    else if (entry->item.state)
        record->flags |= CN_RECORD_HAS_STATE;
    record_answer(worker, entry, answer_bytes);
    record_earlier(worker, entry);
    if (end)
        cn_states_bury(&worker->states, record, CN_CLOSE_ENDED, now, true);
    return worker->batch.chunks.failed
               ? cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory to keep its answer")
               : 0;
}

void
cn_commit_record_import(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_record *record = &entry->record;

    record->flags = (record->flags & ~(uint32_t)CN_RECORD_HAS_STATE) | CN_RECORD_PENDING |
                    (entry->item.state ? CN_RECORD_HAS_STATE : 0u);
    record->state = (struct cn_str){NULL, 0};
    record->generation = entry->seq->generation;
    record->last_job = 0; /* numbers of the other version's jobs mean nothing here */
    record->schema = worker->rt->ops->state_schema(worker->rt);
    record->expires_wall_ms =
        cn_states_expires_at(&worker->states, record->opened_wall_ms, record->last_wall_ms);
}
