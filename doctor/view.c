/* doctor/view.c - turns the server's answers into a struct cn_ctl_view, which all commands show.
 *
 * The answers come over a network, and the server may be older or newer than this program. So
 * nothing but the outermost shape is required: a member that is missing or of another type counts
 * as 0 or empty. What is an error is a body that is not JSON, or not an array of models, because
 * then the address is probably that of another program.
 *
 * All texts are copied into the view's arena, so the JSON can be freed at once and the view is
 * freed in one go. The models are a list in the order of arrival; `end` points to where the next
 * one is hung in. */
#include "doctor/view.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_WORKERS 65536

void
cn_ctl_view_init(struct cn_ctl_view *view)
{
    *view = (struct cn_ctl_view){0};
    cn_arena_init(&view->arena);
    view->end = &view->models;
}

void
cn_ctl_view_fini(struct cn_ctl_view *view)
{
    cn_arena_fini(&view->arena);
    view->models = NULL;
    view->end = &view->models;
}

static uint64_t
number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 ? (uint64_t)value : 0;
}

static uint32_t
small(const json_t *object, const char *key)
{
    uint64_t value = number(object, key);

    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Copies a text into the view's arena. Returns `otherwise` if there is no text. */
static const char *
text_of(struct cn_ctl_view *view, const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? cn_arena_strndup(&view->arena, text, strlen(text)) : otherwise;
}

uint64_t
cn_ctl_parse_time(const char *text)
{
    struct tm when = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &when);
    time_t seconds = rest ? timegm(&when) : -1;

    if (seconds < 0)
        return 0;
    return (uint64_t)seconds * 1000 + (*rest == '.' ? strtoul(rest + 1, NULL, 10) % 1000 : 0);
}

static void
read_worker(struct cn_ctl_view *view, const json_t *from, struct cn_ctl_worker *worker)
{
    const json_t *busy = json_object_get(from, "busy");
    const char *id = json_string_value(json_object_get(from, "id"));
    const char *started = json_string_value(json_object_get(from, "startTime"));
    const char *status = json_string_value(json_object_get(from, "status"));

    worker->id = id ? (uint32_t)strtoul(id, NULL, 10) : 0;
    worker->index = small(from, "index");
    worker->restarts = small(from, "restarts");
    worker->pid = (int64_t)number(from, "pid");
    worker->ready = status && strcmp(status, "READY") == 0;
    worker->state = text_of(view, from, "state", worker->ready ? "ready" : "-");
    worker->last_exit = text_of(view, from, "lastExit", NULL);
    worker->warning = text_of(view, from, "warning", NULL);
    worker->walls_lacking = text_of(view, from, "wallsLacking", NULL);
    worker->limits_lacking = text_of(view, from, "limitsLacking", NULL);
    worker->started_wall_ms = started ? cn_ctl_parse_time(started) : 0;
    worker->rss_bytes = number(from, "memoryUsage");
    worker->live_sequences = number(from, "liveSequences");
    worker->busy_rows = number(busy, "rows");
    worker->busy_ms = number(busy, "forMSec");
    worker->busy_sequence = text_of(view, busy, "sequence", NULL);
}

static void
read_model(struct cn_ctl_view *view, const json_t *from, struct cn_ctl_model *model)
{
    const json_t *queue = json_object_get(from, "jobQueueStatus");
    const json_t *workers = json_object_get(from, "workers"), *worker;
    size_t i;

    model->name = text_of(view, from, "modelName", "");
    model->version = text_of(view, from, "modelVersion", "");
    model->url = text_of(view, from, "modelUrl", "");
    model->last_error = text_of(view, from, "lastError", NULL);
    model->reload_error = text_of(view, json_object_get(from, "failedReload"), "error", NULL);
    model->reload_since = text_of(view, json_object_get(from, "failedReload"), "since", "");
    model->stateful = json_is_true(json_object_get(from, "stateful"));
    model->scales = json_is_true(json_object_get(json_object_get(from, "scaling"), "automatic"));
    model->min_workers = small(from, "minWorkers");
    model->max_workers = small(from, "maxWorkers");
    model->waiting = number(queue, "pendingRequests");
    model->queue_size = model->waiting + number(queue, "remainingCapacity");
    model->in_flight = number(queue, "inFlight");
    model->live_sequences = number(from, "liveSequences");
    model->ids_missing =
        json_is_true(json_object_get(json_object_get(from, "sequences"), "idsMissing"));
    model->max_sequences = number(from, "maxNumSequence");
    model->steps = number(from, "steps");
    model->response_timeout_ms = (uint64_t)small(from, "responseTimeout") * 1000;
    model->mean_call_ms = json_number_value(json_object_get(from, "meanCallMSec"));
    model->n_workers = (uint32_t)json_array_size(workers);
    model->workers = cn_arena_alloc(&view->arena, sizeof(*model->workers) * (model->n_workers + 1));
    json_array_foreach(workers, i, worker)
    {
        read_worker(view, worker, &model->workers[i]);
        model->n_ready += model->workers[i].ready;
    }
}

int
cn_ctl_view_add_value(struct cn_ctl_view *view, const json_t *versions, const char *default_version,
                      struct cn_error *err)
{
    struct cn_ctl_model *model;
    json_t *version;
    size_t i;

    if (!json_is_array(versions))
        return cn_fail(err, CN_E_PROTOCOL,
                       "the description of a model is not a JSON array; is it a Continuo server?");
    json_array_foreach(versions, i, version)
    {
        if (!json_is_object(version) ||
            json_array_size(json_object_get(version, "workers")) > MAX_WORKERS)
            return cn_fail(err, CN_E_PROTOCOL, "entry %zu of a model's description is not a model",
                           i);
        model = cn_arena_alloc(&view->arena, sizeof *model);
        *model = (struct cn_ctl_model){0};
        read_model(view, version, model);
        model->is_default = default_version ? strcmp(default_version, model->version) == 0
                                            : json_array_size(versions) == 1;
        *view->end = model;
        view->end = &model->next;
    }
    return 0;
}

int
cn_ctl_view_add(struct cn_ctl_view *view, struct cn_str json, const char *default_version,
                struct cn_error *err)
{
    json_error_t why;
    json_t *versions = json_loadb(json.ptr ? json.ptr : "", json.len, 0, &why);
    int rc;

    if (!versions)
        return cn_fail(err, CN_E_PROTOCOL, "the description of a model is not valid JSON: %s",
                       why.text);
    rc = cn_ctl_view_add_value(view, versions, default_version, err);
    json_decref(versions);
    return rc;
}

/* Adds up each metric over its labels: `top` and the doctor want the sum of all models. A line is
 * NAME{LABELS} VALUE or NAME VALUE. Only metrics of metrics.def are kept, others are skipped. A
 * last line without its end was cut off, so its value may be, too; it is not counted. */
void
cn_ctl_view_add_metrics(struct cn_ctl_view *view, struct cn_str text)
{
    static const char *const names[] = {
#define CN_METRIC(id, scope, shape, name, help) name,
#include "metrics/counters/metrics.def"
#undef CN_METRIC
    };
    const char *at = text.ptr, *end = text.ptr + text.len, *stop, *space;
    char value[32];
    size_t m, len;

    for (; at < end; at = stop + 1) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop)
            return; /* a line without its end was cut off */
        space = memrchr(at, ' ', (size_t)(stop - at));
        if (*at == '#' || !space || (size_t)(stop - space) > sizeof value)
            continue;
        memcpy(value, space + 1, (size_t)(stop - space - 1));
        value[stop - space - 1] = '\0';
        for (m = 0; m < CN_METRIC_COUNT; m++) {
            len = strlen(names[m]);
            if (len > 0 && (size_t)(space - at) >= len && memcmp(at, names[m], len) == 0 &&
                (at[len] == ' ' || at[len] == '{')) {
                view->metrics[m] += strtoull(value, NULL, 10);
                view->has_metrics = true;
            }
        }
    }
}

/* Is the server healthy? Only the default version of each model counts, as for /ping: a version
 * that is being tried out, or scaled to zero, must not raise an alarm. */
struct cn_ctl_totals
cn_ctl_view_totals(const struct cn_ctl_view *view)
{
    struct cn_ctl_totals totals = {.healthy = view->n_reasons == 0};
    const struct cn_ctl_model *model;
    uint32_t i;

    for (model = view->models; model; model = model->next) {
        totals.n_models++;
        totals.ready += model->n_ready;
        totals.want += model->min_workers;
        totals.live_sequences += model->live_sequences;
        totals.waiting += model->waiting;
        totals.in_flight += model->in_flight;
        totals.steps += model->steps;
        for (i = 0; i < model->n_workers; i++)
            totals.restarts += model->workers[i].restarts;
        if (model->is_default && model->n_ready < model->min_workers)
            totals.healthy = false;
    }
    return totals;
}

const struct cn_ctl_model *
cn_ctl_view_find(const struct cn_ctl_view *view, const char *name, const char *version)
{
    const struct cn_ctl_model *model;

    for (model = view->models; model; model = model->next)
        if (strcmp(model->name, name) == 0 && strcmp(model->version, version) == 0)
            return model;
    return NULL;
}

/* Counters begin at 0 when the server starts. A counter that is smaller than before therefore means
 * a restart between the readings, and gives the rate 0. */
double
cn_ctl_rate(uint64_t before, uint64_t now, uint64_t us)
{
    return us == 0 || now < before ? 0 : (double)(now - before) * 1e6 / (double)us;
}
