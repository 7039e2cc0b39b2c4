/* scheduler/policy.c - from a model's settings to what the aggregator asks. Any thread. */
#include "scheduler/policy.h"

#include <stdlib.h>

void
cn_policy_init(struct cn_policy *policy, const struct cn_model_config *config)
{
    const struct cn_batching *batching = config->io ? config->io->batching : NULL;

    *policy = (struct cn_policy){.batching = batching};
    if (!batching || !config->sequence_batching)
        return;
    policy->slots = config->batch_size;
    if (batching->kind == CN_BATCHING_OLDEST && batching->max_candidates)
        policy->slots = batching->max_candidates;
}

static uint32_t
read_number(const char *name)
{
    const char *text = getenv(name);
    unsigned long value = text ? strtoul(text, NULL, 10) : 0;

    return value < UINT32_MAX ? (uint32_t)value : 0;
}

struct cn_policy_hold
cn_policy_hold_read(void)
{
    return (struct cn_policy_hold){read_number("TRITONSERVER_DELAY_SCHEDULER"),
                                   read_number("TRITONSERVER_BACKLOG_DELAY_SCHEDULER")};
}
