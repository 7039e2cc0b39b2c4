/* scheduler/ts_metrics.c - what TorchServe counts of requests and workers. On the model queue's loop.
 *
 * Latency and queue time are counters that sum microseconds; QueueTime and WorkerThreadTime hold the
 * last value in milliseconds. Where the mode wants lines, each moves with one.
 */
#include "core/ts_metrics.h"

#include <stdio.h>

#include "scheduler/model_queue_priv.h"

#define DIMS_BYTES 700

static const char *
model_dims(const struct cn_model_queue *queue, const struct cn_job *job, char out[DIMS_BYTES])
{
    snprintf(out, DIMS_BYTES, "model_name:%.256s,model_version:%.256s", queue->name,
             job->named_version ? queue->version : "default");
    return out;
}

/* In legacy mode those stand on /metrics. */
static void
log_sum(const struct cn_model_queue *queue, const struct cn_job *job, const char *name,
        double value)
{
    char dims[DIMS_BYTES];

    if (cn_ts_mode() == CN_TS_LOG)
        cn_ts_log(CN_LOG_METRICS, name, value, model_dims(queue, job, dims), NULL);
}

void
cn_ts_job_came(struct cn_model_queue *queue, const struct cn_job *job)
{
    cn_metrics_add_named(&queue->metrics, CN_M_TS_REQUESTS, job->named_version, 1);
    log_sum(queue, job, "ts_inference_requests_total.Count", 1);
}

void
cn_ts_job_sent(struct cn_model_queue *queue, const struct cn_job *job)
{
    uint64_t now_us = cn_loop_now_us(queue->loop), us = now_us - job->arrived_us;

    cn_metrics_add_named(&queue->metrics, CN_M_TS_QUEUE, job->named_version, us);
    cn_metrics_set(&queue->metrics, CN_M_TS_QUEUE_LAST, us / 1000);
    cn_metrics_set(&queue->metrics, CN_M_TS_QUEUE_STAMP, now_us);
    if (!cn_ts_logs())
        return;
    log_sum(queue, job, "ts_queue_latency_microseconds.Microseconds", (double)us);
    cn_ts_log(CN_LOG_METRICS, "QueueTime.Milliseconds", (double)(us / 1000), "Level:Host", NULL);
}

void
cn_ts_job_done(struct cn_model_queue *queue, const struct cn_job *job)
{
    uint64_t now_us = cn_loop_now_us(queue->loop), us = now_us - job->arrived_us;
    uint64_t worker_ms = cn_loop_now_ms(queue->loop) - job->sent_ms;

    cn_metrics_add_named(&queue->metrics, CN_M_TS_LATENCY, job->named_version, us);
    cn_metrics_set(&queue->metrics, CN_M_TS_WORKER_LAST, worker_ms);
    cn_metrics_set(&queue->metrics, CN_M_TS_WORKER_STAMP, now_us);
    if (!cn_ts_logs())
        return;
    log_sum(queue, job, "ts_inference_latency_microseconds.Microseconds", (double)us);
    cn_ts_log(CN_LOG_METRICS, "WorkerThreadTime.Milliseconds", (double)worker_ms, "Level:Host",
              NULL);
}

/* A line for the whole batch. */
void
cn_ts_batch_done(struct cn_model_queue *queue, uint64_t handler_us)
{
    char dims[DIMS_BYTES];

    cn_metrics_set(&queue->metrics, CN_M_TS_HANDLER, handler_us);
    cn_metrics_set(&queue->metrics, CN_M_TS_HANDLER_STAMP, cn_loop_now_us(queue->loop));
    if (!cn_ts_logs())
        return;
    snprintf(dims, sizeof(dims), "ModelName:%.256s,Level:Model", queue->name);
    cn_ts_log(CN_LOG_MODEL_METRICS, "HandlerTime.Milliseconds", (double)handler_us / 1000, dims,
              NULL);
    cn_ts_log(CN_LOG_MODEL_METRICS, "PredictionTime.Milliseconds", (double)handler_us / 1000, dims,
              NULL);
}
