/* worker/batch/batch_memory.c - the memory of a batch and of the rows that wait for one. Owned by
 * the worker's one thread.
 *
 * Entries, their replies and the buffers of a batch are kept from batch to batch, so that a step
 * allocates next to nothing. */
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "worker/worker_priv.h"

/* Buffers of up to this size are kept by cn_batch_shed(). */
#define BATCH_KEEP_BYTES (1u << 20)

void
cn_batch_init(struct cn_batch *batch, const struct cn_load *load)
{
    uint64_t seen = 16;

    while (seen < 2 * load->batch_size)
        seen *= 2;
    memset(batch, 0, sizeof(*batch));
    batch->entries = cn_alloc(load->batch_size * sizeof(*batch->entries));
    batch->items = cn_alloc(load->batch_size * sizeof(*batch->items));
    batch->seen = cn_alloc(seen * sizeof(*batch->seen));
    batch->seen_mask = (uint32_t)seen - 1;
    batch->stamp = 1; /* the table's entries have 0 */
    cn_arena_init(&batch->arena);
    cn_buf_init(&batch->records, 0);
    cn_buf_init(&batch->chunks, 0);
}

void
cn_batch_fini(struct cn_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_ready; i++)
        cn_reply_fini(&batch->entries[i].item.reply);
    cn_free(batch->entries);
    cn_free(batch->items);
    cn_free(batch->seen);
    cn_arena_fini(&batch->arena);
    cn_buf_fini(&batch->records);
    cn_buf_fini(&batch->chunks);
    memset(batch, 0, sizeof(*batch));
}

void
cn_batch_shed(struct cn_batch *batch)
{
    struct cn_buf *bufs[] = {&batch->records, &batch->chunks};

    for (size_t i = 0; i < sizeof(bufs) / sizeof(*bufs); i++)
        if (bufs[i]->cap > BATCH_KEEP_BYTES)
            cn_buf_fini(bufs[i]);
}

/* FNV-1a. Clients choose the ids and could cause collisions, but a batch is small, so they cost
 * little. */
uint32_t
cn_id_hash(struct cn_str id)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < id.len; i++)
        hash = (hash ^ (unsigned char)id.ptr[i]) * 16777619u;
    return hash;
}

/* Tells the server that the parts of the row which lie in the body memory are read. */
static void
release_bodies(struct cn_body_memory *memory, const struct cn_row *row)
{
    for (uint32_t i = 0; i < row->n_parts; i++)
        cn_body_memory_release(memory, row->parts[i].data.ptr);
}

void
cn_worker_release(struct cn_worker *worker, struct cn_pending *pending)
{
    cn_assert(!pending->row || cn_row_phases[pending->phase].followers == 0);
    if (pending->row && worker->channel.body_memory)
        release_bodies(worker->channel.body_memory, pending->row);
    cn_list_remove(&pending->link);
    cn_block_unref(&worker->channel, pending->block);
    cn_list_push_front(&worker->spare, &pending->link);
}
