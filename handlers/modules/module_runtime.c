/* handlers/modules/module_runtime.c - loads a model, measures it and describes it. module_run.c
 * runs its batches. Worker's thread.
 *
 * A model is opened in this order, and each part needs the one before:
 *   settings    module_config.c reads the YAML; nothing of the model is loaded if it is wrong
 *   library     the kind opens it and loads the model's file (kind->load)
 *   files       the first values of states with init: {file: ...}
 *   rooms       the arrays of a run, whose sizes are known from the settings
 *   warm-up     each bucket runs with zeros and is measured (module_warmup.c)
 *   plan        which bucket to run for how many rows (module_plan.c)
 *   probe       do rows influence each other? (module_probe.c)
 * A failure at any point closes what is there, so cn_module_close() must accept a runtime that is
 * only half made. */
#include "handlers/modules/module_runtime.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/model/model_state.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/modules/module.h"

/* --- loading --- */

static int
read_init_files(struct module_runtime *rt, struct cn_error *err)
{
    const struct cn_state_specs *specs = &rt->config.io->state;
    int rc = 0;

    rt->init_files = cn_alloc((specs->n + 1) * sizeof(*rt->init_files));
    for (uint32_t i = 0; rc == 0 && i < specs->n; i++)
        if (specs->items[i].init == CN_STATE_FILE)
            rc = cn_model_state_read_file(&specs->items[i], rt->load->model_dir, &rt->init_files[i],
                                          err);
    return rc;
}

/* Then two rows always have the same shapes, and need not be compared before they are put into one
 * run. */
static bool
has_fixed_shapes(const struct cn_model_io *io)
{
    for (uint32_t i = 0; i < io->n_inputs; i++)
        for (uint32_t d = 0; d < io->inputs[i].rank; d++)
            if (io->inputs[i].dims[d] < 0)
                return false;
    for (uint32_t i = 0; i < io->state.n; i++)
        for (uint32_t d = 0; d < io->state.items[i].rank; d++)
            if (io->state.items[i].dims[d] < 0)
                return false;
    return true;
}

static void
make_room(struct module_runtime *rt)
{
    const struct cn_module_config *config = &rt->config;

    rt->batches = cn_alloc((config->n_attributes + 1) * sizeof(*rt->batches));
    rt->types = cn_alloc((config->io->n_inputs + 1) * sizeof(*rt->types));
    rt->arguments = cn_alloc((config->n_arguments + 1) * sizeof(*rt->arguments));
    rt->values = cn_alloc((config->n_attributes + 1) * sizeof(*rt->values));
    rt->results = cn_alloc((config->n_results + 1) * sizeof(*rt->results));
    rt->pieces = cn_alloc((config->n_attributes + config->n_arguments + config->n_results + 1) *
                          sizeof(*rt->pieces));
    rt->draft = cn_module_layout_create(config->io->state.n);
    rt->kept = cn_alloc((config->n_attributes + 1) * sizeof(*rt->kept));
    rt->cap_items = (uint32_t)rt->load->batch_size;
    rt->items = cn_alloc(rt->cap_items * sizeof(*rt->items));
    rt->cap_rows = rt->cap_items;
    rt->rows = cn_alloc(rt->cap_rows * sizeof(*rt->rows));
    rt->fixed = has_fixed_shapes(config->io);
    rt->alike = rt->fixed;
    for (uint32_t i = 0; i < config->io->state.n; i++)
        rt->alike = rt->alike && config->io->state.items[i].init != CN_STATE_NONE;
    for (uint32_t i = 0; i < config->n_attributes; i++)
        rt->alike = rt->alike && !cn_module_is_number(&config->attributes[i]);
}

/* --- metrics of the model, by bucket --- */

static void
sample(struct module_runtime *rt, enum cn_sample_type type, const char *name, const char *unit,
       uint32_t bucket, double value)
{
    char rows[16], full[32];
    struct cn_header dim = {CN_STR("Rows"), {rows, 0}};
    struct cn_error ignored; /* the model may have switched metrics off */

    snprintf(full, sizeof(full), "%s%s", rt->config.kind->metric, name);
    dim.value.len = (size_t)snprintf(rows, sizeof(rows), "%" PRIu32, rt->plan.rows[bucket]);
    cn_samples_add(&rt->base.samples,
                   &(struct cn_sample){type, cn_str_from(full), cn_str_from(unit), value, 1, &dim},
                   &ignored);
}

/* Called once a second, because samples of each batch would cost several microseconds of its time.
 */
void
cn_module_report(struct cn_runtime *base)
{
    struct module_runtime *rt = cn_module_checked(base);

    for (uint32_t b = 0; b < rt->plan.n; b++) {
        const struct module_spent *spent = &rt->spent[b];
        double runs = (double)spent->runs;

        if (spent->runs == 0)
            continue;
        sample(rt, CN_SAMPLE_COUNTER, "Runs", "Count", b, runs);
        /* The first run is always one of those that are timed. */
        sample(rt, CN_SAMPLE_COUNTER, "RunTime", "Microseconds", b,
               (double)spent->ns / 1000 * runs / (double)spent->timed);
        rt->spent[b] = (struct module_spent){0};
    }
}

/* Worker 1 gets the first device of the list, worker 2 the second one, and after the last device
 * the list begins again. Without a list, all devices of the machine take turns. */
int
cn_module_choose_device(struct module_runtime *rt, uint32_t *device, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    const uint64_t turn = rt->load->worker_index ? rt->load->worker_index - 1 : 0;
    uint32_t count = config->n_devices;

    if (!count && rt->api->devices(&count, rt->error, CTT_ERROR_BYTES)) {
        cn_module_log_error(rt, "load_failed");
        return cn_fail(err, CN_E_LOAD_FAILED, "%.*s", CN_STR_ARG(cn_torch_cause(rt->error, false)));
    }
    *device =
        config->n_devices ? config->devices[turn % config->n_devices] : (uint32_t)(turn % count);
    snprintf(rt->device, sizeof(rt->device), "cuda:%" PRIu32, *device);
    memcpy(rt->base.device, rt->device, sizeof(rt->device));
    return 0;
}

static int
open_all(struct module_runtime *rt, const struct cn_module_kind *kind, struct cn_error *err)
{
    struct cn_module_config *config = &rt->config;
    struct cn_module_plan *plan = &rt->plan;
    int rc = cn_module_config_read(config, kind, rt->load->model_dir, rt->load->config_file,
                                   (uint32_t)rt->load->batch_size, err);

    if (rc == 0 && config->io->state.n && !rt->load->stateful)
        rc = cn_fail(err, CN_E_CONFIG, "%s: state tensors need sequenceBatching: true",
                     rt->load->config_file);
    if (rc == 0)
        rc = kind->load(rt, err);
    if (rc == 0)
        rc = read_init_files(rt, err);
    if (rc)
        return rc;
    make_room(rt);
    plan->n = config->n_buckets;
    rt->spent = cn_alloc(plan->n * sizeof(*rt->spent));
    memcpy(plan->rows, config->buckets, sizeof(plan->rows[0]) * plan->n);
    if ((rc = cn_module_warm_up(rt, err)) != 0) {
        cn_module_log_error(rt, "load_failed");
        return rc;
    }
    cn_module_plan_make(plan, plan->rows[plan->n - 1] > rt->cap_items ? plan->rows[plan->n - 1]
                                                                      : rt->cap_items);
    if ((rc = cn_module_probe(rt, err)) != 0)
        return rc;
    memset(rt->spent, 0, plan->n * sizeof(*rt->spent)); /* runs of the warm-up do not count */
    for (uint32_t b = 0; b < plan->n; b++)
        if (plan->cost_us[b] > 0)
            sample(rt, CN_SAMPLE_GAUGE, "BucketTime", "Microseconds", b, plan->cost_us[b]);
    return 0;
}

void
cn_module_close(struct cn_runtime *base)
{
    struct module_runtime *rt;

    if (!base)
        return;
    rt = cn_module_checked(base);
    if (rt->model)
        rt->api->unload(rt->model);
    for (uint32_t i = 0; rt->init_files && i < rt->config.io->state.n; i++)
        cn_buf_fini(&rt->init_files[i]);
    for (uint32_t i = 0; rt->batches && i < rt->config.n_attributes; i++)
        cn_free(rt->batches[i].data);
    cn_free(rt->init_files);
    cn_free(rt->spent);
    cn_free(rt->batches);
    cn_free(rt->types);
    cn_free(rt->arguments);
    cn_free(rt->values);
    cn_free(rt->pieces);
    cn_module_layout_unref(rt->layout);
    cn_module_layout_unref(rt->draft);
    cn_free(rt->results);
    cn_free(rt->kept);
    cn_free(rt->items);
    cn_free(rt->rows);
    cn_free(rt->describe);
    cn_free(rt->error);
    cn_module_plan_fini(&rt->plan);
    cn_module_config_fini(&rt->config);
    cn_arena_fini(&rt->arena);
    cn_samples_fini(&rt->base.samples);
    rt->magic = 0;
    cn_free(rt);
}

int
cn_module_open(const struct cn_runtime_ops *ops, const struct cn_module_kind *kind,
               const struct cn_load *load, struct cn_runtime **out, struct cn_error *err)
{
    struct module_runtime *rt = cn_alloc(sizeof(*rt));
    char describe[160];
    int rc;

    rt->base.ops = ops;
    rt->base.keeps_state_tensors = true;
    rt->magic = MODULE_RUNTIME_MAGIC;
    rt->load = load;
    strcpy(rt->device, "cpu");
    rt->error = cn_alloc(CTT_ERROR_BYTES);
    cn_samples_init(&rt->base.samples, load);
    cn_arena_init(&rt->arena);
    if ((rc = open_all(rt, kind, err)) != 0) {
        cn_module_close(&rt->base);
        return rc;
    }
    snprintf(describe, sizeof(describe), "%s %s", kind->library, rt->api->version);
    if (strcmp(rt->api->version, rt->api->compiled) != 0)
        snprintf(describe, sizeof(describe), "%s %s (libcontinuo_torch.so was built with %s)",
                 kind->library, rt->api->version, rt->api->compiled);
    rt->describe = cn_strdup(describe);
    *out = &rt->base;
    return 0;
}

const char *
cn_module_describe(struct cn_runtime *rt)
{
    return cn_module_checked(rt)->describe;
}

/* Stored tensors carry their own names, types and shapes. */
uint32_t
cn_module_state_schema(struct cn_runtime *rt)
{
    (void)rt;
    return 1;
}

/* --- the model's description --- */

static json_t *
show_probe(const struct module_probe_result *probe)
{
    json_t *out = json_pack("{s:s}", "result", cn_module_probe_word(probe->end));

    if (probe->rows) {
        json_object_set_new(out, "rows", json_integer(probe->rows));
        json_object_set_new(out, "largestBucket", json_integer(probe->largest));
        json_object_set_new(out, "tolerance", json_real(probe->tolerance));
        json_object_set_new(out, "milliseconds", json_real((double)probe->us / 1000));
    }
    if (probe->what[0]) {
        json_object_set_new(out, "differs", json_string(probe->what));
        json_object_set_new(out, "by",
                            isinf(probe->distance) ? json_string("its shape, or infinity")
                                                   : json_real(probe->distance));
    }
    if (probe->reason[0])
        json_object_set_new(out, "reason", json_string(probe->reason));
    if (probe->changed[0])
        json_object_set_new(out, "changedAttributes", json_string(probe->changed));
    return out;
}

/* `firstBucketOfRows` shows the plan: for 1, 2, 4 ... waiting rows the bucket that runs first. If
 * it is smaller than the number of rows, larger batches were not worth it on this machine. */
void
cn_module_metadata(struct cn_runtime *base, struct cn_item *item)
{
    struct module_runtime *rt = cn_module_checked(base);
    const struct cn_module_plan *plan = &rt->plan;
    json_t *root = json_object(), *buckets = json_array(), *cuts = json_object();
    char *text, key[16];

    for (uint32_t b = 0; b < plan->n; b++) {
        json_t *bucket = json_pack("{s:I}", "rows", (json_int_t)plan->rows[b]);

        if (plan->cost_us[b] > 0)
            json_object_set_new(bucket, "microseconds", json_real(plan->cost_us[b]));
        json_array_append_new(buckets, bucket);
    }
    for (uint32_t n = 1; n <= plan->max_rows; n *= 2) {
        snprintf(key, sizeof(key), "%" PRIu32, n);
        json_object_set_new(cuts, key, json_integer(plan->rows[cn_module_plan_next(plan, n)]));
    }
    json_object_set_new(root, rt->config.kind->library, json_string(rt->api->version));
    json_object_set_new(root, "method", json_string(rt->api->schema(rt->model)));
    json_object_set_new(root, "device", json_string(rt->device));
    json_object_set_new(root, "threads", json_integer(rt->config.threads));
    json_object_set_new(root, "deterministic", json_boolean(rt->config.deterministic));
    json_object_set_new(root, "probe", show_probe(&rt->probe));
    json_object_set_new(root, "buckets", buckets);
    json_object_set_new(root, "firstBucketOfRows", cuts);
    text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6)); /* they are measured */
    json_decref(root);
    cn_buf_puts(&item->reply.body, text ? text : "{}");
    free(text);
}

void
cn_module_drop(struct cn_runtime *rt, void *resume)
{
    (void)rt;
    cn_assert(resume == NULL); /* an item of a module never sets `more` */
}

void
cn_module_state_free(struct cn_runtime *rt, void *state)
{
    (void)rt;
    cn_module_state_destroy(state);
}

void
cn_module_on_close(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
                   enum cn_close_reason reason)
{
    (void)rt;
    (void)sequence_id;
    (void)state;
    (void)reason;
}
