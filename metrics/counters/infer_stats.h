/* metrics/counters/infer_stats.h - what a typed model counts of its requests, as clients of the v2
 * protocol ask for it.
 *
 * Written by the model queue's loop only (relaxed atomics, no lock), read by any thread. All
 * durations are kept in microseconds.
 */
#ifndef CN_METRICS_COUNTERS_INFER_STATS_H
#define CN_METRICS_COUNTERS_INFER_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/arena.h"

/* Sizes of executed batches, and positions of a request's responses, that are told apart; what is
 * beyond counts as the last one. */
#define CN_INFER_BATCHES_MAX 4096
#define CN_INFER_RESPONSES_MAX 1024

/* What a handler's call consists of: before it (looking states up), itself, and after it (the
 * commit). */
enum cn_infer_phase { CN_INFER_INPUT, CN_INFER_HANDLER, CN_INFER_OUTPUT, CN_INFER_N_PHASES };

enum cn_infer_reason {
    CN_INFER_REJECTED, /* no worker got it */
    CN_INFER_CANCELED,
    CN_INFER_BACKEND, /* it failed there */
    CN_INFER_OTHER,
    CN_INFER_N_REASONS
};
/* "REJECTED" ... */
const char *cn_infer_reason_word(enum cn_infer_reason reason);

struct cn_infer_stats;

struct cn_infer_stats *cn_infer_stats_create(void);
void cn_infer_stats_destroy(struct cn_infer_stats *stats);

/* --- On the queue's loop */

/* One call of the handler for `batch` requests' worth of rows. */
void cn_infer_executed(struct cn_infer_stats *stats, uint32_t batch, uint64_t wall_ms,
                       const uint64_t phase_us[CN_INFER_N_PHASES]);
/* A request's end. */
struct cn_infer_done {
    uint32_t batch; /* its rows; 0 counts as 1 */
    bool replayed;  /* answered from the stored answer: nothing was computed */
    uint64_t total_us, queue_us;
    uint64_t phase_us[CN_INFER_N_PHASES];
};
void cn_infer_succeeded(struct cn_infer_stats *stats, const struct cn_infer_done *done);
void cn_infer_failed(struct cn_infer_stats *stats, enum cn_infer_reason reason, uint64_t total_us);
/* The response at `position` of a request, with the phases of the call that made it. */
enum cn_infer_response {
    CN_RESPONSE_DATA,
    CN_RESPONSE_EMPTY,
    CN_RESPONSE_FAILED,
    CN_RESPONSE_CANCELED
};
void cn_infer_response(struct cn_infer_stats *stats, uint32_t position, enum cn_infer_response kind,
                       const uint64_t phase_us[CN_INFER_N_PHASES]);
/* Requests that are waiting. */
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
/* A copy. The lists lie in the arena. */
struct cn_infer_counts {
    uint64_t last_wall_ms; /* when the handler was called last; 0: never */
    uint64_t inferences, executions, pending;
    struct cn_infer_sum success, fail, queue, phases[CN_INFER_N_PHASES], hits;
    uint64_t failures[CN_INFER_N_REASONS];
    uint32_t n_batches, n_positions;
    struct cn_infer_batch *batches; /* by size; only those there were */
    struct cn_infer_position *positions;
};
void cn_infer_read(const struct cn_infer_stats *stats, struct cn_arena *arena,
                   struct cn_infer_counts *out);

#endif
