/* scheduler/queue/answer_box_priv.h - how the scheduler makes and delivers answers. */
#ifndef CN_SCHEDULER_QUEUE_ANSWER_BOX_PRIV_H
#define CN_SCHEDULER_QUEUE_ANSWER_BOX_PRIV_H

#include "scheduler/queue/job.h"

/* Copies `answer` for `job`, without the first `skip` bytes of the body. If memory runs out, a
 * final piece becomes an error; for any other piece NULL is returned, and the final one will be an
 * error. */
struct cn_answer_box *cn_answer_box_copy(struct cn_job *job, const struct cn_answer *answer,
                                         uint64_t skip);
/* Copies all but the body of `answer`. The body stays in `read`, the block that it was read into,
 * which the box takes over. */
struct cn_answer_box *cn_answer_box_keep(struct cn_job *job, const struct cn_answer *answer,
                                         char *read);
/* Makes a final piece that says why there is no answer. */
struct cn_answer_box *cn_answer_box_error(struct cn_job *job, int code, const char *message,
                                          uint32_t retry_after_s);

/* Gives the box to the job's origin; called on the queue's loop. If the origin is this loop,
 * on_answer is called directly, else through the mailbox. After a final piece the caller may touch
 * neither the job nor the box. */
void cn_answer_box_deliver(struct cn_answer_box *box);

/* A message of the job is back on the origin. A final answer that waited for it goes out. */
void cn_answer_box_message_back(struct cn_job *job);

#endif
