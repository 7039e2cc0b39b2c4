/* metrics/page/infer_metrics.c - Prometheus families named nv_..., from the same counters as the
 * statistics of the v2 protocol. On any loop.
 *
 * A row of `families` has the name, type and help text of a family and the function that reads its
 * value; a new family is a new row. Failures are printed apart, because they have one sample for
 * each reason. Durations are sums in microseconds, as Triton has them. */
#include "metrics/page/infer_metrics.h"

#include <inttypes.h>

#include "metrics/page/model_statistics.h"

struct family {
    const char *name, *type, *help;
    uint64_t (*value)(const struct cn_infer_counts *counts);
};

#define VALUE(name, field)                                                                         \
    static uint64_t name(const struct cn_infer_counts *counts)                                     \
    {                                                                                              \
        return counts->field;                                                                      \
    }
VALUE(success, success.count)
VALUE(inferences, inferences)
VALUE(executions, executions)
VALUE(total_us, success.us)
VALUE(queue_us, queue.us)
VALUE(input_us, phases[CN_INFER_INPUT].us)
VALUE(handler_us, phases[CN_INFER_HANDLER].us)
VALUE(output_us, phases[CN_INFER_OUTPUT].us)
VALUE(pending, pending)
#undef VALUE

static const struct family families[] = {
    {"nv_inference_request_success", "counter", "Successful requests", success},
    {"nv_inference_count", "counter", "Number of inferences; a request of batch size n counts as n",
     inferences},
    {"nv_inference_exec_count", "counter", "Number of handler calls", executions},
    {"nv_inference_request_duration_us", "counter",
     "Time of successful requests from arrival to answer", total_us},
    {"nv_inference_queue_duration_us", "counter",
     "Part of the request time spent waiting in the queue", queue_us},
    {"nv_inference_compute_input_duration_us", "counter",
     "Part of the request time spent before the handler call", input_us},
    {"nv_inference_compute_infer_duration_us", "counter",
     "Part of the request time spent in the handler", handler_us},
    {"nv_inference_compute_output_duration_us", "counter",
     "Part of the request time spent after the handler call", output_us},
    {"nv_inference_pending_request_count", "gauge", "Number of requests that wait for a worker",
     pending},
};

static void
put_labels(struct cn_buf *out, const char *name, const struct cn_v2_model_stats *model,
           const char *reason)
{
    cn_buf_printf(out, "%s{model=\"", name);
    cn_metrics_put_label(out, cn_str_from(model->name));
    if (reason)
        cn_buf_printf(out, "\",reason=\"%s", reason);
    cn_buf_puts(out, "\",version=\"");
    cn_metrics_put_label(out, cn_str_from(model->version));
    cn_buf_puts(out, "\"} ");
}

/* Appends the head of a family, unless the reader asked for other ones. */
static bool
begin(const struct cn_metric_filter *filter, const char *name, const char *type, const char *help,
      struct cn_buf *out)
{
    if (!cn_metric_wanted(filter, name))
        return false;
    cn_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
    return true;
}

/* Failures have a sample for each reason, also for reasons that never happened, so that a rate can
 * be computed from the first failure on. */
static void
put_failures(const struct cn_v2_model_stats *models, uint32_t n,
             const struct cn_metric_filter *filter, struct cn_buf *out)
{
    static const char name[] = "nv_inference_request_failure";

    if (!begin(filter, name, "counter", "Failed requests", out))
        return;
    for (uint32_t i = 0; i < n; i++)
        for (unsigned r = 0; r < CN_INFER_N_REASONS; r++) {
            put_labels(out, name, &models[i], cn_infer_reason_word((enum cn_infer_reason)r));
            cn_buf_printf(out, "%" PRIu64 "\n", models[i].counts.failures[r]);
        }
}

void
cn_infer_metrics_print(struct cn_management *management, const struct cn_metric_filter *filter,
                       struct cn_buf *out)
{
    struct cn_v2_model_stats *models;
    struct cn_arena arena;
    struct cn_error err;
    uint32_t n;

    cn_arena_init(&arena);
    if (cn_v2_stats_collect(management, CN_STR(""), CN_STR(""), &arena, &models, &n, &err) == 0 &&
        n > 0) {
        for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
            const struct family *family = &families[f];

            if (!begin(filter, family->name, family->type, family->help, out))
                continue;
            for (uint32_t i = 0; i < n; i++) {
                put_labels(out, family->name, &models[i], NULL);
                cn_buf_printf(out, "%" PRIu64 "\n", family->value(&models[i].counts));
            }
        }
        put_failures(models, n, filter, out);
    }
    cn_arena_fini(&arena);
}
