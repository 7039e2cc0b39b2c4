/* worker/batch/commit_record.h - the record that a row of a batch leaves in the store. Worker's one
 * thread. */
#ifndef CN_WORKER_BATCH_COMMIT_RECORD_H
#define CN_WORKER_BATCH_COMMIT_RECORD_H

#include "worker/worker_priv.h"

/* Fills the record that the step leaves, except for its state. `answer_bytes` is the size of the
 * answer, without the pieces of a stream that have left; `now` is the wall clock. */
int cn_commit_record_step(struct cn_worker *worker, struct cn_batch_entry *entry,
                          uint64_t answer_bytes, uint64_t now, struct cn_error *err);
/* Fills the record that an import leaves: that of the other version, with the state as the handler
 * of this version has migrated it. */
void cn_commit_record_import(struct cn_worker *worker, struct cn_batch_entry *entry);
/* Encodes the entry's record behind those of the other rows. On failure nothing is left of it. */
int cn_commit_record_write(struct cn_worker *worker, struct cn_batch_entry *entry,
                           struct cn_error *err);
/* Returns the encoded record. The next cn_commit_record_write may move it. */
struct cn_str cn_commit_record_bytes(const struct cn_worker *worker,
                                     const struct cn_batch_entry *entry);

#endif
