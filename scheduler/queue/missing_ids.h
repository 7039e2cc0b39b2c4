/* scheduler/queue/missing_ids.h - notices that nearly all steps of a stateful model come through a
 * proxy and name no sequence. On the model queue's loop.
 */
#ifndef CN_SCHEDULER_QUEUE_MISSING_IDS_H
#define CN_SCHEDULER_QUEUE_MISSING_IDS_H

#include <stdint.h>

struct cn_model_queue;
struct cn_row;

/* Of the last steps, up to 64; then they are counted anew. */
struct cn_missing_ids {
    uint32_t steps, nameless; /* nameless: through a proxy, and without an id */
    uint64_t told_ms;         /* when the log was told last; 0: never */
};

/* A step has come, with the id that its client gave. Sets the queue's stats.ids_missing, and tells
 * the log once an hour at most. */
void cn_missing_ids_note(struct cn_model_queue *queue, const struct cn_row *row);

#endif
