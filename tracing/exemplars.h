/* tracing/exemplars.h - for each bucket of a model's step durations, the last traced step in it: a
 * way from a histogram to single traces. Any thread, one lock.
 *
 * The exporter's thread notes them, so a loop that ends a step does nothing for it. */
#ifndef CN_TRACING_EXEMPLARS_H
#define CN_TRACING_EXEMPLARS_H

#include "core/containers/buckets.h"
#include "core/text/str.h"
#include "tracing/trace.h"

#define CN_EXEMPLAR_BUCKETS (CN_DURATION_VALUES - 1)

struct cn_exemplar {
    char trace_id[2 * CN_TRACE_ID_BYTES + 1]; /* ""; there is none */
    uint64_t us;                              /* how long the step took */
    uint64_t wall_ms;                         /* when it ended */
};

void cn_exemplars_note(const struct cn_trace *trace, uint64_t wall_ms);
/* Copies those of a model version; they are empty if it has none. */
void cn_exemplars_read(struct cn_str model, struct cn_str version,
                       struct cn_exemplar out[CN_EXEMPLAR_BUCKETS]);

#endif
