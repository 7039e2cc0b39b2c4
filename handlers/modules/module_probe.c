/* handlers/modules/module_probe.c - runs random rows alone and together (see module_probe.h).
 * Worker's thread.
 *
 * The order of the questions, and what each answer leads to:
 *   1. Does the model take random rows, or those without negative numbers?  no: SKIPPED
 *   2. Does a row alone, run twice, differ?  yes: the module keeps something and is refused; but if
 *      its kind keeps nothing (ONNX), it draws random numbers: RANDOM
 *   3. Does it differ with another seed?  yes: RANDOM; a comparison with batches would mean nothing
 *   4. Does a row differ in a batch?  yes: APART; rows are run alone from now on
 *   5. Was there time for all buckets?  no: SHORT; what was compared was alike
 * The rows have different magnitudes and their sequences different ages, so that what the model
 * shares by mistake (a scale, a length, a position) is not the same for all of them by accident.
 *
 * The probe borrows rt->items and rt->rows for its own rows and puts the real ones back at the
 * end. */
#include "handlers/modules/module_probe.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/time/clock.h"
#include "handlers/modules/module_probe_priv.h"
#include "handlers/modules/module_values.h"

/* On a GPU, CUDA's convolutions and products may round to 10 bits (TF32) for one batch size and not
 * for another. */
#define GPU_TOLERANCE 16

const char *
cn_module_probe_word(enum module_probe_end end)
{
    static const char *const words[] = {"off", "alike", "apart", "random", "skipped", "short"};

    return words[end];
}

/* Returns the difference that rounding may cause. The coarsest type among the tensors decides,
 * because the model computes in it. */
static double
tolerance_of(const struct module_runtime *rt)
{
    const struct cn_model_io *io = rt->config.io;
    double most = 0;

    if (rt->config.tolerance >= 0)
        return rt->config.tolerance;
    if (rt->config.deterministic) /* there is one bucket, so the bits must be the same */
        return 0;
    for (uint32_t i = 0; i < io->n_inputs; i++)
        most = fmax(most, cn_module_tolerance(io->inputs[i].type));
    for (uint32_t i = 0; i < io->n_outputs; i++)
        most = fmax(most, cn_module_tolerance(io->outputs[i].type));
    for (uint32_t i = 0; i < io->state.n; i++)
        most = fmax(most, cn_module_tolerance(io->state.items[i].type));
    return rt->config.gpu ? most * GPU_TOLERANCE : most;
}

/* --- the parts of the probe --- */

static bool
in_time(struct probe *probe)
{
    return cn_now_us() < probe->until_us;
}

/* Gives the row a sequence of its own that has had some steps.
 *
 * Row 0 begins with a fresh state, row 1 with one that had a step, row 2 with one that had two, and
 * so on from the beginning (AGES). Models that treat the first step specially show it this way. */
static int
age(struct probe *probe, uint32_t row, struct cn_error *err)
{
    struct module_runtime *rt = probe->rt;
    int rc = 0;

    if (rt->load->stateful && (rc = cn_module_state_begin(rt, NULL, &probe->begin[row], err)) != 0)
        return rc;
    for (uint32_t step = 0; rc == 0 && probe->begin[row] && step < row % AGES; step++) {
        if ((rc = cn_probe_fill_row(probe, row, err)) != 0 ||
            (rc = cn_probe_run_alone(probe, row, err)) != 0)
            break;
        cn_module_state_destroy(probe->begin[row]);
        probe->begin[row] = probe->items[row].item->state;
        probe->items[row].item->state = NULL;
    }
    return rc ? rc : cn_probe_fill_row(probe, row, err);
}

static int
run_each_alone(struct probe *probe, struct cn_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < probe->n; i++)
        rc = age(probe, i, err);
    for (uint32_t i = 0; rc == 0 && i < probe->n; i++)
        if ((rc = cn_probe_run_alone(probe, i, err)) == 0)
            rc = cn_probe_keep_results(probe, i, &probe->alone[i], err);
    return rc;
}

/* Makes random rows that the model accepts. If it does not accept negative numbers, makes others
 * without them. */
static int
begin(struct probe *probe, struct cn_error *err)
{
    static const double lowest[] = {-1, 0};
    int rc = -1;

    for (size_t i = 0; rc != 0 && i < sizeof(lowest) / sizeof(lowest[0]); i++) {
        cn_probe_forget_states(probe);
        probe->lowest = lowest[i];
        probe->random = probe->rt->config.probe_seed;
        rc = run_each_alone(probe, err);
    }
    return rc;
}

/* Runs the same rows once more, from the last to the first, to see whether a run has left something
 * behind in the module. */
static int
run_again(struct probe *probe, struct cn_error *err)
{
    int rc = 0;

    for (uint32_t i = probe->n; rc == 0 && i-- > 0 && in_time(probe);)
        if ((rc = cn_probe_run_alone(probe, i, err)) == 0)
            cn_probe_compare(probe, i);
    return rc;
}

/* Runs the rows with another seed, to see whether the results change.
 *
 * The result of the comparisons so far is put back, because a difference here is not a fault. */
static int
is_random(struct probe *probe, bool *out, struct cn_error *err)
{
    struct module_probe_result before = *probe->found;
    int rc;

    probe->seed++;
    probe->found->distance = 0;
    if ((rc = cn_probe_run_alone(probe, 0, err)) == 0)
        cn_probe_compare(probe, 0);
    probe->seed--;
    *out = probe->found->distance > probe->found->tolerance;
    *probe->found = before;
    return rc;
}

/* Finds the rows that may be in one run with the first one, by their states before the step. */
static void
find_alike(struct probe *probe)
{
    for (uint32_t i = 0; i < probe->n; i++) {
        cn_module_state_destroy(probe->shells[i].state);
        probe->shells[i].state = probe->begin[i];
    }
    for (uint32_t i = 0; i < probe->n; i++)
        if (cn_module_same_shape(probe->rt, &probe->rows[0], &probe->rows[i]))
            probe->alike[probe->n_alike++] = i;
    for (uint32_t i = 0; i < probe->n; i++)
        probe->shells[i].state = NULL;
}

static int
run_together(struct probe *probe, uint32_t bucket, bool backwards, struct cn_error *err)
{
    const uint32_t n = probe->n_alike, k = n < bucket ? n : bucket;
    uint32_t rows[PROBE_ROWS_MAX];
    int rc;

    for (uint32_t i = 0; i < k; i++)
        rows[i] = probe->alike[backwards ? n - 1 - i : i];
    rc = cn_probe_run(probe, rows, k, bucket, err);
    for (uint32_t i = 0; rc == 0 && i < k; i++)
        cn_probe_compare(probe, rows[i]);
    return rc;
}

static int
run_buckets(struct probe *probe, struct cn_error *err)
{
    const struct cn_module_plan *plan = &probe->rt->plan;
    int rc = 0;

    for (uint32_t b = 0; rc == 0 && b < plan->n; b++) {
        if (plan->rows[b] < 2)
            continue;
        for (int turn = 0; rc == 0 && turn < 4; turn++) { /* two orders, each twice */
            if (!in_time(probe)) {
                probe->found->end = MODULE_PROBE_SHORT;
                return 0;
            }
            rc = run_together(probe, plan->rows[b], turn % 2 == 1, err);
        }
        if (rc == 0)
            probe->found->largest = plan->rows[b];
    }
    return rc;
}

/* --- what follows --- */

static void
warn(struct module_runtime *rt, const char *event, const char *text)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    snprintf(rt->base.warning, sizeof(rt->base.warning), "%s", text);
    cn_log(CN_LOG_WARN, "event=%s_%s model=%s version=%s reason=%s", rt->config.kind->runtime,
           event, rt->load->model_name, rt->load->model_version,
           cn_log_quote(text, strlen(text), quoted, sizeof(quoted)));
}

static const char *
amount(double distance, char text[48])
{
    if (isinf(distance))
        snprintf(text, 48, "in shape or by infinity");
    else
        snprintf(text, 48, "by %.2g of its magnitude", distance);
    return text;
}

static int
refuse_memory(struct module_runtime *rt, struct cn_error *err)
{
    const struct module_probe_result *found = &rt->probe;
    char by[48];

    return cn_fail(err, CN_E_LOAD_FAILED,
                   "%s of %s: %s of the same row differs %s between two runs (tolerance %.2g), so "
                   "an answer would depend on the steps of other sequences: the module keeps data "
                   "between its calls%s%s%s. Make that an argument and a result, or name it in "
                   "%s.attributes; %s: {probe: false} serves the model as it is",
                   rt->config.method, rt->load->handler, found->what, amount(found->distance, by),
                   found->tolerance, found->changed[0] ? " (it changes " : "", found->changed,
                   found->changed[0] ? ")" : "", rt->config.kind->runtime,
                   rt->config.kind->runtime);
}

/* From now on each row is run alone. If the model takes no batch of one row, because its batch has
 * a fixed size, its smallest bucket is filled with copies of the row. */
static int
set_apart(struct module_runtime *rt, struct cn_error *err)
{
    struct cn_module_plan *plan = &rt->plan;
    struct module_probe_result *found = &rt->probe;
    const uint32_t smallest = plan->rows[0];
    char text[sizeof(rt->base.warning)], by[48];
    int rc;

    found->end = MODULE_PROBE_APART;
    if (rt->config.strict_batching)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s of %s: %s of a row differs %s when other rows are run with it "
                       "(tolerance %.2g), and %s.strictBatching is true",
                       rt->config.method, rt->load->handler, found->what,
                       amount(found->distance, by), found->tolerance, rt->config.kind->runtime);
    rt->apart = true;
    plan->n = 1;
    plan->rows[0] = 1;
    rc = cn_module_warm_up(rt, err);
    if (smallest > 1 && (rc != 0 || plan->cost_us[0] <= 0)) {
        plan->rows[0] = smallest;
        rc = cn_module_warm_up(rt, err);
    }
    if (rc != 0)
        return rc;
    cn_module_plan_make(plan, rt->cap_items);
    snprintf(text, sizeof(text),
             "each row is run alone (buckets: [%" PRIu32 "]): %s of a row differs %s when other "
             "rows are run with it (tolerance %.2g); the answers are right, and slower than "
             "batches would be",
             plan->rows[0], found->what, amount(found->distance, by), found->tolerance);
    warn(rt, "rows_depend", text);
    return 0;
}

static void
skip(struct module_runtime *rt, const struct cn_error *why)
{
    struct module_probe_result *found = &rt->probe;
    char quoted[CN_ERROR_MESSAGE_MAX + 64];

    found->end = MODULE_PROBE_SKIPPED;
    snprintf(found->reason, sizeof(found->reason), "%.*s", (int)sizeof(found->reason) - 1,
             why->message);
    cn_log(CN_LOG_INFO, "event=%s_probe_skipped model=%s version=%s reason=%s",
           rt->config.kind->runtime, rt->load->model_name, rt->load->model_version,
           cn_log_quote(why->message, strlen(why->message), quoted, sizeof(quoted)));
}

static int
judge(struct probe *probe, struct cn_error *err)
{
    struct module_runtime *rt = probe->rt;
    struct module_probe_result *found = probe->found;
    struct cn_error why = {0};
    bool random = false;
    int rc;

    /* The first call only remembers the values. */
    if (rt->api->changed(rt->model, found->changed, sizeof(found->changed), rt->error,
                         CTT_ERROR_BYTES))
        found->changed[0] = '\0';
    rc = begin(probe, &why);
    if (rc == 0)
        rc = run_again(probe, &why);
    if (rc == 0 && rt->api->changed(rt->model, found->changed, sizeof(found->changed), rt->error,
                                    CTT_ERROR_BYTES))
        found->changed[0] = '\0';
    if (rc == 0 && found->distance > found->tolerance && rt->config.kind->keeps_nothing) {
        found->end = MODULE_PROBE_RANDOM;
        found->distance = 0;
        return 0;
    }
    if (rc == 0 && found->distance > found->tolerance)
        return refuse_memory(rt, err);
    if (rc == 0)
        rc = is_random(probe, &random, &why);
    if (rc == 0 && random) {
        found->end = MODULE_PROBE_RANDOM;
        return 0;
    }
    if (rc == 0) {
        find_alike(probe);
        rc = run_buckets(probe, &why);
    }
    if (rc != 0)
        skip(rt, &why);
    return 0;
}

int
cn_module_probe(struct module_runtime *rt, struct cn_error *err)
{
    struct module_item *items = rt->items;
    struct module_row *rows = rt->rows;
    struct module_probe_result *found = &rt->probe;
    struct probe probe = {.rt = rt, .found = found, .seed = rt->config.probe_seed};
    const uint64_t begun_us = cn_now_us();
    int rc;

    found->end = MODULE_PROBE_OFF;
    if (!rt->config.probe)
        return 0;
    if (rt->plan.cost_us[0] <= 0) { /* dims have -1, and no size is known that the model accepts */
        found->end = MODULE_PROBE_SKIPPED;
        snprintf(found->reason, sizeof(found->reason),
                 "the model accepts no input of the size that %s.warmup gives",
                 rt->config.kind->runtime);
        return 0;
    }
    cn_module_progress(rt, "comparing rows alone and together", 0, 0);
    found->end = MODULE_PROBE_ALIKE;
    found->tolerance = tolerance_of(rt);
    probe.until_us = begun_us + PROBE_MAX_US;
    cn_probe_make(&probe, rt);
    found->rows = probe.n;
    rt->items = probe.items;
    rt->rows = probe.rows;
    rc = judge(&probe, err);
    rt->items = items;
    rt->rows = rows;
    cn_probe_end(&probe);
    found->us = cn_now_us() - begun_us;
    if (rc == 0 && found->distance > found->tolerance)
        rc = set_apart(rt, err);
    else if (rc == 0 && found->changed[0] && found->end != MODULE_PROBE_SKIPPED) {
        char text[512];

        snprintf(
            text, sizeof(text),
            "runs change %s of the module, which all sequences of a worker share; in %u random "
            "rows, each run twice, no answer depended on that, so nothing is known to be wrong",
            found->changed, found->rows);
        warn(rt, "module_changes", text);
    }
    return rc;
}
