/* handlers/onnx/onnx_run.c - runs an ONNX model: the table of functions that handlers/modules
 * calls. Worker's thread.
 *
 * A run copies nothing between us and onnxruntime. Each argument has a buffer of ours with a value
 * (OrtValue) around it, bound to the graph's input; handlers/modules joins the rows right into that
 * buffer. An output whose shape is known from the YAML is bound to a buffer of ours, too. Other
 * outputs, such as caches that grow with each step, are allocated by onnxruntime (`given`) and are
 * freed before the next run.
 *
 * Making and binding a value costs some microseconds, so it stays as long as shape and memory stay.
 * With a provider that has memory of its own (`copies`), BindInput is what copies the data to the
 * device, and is called before each run. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/memory/mem.h"
#include "handlers/modules/module_values.h"
#include "handlers/onnx/onnx_model.h"

/* --- bound tensors --- */

static size_t
bytes_of(enum cn_datatype type, uint32_t rank, const int64_t *dims)
{
    size_t bytes = cn_datatype_bytes(type);

    for (uint32_t i = 0; i < rank; i++)
        bytes *= (size_t)dims[i];
    return bytes;
}

/* Makes room for this many bytes. The tensor's content is lost, and if the memory moves, its value
 * is lost, too. */
static int
reserve(struct ctt_model *model, struct onnx_bound *tensor, size_t bytes, char *error, size_t n)
{
    if (tensor->data && bytes <= tensor->cap)
        return 0;
    if (tensor->value)
        model->ort->ReleaseValue(tensor->value);
    tensor->value = NULL;
    tensor->bound = false;
    cn_free(tensor->data);
    tensor->cap = 0;
    tensor->data = cn_try_alloc(bytes ? bytes : 1);
    if (!tensor->data) {
        snprintf(error, n, "not enough memory for a batch of %zu bytes", bytes);
        return -1;
    }
    tensor->cap = bytes;
    return 0;
}

/* Makes sure that the tensor's value has these dimensions. Most runs have those of the run before.
 */
static struct ort_status *
shape(struct ctt_model *model, struct onnx_bound *tensor, uint32_t rank, const int64_t *dims)
{
    const struct ort *ort = model->ort;

    if (tensor->value && tensor->rank == rank &&
        memcmp(tensor->dims, dims, rank * sizeof(dims[0])) == 0)
        return NULL;
    if (tensor->value)
        ort->ReleaseValue(tensor->value);
    tensor->value = NULL;
    tensor->bound = false;
    tensor->rank = rank;
    memcpy(tensor->dims, dims, rank * sizeof(dims[0]));
    return ort->CreateTensorWithDataAsOrtValue(model->memory, tensor->data,
                                               bytes_of(tensor->type, rank, dims), dims, rank,
                                               cn_onnx_number(tensor->type), &tensor->value);
}

static struct ort_status *
bind_input(struct ctt_model *model, struct onnx_bound *tensor)
{
    struct ort_status *status;

    if (tensor->bound && !model->copies)
        return NULL;
    status = model->ort->BindInput(model->binding, tensor->graph->name, tensor->value);
    tensor->bound = status == NULL;
    return status;
}

static int
onnx_room(struct ctt_model *model, uint32_t i, struct ctt_tensor *tensor, char *error, size_t n)
{
    struct onnx_bound *argument = &model->arguments[i];
    size_t bytes = bytes_of(argument->type, (uint32_t)tensor->rank, tensor->dims);

    if (reserve(model, argument, bytes, error, n))
        return -1;
    tensor->data = argument->data;
    return 0;
}

/* Writes a number of `set` before a run. Most numbers have not changed since the run before. */
static int
onnx_set_attribute(struct ctt_model *model, const char *name, const struct ctt_value *value,
                   char *error, size_t n)
{
    const double number = value->kind == CTT_FLOAT ? value->number : (double)value->integer;
    struct onnx_bound *to = model->numbers;
    int64_t dims[CTT_RANK_MAX];
    struct ort_status *status;

    while (strcmp(to->graph->name, name) != 0)
        to++; /* onnx_check.c has made sure that each of them exists */
    for (uint32_t i = 0; i < to->graph->rank; i++)
        dims[i] = 1;
    if (reserve(model, to, cn_datatype_bytes(to->type), error, n))
        return -1;
    cn_module_value_put(to->type, to->data, 0, number);
    status = shape(model, to, to->graph->rank, dims);
    return status ? cn_onnx_failed(model->ort, status, error, n) : 0;
}

/* --- a run --- */

void
cn_onnx_forget_given(struct ctt_model *model)
{
    struct ort_status *status;

    for (size_t i = 0; i < model->n_given; i++)
        model->ort->ReleaseValue(model->given[i]);
    if (model->given && (status = model->ort->AllocatorFree(model->allocator, model->given)))
        model->ort->ReleaseStatus(status);
    model->given = NULL;
    model->n_given = 0;
}

/* Returns the number of rows of the run, or 0 if its tensors have no batch dimension. */
static int64_t
rows_of(const struct ctt_model *model, const struct ctt_value *arguments)
{
    const struct cn_module_config *config = model->config;
    const struct cn_module_binding *binding = &config->arguments[0];

    if (config->io->max_batch_size == 0 || config->n_arguments == 0)
        return 0;
    return arguments[0]
        .tensor.dims[binding->input >= 0 ? 0 : config->io->state.items[binding->state].batch_axis];
}

/* Binds an output to a buffer of ours if its shape is known. Otherwise onnxruntime allocates its
 * memory. */
static struct ort_status *
bind_output(struct ctt_model *model, struct onnx_output *out, int64_t rows, bool guess)
{
    struct onnx_bound *tensor = &out->tensor;
    struct ort_status *status;
    char ignored[8];

    if (out->fixed && out->trusted && guess) {
        if (out->axis >= 0)
            out->declared[out->axis] = rows;
        if (reserve(model, tensor, bytes_of(tensor->type, out->declared_rank, out->declared),
                    ignored, sizeof(ignored)) == 0) {
            if ((status = shape(model, tensor, out->declared_rank, out->declared)) != NULL)
                return status;
            if (tensor->bound)
                return NULL;
            status = model->ort->BindOutput(model->binding, tensor->graph->name, tensor->value);
            tensor->bound = status == NULL;
            return status;
        }
    }
    tensor->bound = false;
    return model->ort->BindOutputToDevice(model->binding, tensor->graph->name, model->memory);
}

static struct ort_status *
bind_all(struct ctt_model *model, int64_t rows, bool guess)
{
    const struct cn_module_config *config = model->config;
    struct ort_status *status = NULL;

    for (uint32_t i = 0; !status && i < config->n_arguments; i++)
        status = bind_input(model, &model->arguments[i]);
    for (uint32_t i = 0; !status && i < config->n_attributes; i++)
        status = bind_input(model, &model->numbers[i]);
    for (uint32_t i = 0; !status && i < config->n_results; i++)
        status = bind_output(model, &model->results[i], rows, guess);
    return status;
}

/* Returns the CPU time of this thread, so that other work of the machine does not count. With
 * several threads, or on a GPU, it is real time. */
static uint64_t
now_ns(const struct ctt_model *model)
{
    struct timespec at;

    clock_gettime(model->config->threads > 1 || model->copies ? CLOCK_MONOTONIC
                                                              : CLOCK_THREAD_CPUTIME_ID,
                  &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Reads a tensor that onnxruntime has made. */
static struct ort_status *
take_given(struct ctt_model *model, struct ort_value *value, struct ctt_tensor *out)
{
    const struct ort *ort = model->ort;
    struct ort_shape *about = NULL;
    struct ort_status *status = ort->GetTensorTypeAndShape(value, &about);
    size_t rank = 0;
    int number = 0;

    if (!status)
        status = ort->GetTensorElementType(about, &number);
    if (!status)
        status = ort->GetDimensionsCount(about, &rank);
    out->datatype = (int32_t)cn_onnx_type(number);
    out->rank = (int32_t)(rank < CTT_RANK_MAX ? rank : CTT_RANK_MAX);
    if (!status)
        status = ort->GetDimensions(about, out->dims, (size_t)out->rank);
    if (about)
        ort->ReleaseTensorTypeAndShapeInfo(about);
    return status ? status : ort->GetTensorMutableData(value, &out->data);
}

/* If an output had the declared shape, it is written into our buffer from the next run on. */
static bool
is_as_declared(const struct onnx_output *out, const struct ctt_tensor *tensor, int64_t rows)
{
    if (!out->fixed || (uint32_t)tensor->rank != out->declared_rank ||
        tensor->datatype != (int32_t)out->tensor.type)
        return false;
    for (int32_t i = 0; i < tensor->rank; i++)
        if (tensor->dims[i] != (i == out->axis ? rows : out->declared[i]))
            return false;
    return true;
}

static struct ort_status *
take_results(struct ctt_model *model, struct ctt_tensor *results, int64_t rows)
{
    const uint32_t n = model->config->n_results;
    struct ort_status *status = NULL;

    for (uint32_t i = 0; !status && i < n; i++) {
        struct onnx_output *out = &model->results[i];
        const struct onnx_bound *tensor = &out->tensor;

        if (tensor->bound) {
            results[i] = (struct ctt_tensor){.data = tensor->data,
                                             .rank = (int32_t)tensor->rank,
                                             .datatype = (int32_t)tensor->type};
            memcpy(results[i].dims, tensor->dims, tensor->rank * sizeof(tensor->dims[0]));
            continue;
        }
        if (!model->given)
            status = model->ort->GetBoundOutputValues(model->binding, model->allocator,
                                                      &model->given, &model->n_given);
        if (!status) /* the outputs come in the order of their first binding, which is ours */
            status = take_given(model, model->given[i], &results[i]);
        if (!status)
            out->trusted = is_as_declared(out, &results[i], rows);
    }
    return status;
}

/* A run is tried twice, because a wrong guess about an output's shape looks like any other failure.
 * That does no harm: a graph keeps nothing, and what was written into the buffers is
 * overwritten. */
static int
onnx_run(struct ctt_model *model, const struct ctt_value *arguments, uint32_t n_arguments,
         struct ctt_tensor *results, uint32_t max_results, uint32_t *n_results, uint64_t *method_ns,
         char *error, size_t n)
{
    const int64_t rows = rows_of(model, arguments);
    struct ort_status *status = NULL;
    uint64_t begun = 0;

    (void)max_results; /* there are as many results as the YAML declares */
    cn_onnx_forget_given(model);
    for (uint32_t i = 0; !status && i < n_arguments; i++)
        status = shape(model, &model->arguments[i], (uint32_t)arguments[i].tensor.rank,
                       arguments[i].tensor.dims);
    for (int turn = 0; turn < 2; turn++) {
        if (!status)
            status = bind_all(model, rows, turn == 0);
        if (method_ns)
            begun = now_ns(model);
        if (!status)
            status = model->ort->RunWithBinding(model->session, NULL, model->binding);
        if (method_ns)
            *method_ns = now_ns(model) - begun;
        if (!status || turn == 1)
            break;
        /* The run may have failed because an output has another shape than before, which
         * onnxruntime may choose. */
        model->ort->ReleaseStatus(status);
        status = NULL;
    }
    if (!status)
        status = take_results(model, results, rows);
    *n_results = model->config->n_results;
    return status ? cn_onnx_failed(model->ort, status, error, n) : 0;
}

/* --- the other functions of the table --- */

static const char *
onnx_schema(struct ctt_model *model)
{
    return model->schema;
}

/* Does nothing: the random numbers of a graph cannot be seeded. */
static void
onnx_seed(uint64_t seed)
{
    (void)seed;
}

/* Reports no change: a graph keeps nothing between its runs. */
static int
onnx_changed(struct ctt_model *model, char *names, size_t names_n, char *error, size_t n)
{
    (void)model;
    (void)names_n;
    (void)error;
    (void)n;
    names[0] = '\0';
    return 0;
}

const struct ctt_api *
cn_onnx_api(const struct ort *ort)
{
    static struct ctt_api api = {.abi = CTT_ABI,
                                 .size = sizeof(api),
                                 .unload = cn_onnx_model_close,
                                 .schema = onnx_schema,
                                 .set_attribute = onnx_set_attribute,
                                 .room = onnx_room,
                                 .run = onnx_run,
                                 .seed = onnx_seed,
                                 .changed = onnx_changed,
                                 .devices = cn_onnx_devices};

    api.version = api.compiled = ort->version;
    return &api;
}
