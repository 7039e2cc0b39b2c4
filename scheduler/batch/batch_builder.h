/* scheduler/batch/batch_builder.h - builds batches in the server, if the model's YAML says how
 * (policy.h).
 *
 * An idle worker gets one batch, whose rows say that they belong together, and the next one when it
 * has answered. All of this is on the model queue's loop.
 */
#ifndef CN_SCHEDULER_BATCH_BATCH_BUILDER_H
#define CN_SCHEDULER_BATCH_BATCH_BUILDER_H

struct cn_model_queue;

/* Sends a batch to each worker that is free for one, unless waiting makes a better one. */
void cn_batch_builder_dispatch(struct cn_model_queue *queue);

#endif
