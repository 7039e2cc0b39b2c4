/* scheduler/batch/policy.c - from a model's settings to the answers that the aggregator needs. Any
 * thread.
 *
 * The blocks `sequence_batching` and `dynamic_batching` of a model have dozens of settings. The
 * aggregator knows only the few numbers of struct cn_policy, so a new setting is worked out here
 * and nowhere else. The table in docs/decisions/0012-strategies-are-policies.md shows what each
 * strategy becomes.
 */
#include "scheduler/batch/policy.h"

#include <stdlib.h>

/* Can two rows of the model differ so that they cannot be in one batch? */
static bool
shapes_differ(const struct cn_model_io *io)
{
    for (uint32_t i = 0; io->max_batch_size && i < io->n_inputs; i++) {
        const struct cn_tensor_spec *input = &io->inputs[i];

        if (input->ragged)
            continue;
        if (input->optional)
            return true;
        for (uint32_t k = 0; k < input->rank; k++)
            if (input->dims[k] < 0)
                return true;
    }
    return false;
}

/* The server builds the batches itself (`forms`) only where a worker could not do it: where
 * priorities count, rows have fixed places, the model prefers certain sizes or waits for them, or
 * rows of different shapes must not meet. */
void
cn_policy_init(struct cn_policy *policy, const struct cn_model_config *config)
{
    const struct cn_batching *batching = config->io ? config->io->batching : NULL;

    *policy = (struct cn_policy){.batching = batching, .max_rows = config->batch_size};
    if (!batching)
        return;
    policy->by_level = batching->kind == CN_BATCHING_DYNAMIC;
    policy->fixed_rows = batching->kind == CN_BATCHING_DIRECT;
    policy->delay_ms = (batching->delay_us + 999) / 1000;
    if (policy->fixed_rows && batching->min_utilization <= 0)
        policy->delay_ms = 0;
    policy->forms = policy->by_level || policy->fixed_rows || batching->n_preferred > 0 ||
                    policy->delay_ms > 0 || shapes_differ(config->io);
    if (!config->sequence_batching)
        return;
    policy->slots = config->batch_size;
    if (batching->kind == CN_BATCHING_OLDEST && batching->max_candidates)
        policy->slots = batching->max_candidates;
}

/* --- batches --- */

static bool
is_preferred(const struct cn_batching *batching, uint32_t rows)
{
    for (uint32_t i = 0; i < batching->n_preferred; i++)
        if (batching->preferred[i] == rows)
            return true;
    return false;
}

bool
cn_policy_add(const struct cn_policy *policy, struct cn_policy_fill *fill, uint32_t rows)
{
    if (fill->n > 0 && fill->rows + (uint64_t)rows > policy->max_rows) {
        fill->full = true;
        return false;
    }
    fill->n++;
    fill->rows += rows;
    fill->full = fill->rows >= policy->max_rows;
    if (is_preferred(policy->batching, fill->rows))
        fill->best = fill->n;
    return true;
}

/* A preferred size is sent at once. Other sizes are sent when the batch is full or the oldest job
 * has waited long enough. */
uint32_t
cn_policy_take(const struct cn_policy *policy, const struct cn_policy_fill *fill,
               uint64_t oldest_ms, uint64_t now_ms)
{
    if (fill->best > 0)
        return fill->best;
    return fill->full || now_ms >= oldest_ms + policy->delay_ms ? fill->n : 0;
}

bool
cn_policy_utilized(const struct cn_policy *policy, uint32_t ready, uint64_t oldest_ms,
                   uint64_t now_ms)
{
    return (float)ready >= policy->batching->min_utilization * (float)policy->slots ||
           now_ms >= oldest_ms + policy->delay_ms;
}

uint32_t
cn_policy_rows(const struct cn_policy *policy, const struct cn_model_io *io,
               const struct cn_row *row)
{
    return policy->by_level ? cn_tensor_batch(row, io->max_batch_size) : 1;
}

/* Have both parts the same shape, apart from the first dimension, which is the batch's? */
static bool
same_shape(const struct cn_part *a, const struct cn_part *b)
{
    struct cn_tensor x, y;

    if (!a || !b)
        return a == b;
    if (cn_str_eq(a->content_type, b->content_type))
        return true;
    if (!cn_tensor_of_part(a, &x) || !cn_tensor_of_part(b, &y) || x.rank != y.rank)
        return false;
    for (uint32_t i = 1; i < x.rank; i++)
        if (x.shape[i] != y.shape[i])
            return false;
    return true;
}

bool
cn_policy_fits(const struct cn_model_io *io, const struct cn_row *a, const struct cn_row *b)
{
    if (io->max_batch_size ==
        0) /* the model has no batch dimension, so each row is run by itself */
        return true;
    for (uint32_t i = 0; i < io->n_inputs; i++)
        if (!io->inputs[i].ragged &&
            !same_shape(cn_row_part(a, io->inputs[i].name), cn_row_part(b, io->inputs[i].name)))
            return false;
    return true;
}

/* --- levels --- */

uint32_t
cn_policy_level(const struct cn_policy *policy, uint64_t priority)
{
    if (!policy->by_level)
        return 0;
    return priority == 0 || priority > policy->batching->priority_levels
               ? policy->batching->default_level
               : (uint32_t)priority;
}

uint64_t
cn_policy_timeout_ms(const struct cn_policy *policy, uint32_t level, uint64_t wish_us)
{
    const struct cn_queue_policy *queue = &policy->batching->policies[level];
    uint64_t us = queue->timeout_us;

    if (queue->allow_override && wish_us > 0 && wish_us < us)
        us = wish_us;
    return (us + 999) / 1000;
}

/* --- tests --- */

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
