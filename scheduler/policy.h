/* scheduler/policy.h - what a model's YAML says about slots and batches, as the aggregator asks for it.
 *
 * One scheduler serves all models; a policy is the numbers and choices in which
 * they differ (docs/decisions says why). Any thread, read only once made.
 */
#ifndef CN_SCHEDULER_POLICY_H
#define CN_SCHEDULER_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "config/batching.h"

struct cn_policy {
    const struct cn_batching *batching; /* the model's; NULL: it asks for nothing */
    /* Sequences that a worker has at once; the others wait in the backlog until one of them ends or is
     * idle for too long. 0: any number. With slots a sequence is idle from its last step's arrival. */
    uint32_t slots;
};

void cn_policy_init(struct cn_policy *policy, const struct cn_model_config *config);

/* For tests of batches: a queue sends nothing before so many jobs wait in slots, and so many sequences
 * in the backlog; then it never holds back again. From TRITONSERVER_DELAY_SCHEDULER and
 * TRITONSERVER_BACKLOG_DELAY_SCHEDULER, which tests of such models set; 0 without them. */
struct cn_policy_hold {
    uint32_t jobs, backlog;
};
struct cn_policy_hold cn_policy_hold_read(void);

#endif
