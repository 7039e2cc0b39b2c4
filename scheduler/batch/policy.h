/* scheduler/batch/policy.h - what a model's YAML says about slots and batches, as the aggregator
 * asks for it.
 *
 * One scheduler serves all models; a policy is the numbers and choices in which they differ
 * (docs/decisions says why). Any thread, read only once made.
 */
#ifndef CN_SCHEDULER_BATCH_POLICY_H
#define CN_SCHEDULER_BATCH_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/model/batching.h"
#include "proto/message.h"

struct cn_policy {
    const struct cn_batching *batching; /* the model's; NULL: it asks for nothing */
    /* Sequences that a worker has at once; the others wait in the backlog until one of them ends or
     * is idle for too long. 0: any number. With slots a sequence is idle from its last step's
     * arrival. */
    uint32_t slots;
    bool fixed_rows; /* a sequence's slot is its row of each batch; slots are as many as rows */
    /* The server forms batches: a worker gets the next one when it has answered the one before.
     * Else the worker forms them, of what has come. */
    bool forms;
    bool by_level;     /* stateless: ready jobs wait by priority */
    uint32_t max_rows; /* of a batch; a request with a batch dimension counts for its rows */
    uint64_t delay_ms; /* an idle worker waits so long for a better batch */
};

void cn_policy_init(struct cn_policy *policy, const struct cn_model_config *config);

/* How many of the rows that are ready, first come first, make the next batch. */
struct cn_policy_fill {
    uint32_t n, rows; /* jobs that go together so far, and their rows */
    uint32_t best;    /* of them, so many make a preferred batch; 0: none do */
    bool full;        /* nothing can be added: no room, or the next one does not fit to them */
};
/* One more is ready, with `rows` rows. False: it does not fit in, and the batch is full. */
bool cn_policy_add(const struct cn_policy *policy, struct cn_policy_fill *fill, uint32_t rows);
/* Jobs to send now; 0: wait until the oldest one, which came at `oldest_ms`, has waited for
 * delay_ms. */
uint32_t cn_policy_take(const struct cn_policy *policy, const struct cn_policy_fill *fill,
                        uint64_t oldest_ms, uint64_t now_ms);
/* The same for fixed rows: may a batch be made of `ready` slots? */
bool cn_policy_utilized(const struct cn_policy *policy, uint32_t ready, uint64_t oldest_ms,
                        uint64_t now_ms);

/* Of a request: its rows, 1 where the model has no batch dimension. */
uint32_t cn_policy_rows(const struct cn_policy *policy, const struct cn_model_io *io,
                        const struct cn_row *row);
/* Can two rows be in one batch? Inputs that are not ragged must have one shape. */
bool cn_policy_fits(const struct cn_model_io *io, const struct cn_row *a, const struct cn_row *b);

/* The level that a request's priority means; 0: the model has none. */
uint32_t cn_policy_level(const struct cn_policy *policy, uint64_t priority);
/* How long a request of that level may wait, ms; 0: for ever. `wish_us`: its own timeout. */
uint64_t cn_policy_timeout_ms(const struct cn_policy *policy, uint32_t level, uint64_t wish_us);

/* For tests of batches: a queue sends nothing before so many jobs wait in slots, and so many
 * sequences in the backlog; then it never holds back again. From TRITONSERVER_DELAY_SCHEDULER and
 * TRITONSERVER_BACKLOG_DELAY_SCHEDULER, which tests of such models set; 0 without them. */
struct cn_policy_hold {
    uint32_t jobs, backlog;
};
struct cn_policy_hold cn_policy_hold_read(void);

#endif
