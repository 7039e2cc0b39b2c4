/* worker/batch/commit_outcome.h - what becomes of a batch's rows after their commit, for commit.c.
 * Owned by the worker's one thread. */
#ifndef CN_WORKER_BATCH_COMMIT_OUTCOME_H
#define CN_WORKER_BATCH_COMMIT_OUTCOME_H

#include "worker/worker_priv.h"

/* Drops the sequence objects of a row that failed, and takes back what its answer would have said
 * about its sequence. */
void cn_commit_drop(struct cn_worker *worker, struct cn_batch_entry *entry);
/* The record is committed, so the sequence object follows it, and goes back into the cache. */
void cn_commit_settle(struct cn_worker *worker, struct cn_batch_entry *entry);
/* The row's step is not saved, so it fails. */
void cn_commit_not_saved(struct cn_worker *worker, struct cn_batch_entry *entry,
                         const struct cn_error *err);
/* Lets memory follow what a shared store has decided about each row. */
void cn_commit_take_outcomes(struct cn_worker *worker);

#endif
