/* core/containers/buckets.h - the buckets of the histograms of /metrics: which one a value belongs
 * to. Code that measures may count in arrays of its own, which are added up later. Any thread.
 *
 * A histogram has a value for each bucket, one for what is above the last bucket, and the sum. */
#ifndef CN_CORE_CONTAINERS_BUCKETS_H
#define CN_CORE_CONTAINERS_BUCKETS_H

#include <stdint.h>

#define CN_DURATION_BUCKETS 17
#define CN_ROWS_BUCKETS 11
#define CN_DURATION_VALUES (CN_DURATION_BUCKETS + 2)
#define CN_ROWS_VALUES (CN_ROWS_BUCKETS + 2)

/* The ends of the buckets of durations, from 100 us, which a step of a small model takes, to 30 s.
 */
static const uint64_t cn_duration_ends_us[CN_DURATION_BUCKETS] = {
    100,    250,    500,    1000,    2500,    5000,    10000,    25000,   50000,
    100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000};

/* The stages of a step are shorter, so their histograms have CN_STAGE_FINER more buckets before
 * those of durations. */
#define CN_STAGE_FINER 3
#define CN_STAGE_BUCKETS (CN_STAGE_FINER + CN_DURATION_BUCKETS)
#define CN_STAGE_VALUES (CN_STAGE_BUCKETS + 2)
static const uint64_t cn_stage_ends_us[CN_STAGE_BUCKETS] = {
    10,    25,    50,     100,    250,    500,     1000,    2500,    5000,     10000,
    25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000};

/* Buckets are few, so they are searched one by one from the smallest, where most values are. */
static inline void
cn_duration_observe(uint64_t values[CN_DURATION_VALUES], uint64_t us)
{
    unsigned i = 0;

    while (i < CN_DURATION_BUCKETS && us > cn_duration_ends_us[i])
        i++;
    values[i]++;
    values[CN_DURATION_BUCKETS + 1] += us;
}

/* The buckets of rows end at 1, 2, 4, ... */
static inline void
cn_rows_observe(uint64_t values[CN_ROWS_VALUES], uint64_t rows)
{
    unsigned i = 0;

    while (i < CN_ROWS_BUCKETS && rows > UINT64_C(1) << i)
        i++;
    values[i]++;
    values[CN_ROWS_BUCKETS + 1] += rows;
}

#endif
