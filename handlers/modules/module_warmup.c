/* handlers/modules/module_warmup.c - runs a model with zeros before its first request. Worker's
 * thread.
 *
 * The first calls of a module are slow (TorchScript profiles them), so they are made here. Each
 * bucket's time is measured for handlers/modules/module_plan.h. If a declaration in the YAML does
 * not fit the model, the run fails here, and so does the registration.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/modules/module.h"

#define WARM_CALLS 2
/* The fastest of a bucket's calls counts. Small models are called more often, until this much time
 * is over, because anything that disturbs a short call changes its time by much. */
#define MEASURED_CALLS 6
#define MEASURED_CALLS_MAX 40
#define MEASURE_US 30000
#define MEASURE_MAX_US 500000 /* for all buckets, but each of them is called once */

int
cn_module_input_of(const struct cn_tensor_spec *spec, bool batched, int64_t open,
                   struct cn_arena *arena, struct cn_tensor *out, struct cn_error *err)
{
    uint64_t elements, bytes;
    char *zeros;

    *out = (struct cn_tensor){.name = spec->name, .type = spec->type, .rank = spec->rank + batched};
    out->shape[0] = 1;
    for (uint32_t d = 0; d < spec->rank; d++)
        out->shape[d + batched] = spec->dims[d] < 0 ? open : spec->dims[d];
    if (!cn_shape_elements(out->shape, out->rank, &elements) ||
        __builtin_mul_overflow(elements, cn_datatype_bytes(spec->type), &bytes) ||
        bytes > SIZE_MAX / 2 || !(zeros = cn_arena_try_alloc(arena, bytes ? bytes : 1)))
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for the input %.*s",
                       CN_STR_ARG(spec->name));
    memset(zeros, 0, bytes);
    out->data = (struct cn_str){zeros, bytes};
    return 0;
}

/* Makes one call with `rows` rows, all of them the same request. */
static int
run_once(struct module_runtime *rt, struct cn_item *item, const struct cn_tensor *inputs,
         uint32_t rows, struct cn_error *err)
{
    const uint32_t indices[1] = {0}; /* the rest of the bucket is filled with copies of this row */
    const struct cn_model_io *io = rt->config.io;
    const char **data = cn_arena_alloc(&rt->arena, (io->n_inputs + 1) * sizeof(*data));

    rt->items[0].outputs =
        cn_arena_alloc(&rt->arena, (io->n_outputs + 1) * sizeof(*rt->items[0].outputs));
    memset(rt->items[0].outputs, 0, io->n_outputs * sizeof(*rt->items[0].outputs));
    for (uint32_t i = 0; i < io->n_inputs; i++)
        data[i] = inputs[i].data.ptr;
    rt->items[0].item = item;
    rt->items[0].inputs = inputs;
    rt->items[0].data = data;
    rt->items[0].n_rows = 1;
    memset(rt->rows, 0, sizeof(*rt->rows));
    return cn_module_batch_run(rt, indices, 1, rows, err);
}

/* Returns the present time of the clock by which runs are measured: the thread's CPU time, so that
 * other work of the machine does not count. With several threads, or on a GPU, it is real time. */
static uint64_t
spent_us(const struct module_runtime *rt)
{
    struct timespec at;

    if (rt->config.threads > 1 || rt->config.gpu ||
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at) != 0)
        return cn_now_us();
    return (uint64_t)at.tv_sec * 1000000 + (uint64_t)at.tv_nsec / 1000;
}

/* Makes the first step of a sequence, with as many rows as the bucket has. Its time counts if it is
 * the least. */
static int
measure(struct module_runtime *rt, const struct cn_tensor *inputs, uint32_t b, struct cn_error *err)
{
    struct module_state *state = NULL;
    struct cn_item item = {0};
    double *cost_us = &rt->plan.cost_us[b];
    uint64_t us;
    int rc;

    if ((rc = cn_module_state_begin(rt, NULL, &state, err)) != 0)
        return rc;
    item.state = state;
    us = spent_us(rt);
    rc = run_once(rt, &item, inputs, rt->plan.rows[b], err);
    us = spent_us(rt) - us;
    if (rc == 0 && (*cost_us == 0 || (double)us < *cost_us))
        *cost_us = us ? (double)us : 1;
    cn_module_state_destroy(state);
    cn_arena_clear(&rt->arena);
    return rc;
}

/* Measures the buckets in turn, so that a disturbance does not fall on all calls of one of them. */
static int
measure_all(struct module_runtime *rt, const struct cn_tensor *inputs, struct cn_error *err)
{
    const uint64_t begun_us = cn_now_us();
    uint64_t us = 0;
    int rc = 0;

    memset(rt->plan.cost_us, 0, sizeof(rt->plan.cost_us));
    for (int call = 0; rc == 0 && call < MEASURED_CALLS_MAX &&
                       us < (call < MEASURED_CALLS ? MEASURE_MAX_US : MEASURE_US);
         call++) {
        for (uint32_t b = 0; rc == 0 && b < rt->plan.n; b++)
            rc = measure(rt, inputs, b, err);
        us = cn_now_us() - begun_us;
    }
    return rc;
}

static int
try_all(struct module_runtime *rt, struct cn_arena *arena, struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    struct cn_tensor *inputs = cn_arena_alloc(arena, (io->n_inputs + 1) * sizeof(struct cn_tensor));
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < io->n_inputs; i++)
        rc = cn_module_input_of(&io->inputs[i], io->max_batch_size > 0, rt->config.warmup, arena,
                                &inputs[i], err);
    for (uint32_t b = 0; rc == 0 && b < rt->plan.n; b++) {
        cn_module_progress(rt, "warming up batches", b, rt->plan.n);
        for (int call = 0; rc == 0 && call < WARM_CALLS; call++)
            rc = measure(rt, inputs, b, err);
    }
    if (rc == 0)
        rc = measure_all(rt, inputs, err);
    return rc;
}

int
cn_module_warm_up(struct module_runtime *rt, struct cn_error *err)
{
    char quoted[CN_ERROR_MESSAGE_MAX + 64];
    struct cn_arena arena;
    int rc;

    cn_arena_init(&arena);
    rc = try_all(rt, &arena, err);
    cn_arena_fini(&arena);
    cn_arena_fini(&rt->arena);
    if (rc == 0 || rt->fixed)
        return rc;
    /* The model may refuse the size that we have chosen for -1. */
    cn_log(CN_LOG_WARN, "event=%s_warmup_failed model=%s version=%s warmup=%" PRIu32 " reason=%s",
           rt->config.kind->runtime, rt->load->model_name, rt->load->model_version,
           rt->config.warmup,
           cn_log_quote(err->message, strlen(err->message), quoted, sizeof(quoted)));
    memset(rt->plan.cost_us, 0, sizeof(rt->plan.cost_us));
    return 0;
}
