/* metrics/page/handler_families.c - prints handlers' metrics in the form of TorchServe's page. On
 * loop 0.
 *
 * A reader of Prometheus' format refuses a page on which a family or a series appears twice. So the
 * series of all models are put into one list and sorted by name, model and labels: then a family's
 * series are neighbours, and so are the same series of two versions of a model, which are merged
 * into one.
 *
 * TorchServe adds the dimensions ModelName, Level and Hostname. metrics.yaml may leave out the
 * first two for a metric; without ModelName the series of all models are merged. */
#include "metrics/page/handler_families.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory/mem.h"
#include "metrics/series/handler_series.h"
#include "torchserve/metrics/metric_lines.h"
#include "torchserve/settings/metrics_file.h"

/* A series and the name of its model. The name is "" if metrics.yaml gives the metric no dimension
 * ModelName, so that the series of all models are one. The copies are ours, so they may be merged.
 */
struct entry {
    struct cn_series *series;
    const char *model;
};

/* Has the metric this one of the server's own dimensions? All are there if there is no metrics.yaml
 * or it does not name the metric. */
static bool
has_dimension(const struct cn_series *series, const char *dimension)
{
    const struct cn_metrics_file *file = cn_metric_rules();
    const struct cn_metric_rule *rule =
        file ? cn_metrics_file_find(file, cn_str_from(cn_series_name(series))) : NULL;

    if (!rule)
        return true;
    for (uint32_t i = 0; i < rule->n_dims; i++)
        if (strcmp(rule->dims[i], dimension) == 0)
            return true;
    return false;
}

static int
same_order(const struct entry *a, const struct entry *b)
{
    int order = strcmp(cn_series_name(a->series), cn_series_name(b->series));

    if (order == 0)
        order = strcmp(a->model, b->model);
    return order ? order : strcmp(cn_series_labels(a->series), cn_series_labels(b->series));
}

/* Within a series, types are ordered too, so that equal ones are neighbours. */
static int
by_family(const void *a_, const void *b_)
{
    const struct entry *a = a_, *b = b_;
    int order = same_order(a, b);

    return order ? order : (int)a->series->type - (int)b->series->type;
}

static unsigned
collect(const struct cn_model_counted *models, unsigned n_models,
        const struct cn_metric_filter *filter, struct entry *out)
{
    unsigned n = 0, m;
    uint32_t i;

    for (m = 0; m < n_models; m++)
        for (i = 0; i < models[m].series->n; i++)
            if (cn_metric_wanted(filter, cn_series_name(models[m].series->list[i])))
                out[n++] = (struct entry){
                    models[m].series->list[i],
                    has_dimension(models[m].series->list[i], "ModelName") ? models[m].name : ""};
    qsort(out, n, sizeof(*out), by_family);
    return n;
}

static void
put_labels(struct cn_buf *out, const struct entry *entry, const char *tail)
{
    cn_buf_printf(out, "%s%s{%s", cn_series_name(entry->series), tail,
                  cn_series_labels(entry->series));
    if (entry->model[0]) {
        cn_buf_puts(out, "ModelName=\"");
        cn_metrics_put_label(out, cn_str_from(entry->model));
        cn_buf_puts(out, "\",");
    }
    if (has_dimension(entry->series, "Level"))
        cn_buf_puts(out, "Level=\"Model\",");
    cn_buf_printf(out, "Hostname=\"%s\",", cn_ts_host());
}

static void
put_histogram(struct cn_buf *out, const struct entry *entry)
{
    uint64_t below = 0;
    unsigned i;

    for (i = 0; i <= CN_SERIES_BUCKETS; i++) {
        below += entry->series->counts[i];
        put_labels(out, entry, "_bucket");
        cn_buf_printf(out, "le=\"%s\",} %" PRIu64 "\n",
                      i < CN_SERIES_BUCKETS ? cn_series_bucket_end(i) : "+Inf", below);
    }
    put_labels(out, entry, "_sum");
    cn_metrics_put_value(out, entry->series->value);
    put_labels(out, entry, "_count");
    cn_buf_printf(out, "} %" PRIu64 "\n", below);
}

static void
put_head(struct cn_buf *out, const struct cn_series *series)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    cn_buf_printf(out, "# HELP %s Torchserve prometheus %s metric with unit: %s\n# TYPE %s %s\n",
                  cn_series_name(series), types[series->type], cn_series_unit(series),
                  cn_series_name(series), types[series->type]);
}

void
cn_handler_metrics_print(const struct cn_model_counted *models, unsigned n_models,
                         const struct cn_metric_filter *filter, struct cn_buf *out)
{
    const struct cn_series *family = NULL;
    const char *left_out = NULL;
    struct entry *entries;
    unsigned n = 0, i;

    for (i = 0; i < n_models; i++)
        n += models[i].series->n;
    if (n == 0)
        return;
    entries = cn_alloc(n * sizeof(*entries));
    n = collect(models, n_models, filter, entries);
    for (i = 0; i < n; i++) {
        struct entry *entry = &entries[i];

        if (!family || strcmp(cn_series_name(family), cn_series_name(entry->series)) != 0) {
            family = entry->series;
            left_out = NULL;
            put_head(out, family);
        }
        if (entry->series->type != family->type) {
            if (!left_out || strcmp(left_out, entry->model) != 0)
                cn_buf_printf(out, "# %s of model %s has another type and is left out\n",
                              cn_series_name(family), entry->model);
            left_out = entry->model;
            continue;
        }
        if (i + 1 < n && same_order(entry, &entries[i + 1]) == 0 &&
            entries[i + 1].series->type == entry->series->type) {
            cn_series_merge(entries[i + 1].series, entry->series);
            continue;
        }
        if (family->type == CN_SAMPLE_HISTOGRAM) {
            put_histogram(out, entry);
        } else {
            put_labels(out, entry, "");
            cn_metrics_put_value(out, entry->series->value);
        }
    }
    cn_free(entries);
}
