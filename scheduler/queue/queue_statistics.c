/* scheduler/queue/queue_statistics.c - how long a step was in each phase, and what a typed model's
 * queue counts for the statistics of the v2 protocol. On the queue's loop.
 *
 * A worker's report of a call comes right before the answers that the call made. So the answers
 * need not say which call made them: link->call has its times, and its serial tells whether a
 * further piece of a job came from the same call. A step that is forwarded to another version
 * counts where it ran (scheduler/swap/version_swap.h).
 */
#include "metrics/counters/infer_stats.h"

#include "config/model/model_io.h"
#include "core/time/clock.h"
#include "proto/tensor.h"
#include "scheduler/queue/model_queue_priv.h"

const struct cn_infer_stats *
cn_model_queue_infer_stats(const struct cn_model_queue *queue)
{
    return queue->infer;
}

void
cn_infer_call_done(struct cn_worker_link *link, const struct cn_report *report)
{
    link->call.serial++;
    link->call.at_us = cn_loop_now_us(link->loop);
    link->call.us[CN_INFER_INPUT] = report->before_us;
    link->call.us[CN_INFER_HANDLER] = report->handler_us;
    link->call.us[CN_INFER_OUTPUT] = report->after_us;
    if (link->queue->infer)
        cn_infer_executed(link->queue->infer, report->batch, cn_wall_ms(), link->call.us);
}

/* Did the job ask nothing of the handler, or does it have no answer here? */
static bool
is_no_inference(const struct cn_job *job, const struct cn_answer *answer)
{
    return (job->row.flags & (CN_ROW_DESCRIBE | CN_ROW_RECALL)) ||
           (answer->flags & (CN_ANSWER_HERE | CN_ANSWER_ELSEWHERE));
}

/* Notes how long the job was queued, at the first call for it: all time that was not spent in the
 * call was waiting, here and in the worker. */
static void
note_queued(struct cn_worker_link *link, struct cn_job *job)
{
    uint64_t us = cn_loop_now_us(link->loop) - job->arrived_us, call_us = 0;

    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        call_us += link->call.us[i];
    job->queued_us = us > call_us ? us - call_us : 0;
}

/* Notes the call that made this piece. A step that was sent after the last report came was refused
 * before the handler was called. */
static void
note_call(struct cn_worker_link *link, struct cn_job *job)
{
    if (job->times.sent_us <= link->call.at_us)
        cn_step_times_called(&job->times, link->call.at_us, link->call.us[CN_INFER_HANDLER],
                             link->call.us[CN_INFER_OUTPUT]);
    if (job->last_call == 0)
        note_queued(link, job);
    job->last_call = link->call.serial;
    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        job->phase_us[i] += link->call.us[i];
}

static enum cn_infer_response
kind_of(const struct cn_answer *answer)
{
    if (answer->error_code == CN_E_CANCELLED)
        return CN_RESPONSE_CANCELED;
    if (answer->error_code || answer->status >= 400)
        return CN_RESPONSE_FAILED;
    return answer->body.len ? CN_RESPONSE_DATA : CN_RESPONSE_EMPTY;
}

void
cn_infer_job_heard(struct cn_worker_link *link, struct cn_job *job, const struct cn_answer *answer)
{
    static const uint64_t none[CN_INFER_N_PHASES];
    struct cn_infer_stats *stats = link->queue->infer;
    bool replayed = answer->flags & CN_ANSWER_REPLAYED;
    enum cn_infer_response kind = kind_of(answer);

    if (is_no_inference(job, answer))
        return;
    if (!replayed && job->last_call != link->call.serial)
        note_call(link, job);
    if (!stats)
        return;
    if (kind == CN_RESPONSE_EMPTY && !(answer->flags & CN_ANSWER_FINAL))
        return;
    cn_infer_response(stats, job->n_responses, kind, replayed ? none : link->call.us);
    job->n_responses++;
}

void
cn_infer_job_done(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_infer_done done = {.replayed = answer->flags & CN_ANSWER_REPLAYED};
    enum cn_infer_response kind = kind_of(answer);

    if (!queue->infer || (job->forward && !job->worker))
        return;
    if (is_no_inference(job, answer) && !(job->phase == CN_JOB_PROBING && answer->error_code))
        /* A step that was refused because its sequence does not exist counts, though it only
         * asked. */
        return;
    if (job->arrived_us) /* otherwise its client left before the queue looked at it */
        done.total_us = cn_loop_now_us(queue->loop) - job->arrived_us;
    if (kind == CN_RESPONSE_CANCELED || kind == CN_RESPONSE_FAILED) {
        cn_infer_failed(queue->infer,
                        kind == CN_RESPONSE_CANCELED ? CN_INFER_CANCELED
                        : !job->worker               ? CN_INFER_REJECTED
                        : job->last_call             ? CN_INFER_BACKEND
                                                     : CN_INFER_OTHER,
                        done.total_us);
        return;
    }
    done.batch = cn_tensor_batch(&job->row, queue->config.io->max_batch_size);
    done.queue_us = done.replayed ? done.total_us : job->queued_us;
    for (unsigned i = 0; i < CN_INFER_N_PHASES; i++)
        done.phase_us[i] = job->phase_us[i];
    cn_infer_succeeded(queue->infer, &done);
}
