/* scheduler/queue/queue_metrics.c - TorchServe's metrics of requests and workers. On the model
 * queue's loop.
 *
 * The metrics for latency and queue time are counters that sum microseconds. QueueTime and
 * WorkerThreadTime hold the last value in milliseconds. If the metrics mode asks for log lines,
 * each change also writes one line.
 */
#include "torchserve/metrics/metric_lines.h"

#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "scheduler/queue/model_queue_priv.h"
#include "torchserve/settings/metrics_file.h"

#define DIMS_BYTES 700
#define LEFT_OUT_EVERY_MS 60000

static const char *
model_dims(const struct cn_model_queue *queue, const struct cn_job *job, char out[DIMS_BYTES])
{
    snprintf(out, DIMS_BYTES, "model_name:%.256s,model_version:%.256s", queue->name,
             job->named_version ? queue->version : "default");
    return out;
}

/* In legacy mode these counters stand on /metrics only. */
static void
log_sum(const struct cn_model_queue *queue, const struct cn_job *job, const char *name,
        double value)
{
    char dims[DIMS_BYTES];

    if (cn_ts_mode() == CN_TS_LOG)
        cn_ts_log(CN_LOG_METRICS, name, value, model_dims(queue, job, dims), NULL);
}

/* Else it asks for a description, which TorchServe counts nowhere. */
static bool
is_request(const struct cn_job *job)
{
    return !(job->row.flags & CN_ROW_DESCRIBE);
}

void
cn_ts_job_came(struct cn_model_queue *queue, const struct cn_job *job)
{
    if (!is_request(job))
        return;
    cn_metrics_add_named(&queue->metrics, CN_M_TS_REQUESTS, job->named_version, 1);
    log_sum(queue, job, "ts_inference_requests_total.Count", 1);
}

void
cn_ts_job_sent(struct cn_model_queue *queue, const struct cn_job *job)
{
    uint64_t now_us = cn_loop_now_us(queue->loop), us = now_us - job->arrived_us;

    if (!is_request(job))
        return;
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

    if (!is_request(job))
        return;
    cn_metrics_add_named(&queue->metrics, CN_M_TS_LATENCY, job->named_version, us);
    cn_metrics_set(&queue->metrics, CN_M_TS_WORKER_LAST, worker_ms);
    cn_metrics_set(&queue->metrics, CN_M_TS_WORKER_STAMP, now_us);
    if (!cn_ts_logs())
        return;
    log_sum(queue, job, "ts_inference_latency_microseconds.Microseconds", (double)us);
    cn_ts_log(CN_LOG_METRICS, "WorkerThreadTime.Milliseconds", (double)worker_ms, "Level:Host",
              NULL);
}

/* Sets the handler's time and writes one line for the whole batch. */
void
cn_ts_batch_done(struct cn_model_queue *queue, uint64_t handler_us, const char *request_ids)
{
    char dims[DIMS_BYTES];

    cn_metrics_set(&queue->metrics, CN_M_TS_HANDLER, handler_us);
    cn_metrics_set(&queue->metrics, CN_M_TS_HANDLER_STAMP, cn_loop_now_us(queue->loop));
    if (!cn_ts_logs())
        return;
    snprintf(dims, sizeof(dims), "ModelName:%.256s,Level:Model", queue->name);
    cn_ts_log(CN_LOG_MODEL_METRICS, "HandlerTime.ms", (double)handler_us / 1000, dims, request_ids);
    cn_ts_log(CN_LOG_MODEL_METRICS, "PredictionTime.ms", (double)handler_us / 1000, dims,
              request_ids);
}

/* The name of a unit as lines have it: the usual units are spelled out. */
static struct cn_str
spelled_out(struct cn_str unit)
{
    static const char *const words[][2] = {
        {"ms", "Milliseconds"}, {"s", "Seconds"},    {"us", "Microseconds"},
        {"percent", "Percent"}, {"B", "Bytes"},      {"kB", "Kilobytes"},
        {"MB", "Megabytes"},    {"GB", "Gigabytes"}, {"count", "Count"},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (cn_str_eq(unit, cn_str_from(words[i][0])))
            return cn_str_from(words[i][1]);
    return unit;
}

/* Writes a word of a line. Characters that would end a field become _. */
static void
put_word(struct cn_buf *out, struct cn_str word)
{
    for (size_t i = 0; i < word.len; i++)
        cn_buf_append(out, strchr("|#,:", word.ptr[i]) ? "_" : &word.ptr[i], 1);
}

static void
log_sample(const struct cn_model_queue *queue, const struct cn_sample *sample,
           const char *request_ids)
{
    struct cn_buf name, dims;

    cn_buf_init(&name, 0);
    cn_buf_init(&dims, 0);
    cn_buf_append_str(&name, sample->name);
    cn_buf_puts(&name, ".");
    put_word(&name, spelled_out(sample->unit));
    cn_buf_append(&name, "", 1);
    for (uint32_t i = 0; i < sample->n_dims; i++) {
        cn_buf_append_str(&dims, sample->dims[i].name);
        cn_buf_puts(&dims, ":");
        put_word(&dims, sample->dims[i].value);
        cn_buf_puts(&dims, ",");
    }
    cn_buf_printf(&dims, "ModelName:%.256s,Level:Model", queue->name);
    cn_buf_append(&dims, "", 1);
    if (!name.failed && !dims.failed)
        cn_ts_log(CN_LOG_MODEL_METRICS, name.data, sample->value, dims.data, request_ids);
    cn_buf_fini(&name);
    cn_buf_fini(&dims);
}

static void
tell_left_out(struct cn_model_queue *queue, const struct cn_error *why)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];
    uint64_t now_ms = cn_loop_now_ms(queue->loop);

    cn_metrics_add(&queue->metrics, CN_M_SAMPLES_DROPPED, 1);
    if (queue->sample_told_ms && now_ms - queue->sample_told_ms < LEFT_OUT_EVERY_MS)
        return;
    queue->sample_told_ms = now_ms ? now_ms : 1;
    cn_log(CN_LOG_WARN, "event=handler_metric_left_out model=%s version=%s reason=%s", queue->name,
           queue->version,
           cn_log_quote(why->message, strlen(why->message), quoted, sizeof(quoted)));
}

static bool
comes_by_itself(const char *dim)
{
    return strcmp(dim, "ModelName") == 0 || strcmp(dim, "Level") == 0 ||
           strcmp(dim, "Hostname") == 0;
}

/* Has the sample the rule's dimensions, no more and no less? */
static bool
dims_fit(const struct cn_metric_rule *rule, const struct cn_sample *sample)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < rule->n_dims; r++) {
        uint32_t i = 0;

        if (comes_by_itself(rule->dims[r]))
            continue;
        while (i < sample->n_dims && !cn_str_eq(sample->dims[i].name, cn_str_from(rule->dims[r])))
            i++;
        if (i == sample->n_dims)
            return false;
        n++;
    }
    return n == sample->n_dims;
}

/* Applies the rule of the metrics file to the sample, and gives it the rule's unit. */
static int
apply_rule(struct cn_sample *sample, struct cn_error *err)
{
    const struct cn_metrics_file *file = cn_metric_rules();
    const struct cn_metric_rule *rule = file ? cn_metrics_file_find(file, sample->name) : NULL;

    if (!file || (!rule && cn_metric_rules_auto_detect()))
        return 0;
    if (!rule || !rule->of_model)
        return cn_fail(err, CN_E_NOT_FOUND,
                       "metric %.*s is not among the model_metrics of the metrics file "
                       "(--metrics-auto-detect takes it all the same)",
                       CN_STR_ARG(sample->name));
    if ((int)rule->kind != (int)sample->type)
        return cn_fail(err, CN_E_CONFLICT, "metric %s is a %s in the metrics file, not a %s",
                       rule->name, cn_metric_kind_word(rule->kind),
                       cn_metric_kind_word((enum cn_metric_kind)sample->type));
    if (!dims_fit(rule, sample))
        return cn_fail(err, CN_E_CONFLICT, "metric %s has other dimensions in the metrics file",
                       rule->name);
    sample->unit = cn_str_from(rule->unit);
    return 0;
}

void
cn_ts_samples(struct cn_model_queue *queue, const struct cn_report *report, const char *request_ids)
{
    uint64_t now_us = cn_loop_now_us(queue->loop);
    struct cn_error why;

    for (uint32_t i = 0; i < report->n_samples; i++) {
        struct cn_sample sample = report->samples[i];
        int rc = apply_rule(&sample, &why);

        if (rc == 0 && cn_ts_logs())
            log_sample(queue, &sample, request_ids);
        else if (rc == 0)
            rc = cn_handler_metrics_add(&queue->handler_metrics, &sample, now_us, &why);
        if (rc != 0)
            tell_left_out(queue, &why);
    }
}
