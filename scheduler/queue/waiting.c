/* scheduler/queue/waiting.c - jobs that wait in their groups, and how their waiting ends without
 * being sent. On the model queue's loop.
 *
 * A waiting job leaves its group in one of four ways: the aggregator sends it, its deadline passes,
 * its client leaves (submit.c), or the queue drops all that waits. After each of them
 * cn_queue_group_left() or the job's answer looks at the sequence again, which may then be closed
 * or freed. So no function here uses a sequence after that.
 */
#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "scheduler/queue/model_queue_priv.h"

void
cn_queue_doubt_generation(const struct cn_model_queue *queue, const struct cn_job *job)
{
    if (!job->sequence || !(job->row.flags & (CN_ROW_START | CN_ROW_END)) ||
        queue->config.durability == CN_DURABILITY_NONE)
        return;
    job->sequence->generation = 0;
    job->sequence->reload = true;
}

void
cn_queue_take_waiting(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_job_group *group = cn_queue_group_of(job);

    cn_job_group_remove(group, job);
    if (job->row.flags & CN_ROW_REDELIVERED)
        cn_queue_doubt_generation(queue, job);
    queue->stats.waiting_jobs--;
    cn_overload_count(queue, job, -1);
    if (!job->sequence)
        cn_ready_place(queue, group); /* a stateless job's group ends with it */
}

/* The time at which the client's or the model's timeout for waiting ends; CN_NEVER: there is
 * none. */
static uint64_t
own_deadline(const struct cn_job *job)
{
    const struct cn_policy *policy = &job->queue->policy;
    uint64_t timeout_ms;

    if (policy->by_level) {
        timeout_ms = cn_policy_timeout_ms(policy, job->level, job->timeout_us);
        return timeout_ms && !job->delayed ? job->arrived_ms + timeout_ms : CN_NEVER;
    }
    if (job->timeout_us == 0 || job->timeout_us >= (uint64_t)INT64_MAX || !job->sequence ||
        job->queue->policy.slots == 0)
        return cn_overload_deadline(job->queue, job);
    return job->arrived_ms + (job->timeout_us + 999) / 1000;
}

/* The client of one step waits no longer for a slot: all waiting steps of its sequence are
 * refused. */
static void
leave_backlog(struct cn_model_queue *queue, struct cn_sequence *sequence)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &sequence->group.jobs) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        cn_queue_take_waiting(queue, job);
        cn_queue_fail(queue, job, CN_E_UNAVAILABLE,
                      "timeout of the corresponding sequence has been expired");
    }
    cn_queue_group_left(sequence);
}

/* The job has waited longer than its level allows: it goes behind all others, or is refused. */
static void
timed_out(struct cn_model_queue *queue, struct cn_job *job)
{
    if (queue->policy.batching->policies[job->level].delay) {
        cn_ready_unplace(queue, &job->group);
        job->delayed = true;
        cn_ready_place(queue, &job->group);
        if (job->deadline_ms != CN_NEVER)
            cn_timer_set(cn_loop_wheel(queue->loop), &job->timer, job->deadline_ms);
        return;
    }
    cn_queue_take_waiting(queue, job);
    cn_queue_fail(queue, job, CN_E_UNAVAILABLE, "Request timeout expired");
}

/* The job has waited for twice queueTargetMSec. If the queue is not overloaded yet, or the job must
 * not be refused, it is looked at again later, at the latest when its deadline passes. */
static void
waited_long(struct cn_model_queue *queue, struct cn_job *job)
{
    uint64_t again_ms = cn_overload_deadline(queue, job), now_ms = cn_loop_now_ms(queue->loop);
    struct cn_sequence *sequence = job->sequence;

    if (cn_overload_expired(queue, job)) {
        cn_queue_take_waiting(queue, job);
        cn_queue_fail(queue, job, CN_E_OVERLOADED,
                      "waited %llu ms for a worker of model %s, which gets more requests than its "
                      "workers can do (queueTargetMSec %u); try again later",
                      (unsigned long long)(now_ms - job->arrived_ms), queue->name,
                      queue->config.queue_target_ms);
        cn_queue_group_left(sequence);
        return;
    }
    if (again_ms != CN_NEVER && again_ms <= now_ms)
        again_ms = now_ms + queue->config.queue_target_ms;
    if (job->deadline_ms < again_ms)
        again_ms = job->deadline_ms;
    if (again_ms != CN_NEVER)
        cn_timer_set(cn_loop_wheel(queue->loop), &job->timer, again_ms);
}

/* The job's timer, which is set to the nearest of several times. If it is the deadline that has
 * passed, the job is refused: the model is overloaded, or no worker came. Otherwise it is a timeout
 * of the client or of the model. */
static void
deadline_passed(struct cn_timer *timer)
{
    struct cn_job *job = cn_container_of(timer, struct cn_job, timer);
    struct cn_model_queue *queue = job->queue;
    struct cn_sequence *sequence = job->sequence;
    unsigned long long waited = cn_loop_now_ms(queue->loop) - job->arrived_ms;

    if (job->phase != CN_JOB_WAITING)
        return; /* a job in flight is bounded by responseTimeout */
    if (cn_loop_now_ms(queue->loop) < job->deadline_ms) {
        if (queue->policy.by_level)
            timed_out(queue, job);
        else if (sequence && cn_ready_in_backlog(sequence))
            leave_backlog(queue, sequence);
        else
            waited_long(queue, job);
        return;
    }
    cn_queue_take_waiting(queue, job);
    if (queue->config.client_timeout_ms && waited >= queue->config.client_timeout_ms)
        cn_queue_fail(queue, job, CN_E_TIMEOUT,
                      "waited %llu ms for a worker of model %s (clientTimeoutInMills %u)", waited,
                      queue->name, queue->config.client_timeout_ms);
    else if (queue->n_links > 0)
        cn_queue_fail(
            queue, job, CN_E_HANDLER_DEADLINE,
            "waited %llu ms for a worker of model %s, whose workers are all busy; send fewer "
            "requests at once, or start more workers (maxWorkers)",
            waited, queue->name);
    else if (queue->expected > 0)
        cn_queue_fail(queue, job, CN_E_MODEL_LOADING,
                      "waited %llu ms for a worker of model %s, which is still loading", waited,
                      queue->name);
    else
        cn_queue_fail(queue, job, CN_E_NO_WORKER, "%s", cn_queue_no_worker_reason(queue));
    cn_queue_group_left(sequence);
}

void
cn_queue_job_waits(struct cn_model_queue *queue, struct cn_job *job)
{
    uint64_t deadline = job->deadline_ms;

    cn_job_to(job, CN_JOB_WAITING);
    queue->stats.waiting_jobs++;
    cn_overload_count(queue, job, 1);
    job->timer.fn = deadline_passed;
    if (own_deadline(job) < deadline)
        deadline = own_deadline(job);
    if (deadline != CN_NEVER && !cn_timer_armed(&job->timer))
        cn_timer_set(cn_loop_wheel(queue->loop), &job->timer, deadline);
    cn_ready_place(queue, cn_queue_group_of(job));
}

/* Moves the group's waiting jobs to `out`. */
static void
empty_group(struct cn_model_queue *queue, struct cn_job_group *group, struct cn_list *out)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &group->jobs) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        cn_queue_take_waiting(queue, job);
        cn_list_push_back(out, &job->link);
    }
}

static void
empty_groups(struct cn_model_queue *queue, struct cn_list *groups, struct cn_list *out)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, groups)
        empty_group(queue, cn_container_of(node, struct cn_job_group, ready), out);
}

/* Collects all waiting jobs. A group whose jobs wait is in a ready list, or is closing, or held, or
 * has a job in flight, so there is no need to look at a million sequences. */
static void
gather_waiting(struct cn_model_queue *queue, struct cn_list *out)
{
    struct cn_list *node, *job;

    empty_groups(queue, &queue->aggregator.suspects, out);
    empty_groups(queue, &queue->aggregator.shared, out);
    empty_groups(queue, &queue->aggregator.unknown, out);
    for (uint32_t i = 0; queue->policy.by_level && i <= queue->policy.batching->priority_levels;
         i++) {
        empty_groups(queue, &queue->aggregator.levels[i].ready, out);
        empty_groups(queue, &queue->aggregator.levels[i].delayed, out);
    }
    empty_groups(queue, &queue->held, out);
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        empty_groups(queue, &link->ready, out);
        empty_groups(queue, &link->to_close, out);
        empty_groups(queue, &link->closing, out);
        cn_list_for_each(job, &link->in_flight)
            empty_group(queue, cn_queue_group_of(cn_container_of(job, struct cn_job, link)), out);
        cn_list_for_each(job, &link->live)
            empty_group(queue, cn_queue_group_of(cn_container_of(job, struct cn_job, link)), out);
    }
    if (!queue->closed)
        return; /* jobs behind a step that another version runs may be for that version, too */
    cn_list_for_each(node, &queue->away)
        empty_group(queue, cn_forward_group(node), out);
}

void
cn_queue_drop_waiting(struct cn_model_queue *queue)
{
    struct cn_list jobs, *node;

    if (queue->stats.waiting_jobs == 0)
        return;
    cn_list_init(&jobs);
    gather_waiting(queue, &jobs);
    cn_assert(!queue->closed || queue->stats.waiting_jobs == 0);
    while ((node = cn_list_pop_front(&jobs))) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);
        struct cn_sequence *sequence = job->sequence;
        bool last = cn_list_empty(&jobs) ||
                    cn_container_of(jobs.next, struct cn_job, link)->sequence != sequence;

        if (queue->closed)
            cn_queue_fail(queue, job, queue->close_code, "%s", queue->close_reason);
        else
            cn_queue_fail(queue, job, CN_E_NO_WORKER, "%s", cn_queue_no_worker_reason(queue));
        if (last) /* the jobs of a sequence stand together, and this may free it */
            cn_queue_group_left(sequence);
    }
}
