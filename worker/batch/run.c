/* worker/batch/run.c - calls the handler for a batch, and once more for rows that must run again.
 * Owned by the worker's one thread.
 *
 * cn_batch_collect puts the items of all rows that are ready into one array, cn_batch_run calls the
 * handler with it. A row runs again if the handler's memory was full, or if another node has
 * changed its sequence in a shared store: its reply is emptied and its state is looked up anew. */
#include "worker/batch/run.h"

#include <string.h>

#include "config/model/batching.h"
#include "worker/batch/control.h"

void
cn_batch_add_controls(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (!cn_batch_entry_is(entry, CN_ROW_IS_READY) || entry->stream ||
            !(entry->row->flags & CN_ROW_STATEFUL))
            continue;
        entry->item.row =
            cn_controls_add(worker->io, entry->row, entry->answer_flags & CN_ANSWER_OPENED,
                            &entry->pending->block->arena, &batch->err);
        if (!entry->item.row) {
            entry->item.row = entry->row;
            cn_batch_entry_fail(entry, batch->err.code, "%s", batch->err.message);
        }
    }
}

/* --- the items of a run --- */

/* In a batch with fixed places each place belongs to one sequence. Where the sequence has no row,
 * or its row was refused, the handler gets padding, and its answer is dropped. Returns false when
 * there is no memory for it. */
static bool
put_pad(struct cn_worker *worker, const struct cn_batch_entry *like, uint32_t *n)
{
    struct cn_batch *batch = &worker->batch;
    struct cn_item *pad;

    if (!batch->pads)
        batch->pads = cn_arena_alloc(&batch->arena, sizeof(*batch->pads) * batch->n);
    pad = &batch->pads[batch->n_pads];
    memset(pad, 0, sizeof(*pad));
    pad->row = cn_controls_pad(worker->io, like->row, &batch->arena);
    if (!pad->row)
        return false;
    pad->deadline_ms = CN_NEVER;
    cn_reply_init(&pad->reply, worker->load.answer_max_bytes);
    batch->n_pads++;
    batch->items[(*n)++] = pad;
    return true;
}

void
cn_batch_drop_pads(struct cn_worker *worker)
{
    const struct cn_runtime_ops *ops = worker->rt->ops;
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n_pads; i++) {
        struct cn_item *pad = &batch->pads[i];

        if (pad->reply.more)
            ops->drop(worker->rt, pad->resume);
        if (pad->state)
            ops->state_free(worker->rt, pad->state);
        cn_reply_fini(&pad->reply);
    }
    batch->pads = NULL;
    batch->n_pads = 0;
}

/* Does each place of this batch belong to one sequence (Triton's direct strategy)? */
static bool
has_fixed_rows(const struct cn_worker *worker)
{
    return worker->batch.formed && worker->io && worker->io->batching &&
           worker->io->batching->kind == CN_BATCHING_DIRECT;
}

/* Returns the last row that is to be run; NULL: none is. Places behind it need no padding. */
static const struct cn_batch_entry *
last_ready(const struct cn_batch *batch)
{
    for (uint32_t i = batch->n; i-- > 0;)
        if (cn_batch_entry_is(&batch->entries[i], CN_ROW_IS_READY))
            return &batch->entries[i];
    return NULL;
}

uint32_t
cn_batch_collect(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    const struct cn_batch_entry *last = has_fixed_rows(worker) ? last_ready(batch) : NULL;
    uint32_t n = 0;

    for (uint32_t i = 0; i < batch->n; i++)
        if (cn_batch_entry_is(&batch->entries[i], CN_ROW_IS_READY))
            batch->items[n++] = &batch->entries[i].item;
        else if (last && &batch->entries[i] < last && !put_pad(worker, last, &n))
            last = NULL;
    return n;
}

/* --- the run --- */

void
cn_batch_run(struct cn_worker *worker, uint32_t n)
{
    struct cn_batch *batch = &worker->batch;

    worker->rt->ops->run(worker->rt, batch->items, n);
    for (uint32_t i = 0; i < batch->n; i++)
        if (cn_batch_entry_is(&batch->entries[i], CN_ROW_IS_READY))
            cn_row_enter(batch->entries[i].pending, CN_ROW_IS_RAN);
}

/* --- once more --- */

void
cn_batch_empty_reply(struct cn_reply *reply, size_t answer_max_bytes)
{
    struct cn_buf *bufs[] = {&reply->content_type, &reply->headers, &reply->body};

    cn_reply_next(reply);
    reply->n_headers = reply->n_given = 0;
    reply->given_bytes = 0;
    reply->error_code = 0;
    reply->status = 0;
    reply->end_sequence = reply->stop_streams = reply->head_out = false;
    reply->close_reason = 0;
    for (size_t i = 0; i < sizeof(bufs) / sizeof(*bufs); i++) {
        cn_buf_reset(bufs[i]);
        if (bufs[i]->cap > CN_REPLY_KEEP_BYTES)
            cn_buf_fini(bufs[i]);
    }
    reply->body.max_bytes = answer_max_bytes; /* an error's message may have lifted it */
}

/* Drops what a run has made of the row. */
static void
forget_run(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    cn_row_enter(entry->pending, CN_ROW_IS_CHOSEN);
    if (entry->seq)
        entry->seq->state = entry->item.state;
    cn_states_free(&worker->states, entry->seq);
    cn_states_free(&worker->states, entry->closed_seq);
    cn_batch_empty_reply(&entry->item.reply, worker->load.answer_max_bytes);
}

/* Puts an entry that ran back to what it was before, and looks its row up anew. Returns true if it
 * is ready to run once more. */
static bool
begin_again(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    forget_run(worker, entry);
    cn_batch_resolve_again(worker, entry);
    return cn_batch_entry_is(entry, CN_ROW_IS_READY);
}

/* Did the row fail because the handler's memory was full? Then the cache is emptied, and the row
 * begins again. */
static bool
begin_again_after_memory(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    if (!cn_batch_entry_is(entry, CN_ROW_IS_RAN) || cn_batch_entry_is_describe(entry) ||
        entry->stream || entry->item.reply.error_code != CN_E_OUT_OF_MEMORY)
        return false;
    cn_lru_clear(worker->states.lru);
    return begin_again(worker, entry);
}

void
cn_batch_run_again_after_memory(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    bool any = false;

    if (!worker->stateful || cn_lru_count(worker->states.lru) == 0)
        return;
    for (uint32_t i = 0; i < batch->n; i++)
        any |= begin_again_after_memory(worker, &batch->entries[i]);
    if (!any)
        return;
    cn_batch_drop_pads(worker);
    cn_batch_run(worker, cn_batch_collect(worker));
}

void
cn_batch_run_again_lost(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;
    uint32_t n;

    do {
        for (uint32_t i = 0; i < batch->n; i++) {
            if (!batch->entries[i].lost)
                continue;
            worker->reloads++;
            forget_run(worker, &batch->entries[i]);
        }
        cn_batch_resolve_lost(worker);
        cn_batch_add_controls(worker);
        n = cn_batch_collect(worker);
        if (n) {
            cn_batch_run(worker, n);
            cn_batch_run_again_after_memory(worker);
            cn_batch_drop_pads(worker);
            cn_batch_note_yields(worker);
        }
    } while (cn_batch_commit(worker) > 0);
}
