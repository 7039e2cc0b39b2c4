/* core/metrics.c - counters of one loop. Written by that loop only, so a plain relaxed load and
 * store do: no locked instruction on a request's path. Read by any thread. */
#include "core/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>

static const struct {
    const char *name, *type, *help;
} infos[] = {
#define CN_METRIC(id, name, type, help) {name, type, help},
#include "core/metrics.def"
#undef CN_METRIC
};

void
cn_metrics_add(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n)
{
    uint64_t old = atomic_load_explicit(&metrics->values[metric], memory_order_relaxed);

    atomic_store_explicit(&metrics->values[metric], old + n, memory_order_relaxed);
}

void
cn_metrics_sub(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n)
{
    cn_metrics_add(metrics, metric, (uint64_t)0 - n);
}

uint64_t
cn_metrics_get(const struct cn_metrics *metrics, enum cn_metric metric)
{
    return atomic_load_explicit(&metrics->values[metric], memory_order_relaxed);
}

/* A gauge may be raised on one loop and lowered on another: single sets then wrap around, their
 * sum does not. */
void
cn_metrics_print(const struct cn_metrics *const *sets, unsigned count, struct cn_buf *out)
{
    unsigned m, i;

    for (m = 0; m < CN_METRIC_COUNT; m++) {
        uint64_t sum = 0;

        for (i = 0; i < count; i++)
            sum += cn_metrics_get(sets[i], (enum cn_metric)m);
        cn_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", infos[m].name,
                      infos[m].help, infos[m].name, infos[m].type, infos[m].name, sum);
    }
}
