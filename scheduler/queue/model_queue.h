/* scheduler/queue/model_queue.h - the scheduler of one model version: its sequences, job groups,
 * batches and workers.
 *
 * A queue belongs to one loop. Other loops hand it jobs through that loop's mailbox, so nothing
 * here takes a lock (docs/decisions/0001-model-queue-belongs-to-a-loop.md). Stateless models take
 * the same path: each of their requests is a job group by itself.
 *
 * This header is for the queue's owner, who makes, closes and asks it. scheduler/queue/submit.h is
 * for code that gives jobs to it, and scheduler/workers/workers.h for code that gives workers to
 * it.
 *
 * What the queue promises:
 * - The jobs of one sequence run one by one, in the order in which each connection submitted them.
 *   With continuousBatching the next job runs once the one before is committed, although that one
 *   may still stream its answer.
 * - Every submitted job gets exactly one final answer.
 * - A worker holds at most 2 x batchSize rows, and at most stream.max rows that stream.
 * - The model's config bounds everything that can grow.
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

struct cn_accounts;
struct cn_metrics;
struct cn_model_queue;

/* Makes an empty queue on `loop`. `name`, `version` (used in messages) and `config` are copied. The
 * caller destroys it with cn_model_queue_destroy(). */
struct cn_model_queue *cn_model_queue_create(struct cn_loop *loop, const char *name,
                                             const char *version,
                                             const struct cn_model_config *config);
/* Frees the queue. It must be closed and empty (cn_model_queue_close() has called on_empty), and no
 * link may be attached. NULL is allowed. */
void cn_model_queue_destroy(struct cn_model_queue *queue);

struct cn_loop *cn_model_queue_loop(const struct cn_model_queue *queue);
const struct cn_model_config *cn_model_queue_config(const struct cn_model_queue *queue);
const char *cn_model_queue_name(const struct cn_model_queue *queue);
const char *cn_model_queue_version(const struct cn_model_queue *queue);

/* All functions below must be called on the queue's loop. */

/* Closes the queue: new jobs are refused with `code` and `reason` (copied). With `drop_waiting` the
 * jobs that wait are refused as well, and handlers that stream are asked to end their streams;
 * without it those jobs still run. `on_empty(ctx)` is called once on this loop when no job is left,
 * never from inside this call. A second call with the same callback and drop_waiting = true hurries
 * a slow end. */
void cn_model_queue_close(struct cn_model_queue *queue, int code, const char *reason,
                          bool drop_waiting, void (*on_empty)(void *ctx), void *ctx);
/* Asks all handlers that stream, or that begin to before they have answered, to end their
 * streams. */
void cn_model_queue_stop_streams(struct cn_model_queue *queue);
/* Tells the workers to close and delete every live sequence, when a version is unregistered. Call
 * it before the workers are retired. */
void cn_model_queue_close_sequences(struct cn_model_queue *queue, enum cn_close_reason reason);

/* An order to delete one sequence, whether it is live or only in the store. A step in flight ends
 * first. Steps that wait find the sequence deleted and are answered so, except those behind a
 * START. */
struct cn_sequence_delete {
    struct cn_str sequence_id; /* 1 to CN_SEQUENCE_ID_MAX bytes; borrowed until on_done */
    /* Called once on the queue's loop, perhaps from inside the call: a worker has deleted the
     * sequence, or `err` says why nobody knows whether it is deleted. It must not call the queue.
     */
    void (*on_done)(struct cn_sequence_delete *order);
    bool was_live; /* the queue knew the sequence as open */
    struct cn_error err;
    struct cn_list link; /* the queue's */
};
/* Carries out an order, which stays the caller's and must stay in place until on_done. An id that
 * nobody knows does no harm. CN_E_BAD_REQUEST: the model is stateless, or the id is not valid.
 * CN_E_NO_WORKER: there is no worker to do it, or the last one died over it. If the queue is
 * closed, its own code. */
void cn_model_queue_delete_sequence(struct cn_model_queue *queue, struct cn_sequence_delete *order);

/* An order to list, read or write stored sequences (proto/query.h). A worker does it between two
 * batches, in the order in which orders and steps were sent to it. A write waits for the step in
 * flight and holds up the steps behind it, so nobody ever sees or changes half a step. */
#define CN_QUERIES_MAX 256 /* orders under way in one queue; more are refused */
struct cn_sequence_query {
    struct cn_query query; /* bytes are borrowed until on_done; query_id is the queue's */
    /* Only for LIST with durability none, where each worker has its own store; else 0. In: the
     * index of the worker to ask, or of the first one after it; 0 means the first worker. Out: the
     * index at which the list goes on when the list of this worker is over (`next` is empty); 0
     * means that it was the last worker. */
    uint32_t worker;
    /* Called once on the queue's loop, perhaps from inside the call, with `result` (borrowed until
     * the callback returns), or with NULL and `err`. An error of the worker is in `err`, too. It
     * must not call the queue. */
    void (*on_done)(struct cn_sequence_query *order, const struct cn_query_result *result);
    struct cn_error err;
    struct cn_list link;          /* this and the next member are the queue's */
    struct cn_sequence *sequence; /* the sequence of a write that was sent */
};
/* Carries out an order, which stays the caller's and must stay in place until on_done. Errors:
 * CN_E_BAD_REQUEST (the model is stateless, or the id is not valid), CN_E_NO_WORKER,
 * CN_E_QUEUE_FULL, CN_E_TOO_MANY_SEQUENCES, CN_E_UNAVAILABLE (the worker died over it, and nobody
 * knows whether it wrote), and the queue's own code if it is closed. */
void cn_model_queue_query(struct cn_model_queue *queue, struct cn_sequence_query *order);

/* What the queue knows of a sequence, but the store does not. */
struct cn_sequence_live {
    uint32_t waiting; /* jobs */
    bool in_flight;
    uint32_t worker; /* index of the home worker; 0: none */
    /* until the total clock ends; CN_NEVER: no such clock, or not known */
    uint64_t lifetime_left_ms;
};
/* Fills `out`. Returns false if the queue does not know the sequence as open, though the store
 * may. */
bool cn_model_queue_look(const struct cn_model_queue *queue, struct cn_str id,
                         struct cn_sequence_live *out);

/* How a queue finds the other versions of its model. A step that came without a version may belong
 * to a sequence that lives in another one (docs/sequences.md, "Versions"). */
struct cn_family {
    /* Called on the queue's loop. Sets `out` to the version at place `i` (in any order, the queue
     * itself is among them), or to NULL past the last one; it is valid until the end of the turn.
     * CN_E_DRAINING, CN_E_MODEL_LOADING: the versions are not known at this moment. */
    int (*version_at)(void *ctx, struct cn_str name, unsigned i, struct cn_model_queue **out,
                      struct cn_error *err);
    void *ctx;
};
/* Sets the callbacks above. Call it before the first job. */
void cn_model_queue_set_family(struct cn_model_queue *queue, struct cn_family family);
/* Sets where the sequences of named keys are counted; NULL: sequences have no owners. Call it
 * before the first job. */
void cn_model_queue_set_accounts(struct cn_model_queue *queue, struct cn_accounts *accounts);
/* Sets the swap policy, in place of sequence.swapPolicy of the config. */
void cn_model_queue_set_swap_policy(struct cn_model_queue *queue, enum cn_swap_policy policy);
/* Marks a version whose swap deadline has passed. It does no more steps, but its sequences can
 * still be taken over. Those that are to stay, or cannot move, are closed as evicted at their next
 * step. */
void cn_model_queue_set_retired(struct cn_model_queue *queue, bool retired);

struct cn_model_queue_stats {
    /* jobs that other versions are asked about; in_flight_jobs counts them, too */
    uint64_t diverted_jobs;
    uint64_t live_sequences, opened_sequences, expired_sequences;
    uint64_t waiting_jobs, in_flight_jobs, jobs, redispatched, replayed;
    uint32_t attached_workers;
    bool ids_missing; /* nearly all steps come through a proxy and have no id (missing_ids.h) */
};
void cn_model_queue_stats(const struct cn_model_queue *queue, struct cn_model_queue_stats *out);
/* The counters of the queue and of its owner (the worker pool). Gauges that `stats` has are not
 * kept there. */
struct cn_metrics *cn_model_queue_metrics(struct cn_model_queue *queue);
/* The statistics of a typed model's requests; NULL if the model is not typed. Any thread may read
 * them while the queue exists. */
const struct cn_infer_stats *cn_model_queue_infer_stats(const struct cn_model_queue *queue);
/* The metrics that the model's handler defines. */
struct cn_handler_metrics;
const struct cn_handler_metrics *cn_model_queue_handler_metrics(const struct cn_model_queue *queue);

#endif
