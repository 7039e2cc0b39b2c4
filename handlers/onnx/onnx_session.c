/* handlers/onnx/onnx_session.c - opens an ONNX file and reads what its graph declares. Worker's
 * thread.
 *
 * A session is a loaded graph, and belongs to one worker. Its parts are made in this order and
 * freed in the reverse one: the session, the memory (where tensors of the CPU lie), and the binding
 * (which buffers a run uses). Functions of onnxruntime return NULL or a status with a message,
 * which must be released; cn_onnx_failed() turns it into text and does so. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "handlers/onnx/onnx_model.h"

/* onnxruntime's numbers of element types, indexed by our types. */
static const int numbers[] = {
    [CN_DATATYPE_BOOL] = 9,    [CN_DATATYPE_UINT8] = 2,   [CN_DATATYPE_UINT16] = 4,
    [CN_DATATYPE_UINT32] = 12, [CN_DATATYPE_UINT64] = 13, [CN_DATATYPE_INT8] = 3,
    [CN_DATATYPE_INT16] = 5,   [CN_DATATYPE_INT32] = 6,   [CN_DATATYPE_INT64] = 7,
    [CN_DATATYPE_FP16] = 10,   [CN_DATATYPE_FP32] = 1,    [CN_DATATYPE_FP64] = 11,
    [CN_DATATYPE_BYTES] = 8,   [CN_DATATYPE_BF16] = 16};

int
cn_onnx_number(enum cn_datatype type)
{
    return numbers[type];
}

enum cn_datatype
cn_onnx_type(int number)
{
    for (size_t i = 1; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (numbers[i] == number && i != CN_DATATYPE_BYTES)
            return (enum cn_datatype)i;
    return (enum cn_datatype)0;
}

/* Returns the message without its beginning. Some messages begin with the path of the file and the
 * place in onnxruntime's sources: Load model from PATH failed:FILE.h:46 void some::function(int,
 * bool) What is wrong. */
static const char *
without_place(const char *text)
{
    const char *at = strncmp(text, "Load model from ", 16) == 0 ? strstr(text, " failed:") : NULL;
    const char *function;
    int depth = 0;

    if (!at)
        return text;
    at += strlen(" failed:");
    if (*at != '/' || !(function = strchr(at, '(')))
        return at;
    for (; *function; function++) {
        depth += (*function == '(') - (*function == ')');
        if (depth == 0)
            return function + 1 + strspn(function + 1, " ");
    }
    return at;
}

int
cn_onnx_failed(const struct ort *ort, struct ort_status *status, char *error, size_t n)
{
    snprintf(error, n, "%s", without_place(ort->GetErrorMessage(status)));
    for (char *at = error; *at; at++)
        if (*at == '\n' || *at == '\r' || *at == '\t')
            *at = ' ';
    ort->ReleaseStatus(status);
    return -1;
}

/* --- the session --- */

static int
refuse(const struct ctt_model *model, struct ort_status *status, struct cn_error *err)
{
    char text[CTT_ERROR_BYTES];

    cn_onnx_failed(model->ort, status, text, sizeof(text));
    cn_torch_log("onnx_load_failed", "", "", text);
    return cn_fail(err, CN_E_LOAD_FAILED, "onnxruntime %s cannot load %s: %s", model->ort->version,
                   model->shown, text);
}

static void
log_line(void *ctx, int level, const char *category, const char *name, const char *place,
         const char *message)
{
    char quoted[2048];
    size_t len = strlen(message);

    (void)ctx;
    (void)category;
    (void)name;
    (void)place;
    cn_log(level >= ORT_LOG_ERROR ? CN_LOG_ERROR : CN_LOG_WARN, "event=onnxruntime text=%s",
           cn_log_quote(message, len < 1500 ? len : 1500, quoted, sizeof(quoted)));
}

/* Makes the process's only environment, which is never freed. The library reports errors as
 * statuses, too, so its log shows only what is worse than a warning. */
static struct ort_status *
environment(const struct ort *ort, struct ort_env **out)
{
    static struct ort_env *env;
    struct ort_status *status = NULL;

    if (!env)
        status = ort->CreateEnvWithCustomLogger(log_line, NULL, ORT_LOG_ERROR, "continuo", &env);
    *out = env;
    return status;
}

static int
has_provider(struct ctt_model *model, const char *wanted, struct cn_error *err)
{
    struct ort_status *status;
    struct cn_buf names;
    bool found = false;
    char **all;
    int n, rc = 0;

    if ((status = model->ort->GetAvailableProviders(&all, &n)) != NULL)
        return refuse(model, status, err);
    cn_buf_init(&names, 0);
    for (int i = 0; i < n; i++) {
        found = found || strcmp(all[i], wanted) == 0;
        cn_buf_printf(&names, "%s%s", i ? ", " : "", all[i]);
    }
    if (!found)
        rc = cn_fail(err, CN_E_LOAD_FAILED,
                     "onnx.providers: onnxruntime %s has no %s here; it has %.*s",
                     model->ort->version, wanted, CN_STR_ARG(cn_buf_str(&names)));
    cn_buf_fini(&names);
    model->ort->ReleaseAvailableProviders(all, n);
    return rc;
}

/* Adds the CUDA provider, which has functions of its own. The device's number comes first, so that
 * an option of the YAML overrides it. */
static struct ort_status *
add_cuda(const struct ort *ort, struct ort_options *options, const struct cn_onnx_entries *entries,
         uint32_t device)
{
    const char *keys[CN_ONNX_ENTRIES_MAX + 1] = {"device_id"}, *values[CN_ONNX_ENTRIES_MAX + 1];
    struct ort_cuda *cuda = NULL;
    struct ort_status *status;
    char number[16];

    snprintf(number, sizeof(number), "%" PRIu32, device);
    values[0] = number;
    for (uint32_t i = 0; i < entries->n; i++) {
        keys[i + 1] = entries->keys[i];
        values[i + 1] = entries->values[i];
    }
    status = ort->CreateCUDAProviderOptions(&cuda);
    if (!status)
        status = ort->UpdateCUDAProviderOptions(cuda, keys, values, entries->n + 1);
    if (!status)
        status = ort->SessionOptionsAppendExecutionProvider_CUDA_V2(options, cuda);
    if (cuda)
        ort->ReleaseCUDAProviderOptions(cuda);
    return status;
}

static int
add_provider(struct ctt_model *model, struct ort_options *options,
             const struct cn_onnx_provider *provider, uint32_t device, struct cn_error *err)
{
    const struct ort *ort = model->ort;
    struct ort_status *status;
    char name[128];
    char *ending;
    int rc = has_provider(model, provider->name, err);

    if (rc || strcmp(provider->name, "CPUExecutionProvider") == 0) /* this one is always last */
        return rc;
    model->copies = true;
    if (strcmp(provider->name, "CUDAExecutionProvider") == 0) {
        status = add_cuda(ort, options, &provider->options, device);
    } else {
        snprintf(name, sizeof(name), "%s", provider->name);
        if ((ending = strstr(name, "ExecutionProvider")) != NULL)
            *ending = '\0';
        status = ort->SessionOptionsAppendExecutionProvider(
            options, name, provider->options.keys, provider->options.values, provider->options.n);
    }
    return status ? refuse(model, status, err) : 0;
}

static int
fill_options(struct ctt_model *model, struct ort_options *options, uint32_t device,
             struct cn_error *err)
{
    const struct cn_onnx_settings *settings = cn_onnx_settings(model->config);
    const struct ort *ort = model->ort;
    struct ort_status *status = ort->SetIntraOpNumThreads(options, (int)model->config->threads);
    int rc = 0;

    if (!status)
        status = ort->SetInterOpNumThreads(options, (int)settings->inter_op_threads);
    if (!status && settings->inter_op_threads > 1)
        status = ort->SetSessionExecutionMode(options, ORT_PARALLEL);
    if (!status)
        status = ort->SetSessionGraphOptimizationLevel(options, settings->optimization);
    /* A thread that looks for work before it sleeps would take processor time from other workers.
     */
    if (!status)
        status = ort->AddSessionConfigEntry(options, "session.intra_op.allow_spinning", "0");
    for (uint32_t i = 0; !status && i < settings->options.n; i++)
        status = ort->AddSessionConfigEntry(options, settings->options.keys[i],
                                            settings->options.values[i]);
    if (status)
        return refuse(model, status, err);
    for (uint32_t i = 0; rc == 0 && i < settings->n_providers; i++)
        rc = add_provider(model, options, &settings->providers[i], device, err);
    return rc;
}

/* --- what the graph declares --- */

static struct ort_status *
read_shape(const struct ort *ort, const struct ort_shape *shape, struct onnx_value *out)
{
    struct ort_status *status;
    size_t rank = 0;
    int number = 0;

    status = ort->GetTensorElementType(shape, &number);
    if (!status)
        status = ort->GetDimensionsCount(shape, &rank);
    out->type = cn_onnx_type(number);
    out->tensor = !status && rank <= CN_TENSOR_RANK_MAX;
    out->rank = out->tensor ? (uint32_t)rank : 0;
    if (!status)
        status = ort->GetDimensions(shape, out->dims, out->rank);
    return status;
}

static struct ort_status *
read_value(struct ctt_model *model, bool input, size_t i, struct onnx_value *out)
{
    const struct ort *ort = model->ort;
    const struct ort_shape *shape = NULL;
    struct ort_status *status;
    struct ort_type *type = NULL;
    char *name = NULL;

    status = input ? ort->SessionGetInputName(model->session, i, model->allocator, &name)
                   : ort->SessionGetOutputName(model->session, i, model->allocator, &name);
    if (status)
        return status;
    out->name = cn_strdup(name);
    status = ort->AllocatorFree(model->allocator, name);
    if (!status)
        status = input ? ort->SessionGetInputTypeInfo(model->session, i, &type)
                       : ort->SessionGetOutputTypeInfo(model->session, i, &type);
    if (!status)
        status = ort->CastTypeInfoToTensorInfo(type, &shape);
    if (!status && shape) /* `shape` is borrowed from `type`; NULL: a sequence, a map ... */
        status = read_shape(ort, shape, out);
    if (type)
        ort->ReleaseTypeInfo(type);
    return status;
}

static struct ort_status *
read_graph(struct ctt_model *model)
{
    const struct ort *ort = model->ort;
    struct ort_status *status = ort->SessionGetInputCount(model->session, &model->n_inputs);

    if (!status)
        status = ort->SessionGetOutputCount(model->session, &model->n_outputs);
    if (status)
        return status;
    model->inputs = cn_alloc((model->n_inputs + 1) * sizeof(*model->inputs));
    model->outputs = cn_alloc((model->n_outputs + 1) * sizeof(*model->outputs));
    for (size_t i = 0; !status && i < model->n_inputs; i++)
        status = read_value(model, true, i, &model->inputs[i]);
    for (size_t i = 0; !status && i < model->n_outputs; i++)
        status = read_value(model, false, i, &model->outputs[i]);
    return status;
}

int
cn_onnx_session_open(struct ctt_model *model, const char *path, uint32_t device,
                     struct cn_error *err)
{
    const struct ort *ort = model->ort;
    struct ort_options *options = NULL;
    struct ort_env *env = NULL;
    struct ort_status *status = environment(ort, &env);
    int rc = 0;

    if (!status)
        status = ort->CreateSessionOptions(&options);
    if (!status)
        rc = fill_options(model, options, device, err);
    if (!status && rc == 0)
        status = ort->CreateSession(env, path, options, &model->session);
    if (options)
        ort->ReleaseSessionOptions(options);
    if (!status && rc == 0)
        status = ort->GetAllocatorWithDefaultOptions(&model->allocator);
    if (!status && rc == 0)
        status = ort->CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &model->memory);
    if (!status && rc == 0)
        status = ort->CreateIoBinding(model->session, &model->binding);
    if (!status && rc == 0)
        status = read_graph(model);
    return status ? refuse(model, status, err) : rc;
}

static void
release_bound(const struct ort *ort, struct onnx_bound *tensor)
{
    if (tensor->value)
        ort->ReleaseValue(tensor->value);
    cn_free(tensor->data);
}

static void
free_values(struct onnx_value *values, size_t n)
{
    for (size_t i = 0; values && i < n; i++)
        cn_free(values[i].name);
    cn_free(values);
}

void
cn_onnx_model_close(struct ctt_model *model)
{
    const struct ort *ort;

    if (!model)
        return;
    ort = model->ort;
    cn_onnx_forget_given(model);
    if (model->binding)
        ort->ReleaseIoBinding(model->binding);
    for (uint32_t i = 0; model->arguments && i < model->config->n_arguments; i++)
        release_bound(ort, &model->arguments[i]);
    for (uint32_t i = 0; model->numbers && i < model->config->n_attributes; i++)
        release_bound(ort, &model->numbers[i]);
    for (uint32_t i = 0; model->results && i < model->config->n_results; i++)
        release_bound(ort, &model->results[i].tensor);
    if (model->memory)
        ort->ReleaseMemoryInfo(model->memory);
    if (model->session)
        ort->ReleaseSession(model->session);
    free_values(model->inputs, model->n_inputs);
    free_values(model->outputs, model->n_outputs);
    cn_free(model->arguments);
    cn_free(model->numbers);
    cn_free(model->results);
    cn_free(model->schema);
    cn_free(model);
}
