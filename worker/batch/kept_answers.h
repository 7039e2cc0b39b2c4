/* worker/batch/kept_answers.h - the answers of the last few steps of a sequence, for clients that
 * do not wait for an answer before they send the next step (row->keep, decision 0047).
 *
 * They stand in the record as `earlier`: a list of chunks, the newest answer first. Each chunk is
 * an encoded record that has nothing but the answer of one step. The answer of the last step is not
 * in that list, because the record has it. Owned by the worker's one thread.
 */
#ifndef CN_WORKER_BATCH_KEPT_ANSWERS_H
#define CN_WORKER_BATCH_KEPT_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "store/record/record.h"

/* Appends the answer of the record's last step, and behind it the record's earlier ones. If memory
 * runs out, out->failed is set. */
void cn_kept_append(const struct cn_record *record, struct cn_buf *out);
/* The beginning of a list: at most `n` answers, and at most `max_bytes`. */
struct cn_str cn_kept_cut(struct cn_str list, uint32_t n, uint64_t max_bytes);
/* Finds the answer of a step of the record's sequence before the last one. `out` then stands for
 * the record as it was after that step, and borrows from it. */
bool cn_kept_find(const struct cn_record *record, uint64_t step, struct cn_record *out);

#endif
