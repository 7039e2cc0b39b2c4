/* scheduler/queue/submit.c - what a job's origin says of it: here it is, its client left, its
 * client took bytes.
 *
 * These three functions run on the job's origin; what they lead to runs on the queue's loop.
 * Nothing is done the moment it is said: jobs and cancels of the same loop are only noted, and the
 * end of the turn looks at them together (model_queue.c).
 *
 * Messages between two loops are embedded in the job: `msg` brings it, `cancel_msg` and
 * `credit_msg` travel to the queue and back (job_message_phases.def). The origin may free a job
 * only when all of them are back, so a final answer waits for them (answer_box.c). This is why no
 * message needs an allocation.
 *
 * A job that is at another version of its model (AWAY) has its cancel and its credit passed on to
 * the job that stands for it there.
 */
#include "scheduler/queue/submit.h"

#include <string.h>

#include "core/errors/panic.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/swap/forward.h"
#include "tracing/trace.h"

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

/* A forwarded step has the trace of the step that it stands for (version_swap.c). */
static void
begin_trace(struct cn_model_queue *queue, struct cn_job *job)
{
    if (cn_job_stands_in(job))
        return;
    job->trace = NULL;
    if (!cn_tracing_is_on() || (job->row.flags & (CN_ROW_DESCRIBE | CN_ROW_RECALL)))
        return;
    job->trace = cn_trace_begin(job, &job->row, queue->name, queue->version,
                                job->begun_us ? job->begun_us : cn_loop_now_us(job->origin));
}

void
cn_model_queue_submit(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_assert_on_loop(job->origin);
    job->queue = queue;
    job->queue_loop = queue->loop;
    begin_trace(queue, job);
    job->final_box = NULL;
    cn_job_begin(job);
    job->consumed = job->credit_bytes = 0;
    job->wants_stop = job->credit_stops = false;
    /* Credit is sent for a quarter of what may be under way: the worker never runs dry, and there
     * are few frames. */
    job->credit_least = (queue->config.stream_bytes + 3) / 4;
    cn_list_init(&job->link);
    job->sequence = NULL;
    job->worker = NULL;
    cn_timer_init(&job->timer, NULL);
    job->arrived_ms = job->sent_ms = job->arrived_us = job->ready_us = 0;
    job->forwarded_bytes = job->skip_bytes = 0;
    job->unsent = job->deaths = job->alone_deaths = 0;
    job->queued_us = job->last_call = job->n_responses = 0;
    memset(job->phase_us, 0, sizeof(job->phase_us));
    memset(&job->times, 0, sizeof(job->times));
    job->times.submitted_us = cn_loop_now_us(job->origin);
    job->forward = NULL;
    job->cancelled = job->stopped = job->passed_on = job->piece_lost = job->delayed = false;
    job->on_account = job->at_limit = false;
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

/* Tells whoever has the job in flight that its client is gone: the worker, or the other version. */
static void
pass_on_cancel(struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    if (job->worker) {
        cn_worker_link_put_cancel(job->worker, job->row.job_id, CN_STOP_GONE);
        return;
    }
    cn_assert(forward && !cn_list_empty(&forward->link));
    cn_model_queue_cancel(forward->queue, &forward->forwarded);
}

void
cn_queue_cancel_now(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_sequence *sequence = job->sequence;

    switch ((enum cn_job_phase)job->phase) {
    case CN_JOB_INCOMING:
        cn_list_remove(&job->link);
        cn_queue_fail(queue, job, CN_E_CANCELLED, "the client disconnected");
        break;
    case CN_JOB_WAITING:
        cn_queue_take_waiting(queue, job);
        cn_queue_fail(queue, job, CN_E_CANCELLED, "the client disconnected");
        cn_queue_group_left(sequence);
        break;
    case CN_JOB_DONE:
        break;
    default: /* it is in flight, and its step may be committed already */
        if (!job->cancelled)
            pass_on_cancel(job);
        job->cancelled = true;
        break;
    }
}

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

/* On the queue's loop. */
static void
give_credit(struct cn_job *job)
{
    const uint64_t bytes = job->credit_bytes;

    if (job->credit_stops && job->phase != CN_JOB_DONE)
        cn_queue_stop_stream(job);
    if (bytes == 0)
        return;
    if (cn_job_is_away(job)) {
        if (!cn_list_empty(&job->forward->link))
            cn_model_queue_consumed(&job->forward->forwarded, bytes);
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

    give_credit(job);
    msg->fn = credit_came_back;
    cn_loop_post(origin, msg);
}

/* Sends the credit that has come together, if it is worth a message. The queue may be gone, because
 * the final answer may be under way. */
static void
send_credit(struct cn_job *job)
{
    const bool is_worth_it = job->consumed > 0 && job->consumed >= job->credit_least;

    if (job->credit_message != CN_JOB_MESSAGE_HOME || !(is_worth_it || job->wants_stop))
        return;
    job->credit_bytes = job->consumed;
    job->credit_stops = job->wants_stop;
    job->consumed = 0;
    job->wants_stop = false;
    if (job->origin == job->queue_loop) {
        give_credit(job);
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

void
cn_queue_stop_forwarded(struct cn_job *job)
{
    cn_assert_on_loop(job->origin);
    job->wants_stop = true;
    send_credit(job);
}
