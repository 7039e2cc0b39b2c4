/* scheduler/workers/workers.c - workers come, retire and die. On the model queue's loop.
 *
 * A worker that dies takes no job with it. Its jobs in flight go back to the front of their groups,
 * under the same job ids, and are sent again. A job whose step was committed before the death is
 * answered from the store, so sending it again does no harm
 * (docs/decisions/0003-the-worker-forms-the-batch.md).
 *
 * But one of these jobs may have killed the worker. So all of them are suspects (`deaths`), and the
 * aggregator sends each of them alone. A job is given up after CN_MAX_ALONE_DEATHS deaths during
 * which it was the only one in flight.
 *
 * A job that streams is the exception: what its client has cannot be made again, so the answer
 * breaks off with an error. If nothing of it was passed on, it is sent again like any other job.
 */
#include "scheduler/workers/workers.h"

#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"

/* Gives the link a free place in queue->homes, with a new serial; the table grows if it is full. */
static void
take_home(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    uint32_t slot = 0, n;
    struct cn_home *homes;

    while (slot < queue->n_homes && queue->homes[slot].link)
        slot++;
    if (slot == queue->n_homes) {
        n = queue->n_homes ? queue->n_homes * 2 : 4;
        cn_assert(n <= CN_MAX_LINKS);
        homes = cn_alloc(n * sizeof(*homes));
        if (queue->n_homes)
            memcpy(homes, queue->homes, queue->n_homes * sizeof(*homes));
        cn_free(queue->homes);
        queue->homes = homes;
        queue->n_homes = n;
    }
    if (++queue->last_serial == 0)
        queue->last_serial = 1;
    queue->homes[slot] = (struct cn_home){link, queue->last_serial};
    link->home_slot = (uint16_t)slot;
    link->home_serial = queue->last_serial;
    queue->n_links++;
}

/* From here on no sequence has its home here. Its sequences notice that when they look. */
static void
leave_home(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    if (link->home_serial == 0)
        return;
    queue->homes[link->home_slot].link = NULL;
    link->home_serial = 0;
    cn_free(link->slots);
    link->slots = NULL;
    queue->homeless += link->live_sequences;
    link->live_sequences = 0;
    queue->n_links--;
    cn_ready_unhome(queue, link);
}

void
cn_model_queue_attach(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    cn_assert_on_loop(queue->loop);
    cn_assert(!link->queue && link->loop == queue->loop);
    link->queue = queue;
    link->frame_ops = &cn_queue_frame_ops;
    link->on_retired = NULL;
    cn_worker_link_serve(
        link, &(struct cn_worker_terms){.batch_rows = queue->config.batch_size,
                                        .body_memory_bytes = queue->config.body_memory_bytes,
                                        .streams = queue->config.stream_max,
                                        .response_timeout_ms =
                                            queue->config.response_timeout_s * UINT64_C(1000)});
    cn_list_push_back(&queue->links, &link->attached);
    cn_owned_worker_came(queue);
    take_home(queue, link);
    if (queue->policy.fixed_rows)
        link->slots = cn_alloc(queue->policy.slots * sizeof(struct cn_sequence *));
    queue->stats.attached_workers++;
    cn_pressure_worker_came(queue);
    cn_queue_wake(queue);
}

/* Puts the job back at the front of its group, to be sent again under its job id. */
static void
put_back(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_job_group_put_back(cn_queue_group_of(job), job);
    job->row.flags |= CN_ROW_REDELIVERED;
    job->skip_bytes = job->forwarded_bytes;
    cn_queue_job_waits(queue, job);
}

static void
fail_dead(struct cn_model_queue *queue, struct cn_job *job, bool was_overdue,
          const char *last_words)
{
    struct cn_sequence *sequence = job->sequence;

    cn_job_group_settle(cn_queue_group_of(job));
    cn_queue_doubt_generation(queue, job);
    if (job->cancelled)
        cn_queue_fail(queue, job, CN_E_CANCELLED, "the client disconnected");
    else if (was_overdue)
        cn_queue_fail(queue, job, CN_E_HANDLER_DEADLINE, "the handler took too long: %s",
                      last_words);
    else
        cn_queue_fail(queue, job, CN_E_WORKER_DIED,
                      "%u workers died on this request alone, so it is not sent again: %s",
                      job->alone_deaths, last_words);
    if (sequence)
        cn_sequence_update(sequence);
}

/* Fails a job whose handler streamed. What the client has cannot be made again, and only the store
 * knows whether the step is committed. A client that asks with the same key learns that. */
static void
fail_live(struct cn_model_queue *queue, struct cn_job *job, uint32_t index, const char *last_words)
{
    struct cn_sequence *sequence = job->sequence;

    if (cn_job_is_detached(job)) {
        sequence->streams--;
    } else {
        cn_job_group_settle(cn_queue_group_of(job));
        cn_queue_doubt_generation(queue, job);
    }
    if (job->cancelled)
        cn_queue_fail(queue, job, CN_E_CANCELLED, "the client disconnected");
    else
        cn_queue_fail(queue, job, CN_E_WORKER_DIED,
                      "worker %u died while it streamed this answer: %s", index, last_words);
    if (sequence)
        cn_sequence_update(sequence);
}

/* Sorts the streams of a dead worker: one of which nothing was passed on becomes a job like any
 * other, and the others fail. */
static void
rescue_live(struct cn_model_queue *queue, struct cn_worker_link *link, const char *last_words)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &link->live) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        cn_list_remove(node);
        link->n_live--;
        if (!cn_job_is_detached(job) && !job->passed_on) {
            cn_list_push_front(&link->in_flight, node);
            continue;
        }
        link->n_in_flight--;
        queue->stats.in_flight_jobs--;
        job->worker = NULL;
        fail_live(queue, job, link->index, last_words);
    }
}

/* Decides for each job of a dead worker whether it is answered or sent again. `alone`: the worker
 * had nothing else in flight, so the job is the cause. */
static void
rescue_jobs(struct cn_model_queue *queue, struct cn_worker_link *link, bool was_overdue,
            const char *last_words)
{
    bool alone;
    struct cn_list *node;

    cn_worker_link_forget_borrowed(link);
    rescue_live(queue, link, last_words);
    alone = link->n_in_flight == 1;
    while ((node = cn_list_pop_front(&link->in_flight))) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        link->n_in_flight--;
        queue->stats.in_flight_jobs--;
        job->worker = NULL;
        job->unsent = 0;
        job->deaths++;
        job->alone_deaths += alone;
        if (job->cancelled || (alone && was_overdue) || job->alone_deaths >= CN_MAX_ALONE_DEATHS)
            fail_dead(queue, job, was_overdue, last_words);
        else
            put_back(queue, job);
    }
}

void
cn_model_queue_detach(struct cn_model_queue *queue, struct cn_worker_link *link, bool was_overdue,
                      const char *last_words)
{
    cn_assert_on_loop(queue->loop);
    cn_assert(link->queue == queue);
    leave_home(queue, link);
    cn_list_remove(&link->attached);
    queue->stats.attached_workers--;
    cn_timer_cancel(&link->overdue);
    rescue_jobs(queue, link, was_overdue, last_words ? last_words : "no message");
    cn_queue_reroute_closes(queue, link);
    cn_queue_fail_queries(queue, link);
    cn_owned_recount(queue); /* what it has committed last was perhaps not heard */
    cn_worker_link_credit_to(link, CN_CREDIT_DETACHED);
    link->queue = NULL;
    link->on_retired = NULL;
    cn_queue_wake(queue);
}

void
cn_model_queue_retire(struct cn_model_queue *queue, struct cn_worker_link *link,
                      void (*on_retired)(void *ctx), void *ctx)
{
    cn_assert_on_loop(queue->loop);
    cn_assert(link->queue == queue);
    leave_home(queue, link);
    if (link->credit_phase != CN_CREDIT_OVERDUE) /* then its owner ends it anyway */
        cn_worker_link_credit_to(link, CN_CREDIT_RETIRING);
    link->on_retired = on_retired;
    link->retired_ctx = ctx;
    cn_queue_wake(queue);
}

static struct cn_worker_link *
find_retired(struct cn_model_queue *queue)
{
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (link->on_retired && cn_worker_link_quiet(link) && cn_list_empty(&link->to_close))
            return link;
    }
    return NULL;
}

void
cn_queue_tell_retired(struct cn_model_queue *queue)
{
    struct cn_worker_link *link;

    /* Begins anew each time, because the owner may detach this link or others. */
    while (!queue->destroyed && (link = find_retired(queue))) {
        void (*on_retired)(void *ctx) = link->on_retired;

        link->on_retired = NULL;
        on_retired(link->retired_ctx);
    }
}

void
cn_worker_link_stats(const struct cn_worker_link *link, struct cn_worker_link_stats *out)
{
    const struct cn_job *first;

    out->live_sequences = link->live_sequences;
    out->rows = link->rows;
    out->answers = link->answers;
    out->in_flight = link->n_in_flight;
    out->busy_rows = link->queue ? cn_worker_link_rows(link) : 0;
    out->busy_ms = 0;
    out->busy_sequence = (struct cn_str){NULL, 0};
    if (out->busy_rows == 0)
        return;
    first = cn_container_of(link->in_flight.next, struct cn_job, link);
    out->busy_ms = cn_loop_now_ms(link->loop) - link->progress_ms;
    if (first->sequence)
        out->busy_sequence = cn_sequence_id(first->sequence);
}
