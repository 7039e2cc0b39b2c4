/* frontend/page/rates.c - differences of counters as rates. Any thread, no state.
 *
 * Counters are read one after the other while the loops go on counting, so the counters of one
 * point may differ by the few steps that ended in between. That is well below what a chart shows.
 */
#include "frontend/page/rates.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

static void
take_histogram(uint64_t out[CN_DURATION_VALUES], const struct cn_metrics *metrics, unsigned at)
{
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++)
        out[i] = atomic_load_explicit(&metrics->values[at + i], memory_order_relaxed);
}

void
cn_rates_take(struct cn_rates_point *point, const struct cn_metrics *metrics, uint64_t at_us)
{
    *point = (struct cn_rates_point){
        .at_us = at_us,
        .jobs = cn_metrics_get(metrics, CN_M_JOBS),
        .refused = cn_metrics_get(metrics, CN_M_JOBS_REFUSED),
        .errors = cn_metrics_get(metrics, CN_M_JOB_ERRORS),
        .calls = cn_metrics_get(metrics, CN_M_BATCH_ROWS),
        .rows = cn_metrics_sum(metrics, CN_M_BATCH_ROWS),
        .busy_us = cn_metrics_get(metrics, CN_M_WORKER_BUSY),
    };
    take_histogram(point->steps_us, metrics, CN_M_STEP_TIME_AT_);
    take_histogram(point->queue_us, metrics, CN_M_QUEUE_TIME_AT_);
}

void
cn_rates_add(struct cn_rates_point *sum, const struct cn_rates_point *point)
{
    sum->at_us = point->at_us;
    sum->jobs += point->jobs;
    sum->refused += point->refused;
    sum->errors += point->errors;
    sum->calls += point->calls;
    sum->rows += point->rows;
    sum->busy_us += point->busy_us;
    for (unsigned i = 0; i < CN_DURATION_VALUES; i++) {
        sum->steps_us[i] += point->steps_us[i];
        sum->queue_us[i] += point->queue_us[i];
    }
}

double
cn_rates_quantile_us(const uint64_t before[CN_DURATION_VALUES],
                     const uint64_t now[CN_DURATION_VALUES], double q)
{
    double all = 0, below = 0, wanted;

    for (unsigned i = 0; i <= CN_DURATION_BUCKETS; i++)
        all += (double)(now[i] - before[i]);
    if (all <= 0)
        return -1;
    /* The bucket in which the wanted value lies is found by adding up; inside of it, values are
     * taken as evenly spread. */
    wanted = q * all;
    for (unsigned i = 0; i < CN_DURATION_BUCKETS; i++) {
        const double here = (double)(now[i] - before[i]);
        const double from = i ? (double)cn_duration_ends_us[i - 1] : 0;

        if (here > 0 && below + here >= wanted)
            return from + ((double)cn_duration_ends_us[i] - from) * (wanted - below) / here;
        below += here;
    }
    return (double)cn_duration_ends_us[CN_DURATION_BUCKETS - 1];
}

/* Three digits are enough for a chart, and make events short. */
static json_t *
rounded(double value)
{
    double unit;

    if (!isfinite(value) || value < 0)
        return json_null();
    if (value < 1e-6)
        return json_integer(0);
    unit = pow(10, floor(log10(value)) - 2);
    value = round(value / unit) * unit;
    return unit >= 1 ? json_integer((json_int_t)(value + 0.5)) : json_real(value);
}

static json_t *
per_second(uint64_t before, uint64_t now, double seconds)
{
    return seconds > 0 ? rounded((double)(now - before) / seconds) : json_null();
}

static json_t *
quantile_ms(const uint64_t *before, const uint64_t *now, double q)
{
    return rounded(cn_rates_quantile_us(before, now, q) / 1000);
}

static json_t *
mean(uint64_t sum, uint64_t n)
{
    return n ? rounded((double)sum / (double)n) : json_null();
}

json_t *
cn_rates_json(const struct cn_rates_point *before, const struct cn_rates_point *now)
{
    const bool is_known = before->at_us && now->at_us > before->at_us &&
                          now->jobs >= before->jobs && now->calls >= before->calls &&
                          now->rows >= before->rows && now->errors >= before->errors;
    const double seconds = is_known ? (double)(now->at_us - before->at_us) / 1e6 : 0;
    const struct cn_rates_point *from = is_known ? before : now;
    json_t *out = json_object();

    json_object_set_new(out, "stepsPerS", per_second(from->jobs, now->jobs, seconds));
    json_object_set_new(out, "errorsPerS", per_second(from->errors, now->errors, seconds));
    json_object_set_new(out, "callsPerS", per_second(from->calls, now->calls, seconds));
    json_object_set_new(out, "batchRows", mean(now->rows - from->rows, now->calls - from->calls));
    json_object_set_new(out, "p50MSec", quantile_ms(from->steps_us, now->steps_us, 0.5));
    json_object_set_new(out, "p99MSec", quantile_ms(from->steps_us, now->steps_us, 0.99));
    json_object_set_new(out, "queueP99MSec", quantile_ms(from->queue_us, now->queue_us, 0.99));
    json_object_set_new(out, "workerCores",
                        now->busy_us >= from->busy_us
                            ? per_second(from->busy_us, now->busy_us, seconds * 1e6)
                            : json_null());
    return out;
}
