/* scheduler/queue/model_queue.c - the turn of a model version's queue, and how the queue is opened
 * and closed. On the queue's loop.
 *
 * Nothing is sent the moment it comes: jobs and cancels are only noted (submit.c), and turn_end()
 * admits and dispatches them together. So all steps that one turn of the loop read go to the
 * workers in one write for each, and a job that is cancelled in the turn in which it came is never
 * sent.
 *
 * Calls go one way: this file calls those that decide (admission.c, aggregator.c, workers.c), and
 * they call those that do (waiting.c, finish.c, the sequences). None of these calls this file; they
 * wake the queue with cn_queue_wake(). Files that call each other in a circle do so for one reason:
 * when a job leaves its sequence, the sequence decides what comes next, and that may be a step that
 * leaves for another version.
 *
 * Callbacks of the queue (final answers, on_empty, on_retired) may submit, cancel or even destroy
 * the queue. All of these are noted and done later: a submit or cancel at the next end of a turn, a
 * destroy at the end of the running turn_end().
 */
#include "scheduler/queue/model_queue.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/system/random.h"
#include "core/time/clock.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/workers/workers.h"

/* The queue's work of a turn; see the head of this file. */
static void turn_end(struct cn_deferred *deferred);

static _Atomic uint32_t
    last_serial; /* for the queues of all loops, because each queue is made on its own loop */

static struct cn_str
sequence_key(const void *item)
{
    return cn_sequence_id(item);
}

struct cn_model_queue *
cn_model_queue_create(struct cn_loop *loop, const char *name, const char *version,
                      const struct cn_model_config *config)
{
    struct cn_model_queue *queue = cn_alloc(sizeof(*queue));

    queue->loop = loop;
    queue->name = cn_strdup(name);
    queue->version = cn_strdup(version);
    queue->config = *config;
    queue->stateful = config->sequence_batching;
    cn_policy_init(&queue->policy, config);
    queue->hold = cn_policy_hold_read();
    queue->turn_end.fn = turn_end;
    cn_list_init(&queue->turn_end.link);
    cn_list_init(&queue->incoming);
    cn_list_init(&queue->links);
    cn_list_init(&queue->deletes);
    cn_list_init(&queue->queries);
    cn_list_init(&queue->held);
    cn_list_init(&queue->away);
    queue->serial = 1 + atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed);
    queue->swap_policy = config->swap_policy;
    queue->may_remember = config->durability != CN_DURABILITY_NONE;
    cn_ready_init(queue);
    cn_handler_metrics_init(&queue->handler_metrics, config->metric_series_max);
    if (queue->stateful)
        queue->sequences = cn_table_create(sequence_key);
    /* The first id is above all ids of an earlier server: no server answers 256 jobs in each
     * microsecond of its life. */
    queue->next_job_id = (cn_wall_ms() * 1000 + cn_random_u64() % 1000) << 8;
    /* With a shared store the ids of other nodes count, too, and a job must not be taken for one of
     * theirs: so ids begin at random. In 63 bits two of them never meet. */
    queue->shares_store = queue->may_remember && config->state_store.url[0] != '\0';
    if (queue->shares_store)
        queue->next_job_id = (cn_random_u64() >> 1) + 1;
    queue->drain.begun_ms = cn_loop_now_ms(loop);
    if (config->io)
        queue->infer = cn_infer_stats_create();
    return queue;
}

static void
free_sequences(struct cn_model_queue *queue)
{
    struct cn_sequence *sequence;
    size_t cursor = 0;

    while ((sequence = cn_table_next(queue->sequences, &cursor)))
        cn_sequence_forget(sequence);
    cn_table_destroy(queue->sequences);
}

static void
free_queue(struct cn_model_queue *queue)
{
    if (queue->stateful)
        free_sequences(queue);
    cn_owned_close(queue);
    cn_list_remove(&queue->turn_end.link);
    cn_ready_fini(queue);
    cn_handler_metrics_fini(&queue->handler_metrics);
    cn_infer_stats_destroy(queue->infer);
    cn_free(queue->homes);
    cn_free(queue->no_worker_reason);
    cn_free(queue->close_reason);
    cn_free(queue->name);
    cn_free(queue->version);
    cn_free(queue);
}

void
cn_model_queue_destroy(struct cn_model_queue *queue)
{
    if (!queue)
        return;
    cn_assert_on_loop(queue->loop);
    cn_assert(!queue->destroyed && queue->jobs_now == 0 && cn_list_empty(&queue->links));
    if (queue->in_turn_end)
        queue->destroyed = true;
    else
        free_queue(queue);
}

void
cn_model_queue_set_accounts(struct cn_model_queue *queue, struct cn_accounts *accounts)
{
    if (accounts && queue->stateful)
        cn_owned_open(queue, accounts);
}

struct cn_loop *
cn_model_queue_loop(const struct cn_model_queue *queue)
{
    return queue->loop;
}

const struct cn_model_config *
cn_model_queue_config(const struct cn_model_queue *queue)
{
    return &queue->config;
}

const char *
cn_model_queue_name(const struct cn_model_queue *queue)
{
    return queue->name;
}

const char *
cn_model_queue_version(const struct cn_model_queue *queue)
{
    return queue->version;
}

static void
run_cancels(struct cn_model_queue *queue)
{
    struct cn_msg *msg;

    while ((msg = queue->cancels)) {
        queue->cancels = msg->next;
        cn_queue_cancel_now(queue, cn_container_of(msg, struct cn_job, cancel_msg));
    }
}

/* Prefetches the sequences of a turn's jobs. They lie anywhere in a large table, so asking for all
 * of them at once takes about as long as waiting for one
 * (docs/decisions/0019-look-ups-are-prepared-by-the-batch.md). */
static void
prefetch_sequences(const struct cn_model_queue *queue, const struct cn_list *jobs)
{
    struct cn_str ids[CN_PREFETCH_MAX];
    struct cn_list *node;
    uint32_t n = 0;

    if (!queue->stateful)
        return;
    cn_list_for_each(node, jobs) {
        ids[n] = cn_container_of(node, struct cn_job, link)->row.sequence_id;
        n += ids[n].len > 0;
        if (n == CN_PREFETCH_MAX)
            break; /* this is a burst: the others are fetched when they are needed */
    }
    if (n > 1)
        cn_table_prefetch(queue->sequences, ids, n, CN_SEQUENCE_BYTES, NULL);
}

static void
admit_incoming(struct cn_model_queue *queue)
{
    struct cn_list now, *node;

    /* A callback may submit more jobs; they wait for the next turn. */
    cn_list_init(&now);
    cn_list_splice_back(&now, &queue->incoming);
    cn_stages_take(queue, &now);
    cn_queue_refuse_departed(queue, &now);
    prefetch_sequences(queue, &now);
    while ((node = cn_list_pop_front(&now)))
        cn_queue_admit(queue, cn_container_of(node, struct cn_job, link));
}

static void
flush_links(struct cn_model_queue *queue)
{
    struct cn_list *node;

    cn_list_for_each(node, &queue->links)
        cn_worker_link_flush(cn_container_of(node, struct cn_worker_link, attached));
}

static void
tell_empty(struct cn_model_queue *queue)
{
    if (!queue->closed || queue->empty_told || queue->jobs_now > 0)
        return;
    queue->empty_told = true;
    if (queue->on_empty)
        queue->on_empty(queue->empty_ctx);
}

static void
turn_end(struct cn_deferred *deferred)
{
    struct cn_model_queue *queue = cn_container_of(deferred, struct cn_model_queue, turn_end);

    /* Cancels first: what is cancelled need not be admitted. Dispatch comes after all jobs are
     * known, and one flush for each worker comes after all frames are written. */
    queue->in_turn_end = true;
    run_cancels(queue);
    admit_incoming(queue);
    if ((queue->closed && queue->drop_waiting) || !cn_queue_has_hope(queue))
        cn_queue_drop_waiting(queue);
    cn_aggregator_dispatch(queue);
    cn_queue_send_closes(queue);
    flush_links(queue);
    cn_queue_tell_retired(queue);
    if (queue->infer)
        cn_infer_set_pending(queue->infer, queue->stats.waiting_jobs);
    if (!queue->destroyed)
        cn_pressure_turn_end(queue);
    if (!queue->destroyed)
        tell_empty(queue);
    queue->in_turn_end = false;
    if (queue->destroyed)
        free_queue(queue);
}

/* Opening and closing */

static void
replace_text(char **text, const char *with)
{
    char *copy = with ? cn_strdup(with) : NULL;

    cn_free(*text);
    *text = copy;
}

void
cn_model_queue_set_expected(struct cn_model_queue *queue, uint32_t expected, const char *reason)
{
    cn_assert_on_loop(queue->loop);
    queue->expected = expected;
    replace_text(&queue->no_worker_reason, reason);
    cn_queue_wake(queue);
}

void
cn_model_queue_stop_streams(struct cn_model_queue *queue)
{
    struct cn_list *node, *job;

    cn_assert_on_loop(queue->loop);
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        cn_list_for_each(job, &link->live)
            cn_queue_stop_stream(cn_container_of(job, struct cn_job, link));
        cn_list_for_each(job, &link->in_flight)
            cn_queue_stop_stream(cn_container_of(job, struct cn_job, link));
    }
    /* The queue is not empty before these have ended, either. */
    cn_list_for_each(node, &queue->away)
        cn_queue_stop_stream(cn_forward_job(node));
}

void
cn_model_queue_close(struct cn_model_queue *queue, int code, const char *reason, bool drop_waiting,
                     void (*on_empty)(void *ctx), void *ctx)
{
    cn_assert_on_loop(queue->loop);
    queue->closed = true;
    queue->close_code = code;
    replace_text(&queue->close_reason, reason ? reason : "the model is being stopped");
    queue->drop_waiting |= drop_waiting;
    if (drop_waiting)
        cn_model_queue_stop_streams(queue); /* a stream may have hours to go */
    queue->on_empty = on_empty;
    queue->empty_ctx = ctx;
    cn_queue_wake(queue);
}

struct cn_metrics *
cn_model_queue_metrics(struct cn_model_queue *queue)
{
    return &queue->metrics;
}

const struct cn_handler_metrics *
cn_model_queue_handler_metrics(const struct cn_model_queue *queue)
{
    return &queue->handler_metrics;
}

void
cn_model_queue_set_family(struct cn_model_queue *queue, struct cn_family family)
{
    queue->family = family;
}

void
cn_model_queue_set_swap_policy(struct cn_model_queue *queue, enum cn_swap_policy policy)
{
    cn_assert_on_loop(queue->loop);
    queue->swap_policy = policy;
}

void
cn_model_queue_set_retired(struct cn_model_queue *queue, bool retired)
{
    cn_assert_on_loop(queue->loop);
    atomic_store_explicit(&queue->retired, retired, memory_order_relaxed);
}

void
cn_model_queue_stats(const struct cn_model_queue *queue, struct cn_model_queue_stats *out)
{
    *out = queue->stats;
}
