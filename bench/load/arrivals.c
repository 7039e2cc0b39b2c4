/* bench/load/arrivals.c - see arrivals.h. */
#include "bench/load/arrivals.h"

#include <math.h>

/* In the ramp, arrivals until the time t are from*t + growth*t^2/2; this solves it for t. */
double
arrivals_due_s(const struct arrivals *a, uint64_t i)
{
    double before = a->from * a->warmup_s, growth, left = (double)i - before, whole;

    if (left <= 0 || a->from == a->to)
        return (double)i / a->from;
    whole = (a->from + a->to) / 2 * a->ramp_s;
    if (left >= whole)
        return a->warmup_s + a->ramp_s + (left - whole) / a->to;
    growth = (a->to - a->from) / a->ramp_s;
    return a->warmup_s + (sqrt(a->from * a->from + 2 * growth * left) - a->from) / growth;
}
