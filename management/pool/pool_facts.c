/* management/pool/pool_facts.c - what a pool reports about its workers and its queue, for
 * descriptions and metrics. do_facts() runs on the queue's loop and copies everything; the answer
 * goes to loop 0, which may then read the copy in its own time.
 */
#include <stdio.h>
#include <string.h>

#include "core/loop/loop_call.h"
#include "core/memory/mem.h"
#include "management/pool/worker_pool_priv.h"

static void
answer_facts(void *ctx)
{
    struct cn_worker_pool_facts *facts = ctx;

    facts->on_done(facts);
}

/* Adds up the gauges of all workers. Workers that share a store all report its size, so the largest
 * number counts; without a store each has its own, so the numbers are added. */
static void
add_worker_gauges(struct cn_worker_pool_facts *facts, bool one_store)
{
    struct cn_worker_stats sum = {0};
    uint32_t i;

    for (i = 0; i < facts->n_workers; i++) {
        const struct cn_worker_stats *stats = &facts->workers[i].stats;

        sum.rss_bytes += stats->rss_bytes;
        sum.cached_sequences += stats->cached_sequences;
        sum.cached_bytes += stats->cached_bytes;
        if (!one_store || stats->stored_sequences > sum.stored_sequences)
            sum.stored_sequences = stats->stored_sequences + (one_store ? 0 : sum.stored_sequences);
        if (!one_store || stats->stored_bytes > sum.stored_bytes)
            sum.stored_bytes = stats->stored_bytes + (one_store ? 0 : sum.stored_bytes);
    }
    cn_metrics_set(&facts->metrics, CN_M_WORKER_BYTES, sum.rss_bytes);
    cn_metrics_set(&facts->metrics, CN_M_STATES_CACHED, sum.cached_sequences);
    cn_metrics_set(&facts->metrics, CN_M_STATE_CACHED_BYTES, sum.cached_bytes);
    cn_metrics_set(&facts->metrics, CN_M_STATES_STORED, sum.stored_sequences);
    cn_metrics_set(&facts->metrics, CN_M_STATE_STORED_BYTES, sum.stored_bytes);
}

static void
take_metrics(struct cn_worker_pool *pool, struct cn_worker_pool_facts *facts)
{
    memset(&facts->metrics, 0, sizeof facts->metrics);
    facts->series = (struct cn_series_copy){0};
    if (!pool->queue)
        return;
    cn_metrics_copy(&facts->metrics, cn_model_queue_metrics(pool->queue));
    cn_metrics_set(&facts->metrics, CN_M_SEQUENCES_LIVE, facts->queue.live_sequences);
    cn_metrics_set(&facts->metrics, CN_M_JOBS_WAITING, facts->queue.waiting_jobs);
    cn_metrics_set(&facts->metrics, CN_M_JOBS_IN_FLIGHT, facts->queue.in_flight_jobs);
    add_worker_gauges(facts, pool->spec.about->config.durability != CN_DURABILITY_NONE);
    if (facts->wants_series)
        cn_handler_metrics_copy(cn_model_queue_handler_metrics(pool->queue), &facts->series);
}

static void
do_facts(void *ctx)
{
    struct cn_worker_pool_facts *facts = ctx;
    struct cn_worker_pool *pool = facts->pool;
    struct cn_list *node;
    uint32_t i = 0;

    facts->n_workers = cn_worker_pool_count(pool, cn_worker_pool_worker_is_any);
    facts->workers = cn_alloc((facts->n_workers + 1) * sizeof *facts->workers);
    cn_list_for_each(node, &pool->members)
        cn_worker_facts(cn_worker_pool_member_of(node)->worker, &facts->workers[i++]);
    facts->has_zygote = pool->workers_spec.zygote != NULL;
    if (facts->has_zygote)
        cn_worker_facts(pool->workers_spec.zygote, &facts->zygote);
    facts->queue = (struct cn_model_queue_stats){0};
    if (pool->queue)
        cn_model_queue_stats(pool->queue, &facts->queue);
    facts->scaling = pool->scaling;
    facts->scaling.wanted = pool->wanted;
    take_metrics(pool, facts);
    snprintf(facts->last_error, sizeof facts->last_error, "%s", pool->last_error);
    cn_call_on(pool->spec.home, answer_facts, facts);
}

void
cn_worker_pool_facts(struct cn_worker_pool *pool, struct cn_worker_pool_facts *facts)
{
    facts->pool = pool;
    cn_call_on(pool->spec.loop, do_facts, facts);
}

void
cn_worker_pool_facts_fini(struct cn_worker_pool_facts *facts)
{
    cn_free(facts->workers);
    facts->workers = NULL;
    cn_series_copy_fini(&facts->series);
}
