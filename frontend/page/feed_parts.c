/* frontend/page/feed_parts.c - descriptions, findings and log lines for the feed.
 *
 * The findings are those of continuo-ctl doctor: the same rules (doctor/) look at the same JSON. So
 * the page and the command never disagree. */
#include "frontend/page/feed_parts.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "doctor/doctor.h"
#include "management/api/json/json_text.h"

#define WORKERS_MAX 64

json_t *
cn_feed_server(const struct cn_server_config *config)
{
    json_t *out = json_object();

    json_object_set_new(out, "version", json_string(CN_VERSION));
    json_object_set_new(out, "pid", json_integer((json_int_t)getpid()));
    json_object_set_new(out, "readOnly", json_boolean(config->page == CN_PAGE_READ_ONLY));
    json_object_set_new(out, "intervalMSec", json_integer((json_int_t)config->page_interval_ms));
    json_object_set_new(out, "maxShown", json_integer((json_int_t)config->page_models));
    json_object_set_new(out, "modelApi", json_boolean(config->model_api));
    json_object_set_new(out, "inference", cn_json_text(config->inference_address));
    return out;
}

/* How often steps of the version ended with an error, by the error's word. */
static json_t *
errors_json(const struct cn_metrics *metrics)
{
    json_t *out = json_object();

    for (unsigned i = 0; i < CN_VALUES_ERRORS; i++) {
        const uint64_t n =
            atomic_load_explicit(&metrics->values[CN_M_JOB_ERRORS_AT_ + i], memory_order_relaxed);

        if (n)
            json_object_set_new(out, cn_error_info(CN_E_FIRST_ + 1 + (int)i)->word,
                                json_integer((json_int_t)n));
    }
    return out;
}

/* A model may have a thousand workers; those that are not ready are the ones to see. */
static json_t *
some_workers(const json_t *workers)
{
    json_t *out = json_array(), *worker;
    size_t i;

    for (int pass = 0; pass < 2; pass++) {
        json_array_foreach(workers, i, worker)
        {
            const char *state = json_string_value(json_object_get(worker, "state"));
            const bool is_ready = state && strcmp(state, "ready") == 0;

            if (is_ready == (pass == 1) && json_array_size(out) < WORKERS_MAX)
                json_array_append(out, worker);
        }
    }
    return out;
}

json_t *
cn_feed_version(const struct cn_watched *watched)
{
    json_t *out = json_copy(watched->about), *workers = json_object_get(out, "workers"), *worker;
    unsigned n_ready = 0;
    size_t i;

    json_array_foreach(workers, i, worker)
    {
        const char *status = json_string_value(json_object_get(worker, "status"));

        n_ready += status && strcmp(status, "READY") == 0;
    }
    json_object_set_new(out, "workersReady", json_integer(n_ready));
    json_object_set_new(out, "workersAll", json_integer((json_int_t)json_array_size(workers)));
    json_object_set_new(out, "default", json_boolean(watched->is_default));
    json_object_set_new(out, "errors", errors_json(watched->metrics));
    json_object_set_new(
        out, "workerBytes",
        json_integer((json_int_t)cn_metrics_get(watched->metrics, CN_M_WORKER_BYTES)));
    json_object_set_new(
        out, "storedBytes",
        json_integer((json_int_t)cn_metrics_get(watched->metrics, CN_M_STATE_STORED_BYTES)));
    json_object_set_new(
        out, "stored",
        json_integer((json_int_t)cn_metrics_get(watched->metrics, CN_M_STATES_STORED)));
    if (json_array_size(workers) > WORKERS_MAX)
        json_object_set_new(out, "workers", some_workers(workers));
    return out;
}

static void
take_reason(void *ctx, const char *kind, const char *subject, const char *text)
{
    struct cn_ctl_view *view = ctx;

    if (view->n_reasons < CN_CTL_REASONS_MAX)
        view->reasons[view->n_reasons++] = (struct cn_ctl_reason){kind, subject, text};
}

json_t *
cn_feed_findings(struct cn_management *management, const struct cn_watched *versions, unsigned n,
                 const uint64_t metrics[CN_METRIC_COUNT], const char *address)
{
    struct cn_ctl_diagnosis *diagnosis = cn_alloc(sizeof *diagnosis);
    struct cn_ctl_view view;
    json_t *out, *one;

    cn_ctl_view_init(&view);
    for (unsigned i = 0; i < n; i++) {
        one = json_array();
        json_array_append(one, versions[i].about);
        /* Our own description has the right form, so this cannot fail. */
        cn_ctl_view_add_value(&view, one, versions[i].is_default ? versions[i].version : "", NULL);
        json_decref(one);
    }
    cn_management_each_reason(management, take_reason, &view);
    memcpy(view.metrics, metrics, sizeof view.metrics);
    view.has_metrics = true;
    cn_ctl_diagnosis_init(diagnosis);
    cn_ctl_diagnose(diagnosis, &view, address, cn_wall_ms());
    one = cn_ctl_diagnosis_value(diagnosis, address);
    out = json_incref(json_object_get(one, "findings"));
    json_decref(one);
    cn_ctl_diagnosis_fini(diagnosis);
    cn_ctl_view_fini(&view);
    cn_free(diagnosis);
    return out;
}

static void
take_line(void *ctx, uint64_t number, enum cn_log_level level, const char *text)
{
    static const char *const words[] = {"error", "warn", "info", "debug"};
    json_t *line = json_array();

    json_array_append_new(line, json_integer((json_int_t)number));
    json_array_append_new(line, json_string(words[level]));
    json_array_append_new(line, cn_json_text(text));
    json_array_append_new(ctx, line);
}

uint64_t
cn_feed_lines(enum cn_log_tail_kind kind, uint64_t after, unsigned most, json_t *lines)
{
    return cn_log_tail_read(kind, after, most, take_line, lines);
}
