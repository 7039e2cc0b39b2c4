/* handlers/samples.h - the values that a handler measures under names of its own, kept until the
 * next REPORT.
 *
 * They lie in struct cn_runtime, and all runtimes fill them by the same rules. A handler that
 * measures nothing costs nothing. Worker's thread.
 */
#ifndef CN_HANDLERS_SAMPLES_H
#define CN_HANDLERS_SAMPLES_H

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "proto/frame.h"

#define CN_SAMPLE_NAME_MAX 128 /* bytes of a metric's or a dimension's name */
#define CN_SAMPLE_UNIT_MAX 64
#define CN_SAMPLE_VALUE_MAX 256 /* bytes of a dimension's value */
#define CN_SAMPLE_DIMS_MAX 8
/* The most bytes of all samples of a report. A frame must have room for them beside the ids of a
 * batch. */
#define CN_SAMPLES_BYTES_MAX (256u << 10)

struct cn_samples {
    struct cn_arena arena; /* names and values */
    struct cn_sample *list;
    uint32_t n, cap, max; /* max: samples of a report */
    size_t bytes;
    const char *model, *version; /* for the log; borrowed */
    uint64_t told_ms;            /* when a refused sample was logged last; 0: never */
};

/* `load` must outlive the samples. */
void cn_samples_init(struct cn_samples *samples, const struct cn_load *load);
void cn_samples_fini(struct cn_samples *samples);
/* Removes all samples, after they were sent. */
void cn_samples_clear(struct cn_samples *samples);

/* Copies the sample, and sorts its dimensions by their names. An empty unit becomes "Count".
 * Returns 0; CN_E_HANDLER_FAILED for a name or value that a metric must not have, with a message
 * that names the value and the rule; or CN_E_QUEUE_FULL when the report is full
 * (handler.metrics.samples). */
int cn_samples_add(struct cn_samples *samples, const struct cn_sample *sample,
                   struct cn_error *err);
/* Logs that a sample was refused, once a minute at most. */
void cn_samples_log(struct cn_samples *samples, const struct cn_error *why);

#endif
