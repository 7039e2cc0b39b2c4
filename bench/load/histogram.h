/* bench/load/histogram.h - counts latencies in log-linear buckets that are 0.8 % wide, from 1 us to
 * 70 minutes, in fixed memory. */
#ifndef CN_BENCH_LOAD_HISTOGRAM_H
#define CN_BENCH_LOAD_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB 128 /* buckets per power of two */
#define HISTOGRAM_BUCKETS (HISTOGRAM_SUB * 26)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total, max_us;
};

void histogram_add(struct histogram *h, uint64_t us);
/* Adds all values of `other`. */
void histogram_merge(struct histogram *h, const struct histogram *other);
/* Returns the upper edge of the bucket that holds the given share (0..1) of all values; 0 if there
 * are none. */
uint64_t histogram_quantile_us(const struct histogram *h, double share);

#endif
