/* handlers/samples.h - what a handler measures under names of its own, until the next REPORT.
 *
 * A runtime's first member holds them; both runtimes fill them by the same rules. A handler that
 * measures nothing costs nothing. Worker's thread.
 */
#ifndef CN_HANDLERS_SAMPLES_H
#define CN_HANDLERS_SAMPLES_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/frame.h"

#define CN_SAMPLE_NAME_MAX 128 /* bytes of a metric's or a dimension's name */
#define CN_SAMPLE_UNIT_MAX 64
#define CN_SAMPLE_VALUE_MAX 256 /* of a dimension */
#define CN_SAMPLE_DIMS_MAX 8
/* Of all samples of a report. A frame must have room for it beside the ids of a batch. */
#define CN_SAMPLES_BYTES_MAX (256u << 10)

struct cn_samples {
    struct cn_arena arena; /* names and values */
    struct cn_sample *list;
    uint32_t n, cap, max; /* max: samples of a report */
    size_t bytes;
    const char *model, *version; /* for the log; borrowed */
    uint64_t told_ms;            /* of a sample that was not taken; 0: never */
};

/* `load` must outlive the samples. */
void cn_samples_init(struct cn_samples *samples, const struct cn_load *load);
void cn_samples_fini(struct cn_samples *samples);
/* They were sent. */
void cn_samples_clear(struct cn_samples *samples);

/* Copies the sample; its dimensions get the order of their names. An empty unit is "Count".
 * CN_E_HANDLER_FAILED: names and values that no metric may have, said with the value and the rule.
 * CN_E_QUEUE_FULL: the report has its fill (handler.metrics.samples). */
int cn_samples_add(struct cn_samples *samples, const struct cn_sample *sample,
                   struct cn_error *err);
/* A line in the log that a sample was not taken; one a minute at most. */
void cn_samples_log(struct cn_samples *samples, const struct cn_error *why);

#endif
