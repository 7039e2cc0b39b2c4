/* worker/batch/run.h - the run of a batch, for execute.c. Owned by the worker's one thread. */
#ifndef CN_WORKER_BATCH_RUN_H
#define CN_WORKER_BATCH_RUN_H

#include "worker/worker_priv.h"

/* Does the row ask the handler to describe itself? */
static inline bool
cn_batch_entry_is_describe(const struct cn_batch_entry *entry)
{
    return (entry->row->flags & CN_ROW_DESCRIBE) != 0;
}

/* Adds the control tensors of models with Triton's sequence batching. They lie in the memory of the
 * row's block, because the row may stream and outlive the batch. */
void cn_batch_add_controls(struct cn_worker *worker);
/* Collects the items for the handler's run, and returns their number. */
uint32_t cn_batch_collect(struct cn_worker *worker);
/* Calls the handler with what cn_batch_collect() has put into `items`. */
void cn_batch_run(struct cn_worker *worker, uint32_t n);
/* Call it after the run: frees what the handler made of padding. */
void cn_batch_drop_pads(struct cn_worker *worker);
/* Empties a reply for the next row, and frees buffers that have become large. */
void cn_batch_empty_reply(struct cn_reply *reply, size_t answer_max_bytes);
/* The handler's memory limit counts the cached states, too. When a row fails for it, the cached
 * states are dropped, and the rows that failed run once more from their stored states. */
void cn_batch_run_again_after_memory(struct cn_worker *worker);
/* Rows that lost against another node run again on the state that the store holds now, and are
 * committed, until none is lost. A row whose step the other node has done is answered from the
 * record. The file commit_outcome.c bounds how often a row can lose. */
void cn_batch_run_again_lost(struct cn_worker *worker);

#endif
