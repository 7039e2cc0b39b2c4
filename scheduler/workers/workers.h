/* scheduler/workers/workers.h - how the owner of workers gives them to a model queue
 * (model_queue.h) and takes them away.
 *
 * All of this is called on the queue's loop.
 */
#ifndef CN_SCHEDULER_WORKERS_WORKERS_H
#define CN_SCHEDULER_WORKERS_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text/str.h"
#include "scheduler/workers/worker_link.h"

struct cn_model_queue;

/* The worker has loaded the model, so the queue begins to send it jobs. The caller keeps the
 * link. */
void cn_model_queue_attach(struct cn_model_queue *queue, struct cn_worker_link *link);
/* The worker is gone. Its jobs in flight are sent again under the same job ids, each one alone, to
 * this model's other workers or to the next one that is attached. A job during which
 * `CN_MAX_ALONE_DEATHS` workers died while they had nothing else is answered with `last_words`
 * (text, borrowed for the call).
 * `overdue`: the worker was killed because a call took too long; a job that was alone in it is then
 * answered with CN_E_HANDLER_DEADLINE at once. */
#define CN_MAX_ALONE_DEATHS 3
void cn_model_queue_detach(struct cn_model_queue *queue, struct cn_worker_link *link, bool overdue,
                           const char *last_words);
/* Takes a worker away when the model is scaled down. It gets no new jobs, its sequences go to other
 * workers, and `on_retired(ctx)` is called once nothing is in flight there, never from inside this
 * call. The owner then detaches the link. A detach before that cancels the callback. */
void cn_model_queue_retire(struct cn_model_queue *queue, struct cn_worker_link *link,
                           void (*on_retired)(void *ctx), void *ctx);

/* Says how many workers are being started. While that is 0 and none is attached, waiting and new
 * jobs are refused with CN_E_NO_WORKER and `reason` (copied). Otherwise they wait until their
 * deadline. */
void cn_model_queue_set_expected(struct cn_model_queue *queue, uint32_t expected,
                                 const char *reason);

struct cn_worker_link_stats {
    uint64_t live_sequences, rows, answers;
    uint32_t in_flight;
    uint32_t busy_rows; /* rows that it has and does not stream; 0: it has nothing to do */
    uint64_t busy_ms;   /* for how long it has shown no progress with them */
    /* id of the first row's sequence; empty: none. Borrowed for this turn */
    struct cn_str busy_sequence;
};
void cn_worker_link_stats(const struct cn_worker_link *link, struct cn_worker_link_stats *out);

#endif
