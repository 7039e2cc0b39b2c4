/* metrics/counters/metrics.c - counters of one loop. Written by that loop only, so a plain relaxed
 * load and store are enough, and no request pays for a locked instruction. Read by any thread. */
#include "metrics/counters/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/errors/panic.h"

enum scope { LOOP, MODEL };
enum shape {
    COUNTER,
    GAUGE,
    SECONDS,
    ERRORS,
    REASONS,
    LOGS,
    UNREADY,
    HIDDEN,
    NAMED,
    DURATION,
    STAGES,
    ROWS
};

/* The rows of metrics.def. `at` is the index of a metric's first value in a set, `n` the number of
 * its values. */
static const struct info {
    enum scope scope;
    enum shape shape;
    unsigned at, n; /* of its values */
    const char *name, *help;
} infos[] = {
#define CN_METRIC(id, scope, shape, name, help)                                                    \
    {scope, shape, id##_AT_, CN_VALUES_##shape, name, help},
#include "metrics/counters/metrics.def"
#undef CN_METRIC
};

/* cn_stage_ends_us as Prometheus shows them. */
static const char *const stage_ends[CN_STAGE_BUCKETS] = {
    "0.00001", "0.000025", "0.00005", "0.0001", "0.00025", "0.0005", "0.001",
    "0.0025",  "0.005",    "0.01",    "0.025",  "0.05",    "0.1",    "0.25",
    "0.5",     "1",        "2.5",     "5",      "10",      "30",
};

/* The words of enum cn_stage. */
static const char *const stages[CN_N_STAGES] = {"read",       "parse",   "queue",
                                                "batch_wait", "handler", "commit"};

/* The words of enum cn_close_reason. */
static const char *const reasons[CN_VALUES_REASONS] = {
    NULL,      "ended",    "idle",  "lifetime", "evicted",    "cancelled",
    "deleted", "unloaded", "moved", "reset",    "worker_lost"};

static uint64_t
get(const struct cn_metrics *metrics, unsigned at)
{
    return atomic_load_explicit(&metrics->values[at], memory_order_relaxed);
}

/* Only the set's own loop writes, so a load and a store are enough. */
static void
add(struct cn_metrics *metrics, unsigned at, uint64_t n)
{
    atomic_store_explicit(&metrics->values[at], get(metrics, at) + n, memory_order_relaxed);
}

void
cn_metrics_add(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n)
{
    add(metrics, infos[metric].at, n);
}

/* A gauge wraps around below 0 where another loop's set was raised; sum_up says why that is right.
 */
void
cn_metrics_sub(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n)
{
    add(metrics, infos[metric].at, (uint64_t)0 - n);
}

void
cn_metrics_set(struct cn_metrics *metrics, enum cn_metric metric, uint64_t n)
{
    atomic_store_explicit(&metrics->values[infos[metric].at], n, memory_order_relaxed);
}

void
cn_metrics_set_log(struct cn_metrics *metrics, enum cn_metric metric, enum cn_log_file file,
                   uint64_t n)
{
    cn_assert(infos[metric].shape == LOGS && file < CN_N_LOG_FILES);
    atomic_store_explicit(&metrics->values[infos[metric].at + file], n, memory_order_relaxed);
}

void
cn_metrics_set_unready(struct cn_metrics *metrics, enum cn_metric metric, enum cn_unready reason,
                       uint64_t n)
{
    cn_assert(infos[metric].shape == UNREADY && reason < CN_N_UNREADY);
    atomic_store_explicit(&metrics->values[infos[metric].at + reason], n, memory_order_relaxed);
}

void
cn_metrics_count_error(struct cn_metrics *metrics, enum cn_metric metric, int code)
{
    cn_assert(infos[metric].shape == ERRORS);
    if (code <= CN_E_FIRST_ || code >= CN_E_END_) /* a worker may send any number */
        code = CN_E_INTERNAL;
    add(metrics, infos[metric].at + (unsigned)(code - CN_E_FIRST_ - 1), 1);
}

void
cn_metrics_count_reason(struct cn_metrics *metrics, enum cn_metric metric, unsigned reason)
{
    cn_assert(infos[metric].shape == REASONS && reason > 0 && reason < CN_VALUES_REASONS);
    add(metrics, infos[metric].at + reason, 1);
}

/* The upper end of bucket `i`: microseconds, or 1, 2, 4, ... rows. */
static uint64_t
upper_end(enum shape shape, unsigned i)
{
    if (shape == ROWS)
        return UINT64_C(1) << i;
    return shape == DURATION ? cn_duration_ends_us[i] : cn_stage_ends_us[i];
}

void
cn_metrics_add_named(struct cn_metrics *metrics, enum cn_metric metric, bool named, uint64_t n)
{
    cn_assert(infos[metric].shape == NAMED);
    add(metrics, infos[metric].at + named, n);
}

uint64_t
cn_metrics_get_named(const struct cn_metrics *metrics, enum cn_metric metric, bool named)
{
    cn_assert(infos[metric].shape == NAMED);
    return get(metrics, infos[metric].at + named);
}

/* Buckets are few, so they are searched one by one from the smallest, where most values are. */
void
cn_metrics_observe_many(struct cn_metrics *metrics, enum cn_metric metric, uint64_t value,
                        uint64_t n)
{
    const struct info *info = &infos[metric];
    const unsigned n_ends = info->n - 2;
    unsigned i = 0;

    if (info->shape == DURATION)
        while (i < n_ends && value > cn_duration_ends_us[i])
            i++;
    else
        while (i < n_ends && value > upper_end(info->shape, i))
            i++;
    add(metrics, info->at + i, n);
    add(metrics, info->at + n_ends + 1, value * n);
}

void
cn_metrics_observe(struct cn_metrics *metrics, enum cn_metric metric, uint64_t value)
{
    cn_metrics_observe_many(metrics, metric, value, 1);
}

void
cn_metrics_observe_stages(struct cn_metrics *metrics, enum cn_metric metric,
                          const uint64_t us[CN_N_STAGES])
{
    unsigned at = infos[metric].at;

    cn_assert(infos[metric].shape == STAGES);
    for (unsigned stage = 0; stage < CN_N_STAGES; stage++, at += CN_STAGE_VALUES) {
        unsigned i = 0;

        if (us[stage] == CN_STAGE_NONE)
            continue;
        while (i < CN_STAGE_BUCKETS && us[stage] > cn_stage_ends_us[i])
            i++;
        add(metrics, at + i, 1);
        if (us[stage] > 0)
            add(metrics, at + CN_STAGE_BUCKETS + 1, us[stage]);
    }
}

void
cn_metrics_merge(struct cn_metrics *metrics, enum cn_metric metric, const uint64_t *values)
{
    const struct info *info = &infos[metric];

    cn_assert(info->shape == DURATION || info->shape == ROWS);
    for (unsigned i = 0; i < info->n; i++)
        add(metrics, info->at + i, values[i]);
}

/* Is this value of a metric a sum of durations or rows? The last one of each histogram is. */
static bool
is_sum(const struct info *info, unsigned i)
{
    if (info->shape == STAGES)
        return i % CN_STAGE_VALUES == CN_STAGE_VALUES - 1;
    return (info->shape == DURATION || info->shape == ROWS) && i == info->n - 1;
}

uint64_t
cn_metrics_get(const struct cn_metrics *metrics, enum cn_metric metric)
{
    uint64_t sum = 0;
    unsigned i;

    for (i = 0; i < infos[metric].n; i++)
        if (!is_sum(&infos[metric], i))
            sum += get(metrics, infos[metric].at + i);
    return sum;
}

uint64_t
cn_metrics_sum(const struct cn_metrics *metrics, enum cn_metric metric)
{
    const struct info *info = &infos[metric];

    cn_assert(info->shape == DURATION || info->shape == ROWS);
    return get(metrics, info->at + info->n - 1);
}

void
cn_metrics_copy(struct cn_metrics *to, const struct cn_metrics *from)
{
    for (unsigned i = 0; i < CN_METRIC_VALUES; i++)
        atomic_store_explicit(&to->values[i], get(from, i), memory_order_relaxed);
}

/* A name may be that of a family or of one of its samples, as in Prometheus' own `name[]`
 * parameter: continuo_x_bucket asks for continuo_x. */
bool
cn_metric_wanted(const struct cn_metric_filter *filter, const char *family)
{
    static const char *const tails[] = {"", "_bucket", "_sum", "_count"};
    size_t len = strlen(family), t;
    uint32_t i;

    for (i = 0; i < filter->n; i++) {
        struct cn_str name = filter->names[i];

        if (name.len < len || memcmp(name.ptr, family, len) != 0)
            continue;
        name = (struct cn_str){name.ptr + len, name.len - len};
        for (t = 0; t < sizeof(tails) / sizeof(tails[0]); t++)
            if (cn_str_eq(name, cn_str_from(tails[t])))
                return true;
    }
    return filter->n == 0;
}

void
cn_metrics_put_label(struct cn_buf *out, struct cn_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (c == '\n')
            cn_buf_puts(out, "\\n");
        else if (c == '"' || c == '\\')
            cn_buf_printf(out, "\\%c", c);
        else
            cn_buf_append(out, &c, 1);
    }
}

void
cn_metrics_put_value(struct cn_buf *out, double value)
{
    cn_buf_puts(out, "} ");
    cn_buf_put_double(out, value);
    cn_buf_puts(out, "\n");
}

/* Appends name{labels,more="value"}, without the parts that are empty. */
static void
put_name(struct cn_buf *out, const char *name, const char *tail, const char *labels,
         const char *more, const char *value)
{
    cn_buf_printf(out, "%s%s", name, tail);
    if (!labels[0] && !more)
        return;
    cn_buf_printf(out, "{%s", labels);
    if (more)
        cn_buf_printf(out, "%s%s=\"%s\"", labels[0] ? "," : "", more, value);
    cn_buf_puts(out, "}");
}

static void
put_seconds(struct cn_buf *out, uint64_t us)
{
    cn_buf_printf(out, " %" PRIu64 ".%06" PRIu64 "\n", us / 1000000, us % 1000000);
}

/* In the text format the buckets are cumulative: each counts all values up to its end, and the last
 * one, +Inf, all. */
static void
print_histogram(const struct info *info, unsigned n, const uint64_t *values, const char *labels,
                struct cn_buf *out)
{
    const char *const *ends = info->shape == STAGES ? stage_ends : &stage_ends[CN_STAGE_FINER];
    uint64_t below = 0;
    char end[24];

    for (unsigned i = 0; i <= n; i++) {
        below += values[i];
        if (i < n && info->shape != ROWS)
            snprintf(end, sizeof(end), "%s", ends[i]);
        else if (i < n)
            snprintf(end, sizeof(end), "%" PRIu64, upper_end(info->shape, i));
        else
            snprintf(end, sizeof(end), "+Inf");
        put_name(out, info->name, "_bucket", labels, "le", end);
        cn_buf_printf(out, " %" PRIu64 "\n", below);
    }
    put_name(out, info->name, "_sum", labels, NULL, NULL);
    if (info->shape != ROWS)
        put_seconds(out, values[n + 1]);
    else
        cn_buf_printf(out, " %" PRIu64 "\n", values[n + 1]);
    put_name(out, info->name, "_count", labels, NULL, NULL);
    cn_buf_printf(out, " %" PRIu64 "\n", below);
}

/* Prints the stages that steps have reached. The others are left out, since a server may have
 * thousands of models that nobody uses. */
static void
print_stages(const struct info *info, const uint64_t *values, const char *labels,
             struct cn_buf *out)
{
    struct cn_buf with_stage;

    cn_buf_init(&with_stage, 0);
    for (unsigned stage = 0; stage < CN_N_STAGES; stage++, values += CN_STAGE_VALUES) {
        uint64_t n = 0;

        for (unsigned i = 0; i <= CN_STAGE_BUCKETS; i++)
            n += values[i];
        if (n == 0)
            continue;
        cn_buf_reset(&with_stage);
        cn_buf_printf(&with_stage, "%s%sstage=\"%s\"", labels, labels[0] ? "," : "", stages[stage]);
        cn_buf_append(&with_stage, "", 1);
        if (with_stage.failed)
            out->failed = true;
        else
            print_histogram(info, CN_STAGE_BUCKETS, values, with_stage.data, out);
    }
    cn_buf_fini(&with_stage);
}

/* Appends the samples of a metric. Errors that never happened are left out, since there are many.
 */
static void
print_values(const struct info *info, const uint64_t *values, const char *labels,
             struct cn_buf *out)
{
    unsigned i;

    switch (info->shape) {
    case HIDDEN:
    case NAMED:
        return;
    case COUNTER:
    case GAUGE:
        put_name(out, info->name, "", labels, NULL, NULL);
        cn_buf_printf(out, " %" PRIu64 "\n", values[0]);
        return;
    case SECONDS:
        put_name(out, info->name, "", labels, NULL, NULL);
        put_seconds(out, values[0]);
        return;
    case ERRORS:
        for (i = 0; i < info->n; i++) {
            if (values[i] == 0)
                continue;
            put_name(out, info->name, "", labels, "error",
                     cn_error_info(CN_E_FIRST_ + 1 + (int)i)->word);
            cn_buf_printf(out, " %" PRIu64 "\n", values[i]);
        }
        return;
    case REASONS:
        for (i = 1; i < info->n; i++) {
            put_name(out, info->name, "", labels, "reason", reasons[i]);
            cn_buf_printf(out, " %" PRIu64 "\n", values[i]);
        }
        return;
    case LOGS:
        for (i = 0; i < info->n; i++) {
            put_name(out, info->name, "", labels, "log", cn_log_file_word((enum cn_log_file)i));
            cn_buf_printf(out, " %" PRIu64 "\n", values[i]);
        }
        return;
    case UNREADY:
        for (i = 0; i < info->n; i++) {
            put_name(out, info->name, "", labels, "reason", cn_unready_word((enum cn_unready)i));
            cn_buf_printf(out, " %" PRIu64 "\n", values[i]);
        }
        return;
    case DURATION:
    case ROWS:
        print_histogram(info, info->n - 2, values, labels, out);
        return;
    case STAGES:
        print_stages(info, values, labels, out);
        return;
    }
    cn_unreachable();
}

/* The type of a metric in the text format. */
static const char *
type_of(enum shape shape)
{
    if (shape == GAUGE || shape == UNREADY)
        return "gauge";
    if (shape == DURATION || shape == STAGES || shape == ROWS)
        return "histogram";
    return "counter";
}

/* Adds up the values of `n` sets. A gauge may be raised on one loop and lowered on another; then
 * single sets wrap around below 0, and their sum is right. */
static void
sum_up(const struct info *info, const struct cn_metrics *const *sets, unsigned n,
       uint64_t values[CN_METRIC_VALUES])
{
    unsigned s, i;

    memset(values, 0, info->n * sizeof(*values));
    for (s = 0; s < n; s++)
        for (i = 0; i < info->n; i++)
            values[i] += get(sets[s], info->at + i);
}

void
cn_metrics_print(const struct cn_metrics *const *loops, unsigned n_loops,
                 const struct cn_metrics_of *models, unsigned n_models,
                 const struct cn_metric_filter *filter, struct cn_buf *out)
{
    uint64_t values[CN_METRIC_VALUES];
    unsigned m, i;

    for (m = 0; m < CN_METRIC_COUNT; m++) {
        const struct info *info = &infos[m];

        if (!info->name[0] || !cn_metric_wanted(filter, info->name))
            continue;
        cn_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", info->name, info->help, info->name,
                      type_of(info->shape));
        if (info->scope == LOOP) {
            sum_up(info, loops, n_loops, values);
            print_values(info, values, "", out);
            continue;
        }
        for (i = 0; i < n_models; i++) {
            sum_up(info, &models[i].metrics, 1, values);
            print_values(info, values, models[i].labels, out);
        }
    }
}
