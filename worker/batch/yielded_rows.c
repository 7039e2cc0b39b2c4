/* worker/batch/yielded_rows.c - rows whose handler yielded: where they wait, what wakes them, what
 * ends them. Owned by the worker's one thread.
 *
 * A row becomes a stream at its first yield and is one until its final answer. In that time it is
 * in one of three places:
 *
 *   in a batch    the handler has its turn (stream->joined). The batch's entry is a copy of the
 *                 stream's entry; the reply that belongs to the batch's entry is set aside until
 *                 the turn is over
 *   pending       it can go on, and waits at the back of the worker's list of pending rows, so that
 *                 streams and new rows take turns, whatever the batch size
 *   resting       it is in no list: it has asked for a rest, or its client has not taken what was
 *                 sent (load->stream_bytes and one piece at most). A timer, CREDIT, CANCEL or the
 *                 handler's wake puts it back among the pending rows
 *
 * The life of a stream: begin (in cn_batch_note_yields, after the run, or in cn_stream_send, while
 * the handler runs), then cn_stream_park and cn_stream_join in turn, then cn_stream_end, or give_up
 * when the handler yields although it was told to end. The pending entry keeps the row's memory
 * until the end.
 *
 * When the step is committed depends on the model. By default it is committed with the last piece,
 * and the sequence's next step waits; with load->continuous it is committed at the first yield, and
 * streams of earlier steps run beside later steps (decision 0009).
 */
#include <inttypes.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/worker_priv.h"

static void time_came(struct cn_timer *timer);

static struct cn_str
job_key(const uint64_t *job_id)
{
    return (struct cn_str){(const char *)job_id, sizeof(*job_id)};
}

static struct cn_str
stream_key(const void *item)
{
    return job_key(&((const struct cn_stream *)item)->pending->row->job_id);
}

void
cn_streams_init(struct cn_streams *streams, uint64_t now_ms)
{
    cn_list_init(&streams->all);
    streams->by_job = cn_table_create(stream_key);
    streams->wheel = cn_timer_wheel_create(now_ms);
}

uint32_t
cn_streams_count(const struct cn_streams *streams)
{
    return streams->by_job ? (uint32_t)cn_table_count(streams->by_job) : 0;
}

/* --- waking and resting --- */

static bool
can_go_on(const struct cn_stream *stream, uint64_t now_ms)
{
    if (stream->pending->stop != CN_STOP_NONE || now_ms >= stream->deadline_ms)
        return true;
    return now_ms >= stream->rest_until_ms && stream->untaken < stream->worker->load.stream_bytes;
}

/* Puts a stream that is in no list among the pending rows if it can go on; otherwise sets the timer
 * that will look again. */
static void
place(struct cn_stream *stream)
{
    struct cn_worker *worker = stream->worker;
    uint64_t now_ms = cn_now_ms(), until_ms = stream->deadline_ms;

    if (can_go_on(stream, now_ms)) {
        cn_timer_cancel(&stream->timer);
        cn_row_enter(stream->pending, CN_ROW_IS_WAITING);
        cn_list_push_back(&worker->pending, &stream->pending->link);
        return;
    }
    if (stream->pending->phase != CN_ROW_IS_RESTING)
        cn_row_enter(stream->pending, CN_ROW_IS_RESTING);
    if (now_ms < stream->rest_until_ms && stream->rest_until_ms < until_ms)
        until_ms = stream->rest_until_ms;
    cn_timer_set(worker->streams.wheel, &stream->timer, until_ms);
}

static void
look_again(struct cn_stream *stream)
{
    /* A stream that is in the batch or in the list is looked at when its turn is over. */
    if (stream->pending->phase == CN_ROW_IS_RESTING)
        place(stream);
}

static void
time_came(struct cn_timer *timer)
{
    look_again(cn_container_of(timer, struct cn_stream, timer));
}

static struct cn_stream *
find(struct cn_worker *worker, uint64_t job_id)
{
    return cn_table_find(worker->streams.by_job, job_key(&job_id));
}

void
cn_stream_credit(struct cn_worker *worker, const struct cn_credit *credit)
{
    struct cn_stream *stream = find(worker, credit->job_id);

    if (!stream)
        return; /* it has ended meanwhile */
    stream->untaken -= credit->bytes < stream->untaken ? credit->bytes : stream->untaken;
    look_again(stream);
}

void
cn_stream_wake(void *worker, uint64_t job_id)
{
    struct cn_stream *stream = find(worker, job_id);

    if (!stream)
        return; /* its first call is not over, and sends what the handler has */
    stream->woken = true;
    stream->rest_until_ms = 0;
    look_again(stream);
}

static void
stop(struct cn_stream *stream, enum cn_stop_reason reason)
{
    if (stream->pending->stop == CN_STOP_NONE)
        stream->pending->stop = reason;
    look_again(stream);
}

bool
cn_stream_cancel(struct cn_worker *worker, const struct cn_cancel *cancel)
{
    struct cn_stream *stream = find(worker, cancel->job_id);

    if (stream)
        stop(stream, cancel->reason);
    return stream != NULL;
}

static int
touch_all(struct cn_worker *worker, struct cn_error *err)
{
    struct cn_states *states = &worker->states;
    uint64_t now = cn_wall_ms();
    struct cn_list *node;
    int rc = cn_store_begin(states->store, CN_STORE_WRITE, err);

    if (rc != 0)
        return rc;
    cn_list_for_each(node, &worker->streams.all) {
        const struct cn_row *row = cn_container_of(node, struct cn_stream, all)->pending->row;

        if (row->flags & CN_ROW_STATEFUL)
            cn_states_announce(states, row->sequence_id);
    }
    cn_list_for_each(node, &worker->streams.all) {
        const struct cn_row *row = cn_container_of(node, struct cn_stream, all)->pending->row;

        if ((row->flags & CN_ROW_STATEFUL) &&
            (rc = cn_states_touch(states, row->sequence_id, now, err)) != 0) {
            cn_store_abort(states->store);
            return rc;
        }
    }
    return cn_store_commit(states->store, err);
}

void
cn_streams_touch(struct cn_worker *worker)
{
    uint64_t now_ms = cn_now_ms();
    struct cn_error err;

    if (!worker->stateful || worker->load.idle_ms == 0 ||
        now_ms - worker->streams.touched_ms < CN_STREAM_TOUCH_MS)
        return;
    worker->streams.touched_ms = now_ms;
    if (touch_all(worker, &err) != 0)
        cn_states_warn(&worker->states, "streams_not_touched", &err);
}

void
cn_streams_stop(struct cn_worker *worker, struct cn_str id, const struct cn_pending *except,
                enum cn_stop_reason reason)
{
    struct cn_list *node, *next;
    uint32_t hash = cn_id_hash(id);

    cn_list_for_each_safe(node, next, &worker->streams.all) {
        struct cn_stream *stream = cn_container_of(node, struct cn_stream, all);

        if (stream->pending != except && stream->pending->id_hash == hash &&
            cn_str_eq(stream->pending->row->sequence_id, id))
            stop(stream, reason);
    }
}

void
cn_streams_stop_all(struct cn_worker *worker)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &worker->streams.all)
        stop(cn_container_of(node, struct cn_stream, all), CN_STOP_ENDED);
}

/* --- in the batch --- */

void
cn_stream_join(struct cn_stream *stream, struct cn_batch_entry *entry)
{
    struct cn_pending *pending = stream->pending;

    cn_row_enter(pending, CN_ROW_IS_READY);
    stream->batch_reply = entry->item.reply;
    stream->woken = false;
    *entry = stream->entry;
    entry->passed = entry->lost = false;
    entry->losses = 0;
    if (pending->stop == CN_STOP_NONE && cn_now_ms() >= stream->deadline_ms)
        pending->stop = CN_STOP_DEADLINE;
    entry->item.stop = pending->stop;
    entry->item.deadline_ms = stream->deadline_ms;
}

/* The handler yielded although it was told to end: the stream is dropped with an error. */
static void
give_up(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    worker->rt->ops->drop(worker->rt, entry->item.resume);
    entry->item.resume = NULL;
    if (entry->seq)
        entry->seq->state = entry->item.state;
    if (entry->item.stop == CN_STOP_DEADLINE)
        cn_batch_entry_fail(entry, CN_E_HANDLER_DEADLINE,
                            "the answer was streamed for %" PRIu64
                            " ms (stream.timeoutMSec), and the handler did not end it",
                            worker->load.stream_ms);
    else
        cn_batch_entry_fail(entry, CN_E_CANCELLED,
                            "the stream was stopped (%s), and the handler did not "
                            "end it",
                            cn_stop_reason_word(entry->item.stop));
}

static void
begin(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_stream *stream = cn_alloc(sizeof(*stream));

    stream->worker = worker;
    stream->pending = entry->pending;
    cn_list_push_back(&worker->streams.all, &stream->all);
    cn_timer_init(&stream->timer, time_came);
    cn_buf_init(&stream->kept, 0);
    /* The stream takes the reply of the batch's entry, which gets a new one when this batch is
     * over.
     */
    cn_reply_init(&stream->batch_reply, worker->load.answer_max_bytes);
    stream->deadline_ms = worker->load.stream_ms ? cn_now_ms() + worker->load.stream_ms : CN_NEVER;
    /* A stream that is committed at its end keeps its sequence object for long. If another step of
     * the sequence is run meanwhile, that step gets an object and a hint of its own, but the store
     * allows one hint for a key. Without a hint, the commit of the stream looks at the store and
     * finds that it has lost. */
    if (entry->seq && !worker->load.continuous)
        entry->seq->hint = (struct cn_store_hint){0};
    entry->stream = entry->pending->stream = stream;
    cn_table_insert(worker->streams.by_job, stream);
}

void
cn_batch_note_yields(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (!cn_batch_entry_is(entry, CN_ROW_IS_RAN) || !entry->item.reply.more)
            continue;
        if (entry->item.stop != CN_STOP_NONE) {
            give_up(worker, entry);
            continue;
        }
        cn_row_enter(entry->pending, CN_ROW_IS_YIELDED);
        if (!entry->stream)
            begin(worker, entry);
    }
}

void
cn_batch_drop_failed(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (!cn_batch_entry_is(entry, CN_ROW_IS_SETTLED) || !entry->item.resume)
            continue;
        worker->rt->ops->drop(worker->rt, entry->item.resume);
        entry->item.resume = NULL;
    }
}

/* --- its pieces --- */

/* Keeps a piece for the record, as long as the whole answer is small enough to be stored. */
static void
keep_piece(struct cn_stream *stream, struct cn_str piece)
{
    stream->bytes += piece.len;
    stream->n_pieces++;
    if (stream->bytes <= stream->worker->load.answer_keep_bytes)
        cn_record_put_chunk(&stream->kept, piece);
    else
        cn_buf_fini(&stream->kept);
}

void
cn_stream_sent(struct cn_batch_entry *entry, struct cn_str piece)
{
    entry->stream->untaken += piece.len;
    if (entry->seq && !entry->committed)
        keep_piece(entry->stream, piece);
}

/* Is the item one of a row of the batch? Padding has no row that could stream. */
static bool
is_of_batch(const struct cn_batch *batch, const struct cn_item *item)
{
    const uintptr_t at = (uintptr_t)item, first = (uintptr_t)batch->entries;

    return at >= first && at < first + batch->n * sizeof(*batch->entries);
}

const struct cn_pending *
cn_stream_send(struct cn_worker *worker, struct cn_item *item)
{
    struct cn_batch_entry *entry = cn_container_of(item, struct cn_batch_entry, item);

    /* Pieces of a model with declared state tensors still have the state among their outputs. */
    if (!is_of_batch(&worker->batch, item) || worker->rt->tensor_state || item->reply.n_chunks == 0)
        return NULL;
    if (!entry->stream)
        begin(worker, entry);
    if (entry->stream->untaken < worker->load.stream_bytes) {
        cn_batch_entry_put_pieces(worker, entry);
        cn_reply_next(&item->reply);
    }
    return entry->pending;
}

/* --- out of the batch --- */

void
cn_stream_park(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_stream *stream = entry->stream;
    uint64_t rest_ms = entry->item.reply.rest_ms;

    stream->rest_until_ms = stream->woken || rest_ms == 0 ? 0
                            : rest_ms == CN_NEVER         ? CN_NEVER
                                                          : cn_now_ms() + rest_ms;
    cn_reply_next(&entry->item.reply);
    if (entry->item.reply.body.cap > CN_REPLY_KEEP_BYTES)
        cn_buf_fini(&entry->item.reply.body);
    stream->entry = *entry;
    entry->item.reply = stream->batch_reply;
    if (worker->stopping && stream->pending->stop == CN_STOP_NONE)
        stream->pending->stop = CN_STOP_ENDED;
    cn_list_remove(&stream->pending->link);
    place(stream);
}

static void
destroy(struct cn_stream *stream)
{
    cn_table_remove(stream->worker->streams.by_job, stream_key(stream));
    cn_list_remove(&stream->all);
    cn_timer_cancel(&stream->timer);
    cn_buf_fini(&stream->kept);
    stream->pending->stream = NULL;
    cn_free(stream);
}

void
cn_stream_end(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_stream *stream = entry->stream;

    cn_assert(!entry->item.resume);
    cn_reply_fini(&entry->item.reply);
    entry->item.reply = stream->batch_reply;
    /* If the step was committed earlier, this object was the stream's own: later steps have read
     * the stored state. */
    cn_states_free(&worker->states, entry->seq);
    entry->seq = NULL;
    entry->stream = NULL;
    destroy(stream);
}

/* --- the end --- */

void
cn_streams_fini(struct cn_worker *worker)
{
    struct cn_streams *streams = &worker->streams;

    while (!cn_list_empty(&streams->all)) {
        struct cn_stream *stream = cn_container_of(streams->all.next, struct cn_stream, all);
        struct cn_pending *pending = stream->pending;

        worker->rt->ops->drop(worker->rt, stream->entry.item.resume);
        if (stream->entry.seq)
            stream->entry.seq->state = stream->entry.item.state;
        cn_states_free(&worker->states, stream->entry.seq);
        cn_states_free(&worker->states, stream->entry.closed_seq);
        cn_reply_fini(&stream->entry.item.reply);
        destroy(stream);
        cn_row_enter(pending, CN_ROW_IS_DROPPED);
        cn_worker_release(worker, pending);
    }
    cn_table_destroy(streams->by_job);
}
