/* scheduler/queue/job.h - one request on its way through the scheduler.
 *
 * The front end owns a job until cn_model_queue_submit, then the scheduler does,
 * until the final answer hands it back. The bytes that `row` points to belong
 * to the front end and stay in place in between. All callbacks run on `origin`.
 */
#ifndef CN_SCHEDULER_QUEUE_JOB_H
#define CN_SCHEDULER_QUEUE_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/loop/loop.h"
#include "core/memory/arena.h"
#include "metrics/counters/infer_stats.h"
#include "proto/message.h"
#include "scheduler/queue/job_group.h"

#define CN_GENERATED_ID_BYTES 44 /* "ts-seq-", a UUID, NUL */

struct cn_forward;
struct cn_job;
struct cn_model_queue;
struct cn_sequence;
struct cn_worker_link;

/* One piece of an answer with its own copy of all bytes, in one heap block; a large body may lie in
 * a block of its own. Owned by whoever holds it; freed with cn_answer_box_free. */
struct cn_answer_box {
    struct cn_msg msg; /* scheduler's: carries it to the job's loop */
    struct cn_job *job;
    struct cn_answer answer;   /* final pieces have CN_ANSWER_FINAL */
    struct cn_str sequence_id; /* of the job; empty for stateless ones. Valid as long as the box */
    uint32_t retry_after_s;    /* for 429 and 503; 0: unknown */
    bool remade;            /* its body is not the handler's; then, once it is taken, its client */
    uint64_t made_of_bytes; /* took so many bytes of the handler's */
    char *read;             /* what the answer was read into, if its body still lies there */
    char bytes[];
};
void cn_answer_box_free(struct cn_answer_box *box);
/* The box with another content type and body, both copied; the old one is freed. Without memory for
 * it: an error that ends the answer. */
struct cn_answer_box *cn_answer_box_remake(struct cn_answer_box *box, struct cn_str content_type,
                                           struct cn_str body);

struct cn_job_ops {
    /* A piece of the answer, in order; the box is the callee's. When it is final the job is the
     * front end's again, and no callback follows. Never called from inside submit.
     *
     * The first piece has the answer's head (status, content type, headers), further ones only a
     * body, which may be empty. A job may have any number of pieces before the final one; a final
     * one with an error_code after others means that the answer broke off. Whoever passes pieces on
     * tells what his client took, by cn_model_queue_consumed(): a handler that streams is held up
     * once stream.bufferBytes were not told of. */
    void (*on_answer)(struct cn_job *job, struct cn_answer_box *box);
};

struct cn_job {
    /* The front end fills these before submit. */
    const struct cn_job_ops *ops;
    struct cn_loop *origin;
    struct cn_row row;  /* job_id is set by submit */
    bool named_version; /* the request named the model's version: for TorchServe's metrics */
    uint64_t
        deadline_ms;  /* cn_now_ms(); CN_NEVER: none. Past it a waiting job is answered 500/504 */
    bool any_version; /* sent without version: its sequence may live in another one */
    uint64_t timeout_us; /* its client's wish for how long it may wait; 0: none (policy.h) */
    uint64_t priority;   /* the same: 1 goes first; 0: as by default */
    int connection;      /* descriptor that it came by, open until the final answer; 0: not known */
    /* Or what becomes true once its client has left, for as long; NULL: not known. */
    const atomic_bool *left;

    /* The scheduler's from here; submit sets them all. What both loops need is written before the
     * job changes hands. */
    struct cn_model_queue *queue;
    struct cn_loop *queue_loop;
    struct cn_msg msg;        /* origin -> queue's loop */
    struct cn_msg cancel_msg; /* origin -> queue's loop -> origin */
    struct cn_msg credit_msg; /* the same */
    uint64_t credit_bytes;    /* what it carries */

    /* Of the origin alone. */
    struct cn_answer_box *final_box; /* came while a message was under way; waits for it */
    bool cancel_sent, cancel_back, credit_sent;
    uint64_t consumed;     /* bytes of pieces that were taken and not told of yet */
    uint64_t credit_least; /* so many are worth a message */

    /* Of the queue's loop alone. */
    struct cn_list link; /* incoming, or its group's FIFO, or a worker's list of rows in flight */
    struct cn_job_group group;    /* of a stateless job, which is a group by itself */
    struct cn_sequence *sequence; /* NULL: stateless */
    struct cn_worker_link *worker;
    struct cn_timer timer; /* deadline_ms while it waits */
    uint32_t rows;         /* that it counts for in a batch that the server forms */
    uint8_t level;         /* of priority */
    bool delayed;          /* it has waited for too long: it goes behind all others of its level */
    uint64_t arrived_ms, sent_ms;
    uint64_t arrived_us; /* for the metrics: of the turn, as arrived_ms */
    uint64_t ready_us; /* when it could first run: its sequence had no step before it; 0: not yet */
    uint64_t forwarded_bytes; /* of body in pieces that were passed on */
    uint64_t skip_bytes;      /* so much of the next worker's answer was passed on already */
    uint32_t unsent;          /* its parts that its worker's link sends from where they lie */
    uint32_t deaths;          /* workers that died with it in flight */
    uint32_t alone_deaths;    /* those that had nothing else in flight */
    uint64_t queued_us;       /* from its arrival to the handler's first call for it */
    uint64_t phase_us[CN_INFER_N_PHASES]; /* of all calls for it */
    uint64_t last_call;         /* serial of the report that the latest of them had; 0: none */
    uint32_t n_responses;       /* pieces with data */
    struct cn_forward *forward; /* scheduler/swap/version_swap.h; NULL: none */
    uint8_t state;              /* scheduler/queue/model_queue_priv.h */
    bool cancelled;             /* while in flight: the worker was told that its client is gone */
    bool stopped;               /* the same: that it is to end its stream */
    bool live;                  /* its handler streams: what was passed on can't be made again */
    bool detached;   /* live, and its step is committed: its sequence went on without it */
    bool passed_on;  /* a piece of it, live or not */
    bool piece_lost; /* no memory for a piece: the final answer must say so */
    bool probing;    /* sent only to ask whether its sequence lives */
    char generated_id[CN_GENERATED_ID_BYTES]; /* row.sequence_id points here if the queue made it */
};

#endif
