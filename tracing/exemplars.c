/* tracing/exemplars.c - a table of the last traced step in each bucket. Any thread. */
#include "tracing/exemplars.h"

#include <pthread.h>

/* More versions than these have no exemplars until older ones are not traced any more. */
#define VERSIONS_MAX 256
#define NAME_MAX_BYTES 128

struct version {
    char model[NAME_MAX_BYTES], version[NAME_MAX_BYTES];
    uint64_t used; /* when it was noted last, counted in notes; 0: the place is free */
    struct cn_exemplar buckets[CN_EXEMPLAR_BUCKETS];
};

static struct {
    pthread_mutex_t lock;
    uint64_t notes;
    struct version versions[VERSIONS_MAX];
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Finds the version; else the place that was not used for the longest time. */
static struct version *
find(struct cn_str model, struct cn_str version, bool *found)
{
    struct version *oldest = &table.versions[0];

    for (size_t i = 0; i < VERSIONS_MAX; i++) {
        struct version *at = &table.versions[i];

        *found = at->used && cn_str_eq(cn_str_from(at->model), model) &&
                 cn_str_eq(cn_str_from(at->version), version);
        if (*found)
            return at;
        if (at->used < oldest->used)
            oldest = at;
    }
    return oldest;
}

void
cn_exemplars_note(const struct cn_trace *trace, uint64_t wall_ms)
{
    const struct cn_str model = cn_str_from(trace->model), version = cn_str_from(trace->version);
    const uint64_t us = trace->times.done_us - trace->times.arrived_us;
    char text[CN_TRACEPARENT_LEN + 1];
    struct cn_exemplar *exemplar;
    struct version *at;
    unsigned i = 0;
    bool found;

    /* The histogram counts steps that a worker answered. */
    if (!trace->times.sent_us || model.len >= NAME_MAX_BYTES || version.len >= NAME_MAX_BYTES)
        return;
    while (i < CN_EXEMPLAR_BUCKETS - 1 && us > cn_duration_ends_us[i])
        i++;
    pthread_mutex_lock(&table.lock);
    at = find(model, version, &found);
    if (!found) {
        memset(at, 0, sizeof(*at));
        memcpy(at->model, model.ptr, model.len);
        memcpy(at->version, version.ptr, version.len);
    }
    at->used = ++table.notes;
    exemplar = &at->buckets[i];
    cn_traceparent_write(trace->context.trace_id, trace->span_ids[0], 0, text);
    memcpy(exemplar->trace_id, text + 3, 2 * CN_TRACE_ID_BYTES);
    exemplar->us = us;
    exemplar->wall_ms = wall_ms;
    pthread_mutex_unlock(&table.lock);
}

void
cn_exemplars_read(struct cn_str model, struct cn_str version,
                  struct cn_exemplar out[CN_EXEMPLAR_BUCKETS])
{
    const struct version *at;
    bool found;

    pthread_mutex_lock(&table.lock);
    at = find(model, version, &found);
    if (found)
        memcpy(out, at->buckets, sizeof(at->buckets));
    else
        memset(out, 0, sizeof(at->buckets));
    pthread_mutex_unlock(&table.lock);
}
