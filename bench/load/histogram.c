/* bench/load/histogram.c - see histogram.h. One thread. */
#include "bench/load/histogram.h"

/* Each value below HISTOGRAM_SUB has a bucket of its own. Above, the top 8 bits of a value choose
 * the bucket. */
static unsigned
bucket_of(uint64_t us)
{
    unsigned shift, bucket;

    if (us < HISTOGRAM_SUB)
        return (unsigned)us;
    shift = 63u - (unsigned)__builtin_clzll(us) - 7u;
    bucket = (shift + 1) * HISTOGRAM_SUB + (unsigned)((us >> shift) - HISTOGRAM_SUB);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t
upper_edge(unsigned bucket)
{
    unsigned shift;

    if (bucket < HISTOGRAM_SUB)
        return bucket;
    shift = bucket / HISTOGRAM_SUB - 1;
    return (((uint64_t)(bucket % HISTOGRAM_SUB) + HISTOGRAM_SUB + 1) << shift) - 1;
}

void
histogram_add(struct histogram *h, uint64_t us)
{
    h->counts[bucket_of(us)]++;
    h->total++;
    if (us > h->max_us)
        h->max_us = us;
}

void
histogram_merge(struct histogram *h, const struct histogram *other)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        h->counts[i] += other->counts[i];
    h->total += other->total;
    if (other->max_us > h->max_us)
        h->max_us = other->max_us;
}

uint64_t
histogram_quantile_us(const struct histogram *h, double share)
{
    uint64_t wanted = (uint64_t)((double)h->total * share + 0.5), seen = 0;
    uint64_t edge;

    if (h->total == 0)
        return 0;
    if (wanted == 0)
        wanted = 1;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen >= wanted) {
            edge = upper_edge(i);
            return edge < h->max_us ? edge : h->max_us;
        }
    }
    return h->max_us;
}
