/* scheduler/queue/model_queue_priv.h - the model queue's inside, for the files of this folder. */
#ifndef CN_SCHEDULER_QUEUE_MODEL_QUEUE_PRIV_H
#define CN_SCHEDULER_QUEUE_MODEL_QUEUE_PRIV_H

#include "metrics/counters/metrics.h"
#include <stdatomic.h>

#include "core/containers/table.h"
#include "metrics/series/handler_series.h"
#include "scheduler/batch/aggregator.h"
#include "scheduler/batch/policy.h"
#include "scheduler/batch/pressure.h"
#include "scheduler/queue/answer_box_priv.h"
#include "scheduler/queue/missing_ids.h"
#include "scheduler/queue/model_queue.h"
#include "scheduler/sequence/sequence.h"
#include "scheduler/swap/version_swap.h"
#include "scheduler/workers/worker_link_priv.h"

#define CN_MAX_LINKS 65536 /* what a sequence's home_slot can name */

enum cn_job_state {
    CN_JOB_INCOMING, /* on its way to the queue, or in `incoming` */
    CN_JOB_WAITING,  /* in its group */
    CN_JOB_IN_FLIGHT,
    CN_JOB_DONE,
};

/* A place that an attached worker holds. */
struct cn_home {
    struct cn_worker_link *link; /* NULL: free */
    uint32_t serial;
};

/* How fast jobs are answered, for Retry-After. */
struct cn_drain_rate {
    uint64_t begun_ms; /* of the second that is being counted */
    uint32_t answers;  /* in it */
    double per_s;      /* smoothed; 0: nothing known yet */
};

struct cn_model_queue {
    struct cn_loop *loop;
    char *name, *version;
    struct cn_model_config config;
    bool stateful;
    struct cn_missing_ids missing_ids;
    struct cn_policy policy;
    struct cn_policy_hold hold; /* tests only */

    struct cn_deferred turn_end;
    bool in_turn_end;
    bool destroyed; /* from inside a callback of turn_end: freed when that ends */

    struct cn_list incoming;    /* jobs of this turn */
    struct cn_msg *cancels;     /* jobs by cancel_msg: cancels of this turn from this loop */
    struct cn_table *sequences; /* by id; open and closing ones */
    struct cn_list deletes;     /* struct cn_sequence_delete, not done yet */
    struct cn_list queries;     /* struct cn_sequence_query: writes that wait for a job in flight */
    struct cn_list held;        /* groups of sequences whose record is being written */
    uint32_t n_queries;         /* waiting and sent */
    uint64_t last_query_id;
    struct cn_aggregator aggregator;
    uint64_t next_job_id;

    uint32_t serial; /* of all queues of this process: the younger the higher, never 0 */
    struct cn_family family;
    enum cn_swap_policy swap_policy;
    struct cn_list away; /* struct cn_forward of jobs that are at another version's queue */
    atomic_bool retired; /* other versions' loops read it */
    bool may_remember;   /* the store may know of sequences that the table doesn't */

    struct {
        void (*on_wait)(void *ctx); /* NULL: nobody asks */
        void *ctx;
        uint64_t spread_us, longest_us, since_us;
        bool wanted;
    } pressure; /* pressure.c */

    struct cn_list links; /* attached, retiring ones included */
    uint32_t n_links;     /* attached and not retiring */
    struct cn_home *homes;
    uint32_t n_homes, last_serial;
    uint64_t homeless; /* sequences whose worker went, and that have no other yet */

    uint32_t expected;
    char *no_worker_reason;

    bool closed, drop_waiting, empty_told;
    int close_code;
    char *close_reason;
    void (*on_empty)(void *ctx);
    void *empty_ctx;

    uint64_t jobs_now; /* arrived and not finally answered */
    struct cn_drain_rate drain;
    struct cn_model_queue_stats stats; /* counters and gauges, kept as they change */
    struct cn_metrics metrics;         /* what is counted only to be shown */
    struct cn_handler_metrics handler_metrics;
    struct cn_infer_stats *infer; /* of a typed model; else NULL */
    uint64_t sample_told_ms;      /* last line about a sample that was left out; 0: never */
};

/* model_queue.c */

/* Has turn_end run at the end of this turn. */
void cn_queue_wake(struct cn_model_queue *queue);
/* The final answer. The job must be out of every list; it is gone when this returns. The callbacks
 * that this runs can only submit and cancel, and both wait for the end of the turn. */
void cn_queue_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box);
void cn_queue_fail(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A waiting job leaves its group; the caller then finishes it and calls cn_queue_group_left. */
void cn_queue_take_waiting(struct cn_model_queue *queue, struct cn_job *job);
/* A job left the group (of NULL: a stateless one) by another way than being sent. May free the
 * sequence. */
static inline void
cn_queue_group_left(struct cn_sequence *sequence)
{
    if (sequence)
        cn_sequence_update(sequence);
}
struct cn_job_group *cn_queue_group_of(struct cn_job *job);
/* In how many seconds `jobs` jobs may be answered; at least 1. */
uint32_t cn_queue_retry_after(struct cn_model_queue *queue, uint64_t jobs);
/* Is there a worker, or may one come? */
bool cn_queue_has_hope(const struct cn_model_queue *queue);
const char *cn_queue_no_worker_reason(const struct cn_model_queue *queue);

/* queue_metrics.c: TorchServe's metrics */
void cn_ts_job_came(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_job_sent(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_job_done(struct cn_model_queue *queue, const struct cn_job *job);
void cn_ts_batch_done(struct cn_model_queue *queue, uint64_t handler_us, const char *request_ids);
/* Samples of the handler, into its series or as lines. */
void cn_ts_samples(struct cn_model_queue *queue, const struct cn_report *report,
                   const char *request_ids);

/* queue_statistics.c: statistics of a typed model, for clients of the v2 protocol; nothing for
 * others */
void cn_infer_call_done(struct cn_worker_link *link, const struct cn_report *report);
/* A piece of the job's answer, the final one too, before anything is done with it. */
void cn_infer_job_heard(struct cn_worker_link *link, struct cn_job *job,
                        const struct cn_answer *answer);
/* `answer`: the final one, of a worker or not. */
void cn_infer_job_done(struct cn_model_queue *queue, struct cn_job *job,
                       const struct cn_answer *answer);

/* admission.c */
/* Is there room for one more sequence? Else CN_E_TOO_MANY_SEQUENCES. */
int cn_queue_check_slot(const struct cn_model_queue *queue, struct cn_error *err);
void cn_queue_admit(struct cn_model_queue *queue, struct cn_job *job);
/* departed.c: answers those of the jobs that are about to be admitted whose clients have left. */
void cn_queue_refuse_departed(struct cn_model_queue *queue, struct cn_list *incoming);
void cn_queue_cancel_now(struct cn_model_queue *queue, struct cn_job *job);
/* The job is in flight: should its handler stream, it is told to end that. */
void cn_queue_stop_stream(struct cn_job *job);
/* Refuses all that waits: the queue is closed, or no worker can come. */
void cn_queue_drop_waiting(struct cn_model_queue *queue);
/* In its group and on its clock; also when it comes back from a dead worker. */
void cn_queue_job_waits(struct cn_model_queue *queue, struct cn_job *job);

/* sequence_close.c */
/* Sends CLOSE frames, as many as may be under way. */
void cn_queue_send_closes(struct cn_model_queue *queue);
/* Answers those who wait for the sequence's deletion: done, or not known to be (code not 0). */
void cn_queue_tell_deleted(struct cn_sequence *sequence, int code, const char *why);
/* The link goes: what it was to close is another worker's business, or nobody's. */
void cn_queue_reroute_closes(struct cn_model_queue *queue, struct cn_worker_link *link);

/* Who can do something about a sequence (NULL: one that the queue doesn't know): its home, or any
 * worker that stays, or one that retires; NULL: nobody. */
struct cn_worker_link *cn_queue_choose_worker(const struct cn_model_queue *queue,
                                              const struct cn_sequence *sequence);

/* stored_sequences.c */
/* No job of the sequence is in flight: sends a write that waited for that. False: none could be. */
bool cn_queue_begin_write(struct cn_sequence *sequence);
/* The link goes: what it was asked is not answered any more. */
void cn_queue_fail_queries(struct cn_model_queue *queue, struct cn_worker_link *link);

/* workers.c */
/* Tells the owners of retiring links that nothing is in flight any more. */
void cn_queue_tell_retired(struct cn_model_queue *queue);

#endif
