/* metrics/series/handler_series.h - the metrics that a model's handler defines, added up from the
 * samples of its workers.
 *
 * There is one set for each model version. It belongs to its queue's loop and is empty until the
 * first sample; other threads get copies. A series is a metric with certain values of its
 * dimensions. Their number is limited by an option (handler.metrics.series), because handlers may
 * take the values from what clients send. */
#ifndef CN_METRICS_SERIES_HANDLER_SERIES_H
#define CN_METRICS_SERIES_HANDLER_SERIES_H

#include <stdint.h>

#include "core/containers/table.h"
#include "core/errors/error.h"
#include "proto/frame.h"

/* Buckets end at 1, 2.5 and 5 times the powers of ten from 0.001 to 10000, since the units of
 * handlers' metrics differ widely. */
#define CN_SERIES_BUCKETS 24
/* The upper end of bucket `i` as it is written in a label: "0.001". */
const char *cn_series_bucket_end(unsigned i);

struct cn_series {
    enum cn_sample_type type;
    uint32_t name_len, labels_len;
    double value;        /* the sum of a counter or a histogram, or the last value of a gauge */
    uint64_t changed_us; /* cn_now_us() */
    /* counts of a histogram's buckets; the last one counts what is above all ends */
    uint64_t counts[CN_SERIES_BUCKETS + 1];
    /* Name, labels and unit, each with a NUL behind it. The labels are room="kitchen",side="left",
     * in the order of their names, with a comma behind each, and escaped for the text format. */
    char text[];
};
static inline const char *
cn_series_name(const struct cn_series *series)
{
    return series->text;
}
static inline const char *
cn_series_labels(const struct cn_series *series)
{
    return series->text + series->name_len + 1;
}
static inline const char *
cn_series_unit(const struct cn_series *series)
{
    return cn_series_labels(series) + series->labels_len + 1;
}

struct cn_handler_metrics {
    struct cn_table *series;   /* by name and labels; NULL: there are none yet */
    struct cn_table *families; /* the first series of each name, by the name */
    uint32_t max_series;
};

/* Initialises an empty set, which allocates nothing yet. */
void cn_handler_metrics_init(struct cn_handler_metrics *metrics, uint32_t max_series);
void cn_handler_metrics_fini(struct cn_handler_metrics *metrics);
/* Counts a sample. CN_E_QUEUE_FULL: the set has max_series series already, and this would be a new
 * one. CN_E_CONFLICT: the metric has another type or unit. */
int cn_handler_metrics_add(struct cn_handler_metrics *metrics, const struct cn_sample *sample,
                           uint64_t now_us, struct cn_error *err);

/* A copy of all series, in any order. */
struct cn_series_copy {
    uint32_t n;
    struct cn_series **list;
};
void cn_handler_metrics_copy(const struct cn_handler_metrics *metrics, struct cn_series_copy *out);
/* Frees a copy. Does nothing on zeroed memory. */
void cn_series_copy_fini(struct cn_series_copy *copy);
/* Adds `from` to `into`, a series of the same name, labels and type: the sums, or the newer value
 * of a gauge. */
void cn_series_merge(struct cn_series *into, const struct cn_series *from);

#endif
