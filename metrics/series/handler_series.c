/* metrics/series/handler_series.c - counts samples of handlers' metrics in series. On the model
 * queue's loop.
 *
 * A series' key is its name, a NUL and its labels, which are sorted by their names: samples with
 * the same dimensions in another order are then the same series. That text is also what /metrics
 * prints, so it is made once, when the series is new. The first series of each name is in a second
 * table and decides the type and unit of the whole family, because a reader of the text format
 * refuses a family with two types.
 *
 * The number of series is limited. A sample of a new series beyond the limit is refused with an
 * error, which the caller logs; samples of known series still count. */
#include "metrics/series/handler_series.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "metrics/counters/metrics.h"

static const struct {
    double value;
    const char *text;
} ends[CN_SERIES_BUCKETS] = {
    {0.001, "0.001"}, {0.0025, "0.0025"}, {0.005, "0.005"}, {0.01, "0.01"},   {0.025, "0.025"},
    {0.05, "0.05"},   {0.1, "0.1"},       {0.25, "0.25"},   {0.5, "0.5"},     {1, "1"},
    {2.5, "2.5"},     {5, "5"},           {10, "10"},       {25, "25"},       {50, "50"},
    {100, "100"},     {250, "250"},       {500, "500"},     {1000, "1000"},   {2500, "2500"},
    {5000, "5000"},   {10000, "10000"},   {25000, "25000"}, {50000, "50000"},
};

const char *
cn_series_bucket_end(unsigned i)
{
    return ends[i].text;
}

static struct cn_str
name_of(const void *item)
{
    const struct cn_series *series = item;

    return (struct cn_str){series->text, series->name_len};
}

static struct cn_str
key_of(const void *item)
{
    const struct cn_series *series = item;

    return (struct cn_str){series->text, series->name_len + 1 + series->labels_len};
}

void
cn_handler_metrics_init(struct cn_handler_metrics *metrics, uint32_t max_series)
{
    *metrics = (struct cn_handler_metrics){.max_series = max_series};
}

void
cn_handler_metrics_fini(struct cn_handler_metrics *metrics)
{
    struct cn_series *series;
    size_t cursor = 0;

    if (!metrics->series)
        return;
    cn_table_destroy(metrics->families);
    while ((series = cn_table_next(metrics->series, &cursor)))
        cn_free(series);
    cn_table_destroy(metrics->series);
    metrics->series = metrics->families = NULL;
}

/* Makes the text of a series: name, NUL, labels, NUL, unit, NUL. Returns the length of the labels.
 */
static uint32_t
put_text(struct cn_buf *out, const struct cn_sample *sample)
{
    size_t begun;
    uint32_t len, i;

    cn_buf_append_str(out, sample->name);
    cn_buf_append(out, "", 1);
    begun = out->len;
    for (i = 0; i < sample->n_dims; i++) {
        cn_buf_append_str(out, sample->dims[i].name);
        cn_buf_puts(out, "=\"");
        cn_metrics_put_label(out, sample->dims[i].value);
        cn_buf_puts(out, "\",");
    }
    len = (uint32_t)(out->len - begun);
    cn_buf_append(out, "", 1);
    cn_buf_append_str(out, sample->unit);
    cn_buf_append(out, "", 1);
    return len;
}

/* A metric keeps the type and the unit of its first sample. */
static int
check_family(const struct cn_handler_metrics *metrics, const struct cn_sample *sample,
             struct cn_error *err)
{
    static const char *const words[] = {"counter", "gauge", "histogram"};
    const struct cn_series *first = cn_table_find(metrics->families, sample->name);

    if (!first)
        return 0;
    if (first->type != sample->type)
        return cn_fail(err, CN_E_CONFLICT, "metric %.*s is already a %s, so it cannot be a %s",
                       CN_STR_ARG(sample->name), words[first->type], words[sample->type]);
    if (!cn_str_eq(cn_str_from(cn_series_unit(first)), sample->unit))
        return cn_fail(err, CN_E_CONFLICT,
                       "metric %.*s already has the unit %s, so it cannot have the unit %.*s",
                       CN_STR_ARG(sample->name), cn_series_unit(first), CN_STR_ARG(sample->unit));
    return 0;
}

/* Adds a series; `text` is its name, labels and unit. */
static struct cn_series *
make_series(struct cn_handler_metrics *metrics, const struct cn_sample *sample,
            const struct cn_buf *text, uint32_t labels_len)
{
    struct cn_series *series = cn_alloc(sizeof(*series) + text->len);

    series->type = sample->type;
    series->name_len = (uint32_t)sample->name.len;
    series->labels_len = labels_len;
    memcpy(series->text, text->data, text->len);
    cn_table_insert(metrics->series, series);
    if (!cn_table_find(metrics->families, sample->name))
        cn_table_insert(metrics->families, series);
    return series;
}

/* A counter and a histogram add up, a gauge keeps the last value. A value at a bucket's end belongs
 * to that bucket. */
static void
count(struct cn_series *series, double value, uint64_t now_us)
{
    unsigned i = 0;

    series->changed_us = now_us;
    if (series->type == CN_SAMPLE_GAUGE) {
        series->value = value;
        return;
    }
    series->value += value;
    if (series->type != CN_SAMPLE_HISTOGRAM)
        return;
    while (i < CN_SERIES_BUCKETS && value > ends[i].value)
        i++;
    series->counts[i]++;
}

int
cn_handler_metrics_add(struct cn_handler_metrics *metrics, const struct cn_sample *sample,
                       uint64_t now_us, struct cn_error *err)
{
    struct cn_series *series;
    struct cn_buf text;
    uint32_t labels_len;
    int rc;

    if (!metrics->series) {
        metrics->series = cn_table_create(key_of);
        metrics->families = cn_table_create(name_of);
    }
    if ((rc = check_family(metrics, sample, err)) != 0)
        return rc;
    cn_buf_init(&text, 0);
    labels_len = put_text(&text, sample);
    if (text.failed) {
        cn_buf_fini(&text);
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a metric's name");
    }
    series = cn_table_find(metrics->series,
                           (struct cn_str){text.data, sample->name.len + 1 + labels_len});
    if (!series && cn_table_count(metrics->series) < metrics->max_series)
        series = make_series(metrics, sample, &text, labels_len);
    cn_buf_fini(&text);
    if (!series)
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "the handler already has its maximum of %u metrics, where each combination "
                       "of dimension values counts (handler.metrics.series): %.*s is left out",
                       metrics->max_series, CN_STR_ARG(sample->name));
    count(series, sample->value, now_us);
    return 0;
}

/* Another thread must not read a series while this loop counts in it, so it gets copies. A series
 * is one block of memory with its text, so each copy is a single memcpy. */
void
cn_handler_metrics_copy(const struct cn_handler_metrics *metrics, struct cn_series_copy *out)
{
    struct cn_series *series;
    size_t cursor = 0;

    *out = (struct cn_series_copy){0};
    if (!metrics->series)
        return;
    out->list = cn_alloc(cn_table_count(metrics->series) * sizeof(*out->list) + 1);
    while ((series = cn_table_next(metrics->series, &cursor))) {
        size_t bytes = sizeof(*series) + series->name_len + series->labels_len + 3 +
                       strlen(cn_series_unit(series));
        struct cn_series *copy = cn_alloc(bytes);

        memcpy(copy, series, bytes);
        out->list[out->n++] = copy;
    }
}

void
cn_series_copy_fini(struct cn_series_copy *copy)
{
    for (uint32_t i = 0; i < copy->n; i++)
        cn_free(copy->list[i]);
    cn_free(copy->list);
    *copy = (struct cn_series_copy){0};
}

void
cn_series_merge(struct cn_series *into, const struct cn_series *from)
{
    unsigned i;

    if (into->type != CN_SAMPLE_GAUGE)
        into->value += from->value;
    else if (from->changed_us > into->changed_us)
        into->value = from->value;
    if (from->changed_us > into->changed_us)
        into->changed_us = from->changed_us;
    for (i = 0; i <= CN_SERIES_BUCKETS; i++)
        into->counts[i] += from->counts[i];
}
