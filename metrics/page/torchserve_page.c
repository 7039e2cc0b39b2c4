/* metrics/page/torchserve_page.c - TorchServe's default set of metrics, in its form: HELP texts, a
 * comma behind the last label, values with a point. On loop 0. */
#include "metrics/page/torchserve_page.h"

#include <stdio.h>
#include <string.h>

#include "torchserve/metrics/metric_lines.h"

struct page {
    const struct cn_metrics *const *loops;
    unsigned n_loops;
    const struct cn_model_counted *models;
    unsigned n_models;
    const struct cn_metric_filter *filter;
    struct cn_buf *out;
};

static bool
begin(struct page *page, const char *name, const char *type, const char *unit)
{
    if (!cn_metric_wanted(page->filter, name) || !cn_ts_is_shown(cn_str_from(name)))
        return false;
    cn_buf_printf(page->out,
                  "# HELP %s Torchserve prometheus %s metric with unit: %s\n# TYPE %s %s\n", name,
                  type, unit, name, type);
    return true;
}

static void
put_label(struct cn_buf *out, const char *name, const char *value)
{
    cn_buf_printf(out, "%s=\"", name);
    cn_metrics_put_label(out, cn_str_from(value));
    cn_buf_puts(out, "\",");
}

static void
put_host(struct page *page, const char *name, double value)
{
    cn_buf_printf(page->out, "%s{", name);
    put_label(page->out, "Level", "Host");
    put_label(page->out, "Hostname", cn_ts_host());
    cn_metrics_put_value(page->out, value);
}

/* The numbers of answers by the first digit of their status, summed over the loops. */
static void
print_statuses(struct page *page)
{
    static const struct {
        const char *name;
        enum cn_metric metric;
    } rows[] = {{"Requests2XX", CN_M_HTTP_2XX},
                {"Requests4XX", CN_M_HTTP_4XX},
                {"Requests5XX", CN_M_HTTP_OTHER}};
    unsigned r, i;

    for (r = 0; r < 3; r++) {
        uint64_t sum = 0;

        for (i = 0; i < page->n_loops; i++)
            sum += cn_metrics_get(page->loops[i], rows[r].metric);
        if (begin(page, rows[r].name, "counter", "Count"))
            put_host(page, rows[r].name, (double)sum);
    }
}

/* Appends a sample of one model: `version` is the version that requests named, or "default" for all
 * that named none. */
static void
put_model(struct page *page, const char *name, const char *model, const char *version,
          uint64_t value)
{
    cn_buf_printf(page->out, "%s{", name);
    put_label(page->out, "model_name", model);
    put_label(page->out, "model_version", version);
    put_label(page->out, "hostname", cn_ts_host());
    cn_metrics_put_value(page->out, (double)value);
}

/* Prints one sample for each version that was asked for by name, and one named "default" for
 * requests without a version. The versions of a model are neighbours in the list. */
static void
print_by_model(struct page *page, const char *name, const char *unit, enum cn_metric metric)
{
    uint64_t unversioned = 0, named;
    bool has_unversioned = false;
    unsigned i;

    if (!begin(page, name, "counter", unit))
        return;
    for (i = 0; i < page->n_models; i++) {
        const struct cn_model_counted *model = &page->models[i];

        unversioned += cn_metrics_get_named(model->metrics, metric, false);
        has_unversioned |= cn_metrics_get_named(model->metrics, CN_M_TS_REQUESTS, false) > 0;
        named = cn_metrics_get_named(model->metrics, metric, true);
        if (cn_metrics_get_named(model->metrics, CN_M_TS_REQUESTS, true))
            put_model(page, name, model->name, model->version, named);
        if (i + 1 < page->n_models && strcmp(page->models[i + 1].name, model->name) == 0)
            continue;
        if (has_unversioned)
            put_model(page, name, model->name, "default", unversioned);
        unversioned = 0;
        has_unversioned = false;
    }
}

/* Prints the value of the model that was measured last; `stamp` is the metric with the time of the
 * measurement. */
static void
print_last(struct page *page, const char *name, enum cn_metric metric, enum cn_metric stamp)
{
    const struct cn_metrics *newest = NULL;
    unsigned i;

    for (i = 0; i < page->n_models; i++) {
        const struct cn_metrics *metrics = page->models[i].metrics;

        if (cn_metrics_get(metrics, stamp) &&
            (!newest || cn_metrics_get(metrics, stamp) > cn_metrics_get(newest, stamp)))
            newest = metrics;
    }
    if (begin(page, name, "gauge", "Milliseconds") && newest)
        put_host(page, name, (double)cn_metrics_get(newest, metric));
}

/* The time that each worker took to load its model, under the worker names of TorchServe's logs:
 * W-NUMBER-MODEL_VERSION. */
static void
print_workers(struct page *page)
{
    char worker[700];
    unsigned m;
    uint32_t w;

    if (!begin(page, "WorkerLoadTime", "gauge", "Milliseconds"))
        return;
    for (m = 0; m < page->n_models; m++) {
        const struct cn_model_counted *model = &page->models[m];

        for (w = 0; w < model->n_workers; w++) {
            if (!model->workers[w].loaded)
                continue;
            snprintf(worker, sizeof(worker), "W-%u-%s_%s", model->workers[w].id, model->name,
                     model->version);
            cn_buf_puts(page->out, "WorkerLoadTime{");
            put_label(page->out, "WorkerName", worker);
            put_label(page->out, "Level", "Host");
            put_label(page->out, "Hostname", cn_ts_host());
            cn_metrics_put_value(page->out, (double)model->workers[w].load_ms);
        }
    }
}

/* Prints a handler's time by model name only, as TorchServe does: the newest value of all its
 * versions. */
static void
print_handler(struct page *page, const char *name)
{
    uint64_t stamp = 0, us = 0;
    unsigned i;

    if (!begin(page, name, "gauge", "ms"))
        return;
    for (i = 0; i < page->n_models; i++) {
        const struct cn_model_counted *model = &page->models[i];

        if (cn_metrics_get(model->metrics, CN_M_TS_HANDLER_STAMP) > stamp) {
            stamp = cn_metrics_get(model->metrics, CN_M_TS_HANDLER_STAMP);
            us = cn_metrics_get(model->metrics, CN_M_TS_HANDLER);
        }
        if (i + 1 < page->n_models && strcmp(page->models[i + 1].name, model->name) == 0)
            continue;
        if (stamp) {
            cn_buf_printf(page->out, "%s{", name);
            put_label(page->out, "ModelName", model->name);
            put_label(page->out, "Level", "Model");
            put_label(page->out, "Hostname", cn_ts_host());
            cn_metrics_put_value(page->out, (double)us / 1000);
        }
        stamp = 0;
    }
}

static void
print_system(struct page *page, struct cn_cpu_times *times)
{
    struct cn_system_metric metrics[CN_N_SYSTEM_METRICS];
    unsigned i;

    cn_system_metrics(times, metrics);
    for (i = 0; i < CN_N_SYSTEM_METRICS; i++)
        if (begin(page, metrics[i].name, "gauge", metrics[i].unit))
            put_host(page, metrics[i].name, metrics[i].value);
}

/* In mode LOG the page has nothing of this, in mode LEGACY only the first three families. */
void
cn_ts_print(const struct cn_metrics *const *loops, unsigned n_loops,
            const struct cn_model_counted *models, unsigned n_models, struct cn_cpu_times *times,
            const struct cn_metric_filter *filter, struct cn_buf *out)
{
    struct page page = {loops, n_loops, models, n_models, filter, out};

    if (cn_ts_mode() == CN_TS_LOG)
        return;
    print_by_model(&page, "ts_inference_requests_total", "Count", CN_M_TS_REQUESTS);
    print_by_model(&page, "ts_inference_latency_microseconds", "Microseconds", CN_M_TS_LATENCY);
    print_by_model(&page, "ts_queue_latency_microseconds", "Microseconds", CN_M_TS_QUEUE);
    if (cn_ts_mode() == CN_TS_LEGACY)
        return;
    print_statuses(&page);
    print_last(&page, "QueueTime", CN_M_TS_QUEUE_LAST, CN_M_TS_QUEUE_STAMP);
    print_last(&page, "WorkerThreadTime", CN_M_TS_WORKER_LAST, CN_M_TS_WORKER_STAMP);
    print_workers(&page);
    print_handler(&page, "HandlerTime");
    print_handler(&page, "PredictionTime");
    print_system(&page, times);
}

/* The timer's callback: logs each metric of the machine, then arms the timer again. */
static void
log_system(struct cn_timer *timer)
{
    struct cn_system_log *log = cn_container_of(timer, struct cn_system_log, timer);
    struct cn_system_metric metrics[CN_N_SYSTEM_METRICS];
    char name[64];
    unsigned i;

    cn_system_metrics(&log->times, metrics);
    for (i = 0; i < CN_N_SYSTEM_METRICS; i++) {
        snprintf(name, sizeof(name), "%s.%s", metrics[i].name, metrics[i].unit);
        cn_ts_log(CN_LOG_METRICS, name, metrics[i].value, "Level:Host", NULL);
    }
    cn_timer_set(cn_loop_wheel(log->loop), timer,
                 cn_loop_now_ms(log->loop) + log->interval_s * UINT64_C(1000));
}

void
cn_system_log_begin(struct cn_system_log *log, struct cn_loop *loop, uint32_t interval_s)
{
    log->loop = loop;
    log->interval_s = interval_s;
    cn_timer_init(&log->timer, log_system);
    if (interval_s && cn_ts_logs())
        cn_timer_set(cn_loop_wheel(loop), &log->timer, cn_loop_now_ms(loop) + 1000);
}

void
cn_system_log_end(struct cn_system_log *log)
{
    cn_timer_cancel(&log->timer);
}
