/* scheduler/batch/policy.h - a model's settings about slots and batches, as numbers for the
 * aggregator.
 *
 * One scheduler serves all models; a policy holds the numbers and choices in which they differ
 * (docs/decisions/0012-strategies-are-policies.md). It never changes after cn_policy_init(), so any
 * thread may read it.
 */
#ifndef CN_SCHEDULER_BATCH_POLICY_H
#define CN_SCHEDULER_BATCH_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/batching.h"
#include "proto/message.h"

struct cn_policy {
    const struct cn_batching *batching; /* the model's own settings; NULL: it has none */
    /* How many sequences a worker has at once; 0: any number. The others wait in the backlog until
     * one of those ends or is idle for too long. With slots a sequence is idle since its last step
     * arrived. */
    uint32_t slots;
    /* a sequence's slot is its row in each batch; there are as many slots as rows */
    bool fixed_rows;
    /* The server builds the batches, and a worker gets the next one when it has answered the one
     * before. Otherwise the worker builds them, from the rows that have arrived. */
    bool forms;
    bool by_level; /* ready jobs wait by priority (stateless models only) */
    /* most rows of a batch; a request with a batch dimension counts for its rows */
    uint32_t max_rows;
    uint64_t delay_ms; /* how long an idle worker waits for a better batch */
};

void cn_policy_init(struct cn_policy *policy, const struct cn_model_config *config);

/* Counts the ready jobs that make the next batch, in the order in which they are served. */
struct cn_policy_fill {
    uint32_t n, rows; /* number of jobs that go together so far, and of their rows */
    uint32_t best;    /* how many of these jobs make a preferred batch; 0: no number does */
    /* nothing can be added: there is no room, or the next job does not match the others */
    bool full;
};
/* Adds a job with `rows` rows. False: it does not fit in, and the batch is full. */
bool cn_policy_add(const struct cn_policy *policy, struct cn_policy_fill *fill, uint32_t rows);
/* How many jobs to send now. 0: wait until the oldest job, which came at `oldest_ms`, has waited
 * for delay_ms. */
uint32_t cn_policy_take(const struct cn_policy *policy, const struct cn_policy_fill *fill,
                        uint64_t oldest_ms, uint64_t now_ms);
/* With fixed rows: may a batch be made now, of `ready` slots that have work? */
bool cn_policy_utilized(const struct cn_policy *policy, uint32_t ready, uint64_t oldest_ms,
                        uint64_t now_ms);

/* The number of rows that a request counts for: 1 if the model has no batch dimension. */
uint32_t cn_policy_rows(const struct cn_policy *policy, const struct cn_model_io *io,
                        const struct cn_row *row);
/* Can two rows be in one batch? Inputs that are not ragged must have the same shape in both. */
bool cn_policy_fits(const struct cn_model_io *io, const struct cn_row *a, const struct cn_row *b);

/* Returns the level of a request with this priority; 0: the model has no levels. */
uint32_t cn_policy_level(const struct cn_policy *policy, uint64_t priority);
/* How long a request of this level may wait, in ms; 0: for ever. `wish_us`: the request's own
 * timeout. */
uint64_t cn_policy_timeout_ms(const struct cn_policy *policy, uint32_t level, uint64_t wish_us);

/* For tests of batches: a queue sends nothing until `jobs` jobs wait in slots and `backlog`
 * sequences wait in the backlog. After that it never holds back again. The numbers come from the
 * environment variables TRITONSERVER_DELAY_SCHEDULER and TRITONSERVER_BACKLOG_DELAY_SCHEDULER,
 * which tests of such models set; they are 0 without them. */
struct cn_policy_hold {
    uint32_t jobs, backlog;
};
struct cn_policy_hold cn_policy_hold_read(void);

#endif
