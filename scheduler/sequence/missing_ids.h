/* scheduler/sequence/missing_ids.h - notices that nearly all steps of a stateful model come through
 * a proxy and name no sequence. On the model queue's loop.
 */
#ifndef CN_SCHEDULER_SEQUENCE_MISSING_IDS_H
#define CN_SCHEDULER_SEQUENCE_MISSING_IDS_H

#include <stdint.h>

struct cn_model_queue;
struct cn_row;

/* Counts over the latest steps; after 64 steps the counting begins anew. */
struct cn_missing_ids {
    uint32_t steps, nameless; /* nameless: steps that came through a proxy without an id */
    uint64_t told_ms;         /* when the log last had a line about it; 0: never */
};

/* Counts a step that has come. `row` has the id that its client gave. Sets the queue's
 * stats.ids_missing, and writes a line to the log at most once an hour. */
void cn_missing_ids_note(struct cn_model_queue *queue, const struct cn_row *row);

#endif
