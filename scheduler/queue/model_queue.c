/* scheduler/queue/model_queue.c - jobs come in, jobs go out, and a model version's queue is opened
 * and closed.
 *
 * Submit and cancel run on a job's origin; everything else runs on the queue's loop, most of it at
 * the end of a turn. Nothing is sent the moment it comes: jobs and cancels are only noted, and
 * turn_end() admits and dispatches them together. So all steps that one turn of the loop read go to
 * the workers in one write for each, and a job that is cancelled in the turn in which it came is
 * never sent.
 *
 * Messages between two loops are embedded in the job: `msg` brings it, `cancel_msg` and
 * `credit_msg` travel to the queue and back. The origin may free a job only when all of them are
 * back, so a final answer waits for them (answer_box.c). This is why no message needs an
 * allocation.
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

#define DRAIN_WINDOW_MS 1000
#define RETRY_AFTER_MAX_S 300

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
    cn_aggregator_init(queue);
    cn_handler_metrics_init(&queue->handler_metrics, config->metric_series_max);
    if (queue->stateful)
        queue->sequences = cn_table_create(sequence_key);
    /* The first id is above all ids of an earlier server: no server answers 256 jobs in each
     * microsecond of its life. */
    queue->next_job_id = (cn_wall_ms() * 1000 + cn_random_u64() % 1000) << 8;
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
    cn_list_remove(&queue->turn_end.link);
    cn_aggregator_fini(queue);
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

void
cn_queue_wake(struct cn_model_queue *queue)
{
    cn_loop_defer(queue->loop, &queue->turn_end);
}

struct cn_job_group *
cn_queue_group_of(struct cn_job *job)
{
    return job->sequence ? &job->sequence->group : &job->group;
}

bool
cn_queue_has_hope(const struct cn_model_queue *queue)
{
    return queue->n_links > 0 || queue->expected > 0;
}

const char *
cn_queue_no_worker_reason(const struct cn_model_queue *queue)
{
    return queue->no_worker_reason ? queue->no_worker_reason
                                   : "the model has no worker, and none is being started";
}

/* Jobs in */

/* On the queue's loop. */
static void
arrive(struct cn_model_queue *queue, struct cn_job *job)
{
    queue->jobs_now++;
    cn_list_push_back(&queue->incoming, &job->link);
    cn_queue_wake(queue);
}

static void
arrive_by_mail(struct cn_msg *msg)
{
    struct cn_job *job = cn_container_of(msg, struct cn_job, msg);

    arrive(job->queue, job);
}

void
cn_model_queue_submit(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_assert_on_loop(job->origin);
    job->queue = queue;
    job->queue_loop = queue->loop;
    job->final_box = NULL;
    cn_job_begin(job);
    job->consumed = job->credit_bytes = 0;
    /* Credit is sent for a quarter of what may be under way: the worker never runs dry, and there
     * are few frames. */
    job->credit_least = queue->config.stream_bytes / 4;
    cn_list_init(&job->link);
    job->sequence = NULL;
    job->worker = NULL;
    cn_timer_init(&job->timer, NULL);
    job->arrived_ms = job->sent_ms = job->arrived_us = job->ready_us = 0;
    job->forwarded_bytes = job->skip_bytes = 0;
    job->unsent = job->deaths = job->alone_deaths = 0;
    job->queued_us = job->last_call = job->n_responses = 0;
    memset(job->phase_us, 0, sizeof(job->phase_us));
    job->forward = NULL;
    job->cancelled = job->stopped = job->passed_on = job->piece_lost = job->delayed = false;
    job->rows = 1;
    job->level = 0;
    job->cancel_msg.next = NULL;
    if (job->origin == queue->loop) {
        arrive(queue, job);
        return;
    }
    job->msg.fn = arrive_by_mail;
    cn_loop_post(queue->loop, &job->msg);
}

/* Cancels */

static void
cancel_came_back(struct cn_msg *msg)
{
    struct cn_job *job = cn_container_of(msg, struct cn_job, cancel_msg);

    cn_job_message_to(&job->cancel_message, CN_JOB_MESSAGE_SPENT);
    cn_answer_box_message_back(job);
}

/* On the queue's loop. If the job is done, the queue may be gone, so only the job is looked at. The
 * message goes back in any case, because the origin keeps the job until it has it. */
static void
cancel_by_mail(struct cn_msg *msg)
{
    struct cn_job *job = cn_container_of(msg, struct cn_job, cancel_msg);
    struct cn_loop *origin = job->origin;

    if (job->phase != CN_JOB_DONE) {
        cn_queue_wake(job->queue); /* jobs that waited behind this one may go */
        cn_queue_cancel_now(job->queue, job);
    }
    msg->fn = cancel_came_back;
    cn_loop_post(origin, msg);
}

void
cn_model_queue_cancel(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_assert_on_loop(job->origin);
    if (job->cancel_message != CN_JOB_MESSAGE_HOME)
        return;
    if (job->origin == job->queue_loop) {
        cn_job_message_to(&job->cancel_message, CN_JOB_MESSAGE_SPENT);
        job->cancel_msg.next = queue->cancels;
        queue->cancels = &job->cancel_msg;
        cn_queue_wake(queue);
        return;
    }
    cn_job_message_to(&job->cancel_message, CN_JOB_MESSAGE_OUT);
    job->cancel_msg.fn = cancel_by_mail;
    cn_loop_post(job->queue_loop, &job->cancel_msg);
}

/* Credit */

/* On the queue's loop. */
static void
give_credit(struct cn_job *job, uint64_t bytes)
{
    if (cn_job_is_away(job)) {
        cn_swap_consumed(job, bytes);
        return;
    }
    if (!cn_job_streams(job))
        return;
    cn_worker_link_put_credit(job->worker, job->row.job_id, bytes);
}

static void send_credit(struct cn_job *job);

static void
credit_came_back(struct cn_msg *msg)
{
    struct cn_job *job = cn_container_of(msg, struct cn_job, credit_msg);

    cn_job_message_to(&job->credit_message, CN_JOB_MESSAGE_HOME);
    if (job->final_box)
        cn_answer_box_message_back(job);
    else
        send_credit(job);
}

/* On the queue's loop; the queue itself may be gone if the job is done. */
static void
credit_by_mail(struct cn_msg *msg)
{
    struct cn_job *job = cn_container_of(msg, struct cn_job, credit_msg);
    struct cn_loop *origin = job->origin;

    give_credit(job, job->credit_bytes);
    msg->fn = credit_came_back;
    cn_loop_post(origin, msg);
}

/* Sends the credit that has come together, if it is worth a message. The queue may be gone, because
 * the final answer may be under way. */
static void
send_credit(struct cn_job *job)
{
    if (job->credit_message != CN_JOB_MESSAGE_HOME || job->consumed == 0 ||
        job->consumed < job->credit_least)
        return;
    job->credit_bytes = job->consumed;
    job->consumed = 0;
    if (job->origin == job->queue_loop) {
        give_credit(job, job->credit_bytes);
        return;
    }
    cn_job_message_to(&job->credit_message, CN_JOB_MESSAGE_OUT);
    job->credit_msg.fn = credit_by_mail;
    cn_loop_post(job->queue_loop, &job->credit_msg);
}

void
cn_model_queue_consumed(struct cn_job *job, size_t bytes)
{
    cn_assert_on_loop(job->origin);
    job->consumed += bytes;
    send_credit(job);
}

/* Takes back a cancel of this turn, because the job was done before the queue looked at it. */
static void
forget_cancel(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_msg **at = &queue->cancels;

    if (job->origin != queue->loop || job->cancel_message == CN_JOB_MESSAGE_HOME)
        return;
    while (*at && *at != &job->cancel_msg)
        at = &(*at)->next;
    if (*at)
        *at = (*at)->next;
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

/* Jobs out */

/* Updates the answers per second, once for each second. The new rate is the mean of the last second
 * and the old rate, so a short pause does not show. */
static void
count_answer(struct cn_model_queue *queue)
{
    struct cn_drain_rate *drain = &queue->drain;
    uint64_t now = cn_loop_now_ms(queue->loop), elapsed = now - drain->begun_ms;
    double per_s;

    drain->answers++;
    if (elapsed < DRAIN_WINDOW_MS)
        return;
    per_s = drain->answers * 1000.0 / (double)elapsed;
    drain->per_s = drain->per_s > 0 ? (drain->per_s + per_s) / 2 : per_s;
    drain->answers = 0;
    drain->begun_ms = now;
}

/* Counts a job that is finished; `code` is the error code of its final answer. */
static void
count_job(struct cn_model_queue *queue, const struct cn_job *job, int code)
{
    if (code)
        cn_metrics_count_error(&queue->metrics, CN_M_JOB_ERRORS, code);
    else
        count_answer(queue);
    if (!job->worker)
        return;
    cn_metrics_observe(&queue->metrics, CN_M_STEP_TIME,
                       cn_loop_now_us(queue->loop) - job->arrived_us);
    cn_ts_job_done(queue, job);
}

uint32_t
cn_queue_retry_after(struct cn_model_queue *queue, uint64_t jobs)
{
    const struct cn_drain_rate *drain = &queue->drain;
    uint64_t elapsed = cn_loop_now_ms(queue->loop) - drain->begun_ms;
    double per_s = drain->per_s, seconds;

    if (per_s <= 0 && elapsed > 0)
        per_s = drain->answers * 1000.0 / (double)elapsed;
    if (per_s <= 0)
        return 1;
    seconds = (double)jobs / per_s + 1;
    return seconds < RETRY_AFTER_MAX_S ? (uint32_t)seconds : RETRY_AFTER_MAX_S;
}

void
cn_queue_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    cn_timer_cancel(&job->timer);
    forget_cancel(queue, job);
    cn_infer_job_done(queue, job, &box->answer);
    cn_forward_free(job);
    cn_job_to(job, CN_JOB_DONE);
    queue->jobs_now--;
    if (queue->closed)
        cn_queue_wake(queue);
    count_job(queue, job, box->answer.error_code);
    cn_answer_box_deliver(box);
}

void
cn_queue_fail(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt, ...)
{
    int status = cn_error_info(code)->http_status;
    char message[CN_ERROR_MESSAGE_MAX];
    uint32_t retry_after_s = 0;
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    if (status == 429 || status == 503)
        retry_after_s = cn_queue_retry_after(queue, queue->stats.waiting_jobs + 1);
    cn_queue_finish(queue, job, cn_answer_box_error(job, code, message, retry_after_s));
}

void
cn_queue_take_waiting(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_job_group *group = cn_queue_group_of(job);

    cn_job_group_remove(group, job);
    queue->stats.waiting_jobs--;
    if (!job->sequence)
        cn_aggregator_place(queue, group); /* a stateless job's group ends with it */
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
        cn_table_prefetch(queue->sequences, ids, n, sizeof(struct cn_sequence), NULL);
}

static void
admit_incoming(struct cn_model_queue *queue)
{
    struct cn_list now, *node;

    /* A callback may submit more jobs; they wait for the next turn. */
    cn_list_init(&now);
    cn_list_splice_back(&now, &queue->incoming);
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
