/* handlers/modules/module_runtime.c - the runtime "torch": loads a TorchScript model, measures
 * it and tells of it. Its batches are module_run.c's. Worker's thread. */
#include "handlers/modules/module_runtime.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/model/model_state.h"
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "handlers/modules/module_priv.h"
#include "handlers/torchlib/torch_library.h"
#include "handlers/torchlib/torch_message.h"

/* --- loading --- */

static bool
ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text), n = strlen(ending);

    return len >= n && strcmp(text + len - n, ending) == 0;
}

/* Workers take the devices in turns: those that the YAML names, or all that there are. */
static int
choose_device(struct module_runtime *rt, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    const uint64_t turn = rt->load->worker_index ? rt->load->worker_index - 1 : 0;
    uint32_t count = 0;

    if (!config->gpu)
        return 0;
    if (!config->n_devices && rt->api->devices(&count, rt->error, CTT_ERROR_BYTES)) {
        cn_module_log_error(rt, "torch_load_failed");
        return cn_fail(err, CN_E_LOAD_FAILED, "%.*s", CN_STR_ARG(cn_torch_cause(rt->error, false)));
    }
    snprintf(rt->device, sizeof(rt->device), "cuda:%" PRIu32,
             config->n_devices ? config->devices[turn % config->n_devices]
                               : (uint32_t)(turn % count));
    return 0;
}

/* Attributes that are state: what the module holds there, a tensor or a number. */
static int
look_at_attributes(struct module_runtime *rt, struct cn_error *err)
{
    struct cn_module_config *config = &rt->config;

    for (uint32_t i = 0; i < config->n_attributes; i++) {
        struct cn_module_attribute *attribute = &config->attributes[i];

        if (attribute->state >= 0 &&
            rt->api->attribute_kind(rt->model, attribute->name, &attribute->kind, rt->error,
                                    CTT_ERROR_BYTES))
            return cn_fail(err, CN_E_LOAD_FAILED, "torch.attributes of %s: %.*s", rt->load->handler,
                           CN_STR_ARG(cn_torch_cause(rt->error, true)));
    }
    return 0;
}

static int
load_model(struct module_runtime *rt, struct cn_error *err)
{
    const struct cn_module_config *config = &rt->config;
    struct ctt_options options = {.device = rt->device,
                                  .submodule = config->submodule,
                                  .method = config->method,
                                  .threads = (int32_t)config->threads,
                                  .fusion = config->fusion};
    struct cn_buf path;
    int rc;

    if ((rc = choose_device(rt, err)) != 0)
        return rc;
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", rt->load->model_dir, rt->load->handler);
    cn_buf_append(&path, "", 1);
    options.file = path.data;
    rc = rt->api->load(&options, &rt->model, rt->error, CTT_ERROR_BYTES);
    cn_buf_fini(&path);
    if (rc == 0 && config->gpu)
        memcpy(rt->base.device, rt->device, sizeof(rt->device));
    if (rc == 0)
        return look_at_attributes(rt, err);
    cn_module_log_error(rt, "torch_load_failed");
    return cn_fail(err, CN_E_LOAD_FAILED, "libtorch %s cannot load %s as %s: %.*s",
                   rt->api->version, rt->load->handler,
                   ends_with(rt->load->handler, ".pt2")
                       ? "a package of AOTInductor"
                       : "TorchScript (torch.jit.script(model).save())",
                   CN_STR_ARG(cn_torch_cause(rt->error, false)));
}

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
    rt->results = cn_alloc((config->n_results + 1) * sizeof(*rt->results));
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

/* --- what it measures: metrics of the model, by bucket */

static void
sample(struct module_runtime *rt, enum cn_sample_type type, const char *name, const char *unit,
       uint32_t bucket, double value)
{
    char rows[16];
    struct cn_header dim = {CN_STR("Rows"), {rows, 0}};
    struct cn_error ignored; /* a model may have switched metrics off */

    dim.value.len = (size_t)snprintf(rows, sizeof(rows), "%" PRIu32, rt->plan.rows[bucket]);
    cn_samples_add(&rt->base.samples,
                   &(struct cn_sample){type, cn_str_from(name), cn_str_from(unit), value, 1, &dim},
                   &ignored);
}

/* Once a second: samples of each batch were several microseconds of it. */
static void
runtime_report(struct cn_runtime *base)
{
    struct module_runtime *rt = cn_module_checked(base);

    for (uint32_t b = 0; b < rt->plan.n; b++) {
        const struct module_spent *spent = &rt->spent[b];
        double runs = (double)spent->runs;

        if (spent->runs == 0)
            continue;
        sample(rt, CN_SAMPLE_COUNTER, "TorchRuns", "Count", b, runs);
        /* The first one is always among those that were timed. */
        sample(rt, CN_SAMPLE_COUNTER, "TorchRunTime", "Microseconds", b,
               (double)spent->ns / 1000 * runs / (double)spent->timed);
        rt->spent[b] = (struct module_spent){0};
    }
}

static int
open_all(struct module_runtime *rt, struct cn_error *err)
{
    struct cn_module_config *config = &rt->config;
    struct cn_module_plan *plan = &rt->plan;
    int rc = cn_module_config_read(config, rt->load->model_dir, rt->load->config_file,
                                   (uint32_t)rt->load->batch_size, err);

    if (rc == 0 && config->io->state.n && !rt->load->stateful)
        rc = cn_fail(err, CN_E_CONFIG, "%s: state tensors need sequenceBatching: true",
                     rt->load->config_file);
    if (rc == 0) {
        cn_module_progress(rt, "opening libtorch", 0, 0);
        rc = cn_torch_library_open(rt->load->torch_library, &rt->api, err);
    }
    if (rc == 0) {
        cn_module_progress(rt, "reading the model", 0, 0);
        rc = load_model(rt, err);
    }
    if (rc == 0)
        rc = read_init_files(rt, err);
    if (rc)
        return rc;
    make_room(rt);
    plan->n = config->n_buckets;
    rt->spent = cn_alloc(plan->n * sizeof(*rt->spent));
    memcpy(plan->rows, config->buckets, sizeof(plan->rows[0]) * plan->n);
    if ((rc = cn_module_warm_up(rt, err)) != 0) {
        cn_module_log_error(rt, "torch_load_failed");
        return rc;
    }
    cn_module_plan_make(plan, plan->rows[plan->n - 1] > rt->cap_items ? plan->rows[plan->n - 1]
                                                                      : rt->cap_items);
    if ((rc = cn_module_probe(rt, err)) != 0)
        return rc;
    memset(rt->spent, 0, plan->n * sizeof(*rt->spent)); /* trials are no work */
    for (uint32_t b = 0; b < plan->n; b++)
        if (plan->cost_us[b] > 0)
            sample(rt, CN_SAMPLE_GAUGE, "TorchBucketTime", "Microseconds", b, plan->cost_us[b]);
    return 0;
}

/* Threads of an operator don't live on in a child, and libtorch would wait for them. */
static int
runtime_check_zygote(const struct cn_load *load, struct cn_error *err)
{
    struct cn_module_config config;
    uint32_t threads;
    bool gpu;

    if (cn_module_config_read(&config, load->model_dir, load->config_file,
                              (uint32_t)load->batch_size, NULL) != 0)
        return 0;
    threads = config.threads;
    gpu = config.gpu;
    cn_module_config_fini(&config);
    if (gpu)
        return cn_fail(err, CN_E_UNIMPLEMENTED, "deviceType is gpu: CUDA doesn't live through it");
    if (threads > 1)
        return cn_fail(err, CN_E_UNIMPLEMENTED, "torch.threads is %" PRIu32, threads);
    return 0;
}

/* In the process that serves: two that were forked from one would draw the same random numbers, as
 * would one that comes in place of a dead one. */
static void
runtime_serve(struct cn_runtime *base)
{
    struct module_runtime *rt = cn_module_checked(base);
    uint64_t seed = rt->config.seed * 0x9e3779b97f4a7c15u + rt->load->worker_index;

    if (!rt->config.has_seed)
        seed = cn_torch_new_seed();
    rt->api->seed(seed);
}

static void
runtime_close(struct cn_runtime *base)
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

static int
runtime_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
             struct cn_error *err)
{
    struct module_runtime *rt = cn_alloc(sizeof(*rt));
    char describe[160];
    int rc;

    (void)config_json; /* the YAML itself says in which line a mistake is */
    rt->base.ops = &cn_torch_runtime_ops;
    rt->base.keeps_state_tensors = true;
    rt->magic = MODULE_RUNTIME_MAGIC;
    rt->load = load;
    strcpy(rt->device, "cpu");
    rt->error = cn_alloc(CTT_ERROR_BYTES);
    cn_samples_init(&rt->base.samples, load);
    cn_arena_init(&rt->arena);
    if ((rc = open_all(rt, err)) != 0) {
        runtime_close(&rt->base);
        return rc;
    }
    snprintf(describe, sizeof(describe), "libtorch %s", rt->api->version);
    if (strcmp(rt->api->version, rt->api->compiled) != 0)
        snprintf(describe, sizeof(describe), "libtorch %s (libcontinuo_torch.so was built with %s)",
                 rt->api->version, rt->api->compiled);
    rt->describe = cn_strdup(describe);
    *out = &rt->base;
    return 0;
}

static const char *
runtime_describe(struct cn_runtime *rt)
{
    return cn_module_checked(rt)->describe;
}

/* Stored tensors carry their own names, types and shapes. */
static uint32_t
runtime_state_schema(struct cn_runtime *rt)
{
    (void)rt;
    return 1;
}

/* --- what it tells of itself --- */

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

static void
runtime_metadata(struct cn_runtime *base, struct cn_item *item)
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
    json_object_set_new(root, "libtorch", json_string(rt->api->version));
    json_object_set_new(root, "method", json_string(rt->api->schema(rt->model)));
    json_object_set_new(root, "device", json_string(rt->device));
    json_object_set_new(root, "threads", json_integer(rt->config.threads));
    json_object_set_new(root, "deterministic", json_boolean(rt->config.deterministic));
    json_object_set_new(root, "probe", show_probe(&rt->probe));
    json_object_set_new(root, "buckets", buckets);
    json_object_set_new(root, "firstBucketOfRows", cuts);
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    cn_buf_puts(&item->reply.body, text ? text : "{}");
    free(text);
}

static void
runtime_drop(struct cn_runtime *rt, void *resume)
{
    (void)rt;
    cn_assert(resume == NULL); /* no item ever says `more` */
}

static void
runtime_state_free(struct cn_runtime *rt, void *state)
{
    (void)rt;
    cn_module_state_destroy(state);
}

static void
runtime_on_close(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
                 enum cn_close_reason reason)
{
    (void)rt;
    (void)sequence_id;
    (void)state;
    (void)reason;
}

const struct cn_runtime_ops cn_torch_runtime_ops = {
    .name = "torch",
    .open = runtime_open,
    .close = runtime_close,
    .check_zygote = runtime_check_zygote,
    .serve = runtime_serve,
    .describe = runtime_describe,
    .state_schema = runtime_state_schema,
    .run = cn_module_run,
    .drop = runtime_drop,
    .metadata = runtime_metadata,
    .state_encode = cn_module_state_encode,
    .state_decode = cn_module_state_decode,
    .state_free = runtime_state_free,
    .on_close = runtime_on_close,
    .report = runtime_report,
};
