/* ctl/show.c - tables and short texts for people: status, models, workers and top.
 *
 * Each function appends to a buffer and never prints, so that tests compare text, and `top` can put
 * a whole screen together before it writes it at once. Texts that come from the server go through
 * columns.c, which takes control characters out of them: a model's name must not be able to move
 * the terminal's cursor. */
#include "ctl/show.h"

#include "ctl/doctor_show.h"

#include <inttypes.h>

#include "core/time/clock.h"
#include "ctl/columns.h"

static uint64_t
restarts_of(const struct cn_ctl_model *model)
{
    uint64_t sum = 0;
    uint32_t i;

    for (i = 0; i < model->n_workers; i++)
        sum += model->workers[i].restarts;
    return sum;
}

void
cn_ctl_show_status(const struct cn_ctl_view *view, const char *server, struct cn_buf *out)
{
    struct cn_ctl_totals totals = cn_ctl_view_totals(view);

    cn_buf_printf(out, "server          %s\n", server);
    cn_buf_printf(out, "health          %s\n",
                  totals.healthy ? "healthy" : "unhealthy (continuo-ctl doctor says why)");
    cn_buf_printf(out, "models          %u\n", totals.n_models);
    cn_buf_printf(out, "workers ready   %" PRIu32 " of %" PRIu32 "\n", totals.ready, totals.want);
    cn_buf_printf(out, "live sequences  %" PRIu64 "\n", totals.live_sequences);
    cn_buf_printf(out, "steps           %" PRIu64 "\n", totals.steps);
    cn_buf_printf(out, "waiting         %" PRIu64 "\n", totals.waiting);
    cn_buf_printf(out, "in flight       %" PRIu64 "\n", totals.in_flight);
    cn_buf_printf(out, "restarts        %" PRIu64 "\n", totals.restarts);
}

static void
add_heads(struct cn_ctl_table *table, const char *const *heads)
{
    for (; *heads; heads++)
        cn_ctl_table_add(table, "%s", *heads);
}

void
cn_ctl_show_models(const struct cn_ctl_view *view, struct cn_buf *out)
{
    static const char *const heads[] = {"MODEL",   "VERSION",  "DEFAULT", "READY/MIN", "SEQUENCES",
                                        "WAITING", "INFLIGHT", "STEPS",   "RESTARTS",  NULL};
    const struct cn_ctl_model *model;
    struct cn_ctl_table table;

    cn_ctl_table_init(&table, "lllrrrrrr");
    add_heads(&table, heads);
    for (model = view->models; model; model = model->next) {
        cn_ctl_table_add(&table, "%s", model->name);
        cn_ctl_table_add(&table, "%s", model->version);
        cn_ctl_table_add(&table, "%s", model->is_default ? "yes" : "no");
        cn_ctl_table_add(&table, "%" PRIu32 "/%" PRIu32, model->n_ready, model->min_workers);
        cn_ctl_table_add(&table, "%" PRIu64, model->live_sequences);
        cn_ctl_table_add(&table, "%" PRIu64, model->waiting);
        cn_ctl_table_add(&table, "%" PRIu64, model->in_flight);
        cn_ctl_table_add(&table, "%" PRIu64, model->steps);
        cn_ctl_table_add(&table, "%" PRIu64, restarts_of(model));
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

/* A worker that has not reported its memory yet has 0 bytes; it is shown as a dash. */
static void
add_memory(struct cn_ctl_table *table, uint64_t bytes)
{
    struct cn_buf text;

    cn_buf_init(&text, 0);
    if (bytes)
        cn_ctl_put_bytes(&text, bytes);
    cn_ctl_table_add(table, "%.*s", bytes ? (int)text.len : 1, bytes ? text.data : "-");
    cn_buf_fini(&text);
}

static void
add_pid(struct cn_ctl_table *table, int64_t pid)
{
    if (pid)
        cn_ctl_table_add(table, "%" PRId64, pid);
    else
        cn_ctl_table_add(table, "-");
}

void
cn_ctl_show_workers(const struct cn_ctl_view *view, struct cn_buf *out)
{
    static const char *const heads[] = {"MODEL",     "VERSION", "WORKER",   "PID",   "STATE",
                                        "SEQUENCES", "MEMORY",  "RESTARTS", "SINCE", NULL};
    const struct cn_ctl_worker *worker;
    const struct cn_ctl_model *model;
    struct cn_ctl_table table;
    char since[25];

    cn_ctl_table_init(&table, "llrrlrrrl");
    add_heads(&table, heads);
    for (model = view->models; model; model = model->next) {
        for (worker = model->workers; worker < model->workers + model->n_workers; worker++) {
            cn_wall_format(worker->started_wall_ms, since);
            cn_ctl_table_add(&table, "%s", model->name);
            cn_ctl_table_add(&table, "%s", model->version);
            cn_ctl_table_add(&table, "%" PRIu32, worker->index);
            add_pid(&table, worker->pid);
            cn_ctl_table_add(&table, "%s", worker->state);
            cn_ctl_table_add(&table, "%" PRIu64, worker->live_sequences);
            add_memory(&table, worker->rss_bytes);
            cn_ctl_table_add(&table, "%" PRIu32, worker->restarts);
            cn_ctl_table_add(&table, "%s", worker->started_wall_ms ? since : "-");
        }
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

/* --- top */

static void
top_models(const struct cn_ctl_view *before, const struct cn_ctl_view *now, struct cn_buf *out)
{
    static const char *const heads[] = {"MODEL",   "VERSION",  "READY/MIN", "STEPS/S", "SEQUENCES",
                                        "WAITING", "INFLIGHT", "RESTARTS",  NULL};
    const struct cn_ctl_model *model, *old;
    struct cn_ctl_table table;

    cn_ctl_table_init(&table, "llrrrrrr");
    add_heads(&table, heads);
    for (model = now->models; model; model = model->next) {
        old = cn_ctl_view_find(before, model->name, model->version);
        cn_ctl_table_add(&table, "%s", model->name);
        cn_ctl_table_add(&table, "%s", model->version);
        cn_ctl_table_add(&table, "%" PRIu32 "/%" PRIu32, model->n_ready, model->min_workers);
        cn_ctl_table_add(&table, "%.0f",
                         old ? cn_ctl_rate(old->steps, model->steps, now->at_us - before->at_us)
                             : 0);
        cn_ctl_table_add(&table, "%" PRIu64, model->live_sequences);
        cn_ctl_table_add(&table, "%" PRIu64, model->waiting);
        cn_ctl_table_add(&table, "%" PRIu64, model->in_flight);
        cn_ctl_table_add(&table, "%" PRIu64, restarts_of(model));
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

static void
top_workers(const struct cn_ctl_view *now, struct cn_buf *out)
{
    static const char *const heads[] = {"WORKER", "PID",      "STATE", "SEQUENCES",
                                        "MEMORY", "RESTARTS", NULL};
    const struct cn_ctl_worker *worker;
    const struct cn_ctl_model *model;
    struct cn_ctl_table table;

    cn_ctl_table_init(&table, "lrlrrr");
    add_heads(&table, heads);
    for (model = now->models; model; model = model->next) {
        for (worker = model->workers; worker < model->workers + model->n_workers; worker++) {
            cn_ctl_table_add(&table, "%s/%s %" PRIu32, model->name, model->version, worker->index);
            add_pid(&table, worker->pid);
            cn_ctl_table_add(&table, "%s", worker->state);
            cn_ctl_table_add(&table, "%" PRIu64, worker->live_sequences);
            add_memory(&table, worker->rss_bytes);
            cn_ctl_table_add(&table, "%" PRIu32, worker->restarts);
        }
    }
    cn_ctl_table_print(&table, out);
    cn_ctl_table_fini(&table);
}

void
cn_ctl_show_top(const struct cn_ctl_view *before, const struct cn_ctl_view *now,
                const struct cn_ctl_diagnosis *diagnosis, const char *server, struct cn_buf *out)
{
    struct cn_ctl_totals was = cn_ctl_view_totals(before), is = cn_ctl_view_totals(now);

    cn_buf_printf(
        out, "%s  %s  workers %" PRIu32 "/%" PRIu32 "  sequences %" PRIu64 "  steps/s %.0f\n\n",
        server, is.healthy ? "healthy" : "unhealthy", is.ready, is.want, is.live_sequences,
        cn_ctl_rate(was.steps, is.steps, now->at_us - before->at_us));
    cn_ctl_diagnosis_brief(diagnosis, out);
    top_models(before, now, out);
    cn_buf_puts(out, "\n");
    top_workers(now, out);
}
