/* scheduler/queue/answer_box_priv.h - how the scheduler makes and delivers answers. */
#ifndef CN_SCHEDULER_QUEUE_ANSWER_BOX_PRIV_H
#define CN_SCHEDULER_QUEUE_ANSWER_BOX_PRIV_H

#include "scheduler/queue/job.h"

/* A copy of `answer` for `job`, without the first `skip` bytes of the body. Without memory a final
 * piece becomes an error; any other piece is NULL and the final one will be an error. */
struct cn_answer_box *cn_answer_box_copy(struct cn_job *job, const struct cn_answer *answer,
                                         uint64_t skip);
/* The same, but the body stays where it was read to: in `read`, which the box takes. */
struct cn_answer_box *cn_answer_box_keep(struct cn_job *job, const struct cn_answer *answer,
                                         char *read);
/* A final piece that says why there is no answer. */
struct cn_answer_box *cn_answer_box_error(struct cn_job *job, int code, const char *message,
                                          uint32_t retry_after_s);

/* On the queue's loop. Called directly where the job's origin is this loop, else by its mailbox.
 * After a final piece neither job nor box may be touched. */
void cn_answer_box_deliver(struct cn_answer_box *box);

/* On the origin: a message of the job is back. A final answer that waited for it goes out. */
void cn_answer_box_message_back(struct cn_job *job);

#endif
