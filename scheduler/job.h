/* scheduler/job.h - one request on its way through the scheduler.
 *
 * The front end owns a job until cn_model_queue_submit, then the scheduler does,
 * until the final answer hands it back. The bytes that `row` points to belong
 * to the front end and stay in place in between. All callbacks run on `origin`.
 */
#ifndef CN_SCHEDULER_JOB_H
#define CN_SCHEDULER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/list.h"
#include "core/loop.h"
#include "proto/message.h"

struct cn_job;
struct cn_model_queue;
struct cn_sequence;
struct cn_worker_link;

/* One piece of an answer with its own copy of all bytes; one heap block (plus the arena for
 * headers). Owned by whoever holds it; freed with cn_answer_box_free. */
struct cn_answer_box {
    struct cn_msg msg; /* scheduler's: carries it to the job's loop */
    struct cn_job *job;
    struct cn_answer answer; /* final pieces have CN_ANSWER_FINAL */
    struct cn_str sequence_id; /* of the job; empty for stateless ones. Valid as long as the box */
    uint32_t retry_after_s;  /* for 429 and 503; 0: unknown */
    char bytes[];
};
void cn_answer_box_free(struct cn_answer_box *box);

struct cn_job_ops {
    /* A piece of the answer, in order; the box is the callee's. When it is final the job is the
     * front end's again, and no callback follows. Never called from inside submit. */
    void (*on_answer)(struct cn_job *job, struct cn_answer_box *box);
};

struct cn_job {
    /* The front end fills these before submit. */
    const struct cn_job_ops *ops;
    struct cn_loop *origin;
    struct cn_row row;    /* job_id is set by submit */
    uint64_t deadline_ms; /* cn_now_ms(); CN_NEVER: none. Past it a waiting job is answered 500/504 */

    /* The scheduler's from here. */
    struct cn_msg msg;        /* origin -> queue's loop */
    struct cn_msg cancel_msg; /* origin -> queue's loop -> origin */
    struct cn_model_queue *queue;
    struct cn_list link;      /* group's FIFO, or a worker's in-flight list */
    struct cn_sequence *sequence;
    struct cn_worker_link *worker;
    struct cn_timer timer;
    uint64_t arrived_ms, sent_ms;
    uint32_t deaths;   /* workers that died with it in flight */
    uint8_t state;     /* scheduler/model_queue.c */
    bool cancel_sent, cancelled;
};

#endif
