/* scheduler/queue/model_queue.h - one model version's scheduler: sequences, job groups, aggregator.
 *
 * Owned by one loop; other loops hand it jobs through that loop's mailbox, so nothing here locks
 * (docs/decisions says why). Stateless models take the same path: every request is a group of its
 * own.
 *
 * Promises: jobs of one sequence run one by one, in the order of submission by each connection
 * (with continuousBatching the next one runs once the one before is committed, which may still
 * stream its answer); every submitted job gets exactly one final answer; a worker holds at most 2 x
 * batchSize rows, and stream.max that stream; everything is bounded by the model's config.
 */
#ifndef CN_SCHEDULER_QUEUE_MODEL_QUEUE_H
#define CN_SCHEDULER_QUEUE_MODEL_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/model_config.h"
#include "core/containers/list.h"
#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "proto/query.h"
#include "scheduler/queue/job.h"
#include "scheduler/workers/worker_link.h"

struct cn_metrics;
struct cn_model_queue;

/* `name`, `version`: copied, for messages. The config is copied. */
struct cn_model_queue *cn_model_queue_create(struct cn_loop *loop, const char *name,
                                             const char *version,
                                             const struct cn_model_config *config);
/* Only when closed and empty (cn_model_queue_close called on_empty), with no link attached. */
void cn_model_queue_destroy(struct cn_model_queue *queue);

struct cn_loop *cn_model_queue_loop(const struct cn_model_queue *queue);
const struct cn_model_config *cn_model_queue_config(const struct cn_model_queue *queue);
const char *cn_model_queue_name(const struct cn_model_queue *queue);
const char *cn_model_queue_version(const struct cn_model_queue *queue);

/* Any loop (the job's origin). The job is the queue's until its final answer, which may be a
 * refusal: queue full, too many sequences, no worker, draining, expired ... */
void cn_model_queue_submit(struct cn_model_queue *queue, struct cn_job *job);
/* The job's origin: its client is gone. A waiting job is answered CN_E_CANCELLED soon; a running
 * one is answered when its worker answers (the step may have been committed). Harmless twice. */
void cn_model_queue_cancel(struct cn_model_queue *queue, struct cn_job *job);

/* The job's origin, until the final piece came: its client took so many bytes of pieces. Cheap to
 * call often: what is worth a message goes as one. */
void cn_model_queue_consumed(struct cn_job *job, size_t bytes);

/* The rest: on the queue's loop. */

/* The worker is ready: it gets jobs. The link stays its owner's. */
void cn_model_queue_attach(struct cn_model_queue *queue, struct cn_worker_link *link);
/* The worker is gone: its jobs in flight are sent again, to it or another, under their job ids, one
 * at a time; one that was alone with `CN_MAX_ALONE_DEATHS` dying workers is answered with
 * `last_words`. `overdue`: it was killed for being late; a job that was alone with it is answered
 * CN_E_HANDLER_DEADLINE at once. */
#define CN_MAX_ALONE_DEATHS 3
void cn_model_queue_detach(struct cn_model_queue *queue, struct cn_worker_link *link, bool overdue,
                           const char *last_words);
/* Scale down: no new jobs; `on_retired(ctx)` once nothing is in flight (never from inside this
 * call); then detach. Its sequences go to other workers. A detach before that cancels it. */
void cn_model_queue_retire(struct cn_model_queue *queue, struct cn_worker_link *link,
                           void (*on_retired)(void *ctx), void *ctx);

/* Can a worker come? While `expected` is 0 and none is attached, jobs are refused with
 * CN_E_NO_WORKER and `reason` (copied); waiting ones are answered so too. Otherwise they wait for
 * their deadline. */
void cn_model_queue_set_expected(struct cn_model_queue *queue, uint32_t expected,
                                 const char *reason);

/* No new jobs: they are refused with `code` and `reason` (copied). `drop_waiting`: those that wait
 * are refused too, and handlers that stream are told to end that; else they still run.
 * `on_empty(ctx)` once, on this loop, when no job is left; never from inside this call. May be
 * called again to hurry (drop_waiting = true), with the same callback. */
void cn_model_queue_close(struct cn_model_queue *queue, int code, const char *reason,
                          bool drop_waiting, void (*on_empty)(void *ctx), void *ctx);
/* Handlers that stream, now or before they are answered, are told to come to their end. */
void cn_model_queue_stop_streams(struct cn_model_queue *queue);
/* Tells the workers to close and delete every live sequence (unregister); call before retiring
 * them. */
void cn_model_queue_close_sequences(struct cn_model_queue *queue, enum cn_close_reason reason);

/* Deletes one sequence, live or only in the store. A step in flight ends first; steps that wait
 * meet the deletion and learn of it, but for those behind a START. */
struct cn_sequence_delete {
    struct cn_str sequence_id; /* 1 to CN_SEQUENCE_ID_MAX bytes; borrowed until on_done */
    /* Once, on the queue's loop, maybe from inside the call: a worker has said that it is done, or
     * `err` tells why that is not known. It must leave the queue alone. */
    void (*on_done)(struct cn_sequence_delete *order);
    bool was_live; /* the queue knew it as open */
    struct cn_error err;
    struct cn_list link; /* the queue's */
};
/* The order stays the caller's and in place until on_done. Harmless for ids that nobody knows.
 * CN_E_BAD_REQUEST: the model is stateless, or no such id can be. CN_E_NO_WORKER: none is there to
 * do it, or the last one died over it. The queue's own code when it is closed. */
void cn_model_queue_delete_sequence(struct cn_model_queue *queue, struct cn_sequence_delete *order);

/* Lists, reads or writes stored sequences: see proto/query.h. A worker does it between two batches,
 * in the order of sending with steps; a write waits for the step in flight and holds up those
 * behind it. So nobody ever sees or changes half a step. */
#define CN_QUERIES_MAX 256 /* under way in one queue; more are refused */
struct cn_sequence_query {
    struct cn_query query; /* bytes are borrowed until on_done; query_id is the queue's */
    /* LIST with durability none, where each worker has its own store. In: the worker to ask, or the
     * one after it; 0: the first. Out: where to go on when this one's list is over (`next` is
     * empty); 0: that was the last one. With other durabilities always 0. */
    uint32_t worker;
    /* Once, on the queue's loop, maybe from inside the call: `result` (borrowed until return) or
     * NULL and `err`; a worker's error is in `err` too. It must leave the queue alone. */
    void (*on_done)(struct cn_sequence_query *order, const struct cn_query_result *result);
    struct cn_error err;
    struct cn_list link;          /* the queue's, as what follows */
    struct cn_sequence *sequence; /* of a write that was sent */
};
/* The order stays the caller's and in place until on_done. CN_E_BAD_REQUEST: the model is
 * stateless, or no such id can be; CN_E_NO_WORKER; CN_E_QUEUE_FULL; CN_E_TOO_MANY_SEQUENCES;
 * CN_E_UNAVAILABLE: the worker died over it, and whether it wrote is not known; the queue's own
 * code when it is closed. */
void cn_model_queue_query(struct cn_model_queue *queue, struct cn_sequence_query *order);

/* What the queue knows of a sequence and the store doesn't. */
struct cn_sequence_live {
    uint32_t waiting; /* jobs */
    bool in_flight;
    uint32_t worker;           /* index of the home worker; 0: none */
    uint64_t lifetime_left_ms; /* CN_NEVER: no total clock, or not known */
};
/* False: the queue doesn't know it as open, though the store may. */
bool cn_model_queue_look(const struct cn_model_queue *queue, struct cn_str id,
                         struct cn_sequence_live *out);

/* The versions of a model, as a queue finds them: a step that came without version may belong to a
 * sequence that lives in another one (docs/sequences.md, "Versions"). */
struct cn_family {
    /* On the queue's loop: the version at place `i` (any order, the queue itself among them), NULL
     * past the last; good until the end of the turn. CN_E_DRAINING, CN_E_MODEL_LOADING: nobody can
     * say. */
    int (*version_at)(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
                      struct cn_error *err);
    void *ctx;
};
/* Before the first job. */
void cn_model_queue_set_family(struct cn_model_queue *queue, struct cn_family family);
/* Instead of the config's sequence.swapPolicy. */
void cn_model_queue_set_swap_policy(struct cn_model_queue *queue, enum cn_swap_policy policy);
/* Its swap deadline has passed: it does no more steps, but its sequences can still be taken over;
 * those that are to stay, or can't move, are closed as evicted when their next step comes. */
void cn_model_queue_set_retired(struct cn_model_queue *queue, bool retired);

struct cn_model_queue_stats {
    uint64_t diverted_jobs; /* in flight, too: it is asked in other versions where they belong */
    uint64_t live_sequences, opened_sequences, expired_sequences;
    uint64_t waiting_jobs, in_flight_jobs, jobs, redispatched, replayed;
    uint32_t attached_workers;
    bool ids_missing; /* nearly all steps came through a proxy without an id (missing_ids.h) */
};
void cn_model_queue_stats(const struct cn_model_queue *queue, struct cn_model_queue_stats *out);
/* What the queue counts, and its owner (workers); gauges that `stats` has are not kept there. */
struct cn_metrics *cn_model_queue_metrics(struct cn_model_queue *queue);
/* Of a typed model's requests; any thread while the queue is there. NULL: it is not typed. */
const struct cn_infer_stats *cn_model_queue_infer_stats(const struct cn_model_queue *queue);
/* What its handler defines. */
struct cn_handler_metrics;
const struct cn_handler_metrics *cn_model_queue_handler_metrics(const struct cn_model_queue *queue);

struct cn_worker_link_stats {
    uint64_t live_sequences, rows, answers;
    uint32_t in_flight;
    uint32_t busy_rows;          /* that it has and does not stream; 0: it has nothing to do */
    uint64_t busy_ms;            /* for so long it has shown no progress with them */
    struct cn_str busy_sequence; /* of the first of them; empty: none. Borrowed for this turn */
};
void cn_worker_link_stats(const struct cn_worker_link *link, struct cn_worker_link_stats *out);

#endif
