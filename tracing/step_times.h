/* tracing/step_times.h - when a step was where. The scheduler fills it, and the traces and the list
 * of slow steps read it. All times are microseconds of cn_now_us(); 0: that did not happen. */
#ifndef CN_TRACING_STEP_TIMES_H
#define CN_TRACING_STEP_TIMES_H

#include <stdint.h>

struct cn_step_times {
    uint64_t submitted_us; /* the turn of its connection's loop in which it was read whole */
    uint64_t taken_us;     /* its queue took it, after it was parsed and checked; 0: not measured */
    uint64_t arrived_us;   /* it came to its model's queue */
    uint64_t sent_us;      /* it was sent to a worker, the last time if it was sent again */
    uint64_t handler_us;   /* the handler's first call for it began */
    uint64_t handled_us;   /* the last call for it returned */
    uint64_t called_us;    /* the worker had finished that call: what it changed is committed */
    uint64_t done_us;      /* the queue gave its final answer away */
    uint64_t inside_us;    /* sum of the times inside the handler; a stream has several calls */
    uint32_t n_calls;      /* calls of the handler */
    uint32_t n_sent;       /* how often it was sent; more than 1: workers died with it */
};

/* What one REPORT of a worker says, for the steps of that call. `now_us` is when it came. */
static inline void
cn_step_times_called(struct cn_step_times *times, uint64_t now_us, uint64_t handler_us,
                     uint64_t after_us)
{
    const uint64_t handled_us = now_us > after_us ? now_us - after_us : 0;
    uint64_t begun_us = handled_us > handler_us ? handled_us - handler_us : 0;

    /* The worker's clock is ours, but its times end before its report is read. */
    if (begun_us < times->sent_us)
        begun_us = times->sent_us;
    if (times->n_calls++ == 0)
        times->handler_us = begun_us;
    times->handled_us = handled_us > begun_us ? handled_us : begun_us;
    times->called_us = now_us;
    times->inside_us += handler_us;
}

#endif
