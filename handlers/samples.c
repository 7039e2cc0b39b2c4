/* handlers/samples.c - checks the samples that a handler records for its own metrics, and keeps
 * copies of them for the next REPORT. Worker's thread.
 *
 * Samples end up as series on /metrics, so a careless handler could do three kinds of harm, and
 * each is prevented here: a name or label that no reader of the text format takes, a label that the
 * server itself sets, and more memory than a report may have. Names and values are copied to an
 * arena, which is cleared when the report has been sent. The number of different series is limited
 * by the server (metrics/), which alone knows those of all workers.
 */
#include "handlers/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"
#include "torchserve/metrics/metric_lines.h"

#define FIRST_CAP 16
#define SAMPLES_MAX 100000
#define LOG_EVERY_MS 60000

void
cn_samples_init(struct cn_samples *samples, const struct cn_load *load)
{
    memset(samples, 0, sizeof(*samples));
    cn_arena_init(&samples->arena);
    samples->max = load->samples_max < SAMPLES_MAX ? (uint32_t)load->samples_max : SAMPLES_MAX;
    samples->model = load->model_name ? load->model_name : "";
    samples->version = load->model_version ? load->model_version : "";
}

void
cn_samples_fini(struct cn_samples *samples)
{
    cn_arena_fini(&samples->arena);
    cn_free(samples->list);
    samples->list = NULL;
    samples->n = samples->cap = 0;
}

void
cn_samples_clear(struct cn_samples *samples)
{
    cn_arena_fini(&samples->arena);
    samples->n = 0;
    samples->bytes = 0;
}

/* Is it a name that Prometheus accepts without quotes: letters, digits and _, no digit first? */
static bool
is_name(struct cn_str text)
{
    if (text.len == 0 || text.len > CN_SAMPLE_NAME_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';

        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return true;
}

static bool
is_unit(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~' || strchr("\"\\|#:,", text.ptr[i]))
            return false;
    return text.len <= CN_SAMPLE_UNIT_MAX;
}

static bool
is_value(struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == '\x7f')
            return false;
    return text.len <= CN_SAMPLE_VALUE_MAX && cn_utf8_is_valid(text);
}

/* Is it a label that the server sets, or one with a meaning in the text format? */
static bool
is_reserved_dim(struct cn_str name)
{
    static const char *const words[] = {"ModelName", "Level", "Hostname", "le"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (cn_str_eq(name, cn_str_from(words[i])))
            return true;
    return name.len >= 2 && memcmp(name.ptr, "__", 2) == 0;
}

/* Copies a text for a message, without unprintable bytes, and cut. */
static const char *
shown(struct cn_str text, char out[80])
{
    size_t n = 0;

    for (size_t i = 0; i < text.len && n < 79; i++)
        out[n++] = text.ptr[i] >= ' ' && text.ptr[i] <= '~' ? text.ptr[i] : '?';
    out[n] = '\0';
    return out;
}

static int
check_dims(const struct cn_sample *sample, struct cn_error *err)
{
    char name[80], dim[80];

    shown(sample->name, name);
    if (sample->n_dims > CN_SAMPLE_DIMS_MAX)
        return cn_fail(err, CN_E_HANDLER_FAILED, "metric %s has %u dimensions; the limit is %d",
                       name, sample->n_dims, CN_SAMPLE_DIMS_MAX);
    for (uint32_t i = 0; i < sample->n_dims; i++) {
        const struct cn_header *at = &sample->dims[i];

        if (!is_name(at->name))
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "metric %s has a dimension \"%s\": a name has at most %d letters, "
                           "digits and _, and does not begin with a digit",
                           name, shown(at->name, dim), CN_SAMPLE_NAME_MAX);
        if (is_reserved_dim(at->name))
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "metric %s has a dimension %s, which a handler cannot set: the server "
                           "adds ModelName, Level and Hostname",
                           name, shown(at->name, dim));
        if (!is_value(at->value))
            return cn_fail(err, CN_E_HANDLER_FAILED,
                           "metric %s: the value of dimension %s must be UTF-8 of at most %d bytes "
                           "without control characters",
                           name, shown(at->name, dim), CN_SAMPLE_VALUE_MAX);
        for (uint32_t j = 0; j < i; j++)
            if (cn_str_eq(at->name, sample->dims[j].name))
                return cn_fail(err, CN_E_HANDLER_FAILED, "metric %s has dimension %s twice", name,
                               shown(at->name, dim));
    }
    return 0;
}

static int
check(const struct cn_sample *sample, struct cn_error *err)
{
    char name[80], unit[80];

    shown(sample->name, name);
    if (!is_name(sample->name))
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "\"%s\" cannot be the name of a metric: a name has at most %d letters, "
                       "digits and _, and does not begin with a digit",
                       name, CN_SAMPLE_NAME_MAX);
    if (cn_ts_is_own(sample->name))
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "metric %s is one of the server's own: choose another name", name);
    if (!is_unit(sample->unit))
        return cn_fail(err, CN_E_HANDLER_FAILED,
                       "metric %s: \"%s\" is not a unit: it must be a word of at most %d bytes",
                       name, shown(sample->unit, unit), CN_SAMPLE_UNIT_MAX);
    if (!isfinite(sample->value))
        return cn_fail(err, CN_E_HANDLER_FAILED, "metric %s: the value is not a finite number",
                       name);
    if (sample->type == CN_SAMPLE_COUNTER && sample->value < 0)
        return cn_fail(err, CN_E_HANDLER_FAILED, "metric %s: a counter cannot decrease by %g", name,
                       -sample->value);
    return check_dims(sample, err);
}

static size_t
bytes_of(const struct cn_sample *sample)
{
    size_t bytes = 32 + sample->name.len + sample->unit.len;

    for (uint32_t i = 0; i < sample->n_dims; i++)
        bytes += 8 + sample->dims[i].name.len + sample->dims[i].value.len;
    return bytes;
}

static int
by_name(const void *a_, const void *b_)
{
    const struct cn_header *a = a_, *b = b_;
    size_t len = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = memcmp(a->name.ptr, b->name.ptr, len);

    return order ? order : (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static int
grow(struct cn_samples *samples)
{
    uint32_t cap = samples->cap ? 2 * samples->cap : FIRST_CAP;
    void *list = cn_try_realloc(samples->list, cap * sizeof(*samples->list));

    if (!list)
        return -1;
    samples->list = list;
    samples->cap = cap;
    return 0;
}

int
cn_samples_add(struct cn_samples *samples, const struct cn_sample *sample, struct cn_error *err)
{
    struct cn_sample *copy;
    int rc = check(sample, err);

    if (rc)
        return rc;
    if (samples->n == samples->max || samples->bytes + bytes_of(sample) > CN_SAMPLES_BYTES_MAX)
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "a handler call may report at most %u samples (handler.metrics.samples) and "
                       "%u bytes of them",
                       samples->max, CN_SAMPLES_BYTES_MAX);
    if (samples->n == samples->cap && grow(samples) < 0)
        return cn_fail(err, CN_E_QUEUE_FULL, "not enough memory for the handler's samples");
    samples->bytes += bytes_of(sample);
    copy = &samples->list[samples->n++];
    *copy = *sample;
    copy->name = cn_arena_str(&samples->arena, sample->name);
    copy->unit = sample->unit.len ? cn_arena_str(&samples->arena, sample->unit) : CN_STR("Count");
    copy->dims = cn_arena_alloc(&samples->arena, (sample->n_dims + 1) * sizeof(*copy->dims));
    for (uint32_t i = 0; i < sample->n_dims; i++) {
        copy->dims[i].name = cn_arena_str(&samples->arena, sample->dims[i].name);
        copy->dims[i].value = cn_arena_str(&samples->arena, sample->dims[i].value);
    }
    qsort(copy->dims, copy->n_dims, sizeof(*copy->dims), by_name);
    return 0;
}

void
cn_samples_log(struct cn_samples *samples, const struct cn_error *why)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];
    uint64_t now_ms = cn_now_ms();

    if (samples->told_ms && now_ms - samples->told_ms < LOG_EVERY_MS)
        return;
    samples->told_ms = now_ms ? now_ms : 1;
    cn_log(CN_LOG_WARN, "event=handler_metric_refused model=%s version=%s reason=%s",
           samples->model, samples->version,
           cn_log_quote(why->message, strlen(why->message), quoted, sizeof(quoted)));
}
