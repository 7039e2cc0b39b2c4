/* bench/load/arrivals.h - when steps are due: at a fixed rate, or at one that rises or falls
 * evenly.
 *
 * Arrival i is due at a time that depends on i only, never on the server. A tool with n processes
 * gives its process k the arrivals k, k + n, k + 2n and so on.
 */
#ifndef CN_BENCH_LOAD_ARRIVALS_H
#define CN_BENCH_LOAD_ARRIVALS_H

#include <stdint.h>

struct arrivals {
    double from, to;         /* steps/s, when the ramp begins and ends; equal without a ramp */
    double warmup_s, ramp_s; /* the rate is `from` for warmup_s, and then changes for ramp_s */
};

/* The time at which arrival i is due, in seconds after the start. from and to must be over 0. */
double arrivals_due_s(const struct arrivals *a, uint64_t i);

#endif
