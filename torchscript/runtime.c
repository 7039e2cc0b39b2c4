/* torchscript/runtime.c - the runtime "torch": loads a TorchScript model, takes batches of requests and
 * answers them. Worker's thread. */
#include "torchscript/runtime.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "config/model_state.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/panic.h"
#include "handlers/reply.h"
#include "torchlib/library.h"
#include "torchlib/message.h"
#include "torchscript/torchscript_priv.h"

static struct torch_runtime *
checked(struct cn_runtime *rt)
{
    return cn_cast(struct torch_runtime, torch_rt(rt), TORCH_RUNTIME_MAGIC);
}

static void
log_message(const struct torch_runtime *rt, const char *event)
{
    cn_torch_log(event, rt->load->model_name, rt->load->model_version, rt->error);
}

/* --- loading --- */

static bool
ends_with(const char *text, const char *ending)
{
    size_t len = strlen(text), n = strlen(ending);

    return len >= n && strcmp(text + len - n, ending) == 0;
}

static int
load_model(struct torch_runtime *rt, struct cn_error *err)
{
    const struct cn_torch_config *config = &rt->config;
    struct ctt_options options = {.device = rt->device,
                                  .submodule = config->submodule,
                                  .method = config->method,
                                  .threads = (int32_t)config->threads,
                                  .fusion = config->fusion};
    struct cn_buf path;
    int rc;

    if (config->gpu)
        snprintf(rt->device, sizeof(rt->device), "cuda:%" PRIu32,
                 config->devices[(rt->load->worker_index - 1) % config->n_devices]);
    cn_buf_init(&path, 0);
    cn_buf_printf(&path, "%s/%s", rt->load->model_dir, rt->load->handler);
    cn_buf_append(&path, "", 1);
    options.file = path.data;
    rc = rt->api->load(&options, &rt->model, rt->error, CTT_ERROR_BYTES);
    cn_buf_fini(&path);
    if (rc == 0 && config->gpu)
        memcpy(rt->base.device, rt->device, sizeof(rt->device));
    if (rc == 0)
        return 0;
    log_message(rt, "torch_load_failed");
    return cn_fail(err, CN_E_LOAD_FAILED, "libtorch %s cannot load %s as %s: %.*s",
                   rt->api->version, rt->load->handler,
                   ends_with(rt->load->handler, ".pt2")
                       ? "a package of AOTInductor"
                       : "TorchScript (torch.jit.script(model).save())",
                   CN_STR_ARG(cn_torch_cause(rt->error, false)));
}

static int
read_init_files(struct torch_runtime *rt, struct cn_error *err)
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
make_room(struct torch_runtime *rt)
{
    const struct cn_torch_config *config = &rt->config;

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
}

/* --- what it measures: metrics of the model, by bucket */

static void
sample(struct torch_runtime *rt, enum cn_sample_type type, const char *name, const char *unit,
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
    struct torch_runtime *rt = checked(base);

    for (uint32_t b = 0; b < rt->plan.n; b++) {
        const struct torch_spent *spent = &rt->spent[b];
        double runs = (double)spent->runs;

        if (spent->runs == 0)
            continue;
        sample(rt, CN_SAMPLE_COUNTER, "TorchRuns", "Count", b, runs);
        /* The first one is always among those that were timed. */
        sample(rt, CN_SAMPLE_COUNTER, "TorchRunTime", "Microseconds", b,
               (double)spent->ns / 1000 * runs / (double)spent->timed);
        rt->spent[b] = (struct torch_spent){0};
    }
}

static int
open_all(struct torch_runtime *rt, struct cn_error *err)
{
    struct cn_torch_config *config = &rt->config;
    struct cn_torch_plan *plan = &rt->plan;
    int rc = cn_torch_config_read(config, rt->load->model_dir, rt->load->config_file,
                                  (uint32_t)rt->load->batch_size, err);

    if (rc == 0 && config->io->state.n && !rt->load->stateful)
        rc = cn_fail(err, CN_E_CONFIG, "%s: state tensors need sequenceBatching: true",
                     rt->load->config_file);
    if (rc == 0) {
        cn_torch_progress(rt, "opening libtorch", 0, 0);
        rc = cn_torch_library_open(rt->load->torch_library, &rt->api, err);
    }
    if (rc == 0) {
        cn_torch_progress(rt, "reading the model", 0, 0);
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
    if ((rc = cn_torch_warm_up(rt, err)) != 0) {
        log_message(rt, "torch_load_failed");
        return rc;
    }
    cn_torch_plan_make(plan, plan->rows[plan->n - 1] > rt->cap_items ? plan->rows[plan->n - 1]
                                                                     : rt->cap_items);
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
    struct cn_torch_config config;
    uint32_t threads;
    bool gpu;

    if (cn_torch_config_read(&config, load->model_dir, load->config_file,
                             (uint32_t)load->batch_size, NULL) != 0)
        return 0;
    threads = config.threads;
    gpu = config.gpu;
    cn_torch_config_fini(&config);
    if (gpu)
        return cn_fail(err, CN_E_UNIMPLEMENTED, "deviceType is gpu: CUDA doesn't live through it");
    if (threads > 1)
        return cn_fail(err, CN_E_UNIMPLEMENTED, "torch.threads is %" PRIu32, threads);
    return 0;
}

static void
runtime_close(struct cn_runtime *base)
{
    struct torch_runtime *rt;

    if (!base)
        return;
    rt = checked(base);
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
    cn_torch_plan_fini(&rt->plan);
    cn_torch_config_fini(&rt->config);
    cn_arena_fini(&rt->arena);
    cn_samples_fini(&rt->base.samples);
    rt->magic = 0;
    cn_free(rt);
}

static int
runtime_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
             struct cn_error *err)
{
    struct torch_runtime *rt = cn_alloc(sizeof(*rt));
    char describe[64];
    int rc;

    (void)config_json; /* the YAML itself says in which line a mistake is */
    rt->base.ops = &cn_torch_runtime_ops;
    rt->base.keeps_state_tensors = true;
    rt->magic = TORCH_RUNTIME_MAGIC;
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
    rt->describe = cn_strdup(describe);
    *out = &rt->base;
    return 0;
}

static const char *
runtime_describe(struct cn_runtime *rt)
{
    return checked(rt)->describe;
}

/* Stored tensors carry their own names, types and shapes. */
static uint32_t
runtime_state_schema(struct cn_runtime *rt)
{
    (void)rt;
    return 1;
}

/* --- a request's tensors --- */

static int
check_input(const struct cn_part *part, const struct cn_tensor_spec *spec, bool batched,
            struct cn_tensor *out, struct cn_error *err)
{
    const int64_t *dims = out->shape + batched;
    struct cn_arena arena;
    bool fits;
    int rc;

    if (!part || !cn_tensor_of_part(part, out))
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "the request has no tensor %.*s: give the inputs that the model declares",
                       CN_STR_ARG(spec->name));
    if ((rc = cn_tensor_check(out, err)) != 0)
        return rc;
    fits = out->type == spec->type && out->rank == spec->rank + batched;
    for (uint32_t d = 0; fits && d < spec->rank; d++)
        fits = spec->dims[d] < 0 || spec->dims[d] == dims[d];
    if (fits)
        return 0;
    cn_arena_init(&arena);
    rc = cn_fail(err, CN_E_BAD_REQUEST, "input %.*s is %s%s, the model takes %s%s%s",
                 CN_STR_ARG(spec->name), cn_datatype_word(out->type),
                 cn_shape_text(&arena, out->shape, out->rank), cn_datatype_word(spec->type),
                 cn_shape_text(&arena, spec->dims, spec->rank),
                 batched ? " behind the batch dimension" : "");
    cn_arena_fini(&arena);
    return rc;
}

/* Rows of a batch mostly say the same of their tensors: then only the data is looked at. `before`: the
 * input of the last row that was fine; NULL: none. */
static int
take_input(struct torch_runtime *rt, const struct cn_row *row, uint32_t i,
           const struct cn_tensor *before, struct cn_tensor *out, struct cn_error *err)
{
    const struct cn_tensor_spec *spec = &rt->config.io->inputs[i];
    const struct cn_part *part = cn_row_part(row, spec->name);
    int rc;

    if (before && part && part->data.len == before->data.len &&
        cn_str_eq(part->content_type, rt->types[i])) {
        *out = *before;
        out->data = part->data;
        return 0;
    }
    rc = check_input(part, spec, rt->config.io->max_batch_size > 0, out, err);
    if (rc == 0)
        rt->types[i] = part->content_type;
    return rc;
}

/* Rows of a request: its first dimension, which all inputs must share. */
static int
count_rows(const struct torch_runtime *rt, struct torch_item *item, struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    int64_t rows = io->max_batch_size ? item->inputs[0].shape[0] : 1;

    for (uint32_t i = 1; i < io->n_inputs && io->max_batch_size; i++)
        if (item->inputs[i].shape[0] != rows)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "input %.*s has %" PRId64 " rows, input %.*s %" PRId64,
                           CN_STR_ARG(io->inputs[0].name), rows, CN_STR_ARG(io->inputs[i].name),
                           item->inputs[i].shape[0]);
    if (rt->load->stateful && rows != 1)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "a step of a sequence is one row, not %" PRId64 ": a batch dimension of 1",
                       rows);
    if (rows < 1 || (io->max_batch_size && rows > io->max_batch_size))
        return cn_fail(err, CN_E_BAD_REQUEST, "%" PRId64 " rows; the model takes 1 to %" PRIu32,
                       rows, io->max_batch_size);
    item->n_rows = (uint32_t)rows;
    return 0;
}

/* `before`: the inputs of the last row that was fine, or NULL. */
static int
take_item(struct torch_runtime *rt, struct torch_item *item, const struct cn_tensor *before,
          struct cn_error *err)
{
    const struct cn_model_io *io = rt->config.io;
    struct cn_item *theirs = item->item;
    struct torch_state *state;
    int rc = 0;

    item->inputs = cn_arena_alloc(&rt->arena, (io->n_inputs + 1) * sizeof(*item->inputs));
    item->outputs = cn_arena_alloc(&rt->arena, (io->n_outputs + 1) * sizeof(*item->outputs));
    memset(item->outputs, 0, io->n_outputs * sizeof(*item->outputs));
    for (uint32_t i = 0; rc == 0 && i < io->n_inputs; i++)
        rc = take_input(rt, theirs->row, i, before ? &before[i] : NULL, &item->inputs[i], err);
    if (rc == 0)
        rc = count_rows(rt, item, err);
    if (rc == 0 && rt->load->stateful && !theirs->state) {
        if ((rc = cn_torch_state_begin(rt, theirs->row, &state, err)) == 0)
            theirs->state = state; /* the worker's from here on, whatever comes of the step */
    }
    return rc;
}

static void
fail_item(struct torch_item *item, const struct cn_error *err)
{
    item->failed = true;
    if (err->code == CN_E_HANDLER_FAILED)
        cn_reply_refuse(&item->item->reply, 0, cn_str_from(err->message));
    else
        cn_reply_fail(&item->item->reply, err->code, "%s", err->message);
}

static void
add_rows(struct torch_runtime *rt, uint32_t item, uint32_t n)
{
    while (rt->n_rows + n > rt->cap_rows) {
        struct torch_row *rows = cn_alloc(2 * (size_t)rt->cap_rows * sizeof(*rows));

        memcpy(rows, rt->rows, rt->n_rows * sizeof(*rows));
        cn_free(rt->rows);
        rt->rows = rows;
        rt->cap_rows *= 2; /* at most batchSize times maxBatchSize */
    }
    for (uint32_t i = 0; i < n; i++)
        rt->rows[rt->n_rows++] = (struct torch_row){.item = item, .index = i};
}

/* --- batches --- */

static bool
same_shape(const struct torch_runtime *rt, const struct torch_row *a, const struct torch_row *b)
{
    const struct torch_item *left = &rt->items[a->item], *right = &rt->items[b->item];
    const struct torch_state *mine = left->item->state, *theirs = right->item->state;
    const bool batched = rt->config.io->max_batch_size > 0;

    if (rt->fixed || a->item == b->item)
        return true;
    for (uint32_t i = 0; i < rt->config.io->n_inputs; i++) {
        const struct cn_tensor *x = &left->inputs[i], *y = &right->inputs[i];

        if (memcmp(x->shape + batched, y->shape + batched,
                   sizeof(x->shape[0]) * (x->rank - batched)) != 0)
            return false;
    }
    for (uint32_t i = 0; mine && i < mine->n; i++)
        if (memcmp(mine->tensors[i].dims, theirs->tensors[i].dims,
                   sizeof(mine->tensors[i].dims[0]) * mine->tensors[i].rank) != 0)
            return false;
    return true;
}

static void
fail_rows(struct torch_runtime *rt, const uint32_t *rows, uint32_t n, const struct cn_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        fail_item(&rt->items[rt->rows[rows[i]].item], err);
}

/* When a run fails its rows run one by one, so that a row's fault is nobody else's. */
static void
run_cut(struct torch_runtime *rt, const uint32_t *rows, uint32_t n, uint32_t bucket)
{
    struct cn_error err;

    if (cn_torch_batch_run(rt, rows, n, bucket, &err) == 0)
        return;
    if (n == 1) {
        log_message(rt, "torch_error");
        fail_rows(rt, rows, 1, &err);
        return;
    }
    bucket = rt->plan.rows[cn_torch_plan_next(&rt->plan, 1)];
    for (uint32_t i = 0; i < n; i++)
        run_cut(rt, &rows[i], 1, bucket);
}

/* Rows of one shape, in as many runs as cost least. */
static void
run_group(struct torch_runtime *rt, const uint32_t *rows, uint32_t n)
{
    const bool batched = rt->config.io->max_batch_size > 0;

    while (n > 0) {
        uint32_t bucket = batched ? rt->plan.rows[cn_torch_plan_next(&rt->plan, n)] : 1;
        uint32_t k = bucket < n ? bucket : n;

        run_cut(rt, rows, k, bucket);
        rows += k;
        n -= k;
    }
}

static void
run_rows(struct torch_runtime *rt)
{
    uint32_t *group = cn_arena_alloc(&rt->arena, (rt->n_rows + 1) * sizeof(*group));

    for (uint32_t i = 0; i < rt->n_rows; i++) {
        uint32_t n = 0;

        if (rt->rows[i].taken)
            continue;
        for (uint32_t j = i; j < rt->n_rows; j++) {
            if (rt->rows[j].taken || !same_shape(rt, &rt->rows[i], &rt->rows[j]))
                continue;
            rt->rows[j].taken = true;
            group[n++] = j;
        }
        run_group(rt, group, n);
    }
}

static void
answer(struct torch_runtime *rt, struct torch_item *item)
{
    const struct cn_model_io *io = rt->config.io;
    struct cn_reply *reply = &item->item->reply;
    const bool batched = io->max_batch_size > 0;
    struct cn_error err;

    cn_buf_reset(&reply->content_type); /* no word of a handler: nothing to check */
    cn_buf_append_str(&reply->content_type, CN_STR(CN_TENSORS_TYPE));
    cn_write_u32(&reply->body, io->n_outputs);
    for (uint32_t i = 0; i < io->n_outputs; i++) {
        const struct torch_tensor *from = &item->outputs[i];
        struct cn_tensor tensor = {.name = io->outputs[i].name,
                                   .type = io->outputs[i].type,
                                   .rank = from->rank + batched,
                                   .data = {from->data, from->bytes}};

        tensor.shape[0] = item->n_rows;
        memcpy(tensor.shape + batched, from->dims, sizeof(from->dims[0]) * from->rank);
        cn_tensors_put_one(&reply->body, &tensor);
    }
    if (cn_reply_check_body(reply, &err))
        fail_item(item, &err);
}

static void
runtime_run(struct cn_runtime *base, struct cn_item **items, uint32_t n)
{
    struct torch_runtime *rt = checked(base);
    const struct cn_tensor *before = NULL;
    struct cn_error err;

    cn_assert(n <= rt->cap_items);
    rt->n_items = n;
    rt->n_rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        rt->items[i] = (struct torch_item){.item = items[i]};
        if (take_item(rt, &rt->items[i], before, &err)) {
            fail_item(&rt->items[i], &err);
            before = NULL; /* rt->types may be of this row */
            continue;
        }
        before = rt->items[i].inputs;
        add_rows(rt, i, rt->items[i].n_rows);
    }
    run_rows(rt);
    for (uint32_t i = 0; i < n; i++)
        if (!rt->items[i].failed)
            answer(rt, &rt->items[i]);
    cn_arena_fini(&rt->arena);
}

/* --- what it tells of itself --- */

static void
runtime_metadata(struct cn_runtime *base, struct cn_item *item)
{
    struct torch_runtime *rt = checked(base);
    const struct cn_torch_plan *plan = &rt->plan;
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
        json_object_set_new(cuts, key, json_integer(plan->rows[cn_torch_plan_next(plan, n)]));
    }
    json_object_set_new(root, "libtorch", json_string(rt->api->version));
    json_object_set_new(root, "method", json_string(rt->api->schema(rt->model)));
    json_object_set_new(root, "device", json_string(rt->device));
    json_object_set_new(root, "threads", json_integer(rt->config.threads));
    json_object_set_new(root, "deterministic", json_boolean(rt->config.deterministic));
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
    cn_torch_state_destroy(state);
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
    .describe = runtime_describe,
    .state_schema = runtime_state_schema,
    .run = runtime_run,
    .drop = runtime_drop,
    .metadata = runtime_metadata,
    .state_encode = cn_torch_state_encode,
    .state_decode = cn_torch_state_decode,
    .state_free = runtime_state_free,
    .on_close = runtime_on_close,
    .report = runtime_report,
};
