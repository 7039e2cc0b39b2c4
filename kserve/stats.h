/* kserve/stats.h - the v2 protocol's statistics of model versions. Any thread. */
#ifndef CN_KSERVE_STATS_H
#define CN_KSERVE_STATS_H

#include "core/memory/buf.h"
#include "metrics/counters/infer_stats.h"

struct cn_v2_model_stats {
    const char *name, *version;
    struct cn_infer_counts counts;
};

/* Writes {"model_stats":[...]}. All numbers are unsigned integers, and every member is there, also
 * if it is zero. */
void cn_v2_write_stats(const struct cn_v2_model_stats *models, uint32_t n, struct cn_buf *out);

#endif
