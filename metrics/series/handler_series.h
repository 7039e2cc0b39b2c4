/* metrics/series/handler_series.h - metrics that a model's handler defines: what its workers'
 * samples come to.
 *
 * One set a model version, owned by its queue's loop, empty until the first sample; other threads
 * get copies. A series is a metric with certain values of its dimensions; how many there may be is
 * an option (handler.metrics.series), since handlers may make values of what clients send.
 */
#ifndef CN_METRICS_SERIES_HANDLER_SERIES_H
#define CN_METRICS_SERIES_HANDLER_SERIES_H

#include <stdint.h>

#include "core/containers/table.h"
#include "core/errors/error.h"
#include "proto/frame.h"

/* 1, 2.5 and 5 times the powers of ten from 0.001 to 10000: units differ widely. */
#define CN_SERIES_BUCKETS 24
/* The upper end of bucket `i`, as it stands in a label: "0.001". */
const char *cn_series_bucket_end(unsigned i);

struct cn_series {
    enum cn_sample_type type;
    uint32_t name_len, labels_len;
    double value;        /* a counter's and a histogram's sum; a gauge's last value */
    uint64_t changed_us; /* cn_now_us() */
    uint64_t counts[CN_SERIES_BUCKETS + 1]; /* of a histogram; the last: what is above all ends */
    /* Name, labels and unit, each with a NUL behind it. Labels: room="kitchen",side="left", in the
     * order of their names and with a comma behind each; escaped for the text format. */
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
    struct cn_table *series;   /* by name and labels; NULL: none yet */
    struct cn_table *families; /* the first series of each name, by it */
    uint32_t max_series;
};

/* Nothing is allocated. */
void cn_handler_metrics_init(struct cn_handler_metrics *metrics, uint32_t max_series);
void cn_handler_metrics_fini(struct cn_handler_metrics *metrics);
/* Counts the sample. CN_E_QUEUE_FULL: there are as many series as may be. CN_E_CONFLICT: the name
 * is another type's or unit's. */
int cn_handler_metrics_add(struct cn_handler_metrics *metrics, const struct cn_sample *sample,
                           uint64_t now_us, struct cn_error *err);

/* A copy of all series, in no order. */
struct cn_series_copy {
    uint32_t n;
    struct cn_series **list;
};
void cn_handler_metrics_copy(const struct cn_handler_metrics *metrics, struct cn_series_copy *out);
/* Harmless on zeroed memory. */
void cn_series_copy_fini(struct cn_series_copy *copy);
/* Counts `from` into `into`, a series of the same name, labels and type: sums, or the newer
 * gauge. */
void cn_series_merge(struct cn_series *into, const struct cn_series *from);

#endif
