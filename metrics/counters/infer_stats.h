/* metrics/counters/infer_stats.h - what a typed model counts of its requests, for the statistics of
 * the v2 protocol.
 *
 * Written by the model queue's loop only, with relaxed atomics and without a lock; read by any
 * thread. All durations are kept in microseconds. */
#ifndef CN_METRICS_COUNTERS_INFER_STATS_H
#define CN_METRICS_COUNTERS_INFER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/arena.h"

/* The batch sizes, and the positions of a request's responses, that are counted separately. Larger
 * ones count as the last. */
#define CN_INFER_BATCHES_MAX 4096
#define CN_INFER_RESPONSES_MAX 1024

/* The parts of a handler's call: before it (looking up states), the call itself, and after it (the
 * commit). */
enum cn_infer_phase { CN_INFER_INPUT, CN_INFER_HANDLER, CN_INFER_OUTPUT, CN_INFER_N_PHASES };

enum cn_infer_reason {
    CN_INFER_REJECTED, /* no worker got the request */
    CN_INFER_CANCELED,
    CN_INFER_BACKEND, /* the worker or the handler failed */
    CN_INFER_OTHER,
    CN_INFER_N_REASONS
};
/* The word of a reason in the metrics: "REJECTED", "CANCELED", "BACKEND" or "OTHER". */
const char *cn_infer_reason_word(enum cn_infer_reason reason);

struct cn_infer_stats;

/* Makes a set of counters, all 0, which cn_infer_stats_destroy frees. Never fails. */
struct cn_infer_stats *cn_infer_stats_create(void);
void cn_infer_stats_destroy(struct cn_infer_stats *stats);

/* --- On the queue's loop */

/* Counts a call of the handler. `batch` is the sum of its requests' batch sizes. */
void cn_infer_executed(struct cn_infer_stats *stats, uint32_t batch, uint64_t wall_ms,
                       const uint64_t phase_us[CN_INFER_N_PHASES]);
/* What is counted when a request has ended. */
struct cn_infer_done {
    uint32_t batch; /* its batch size; 0 counts as 1 */
    bool replayed;  /* answered from the stored answer, so nothing was computed */
    uint64_t total_us, queue_us;
    uint64_t phase_us[CN_INFER_N_PHASES];
};
void cn_infer_succeeded(struct cn_infer_stats *stats, const struct cn_infer_done *done);
void cn_infer_failed(struct cn_infer_stats *stats, enum cn_infer_reason reason, uint64_t total_us);
/* Counts the response at `position` of a request (from 0), with the phases of the call that made
 * it. */
enum cn_infer_response {
    CN_RESPONSE_DATA,
    CN_RESPONSE_EMPTY,
    CN_RESPONSE_FAILED,
    CN_RESPONSE_CANCELED
};
void cn_infer_response(struct cn_infer_stats *stats, uint32_t position, enum cn_infer_response kind,
                       const uint64_t phase_us[CN_INFER_N_PHASES]);
/* Sets the number of requests that are waiting. */
void cn_infer_set_pending(struct cn_infer_stats *stats, uint64_t pending);

/* --- Any thread */

struct cn_infer_sum {
    uint64_t count, us;
};
struct cn_infer_batch {
    uint32_t size;
    uint64_t executions;
    uint64_t phase_us[CN_INFER_N_PHASES];
};
struct cn_infer_position {
    struct cn_infer_sum handler, output, success, fail, empty, cancel;
};
/* A copy of all counters at one moment. The lists are in the arena. */
struct cn_infer_counts {
    uint64_t last_wall_ms; /* when the handler was called last; 0: never */
    uint64_t inferences, executions, pending;
    struct cn_infer_sum success, fail, queue, phases[CN_INFER_N_PHASES], hits;
    uint64_t failures[CN_INFER_N_REASONS];
    uint32_t n_batches, n_positions;
    struct cn_infer_batch *batches; /* in the order of sizes, without those that never ran */
    struct cn_infer_position *positions;
};
void cn_infer_read(const struct cn_infer_stats *stats, struct cn_arena *arena,
                   struct cn_infer_counts *out);

#endif
