/* ctl/show_json.c - the same facts as show.c, as JSON for programs.
 *
 * The keys are part of what continuo-ctl promises (docs/compatibility.md): they may be added to,
 * but not renamed. A value that is not known is null, so that each object always has the same keys.
 * `top` writes one object to a line, so that a program can read the samples as they come; the other
 * commands write one indented document. */
#include <jansson.h>

#include "ctl/json_out.h"
#include "ctl/show.h"

static void
put(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *
number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static int
append_piece(const char *piece, size_t len, void *ctx)
{
    return cn_buf_append(ctx, piece, len);
}

void
cn_ctl_json_print(json_t *value, bool one_line, struct cn_buf *out)
{
    json_dump_callback(value, append_piece, out,
                       (one_line ? JSON_COMPACT : JSON_INDENT(2) | JSON_ENCODE_ANY) |
                           JSON_REAL_PRECISION(15)); /* as the server prints them */
    cn_buf_puts(out, "\n");
    json_decref(value);
}

static json_t *
text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *
worker_json(const struct cn_ctl_model *model, const struct cn_ctl_worker *worker)
{
    json_t *out = json_object();

    put(out, "model", json_string(model->name));
    put(out, "version", json_string(model->version));
    put(out, "worker", number(worker->index));
    put(out, "id", number(worker->id));
    put(out, "pid", number((uint64_t)worker->pid));
    put(out, "state", json_string(worker->state));
    put(out, "ready", json_boolean(worker->ready));
    put(out, "liveSequences", number(worker->live_sequences));
    put(out, "memoryBytes", number(worker->rss_bytes));
    put(out, "restarts", number(worker->restarts));
    put(out, "busyMSec", worker->busy_rows ? number(worker->busy_ms) : json_null());
    put(out, "lastExit", text_or_null(worker->last_exit));
    return out;
}

static json_t *
workers_json(const struct cn_ctl_view *view)
{
    const struct cn_ctl_model *model;
    json_t *out = json_array();
    uint32_t i;

    for (model = view->models; model; model = model->next)
        for (i = 0; i < model->n_workers; i++)
            json_array_append_new(out, worker_json(model, &model->workers[i]));
    return out;
}

static json_t *
model_json(const struct cn_ctl_model *model)
{
    json_t *out = json_object();
    uint64_t restarts = 0;
    uint32_t i;

    for (i = 0; i < model->n_workers; i++)
        restarts += model->workers[i].restarts;
    put(out, "model", json_string(model->name));
    put(out, "version", json_string(model->version));
    put(out, "default", json_boolean(model->is_default));
    put(out, "workersReady", number(model->n_ready));
    put(out, "minWorkers", number(model->min_workers));
    put(out, "maxWorkers", number(model->max_workers));
    put(out, "liveSequences", number(model->live_sequences));
    put(out, "waiting", number(model->waiting));
    put(out, "inFlight", number(model->in_flight));
    put(out, "steps", number(model->steps));
    put(out, "restarts", number(restarts));
    put(out, "lastError", text_or_null(model->last_error));
    return out;
}

void
cn_ctl_json_status(const struct cn_ctl_view *view, const char *server, struct cn_buf *out)
{
    struct cn_ctl_totals totals = cn_ctl_view_totals(view);
    json_t *value = json_object();

    put(value, "server", json_string(server));
    put(value, "healthy", json_boolean(totals.healthy));
    put(value, "models", number(totals.n_models));
    put(value, "workersReady", number(totals.ready));
    put(value, "workersExpected", number(totals.want));
    put(value, "liveSequences", number(totals.live_sequences));
    put(value, "steps", number(totals.steps));
    put(value, "waiting", number(totals.waiting));
    put(value, "inFlight", number(totals.in_flight));
    put(value, "restarts", number(totals.restarts));
    cn_ctl_json_print(value, false, out);
}

void
cn_ctl_json_models(const struct cn_ctl_view *view, struct cn_buf *out)
{
    const struct cn_ctl_model *model;
    json_t *value = json_array();

    for (model = view->models; model; model = model->next)
        json_array_append_new(value, model_json(model));
    cn_ctl_json_print(value, false, out);
}

void
cn_ctl_json_workers(const struct cn_ctl_view *view, struct cn_buf *out)
{
    cn_ctl_json_print(workers_json(view), false, out);
}

/* Rates come from two readings of the same counters. A model that was not there at the first
 * reading has the rate 0. */
void
cn_ctl_json_top(const struct cn_ctl_view *before, const struct cn_ctl_view *now, const char *server,
                struct cn_buf *out)
{
    uint64_t us = now->at_us - before->at_us;
    json_t *value = json_object(), *models = json_array(), *entry;
    const struct cn_ctl_model *model, *old;

    for (model = now->models; model; model = model->next) {
        old = cn_ctl_view_find(before, model->name, model->version);
        entry = model_json(model);
        put(entry, "stepsPerSecond",
            json_real(old ? cn_ctl_rate(old->steps, model->steps, us) : 0));
        json_array_append_new(models, entry);
    }
    put(value, "server", json_string(server));
    put(value, "seconds", json_real((double)us / 1e6));
    put(value, "models", models);
    put(value, "workers", workers_json(now));
    cn_ctl_json_print(value, true, out);
}

void
cn_ctl_json_error(const char *message, bool one_line, struct cn_buf *out)
{
    json_t *value = json_object(), *text = json_string(message);

    put(value, "error", text ? text : json_string("the message is not valid UTF-8"));
    cn_ctl_json_print(value, one_line, out);
}
