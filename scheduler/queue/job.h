/* scheduler/queue/job.h - one request on its way through the scheduler.
 *
 * The front end owns a job until cn_model_queue_submit(). Then the scheduler owns it, until the
 * final answer hands it back. The bytes that `row` points to belong to the front end, and they must
 * stay in place in between. All callbacks run on the loop `origin`.
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
#include "tracing/step_times.h"

#define CN_GENERATED_ID_BYTES 44 /* "ts-seq-", a UUID, NUL */
#define CN_OWNER_MAX 65          /* bytes of an owner: the name of a key, and "/" */

struct cn_account;
struct cn_forward;
struct cn_job;
struct cn_model_queue;
struct cn_sequence;
struct cn_trace;
struct cn_worker_link;

/* One piece of an answer with its own copy of all bytes, in one heap block; a large body may lie in
 * a block of its own. The holder owns it and frees it with cn_answer_box_free(). */
struct cn_answer_box {
    struct cn_msg msg; /* the scheduler's: carries the box to the job's loop */
    struct cn_job *job;
    struct cn_answer answer; /* final pieces have CN_ANSWER_FINAL */
    /* id of the job's sequence, as its client knows it (without the owner); empty for stateless
     * jobs. Valid as long as the box */
    struct cn_str sequence_id;
    struct cn_str traceparent; /* for the head of the answer; empty: the step is not traced */
    uint32_t retry_after_s;    /* for 429 and 503; 0: unknown */
    bool remade;               /* the body is not the handler's own (cn_answer_box_remake) */
    uint64_t made_of_bytes;    /* if remade: how many bytes of the handler's body it stands for */
    /* credit_least of the version that streams, if that is not the job's; else 0 */
    uint64_t credit_least;
    char *read; /* heap block that the answer was read into, if its body still lies there */
    char bytes[];
};
void cn_answer_box_free(struct cn_answer_box *box);
/* Makes a piece of an answer that no job gives: the front end streams it like a handler's. Both
 * texts are copied. Returns NULL when there is not enough memory. */
struct cn_answer_box *cn_answer_box_text(struct cn_str content_type, struct cn_str body,
                                         bool is_final);
/* Replaces the content type and the body of the box; both are copied, and the old box is freed. If
 * memory runs out, the box that is returned is an error that ends the answer. */
struct cn_answer_box *cn_answer_box_remake(struct cn_answer_box *box, struct cn_str content_type,
                                           struct cn_str body);

struct cn_job_ops {
    /* Called for each piece of the answer, in order; the callee owns the box. With the final piece
     * the job belongs to the front end again, and no callback follows. Never called from inside
     * submit.
     *
     * The first piece has the head of the answer (status, content type, headers). Further ones have
     * only a body, which may be empty. Any number of pieces may come before the final one. A final
     * piece with an error_code after other pieces means that the answer broke off. The front end
     * reports what its client took with cn_model_queue_consumed(). A handler that streams is held
     * up once stream.bufferBytes have not been reported.
     */
    void (*on_answer)(struct cn_job *job, struct cn_answer_box *box);
};

struct cn_job {
    /* The front end fills these before submit. */
    const struct cn_job_ops *ops;
    struct cn_loop *origin;
    struct cn_row row;  /* job_id is set by submit */
    bool named_version; /* the request named a version; for TorchServe's metrics */
    /* in cn_now_ms() time; CN_NEVER: none. A job that waits past it is answered with 500 or 504 */
    uint64_t deadline_ms;
    bool any_version;    /* sent without a version, so its sequence may live in another version */
    uint64_t timeout_us; /* how long the client lets it wait; 0: not given (policy.h) */
    uint64_t priority;   /* priority that the client gave: 1 goes first; 0: the default */
    int connection;      /* socket that it came by, open until the final answer; 0: not known */
    /* Where a client can leave without closing `connection`, and it may be closed before the final
     * answer (gRPC): becomes true once the client has left. NULL: that cannot be
     * known either. */
    const atomic_bool *left;
    /* which client it came from, for fairness: any number, equal for equal clients; 0: not known */
    uint32_t client;
    /* "NAME/", at most CN_OWNER_MAX bytes: the owner of its sequence, with which row.sequence_id
     * begins (intake.h); empty: sequences have no owners */
    struct cn_str owner;
    struct cn_account *account; /* of the key that it came with; NULL: none (access/account.h) */
    uint64_t begun_us; /* when its request came, in cn_now_us() time; 0: when it was submitted */

    /* The members from here on are the scheduler's, and submit sets them all. What both loops need
     * is written before the job changes hands. */
    struct cn_model_queue *queue;
    struct cn_loop *queue_loop;
    struct cn_trace *trace;   /* NULL: it is not sampled (tracing/trace.h) */
    struct cn_msg msg;        /* origin -> queue's loop */
    struct cn_msg cancel_msg; /* origin -> queue's loop -> origin */
    struct cn_msg credit_msg; /* origin -> queue's loop -> origin */
    uint64_t credit_bytes;    /* bytes that credit_msg carries */
    bool credit_stops;        /* it also asks for the end of the stream */

    /* Only the origin uses these. */
    struct cn_answer_box *final_box; /* final answer that waits until the messages above are back */
    uint8_t cancel_message, credit_message; /* phases: scheduler/queue/job_message_phases.def */
    uint64_t consumed;     /* bytes that the client took and that were not reported yet */
    uint64_t credit_least; /* a credit message is sent once `consumed` is at least this much */
    bool wants_stop;       /* its stream is to end, and the queue does not know that yet */

    /* Only the queue's loop uses these. */
    /* in `incoming`, in its group's FIFO, or in a worker's list of rows in flight */
    struct cn_list link;
    struct cn_job_group group;    /* for a stateless job, which is a group by itself */
    struct cn_sequence *sequence; /* NULL: stateless */
    struct cn_worker_link *worker;
    struct cn_timer timer; /* ends at deadline_ms while the job waits */
    uint32_t rows;         /* how many rows it is in a batch that the server builds */
    uint8_t level;         /* level of its priority (policy.h) */
    bool delayed;          /* it has waited too long, so it goes behind all others of its level */
    uint64_t arrived_ms, sent_ms;
    uint64_t arrived_us; /* arrived_ms in microseconds, for the metrics */
    /* when it could first run, with no step of its sequence before it; 0: not yet */
    uint64_t ready_us;
    uint64_t forwarded_bytes;   /* bytes of body that were passed on to the client */
    uint64_t skip_bytes;        /* bytes of the next worker's answer that the client has already */
    uint32_t unsent;            /* parts that the link still sends from where they lie */
    uint32_t deaths;            /* number of workers that died while it was in flight there */
    uint32_t alone_deaths;      /* those of them that had nothing else in flight */
    struct cn_step_times times; /* for traces and the list of slow steps */
    uint64_t queued_us;         /* time from its arrival to the handler's first call for it */
    uint64_t phase_us[CN_INFER_N_PHASES]; /* time in each phase, summed over all calls for it */
    uint64_t last_call;         /* serial of the report of the last call for it; 0: none */
    uint32_t n_responses;       /* pieces with data */
    struct cn_forward *forward; /* scheduler/swap/version_swap.h; NULL: none */
    uint8_t phase;              /* scheduler/queue/job_phases.def, moved by cn_job_to() only */
    /* The flags below are facts that hold beside the phase. A client may leave, and a stream may be
     * ended, in every phase in which the job is in flight, and both in either order. Pieces are
     * passed on, or lost, in every phase in which a worker or another version answers. */
    bool on_account; /* it has a place among the requests of its account */
    bool at_limit;   /* its key may open no more sequences, so it may only continue one */
    /* The client left while the job was in flight, and the worker that had it was told. A worker
     * to which it comes later is told when the stream begins. */
    bool cancelled;
    bool stopped;    /* its stream is to end; its workers are told as with `cancelled` */
    bool passed_on;  /* at least one piece was passed on */
    bool piece_lost; /* memory ran out for a piece, so the final answer must be an error */
    /* row.sequence_id points here if the queue made the id */
    char generated_id[CN_OWNER_MAX + CN_GENERATED_ID_BYTES];
};

/* The id of the job's sequence as its client knows it. */
static inline struct cn_str
cn_job_client_id(const struct cn_job *job)
{
    const size_t mark =
        job->row.sequence_id.len && job->row.sequence_id.ptr[0] == CN_SEQUENCE_NUMBER;
    const size_t skip = job->owner.len ? mark + job->owner.len : 0;
    const struct cn_str id = job->row.sequence_id;

    return id.len < skip ? id : (struct cn_str){id.ptr + skip, id.len - skip};
}

/* Is it a forwarded step (scheduler/swap/), which stands for a step of another version? */
static inline bool
cn_job_stands_in(const struct cn_job *job)
{
    return job->row.flags & (CN_ROW_ASK | CN_ROW_MOVE);
}

#endif
