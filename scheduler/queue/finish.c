/* scheduler/queue/finish.c - gives a job its final answer: what is counted, what is freed, and who
 * gets it. On the model queue's loop.
 *
 * A job is finished once, whoever answers it: a worker, another version, or the queue itself with
 * an error. Callers take it out of all lists before. When the answer is delivered the job belongs
 * to the front end again.
 */
#include <stdarg.h>
#include <stdio.h>

#include "access/account.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"
#include "tracing/slow_steps.h"
#include "tracing/trace.h"

#define DRAIN_WINDOW_MS 1000
#define RETRY_AFTER_MAX_S 300

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
    if (!code || job->worker) /* a handler's error is an answer, too */
        count_answer(queue);
    if (!job->worker)
        return;
    cn_metrics_observe(&queue->metrics, CN_M_STEP_TIME,
                       cn_loop_now_us(queue->loop) - job->arrived_us);
    cn_stages_count(queue, job);
    cn_ts_job_done(queue, job);
}

double
cn_queue_rate(const struct cn_model_queue *queue)
{
    const struct cn_drain_rate *drain = &queue->drain;
    uint64_t elapsed = cn_loop_now_ms(queue->loop) - drain->begun_ms;

    if (drain->per_s > 0 || elapsed == 0)
        return drain->per_s;
    return drain->answers * 1000.0 / (double)elapsed;
}

uint32_t
cn_queue_retry_after(struct cn_model_queue *queue, uint64_t jobs)
{
    double per_s = cn_queue_rate(queue), seconds;

    if (per_s <= 0)
        return 1;
    seconds = (double)jobs / per_s + 1;
    return seconds < RETRY_AFTER_MAX_S ? (uint32_t)seconds : RETRY_AFTER_MAX_S;
}

/* Notes when the step was where. A forwarded step is noted as the step that it stands for. */
static void
note_times(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer_box *box)
{
    job->times.arrived_us = job->arrived_us;
    job->times.done_us = cn_loop_now_us(queue->loop);
    if (job->trace)
        job->trace->times = job->times;
    if (!cn_step_is_slow(&job->times) || cn_job_stands_in(job) || !job->arrived_us ||
        (job->row.flags & CN_ROW_DESCRIBE))
        return;
    cn_slow_steps_put(&(struct cn_ended_step){
        .model = queue->name,
        .version = queue->version,
        .sequence_id = box->sequence_id.len ? job->row.sequence_id : box->sequence_id,
        .request_id = job->row.request_id,
        .step = box->answer.error_code ? 0 : box->answer.step,
        .error_code = box->answer.error_code,
        .times = &job->times,
    });
}

/* The step could only have continued a sequence, because its key may open no more of them. Its
 * client cannot know that, and so it learns why nothing was opened. */
static struct cn_answer_box *
say_limit(struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_error err;

    if (!job->at_limit || box->answer.error_code != CN_E_SEQUENCE_UNKNOWN)
        return box;
    cn_answer_box_free(box);
    cn_account_refuse_sequence(job->account, cn_loop_now_us(job->queue_loop), &err);
    return cn_answer_box_error(job, err.code, err.message, CN_ACCOUNT_RETRY_S);
}

void
cn_queue_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    box = say_limit(job, box);
    if (job->on_account)
        cn_account_end(job->account);
    cn_timer_cancel(&job->timer);
    forget_cancel(queue, job);
    cn_infer_job_done(queue, job, &box->answer);
    cn_forward_free(job);
    cn_job_to(job, CN_JOB_DONE);
    queue->jobs_now--;
    if (queue->closed)
        cn_queue_wake(queue);
    count_job(queue, job, box->answer.error_code);
    note_times(queue, job, box);
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
cn_queue_fail_key(struct cn_model_queue *queue, struct cn_job *job, const char *message,
                  uint32_t retry_after_s)
{
    cn_queue_finish(queue, job, cn_answer_box_error(job, CN_E_KEY_LIMIT, message, retry_after_s));
}
