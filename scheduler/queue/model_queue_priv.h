/* scheduler/queue/model_queue_priv.h - the inside of the model queue, for the scheduler's files
 * only.
 */
#ifndef CN_SCHEDULER_QUEUE_MODEL_QUEUE_PRIV_H
#define CN_SCHEDULER_QUEUE_MODEL_QUEUE_PRIV_H

#include <stdatomic.h>

#include "core/containers/table.h"
#include "metrics/counters/metrics.h"
#include "metrics/series/handler_series.h"
#include "scheduler/batch/aggregator.h"
#include "scheduler/batch/policy.h"
#include "scheduler/batch/pressure.h"
#include "scheduler/batch/ready_lists.h"
#include "scheduler/queue/answer_box_priv.h"
#include "scheduler/queue/job_phases.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/queue/overload.h"
#include "scheduler/sequence/missing_ids.h"
#include "scheduler/sequence/owned.h"
#include "scheduler/sequence/sequence.h"
#include "scheduler/swap/forwarded_step.h"
#include "scheduler/swap/peers.h"
#include "scheduler/swap/version_swap.h"
#include "scheduler/workers/worker_link_priv.h"

#define CN_MAX_LINKS 65536 /* bounded by the type of cn_sequence.home_slot */

/* A place for one attached worker. A sequence names its home by place and serial, so a place can be
 * used again while sequences still name the worker that had it before. */
struct cn_home {
    struct cn_worker_link *link; /* NULL: free */
    uint32_t serial;
};

/* How fast jobs are answered, to compute the header Retry-After. */
struct cn_drain_rate {
    uint64_t begun_ms; /* when the second that is being counted began */
    uint32_t answers;  /* answers in that second */
    double per_s;      /* smoothed; 0: nothing known yet */
};

struct cn_model_queue {
    struct cn_loop *loop;
    char *name, *version;
    struct cn_model_config config;
    bool stateful;
    struct cn_missing_ids missing_ids;
    struct cn_policy policy;
    struct cn_policy_hold hold; /* for tests only: nothing is sent yet */

    struct cn_deferred turn_end;
    bool in_turn_end;
    bool destroyed; /* destroyed by a callback of turn_end(), which frees it at its end */

    struct cn_list incoming; /* jobs that came in this turn */
    uint64_t taken_us; /* when the queue last took jobs out of it (stages.c); 0: not measured */
    /* cancels of this turn from this loop, linked by the jobs' cancel_msg */
    struct cn_msg *cancels;
    struct cn_table *sequences; /* struct cn_sequence by id, open and closing ones */
    struct cn_list deletes;     /* struct cn_sequence_delete that are not done yet */
    struct cn_list queries;     /* struct cn_sequence_query: writes that wait for a job in flight */
    struct cn_list held;        /* groups of sequences whose record is being written */
    uint32_t n_queries;         /* waiting and sent */
    struct cn_owned_queue owned;
    uint64_t last_query_id;
    struct cn_aggregator aggregator;
    uint64_t next_job_id;

    /* number of the queue in this process: younger queues have higher ones, never 0 */
    uint32_t serial;
    struct cn_family family;
    enum cn_swap_policy swap_policy;
    /* struct cn_forward of jobs that were forwarded to another version's queue */
    struct cn_list away;
    atomic_bool retired; /* the swap deadline has passed; other versions' loops read this */
    bool shares_store;   /* other nodes use the same store */
    bool may_remember;   /* the store may know of sequences that the table doesn't */

    struct {
        void (*on_wait)(void *ctx); /* NULL: nobody wants to know */
        void *ctx;
        uint64_t spread_us, longest_us, since_us;
        bool wanted;
    } pressure; /* pressure.c */

    struct cn_list links; /* attached links, those that retire included */
    uint32_t n_links;     /* attached links that do not retire */
    struct cn_home *homes;
    uint32_t n_homes, last_serial;
    uint64_t homeless; /* sequences whose worker is gone and that have no other yet */

    uint32_t expected;
    char *no_worker_reason;

    bool closed, drop_waiting, empty_told;
    int close_code;
    char *close_reason;
    void (*on_empty)(void *ctx);
    void *empty_ctx;

    struct cn_overload overload;
    uint64_t jobs_now; /* jobs that arrived and have no final answer yet */
    struct cn_drain_rate drain;
    struct cn_model_queue_stats stats; /* counters and gauges, updated at each change */
    struct cn_metrics metrics;         /* counters that are only shown, never used here */
    struct cn_handler_metrics handler_metrics;
    struct cn_infer_stats *infer; /* statistics of a typed model; else NULL */
    /* when the log last had a line about a sample that was left out; 0: never */
    uint64_t sample_told_ms;
};

/* Lets the queue do its work of a turn at the end of this turn. */
static inline void
cn_queue_wake(struct cn_model_queue *queue)
{
    cn_loop_defer(queue->loop, &queue->turn_end);
}

static inline struct cn_job_group *
cn_queue_group_of(struct cn_job *job)
{
    return job->sequence ? &job->sequence->group : &job->group;
}

/* Is there a worker, or may one come? */
static inline bool
cn_queue_has_hope(const struct cn_model_queue *queue)
{
    return queue->n_links > 0 || queue->expected > 0;
}

static inline const char *
cn_queue_no_worker_reason(const struct cn_model_queue *queue)
{
    return queue->no_worker_reason ? queue->no_worker_reason
                                   : "the model has no worker, and none is being started";
}

/* Asks the version that a job is away in to end its stream (swap/forward.c). */
void cn_forward_stop(struct cn_job *job);

/* Asks the handler of a job in flight to end its stream, now or when it begins one. */
static inline void
cn_queue_stop_stream(struct cn_job *job)
{
    if (job->stopped)
        return;
    job->stopped = true;
    if (job->worker)
        cn_worker_link_put_cancel(job->worker, job->row.job_id, CN_STOP_ENDED);
    else if (cn_job_is_away(job))
        cn_forward_stop(job);
}

/* finish.c */

/* Gives the job its final answer `box`, which it takes. The job must be in no list, and it is gone
 * when this returns. The callbacks that this runs can only submit and cancel, and the queue looks
 * at both only at the end of the turn. */
void cn_queue_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box);
void cn_queue_fail(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Does the same for a job whose key has used up a limit. */
void cn_queue_fail_key(struct cn_model_queue *queue, struct cn_job *job, const char *message,
                       uint32_t retry_after_s);
/* How many answers per second the workers have given lately; 0: not known. */
double cn_queue_rate(const struct cn_model_queue *queue);
/* In how many seconds the queue can probably answer `jobs` jobs; at least 1. */
uint32_t cn_queue_retry_after(struct cn_model_queue *queue, uint64_t jobs);

/* waiting.c */
/* A step that fails after its worker died may be committed all the same. A START has then begun
 * another generation, and an END has ended the one that is known here, so the store decides what
 * the next step meets. With durability none the store is gone, and the next step must not begin
 * anew unnoticed. */
void cn_queue_doubt_generation(const struct cn_model_queue *queue, const struct cn_job *job);
/* Takes a waiting job out of its group. The caller then finishes it and calls
 * cn_queue_group_left(). */
void cn_queue_take_waiting(struct cn_model_queue *queue, struct cn_job *job);
/* Call it after a job left the group of `sequence` (NULL: the job is stateless) without being sent.
 * It may free the sequence. */
static inline void
cn_queue_group_left(struct cn_sequence *sequence)
{
    if (sequence)
        cn_sequence_update(sequence);
}
/* Refuses all waiting jobs: the queue is closed, or no worker can come. */
void cn_queue_drop_waiting(struct cn_model_queue *queue);
/* Lets a job that is in its group wait, with a deadline; also one that comes back from a dead
 * worker. */
void cn_queue_job_waits(struct cn_model_queue *queue, struct cn_job *job);

/* submit.c: the job's client has left. */
void cn_queue_cancel_now(struct cn_model_queue *queue, struct cn_job *job);
/* submit.c, on the origin of a step that was forwarded: its stream is to end. */
void cn_queue_stop_forwarded(struct cn_job *job);

/* queue_metrics.c: the metrics that TorchServe has */
void cn_ts_job_came(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_job_sent(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_job_done(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_batch_done(struct cn_model_queue *queue, uint64_t handler_us, const char *request_ids);
/* Takes the samples that the handler reported, into its series or as lines of the metrics log. */
void cn_ts_samples(struct cn_model_queue *queue, const struct cn_report *report,
                   const char *request_ids);

/* queue_statistics.c: the times of steps, and statistics of a typed model for clients of the v2
 * protocol. */
void cn_infer_call_done(struct cn_worker_link *link, const struct cn_report *report);
/* A worker sent a piece of the job's answer, perhaps the final one. Call it before the piece is
 * used. */
void cn_infer_job_heard(struct cn_worker_link *link, struct cn_job *job,
                        const struct cn_answer *answer);
/* The job is finished with `answer`, which a worker or the queue itself made. */
void cn_infer_job_done(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);

/* answers.c: what the queue does with the frames of its workers. */
extern const struct cn_worker_frame_ops cn_queue_frame_ops;

/* admission.c */
void cn_queue_admit(struct cn_model_queue *queue, struct cn_job *job);
/* departed.c: answers those of the jobs to be admitted whose clients have left. */
void cn_queue_refuse_departed(struct cn_model_queue *queue, struct cn_list *incoming);
/* stages.c. Notes when the queue takes these jobs, which came in this turn. */
void cn_stages_take(struct cn_model_queue *queue, const struct cn_list *jobs);
/* Counts how long a job that a worker answered was in each stage. */
void cn_stages_count(struct cn_model_queue *queue, const struct cn_job *job);
/* sequence_close.c */
/* A worker says that it has closed sequences. */
int cn_queue_on_closed(struct cn_worker_link *link, const struct cn_closed *closed,
                       struct cn_error *err);
/* Sends the CLOSE frames that wait, as far as the bound on closes under way allows. */
void cn_queue_send_closes(struct cn_model_queue *queue);
/* Answers the orders to delete the sequence: it is deleted, or (code not 0) nobody knows that. */
void cn_queue_tell_deleted(struct cn_sequence *sequence, int code, const char *why);
/* The worker is gone: sequences that it was to close are closed by another one, or by none. */
void cn_queue_reroute_closes(struct cn_model_queue *queue, struct cn_worker_link *link);

/* Returns the worker that carries out an order about a sequence: its home worker, else any worker
 * that stays, else one that retires; NULL: there is none. `sequence` is NULL if the queue does not
 * know it. */
struct cn_worker_link *cn_queue_choose_worker(const struct cn_model_queue *queue,
                                              const struct cn_sequence *sequence);

/* stored_sequences.c */
/* A worker answers a query. */
int cn_queue_on_result(struct cn_worker_link *link, const struct cn_query_result *result,
                       struct cn_error *err);
/* Sends a write that waited until no job of the sequence is in flight. False: nothing could be
 * sent. */
bool cn_queue_begin_write(struct cn_sequence *sequence);
/* The worker is gone: fails the orders that it has not answered. */
void cn_queue_fail_queries(struct cn_model_queue *queue, struct cn_worker_link *link);

/* workers.c */
/* Tells the owners of retiring links that nothing is in flight any more. */
void cn_queue_tell_retired(struct cn_model_queue *queue);

#endif
