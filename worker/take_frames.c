/* worker/take_frames.c - reads the frames that the server sends to a running worker: rows, and
 * orders about rows and sequences. Owned by the worker's one thread.
 *
 * Rows, a CLOSE and a QUERY wait in the order in which they came, until a batch takes them. What
 * concerns rows that are there already, such as a CANCEL, is done at once. */
#include <string.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "worker/worker_priv.h"

static struct cn_pending *
pending_take(struct cn_worker *worker, struct cn_block *block)
{
    struct cn_list *link = cn_list_pop_front(&worker->spare);
    struct cn_pending *pending =
        link ? cn_container_of(link, struct cn_pending, link) : cn_alloc(sizeof(*pending));

    memset(pending, 0, sizeof(*pending));
    cn_list_init(&pending->link);
    cn_block_ref(block);
    pending->block = block;
    cn_list_push_back(&worker->pending, &pending->link);
    return pending;
}

static int
on_batch(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    uint64_t now = cn_now_ms();
    struct cn_row *rows;
    int rc;

    if ((rc = cn_frame_get_batch(frame, &block->arena, &rows, err)) != 0)
        return rc;
    if (frame->body_memory && worker->channel.trim_ms == CN_NEVER)
        worker->channel.trim_ms = now + CN_TRIM_EVERY_MS;
    for (uint32_t i = 0; i < frame->count; i++) {
        struct cn_row *row = &rows[i];
        struct cn_pending *pending;

        if ((row->flags & CN_ROW_STATEFUL) &&
            (row->sequence_id.len < 1 || row->sequence_id.len > CN_SEQUENCE_ID_MAX))
            return cn_fail(err, CN_E_PROTOCOL, "a row has a sequence id of %zu bytes",
                           row->sequence_id.len);
        pending = pending_take(worker, block);
        pending->row = row;
        worker->commits_away.never |= row->flags & CN_ROW_JOINED;
        pending->deadline_ms = row->deadline_ms ? now + row->deadline_ms : CN_NEVER;
        if (row->flags & CN_ROW_STATEFUL)
            pending->id_hash = cn_id_hash(row->sequence_id);
    }
    return 0;
}

static int
on_close(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    struct cn_pending *pending;
    struct cn_close *closes;
    int rc;

    if ((rc = cn_frame_get_closes(frame, &block->arena, &closes, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        if (closes[i].sequence_id.len < 1 || closes[i].sequence_id.len > CN_SEQUENCE_ID_MAX)
            return cn_fail(err, CN_E_PROTOCOL, "CLOSE has a sequence id of %zu bytes",
                           closes[i].sequence_id.len);
    pending = pending_take(worker, block);
    pending->closes = closes;
    pending->n_closes = frame->count;
    return 0;
}

/* Cancels a row that still waits. A row that is not found was answered already. */
static void
cancel_waiting(struct cn_worker *worker, const struct cn_cancel *cancel)
{
    struct cn_list *link;

    cn_list_for_each(link, &worker->pending) {
        struct cn_pending *pending = cn_container_of(link, struct cn_pending, link);

        if (!pending->row || pending->row->job_id != cancel->job_id)
            continue;
        if (pending->stop != CN_STOP_GONE) /* GONE also refuses the row, so it must not be lost */
            pending->stop = cancel->reason;
        return;
    }
}

static int
on_query(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    struct cn_query *query = cn_arena_alloc(&block->arena, sizeof(*query));
    int rc;

    if ((rc = cn_frame_get_query(frame, query, err)) != 0)
        return rc;
    pending_take(worker, block)->query = query;
    return 0;
}

static int
on_cancel(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
          struct cn_error *err)
{
    struct cn_cancel *cancels;
    int rc;

    if ((rc = cn_frame_get_cancels(frame, &block->arena, &cancels, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        if (!cn_stream_cancel(worker, &cancels[i]))
            cancel_waiting(worker, &cancels[i]);
    return 0;
}

static int
on_credit(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
          struct cn_error *err)
{
    struct cn_credit *credits;
    int rc;

    if ((rc = cn_frame_get_credits(frame, &block->arena, &credits, err)) != 0)
        return rc;
    for (uint32_t i = 0; i < frame->count; i++)
        cn_stream_credit(worker, &credits[i]);
    return 0;
}

static int
on_memory(struct cn_worker *worker, const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_memory_order order;
    int rc = cn_frame_get_memory(frame, &order, err);

    return rc != 0 ? rc : cn_channel_share(&worker->channel, &order, err);
}

static int
on_frame(struct cn_worker *worker, const struct cn_frame *frame, struct cn_block *block,
         struct cn_error *err)
{
    switch (frame->type) {
    case CN_FRAME_BATCH:
        return on_batch(worker, frame, block, err);
    case CN_FRAME_CLOSE:
        return on_close(worker, frame, block, err);
    case CN_FRAME_CANCEL:
        return on_cancel(worker, frame, block, err);
    case CN_FRAME_QUERY:
        return on_query(worker, frame, block, err);
    case CN_FRAME_STOP:
        worker->stopping = true;
        cn_streams_stop_all(worker);
        return 0;
    case CN_FRAME_CREDIT:
        return on_credit(worker, frame, block, err);
    case CN_FRAME_MEMORY:
        return on_memory(worker, frame, err);
    case CN_FRAME_LOAD:
    case CN_FRAME_LOADED:
    case CN_FRAME_ANSWER:
    case CN_FRAME_STATS:
    case CN_FRAME_CLOSED:
    case CN_FRAME_RESULT:
    case CN_FRAME_REPORT:
    case CN_FRAME_FORK:
    case CN_FRAME_FORKED:
    case CN_FRAME_PROGRESS:
        break;
    }
    return cn_fail(err, CN_E_PROTOCOL, "frame of type %d is not for a running worker", frame->type);
}

int
cn_worker_take_frames(struct cn_worker *worker, int timeout_ms, struct cn_error *err)
{
    struct cn_channel *channel = &worker->channel;
    struct cn_frame frame;
    struct cn_block *block;
    int rc;

    do {
        if ((rc = cn_channel_read(channel, timeout_ms, err)) != 0 || channel->eof)
            return rc;
        while (!worker->stopping && (rc = cn_channel_next(channel, &frame, &block, err)) > 0)
            if ((rc = on_frame(worker, &frame, block, err)) != 0)
                return rc;
        if (rc < 0)
            return rc;
        timeout_ms = 0;
    } while (channel->more && !worker->stopping);
    return 0;
}

enum cn_stop_reason
cn_worker_send_pieces(void *ctx, struct cn_item *item)
{
    struct cn_worker *worker = ctx;
    const struct cn_pending *pending = cn_stream_send(worker, item);

    if (!pending)
        return CN_STOP_NONE;
    if (worker->broken.code == 0 && !worker->stopping &&
        cn_channel_flush(&worker->channel, &worker->broken) == 0)
        cn_worker_take_frames(worker, 0, &worker->broken);
    return pending->stop;
}
