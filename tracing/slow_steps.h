/* tracing/slow_steps.h - the last steps that took longer than a limit, for an operator who asks
 * what was slow. Any thread.
 *
 * The list has a fixed number of places, and a new step takes the place of the oldest one. A step
 * below the limit costs one comparison. One above it takes a lock for the time in which a few
 * hundred bytes are copied: such steps are rare, unless everything is slow. */
#ifndef CN_TRACING_SLOW_STEPS_H
#define CN_TRACING_SLOW_STEPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/memory/arena.h"
#include "proto/message.h"
#include "tracing/step_times.h"

#define CN_SLOW_NAME_MAX 128

struct cn_slow_step {
    uint64_t serial; /* number of the slow step since the start, from 1 on */
    uint64_t ended_wall_ms;
    struct cn_step_times times;
    uint64_t step; /* 0: none was committed */
    int error_code;
    char model[CN_SLOW_NAME_MAX], version[CN_SLOW_NAME_MAX], request_id[CN_SLOW_NAME_MAX];
    char sequence[CN_SEQUENCE_ID_MAX + 1]; /* as people read it; "": none */
};

/* What is known of a step when its final answer is given. Texts that are too long are cut. */
struct cn_ended_step {
    const char *model, *version;
    struct cn_str sequence_id, request_id;
    uint64_t step;
    int error_code;
    const struct cn_step_times *times;
};

/* Makes room for `length` steps of at least threshold_us; 0 steps: nothing is kept. Before the
 * first loop runs; end it when none runs any more. */
void cn_slow_steps_start(uint32_t length, uint64_t threshold_us);
void cn_slow_steps_stop(void);

extern atomic_uint_least64_t cn_slow_threshold_us_;
/* Did the step take long enough to be kept? */
static inline bool
cn_step_is_slow(const struct cn_step_times *times)
{
    return times->done_us - times->arrived_us >=
           atomic_load_explicit(&cn_slow_threshold_us_, memory_order_relaxed);
}
void cn_slow_steps_put(const struct cn_ended_step *step);

/* Copies the steps that are kept into the arena, the newest first. Returns how many there are;
 * *seen is the number of slow steps since the start. */
uint32_t cn_slow_steps_read(struct cn_arena *arena, struct cn_slow_step **out, uint64_t *seen);
/* Forgets them. */
void cn_slow_steps_clear(void);

/* How long the phases took, in microseconds. */
struct cn_step_phases {
    uint64_t total_us;
    uint64_t queue_us;   /* until it was sent to a worker */
    uint64_t worker_us;  /* at the worker, before the handler's first call */
    uint64_t handler_us; /* from the start of the first call to the end of the last one */
    uint64_t commit_us;  /* after the handler */
};
struct cn_step_phases cn_step_phases(const struct cn_step_times *times);

#endif
