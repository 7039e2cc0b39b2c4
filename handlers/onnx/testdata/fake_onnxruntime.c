/* A stand-in for libonnxruntime.so, so that handlers/onnx is tested without the package. It has the
 * functions of ort_functions.def at their positions in the table. The model's file says what it is:
 *   sum     x [n, 2], h [2, n] -> y = h + x, hN = the same; x below 0 fails the run
 *   grow    x [n, 2], past [n, ?, 2] -> y [n, 2], the sum of all so far, present [n, ?, 2]
 *   scale   x [n, 2], rate (an integer) -> y = x * rate
 *   fixed   as scale, with n = 4
 *   tied    x [4, 2] -> y [4, 2], which has a part of the first row's x in each row
 *   moody   x [n, 2] -> y [n, 2], but y [n, 3] in the runs whose first x is above 50
 *   listed  a list, which is not a tensor -> y
 *   old     refused like a file whose opset is too new
 *   absent  refused like a file whose weights are missing
 * Tests read fake_ort: what is alive, and what was asked for. */
#include "handlers/onnx/testdata/fake_onnxruntime.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/onnx/ort_abi.h"

#define FP32 1
#define INT64 7
#define RANK_MAX 4
#define SLOTS_MAX 4
#define TABLE_FUNCTIONS 260

struct ort_status {
    char text[300];
};

struct ort_env {
    int unused;
};

struct ort_options {
    int unused;
};

struct ort_memory {
    int unused;
};

struct ort_allocator {
    int unused;
};

struct ort_cuda {
    int device;
};

struct ort_shape {
    const char *name;
    bool tensor;
    int type;
    size_t rank;
    int64_t dims[RANK_MAX];
};

struct ort_type {
    struct ort_shape shape;
};

struct ort_value {
    int refs;
    struct ort_shape shape;
    void *data, *own; /* own: allocated here */
};

struct slot {
    char name[32];
    struct ort_value *value; /* NULL: an output that the run allocates */
    struct ort_value *given; /* the output that the run has allocated */
};

struct ort_binding {
    struct slot inputs[SLOTS_MAX], outputs[SLOTS_MAX];
    size_t n_inputs, n_outputs;
};

struct kind {
    const char *word;
    struct ort_shape inputs[2], outputs[2];
    size_t n_inputs, n_outputs;
    struct ort_status *(*run)(struct ort_binding *binding);
};

struct ort_session {
    const struct kind *kind;
};

struct fake_ort fake_ort;

static struct ort_status *
failed(const char *text)
{
    struct ort_status *status = calloc(1, sizeof(*status));

    snprintf(status->text, sizeof(status->text), "%s", text);
    fake_ort.alive++;
    return status;
}

static void *
made(size_t bytes)
{
    fake_ort.alive++;
    return calloc(1, bytes ? bytes : 1);
}

static void
freed(void *thing)
{
    if (thing)
        fake_ort.alive--;
    free(thing);
}

/* --- values --- */

static size_t
elements(const struct ort_shape *shape)
{
    size_t n = 1;

    for (size_t i = 0; i < shape->rank; i++)
        n *= (size_t)shape->dims[i];
    return n;
}

static struct ort_value *
value_of(int type, size_t rank, const int64_t *dims, void *data)
{
    struct ort_value *value = made(sizeof(*value));

    value->refs = 1;
    value->shape = (struct ort_shape){"", true, type, rank, {0}};
    memcpy(value->shape.dims, dims, rank * sizeof(dims[0]));
    if (!data)
        value->own = calloc(elements(&value->shape) + 1, sizeof(int64_t));
    value->data = data ? data : value->own;
    return value;
}

static void
fake_ReleaseValue(struct ort_value *value)
{
    if (!value || --value->refs > 0)
        return;
    free(value->own);
    freed(value);
}

static struct ort_status *
fake_CreateTensorWithDataAsOrtValue(const struct ort_memory *memory, void *data, size_t bytes,
                                    const int64_t *dims, size_t rank, int type,
                                    struct ort_value **out)
{
    (void)memory;
    (void)bytes;
    if (rank > RANK_MAX)
        return failed("too many dimensions");
    *out = value_of(type, rank, dims, data);
    return NULL;
}

static struct ort_status *
fake_GetTensorMutableData(struct ort_value *value, void **out)
{
    *out = value->data;
    return NULL;
}

static struct ort_status *
fake_GetTensorTypeAndShape(const struct ort_value *value, struct ort_shape **out)
{
    *out = made(sizeof(**out));
    **out = value->shape;
    return NULL;
}

static void
fake_ReleaseTensorTypeAndShapeInfo(struct ort_shape *shape)
{
    freed(shape);
}

static struct ort_status *
fake_GetTensorElementType(const struct ort_shape *shape, int *out)
{
    *out = shape->type;
    return NULL;
}

static struct ort_status *
fake_GetDimensionsCount(const struct ort_shape *shape, size_t *out)
{
    *out = shape->rank;
    return NULL;
}

static struct ort_status *
fake_GetDimensions(const struct ort_shape *shape, int64_t *dims, size_t rank)
{
    memcpy(dims, shape->dims, (rank < shape->rank ? rank : shape->rank) * sizeof(dims[0]));
    return NULL;
}

/* --- bindings --- */

static struct slot *
slot_of(struct slot *slots, size_t *n, const char *name)
{
    for (size_t i = 0; i < *n; i++)
        if (strcmp(slots[i].name, name) == 0)
            return &slots[i];
    if (*n == SLOTS_MAX)
        abort();
    snprintf(slots[*n].name, sizeof(slots[*n].name), "%s", name);
    return &slots[(*n)++];
}

static void
put(struct slot *slot, const struct ort_value *value)
{
    struct ort_value *kept = (struct ort_value *)(uintptr_t)value;

    if (kept)
        kept->refs++;
    fake_ReleaseValue(slot->value);
    fake_ReleaseValue(slot->given);
    slot->value = kept;
    slot->given = NULL;
    fake_ort.binds++;
}

static struct ort_status *
fake_CreateIoBinding(struct ort_session *session, struct ort_binding **out)
{
    (void)session;
    *out = made(sizeof(**out));
    return NULL;
}

static void
fake_ReleaseIoBinding(struct ort_binding *binding)
{
    for (size_t i = 0; i < binding->n_inputs; i++)
        put(&binding->inputs[i], NULL);
    for (size_t i = 0; i < binding->n_outputs; i++)
        put(&binding->outputs[i], NULL);
    freed(binding);
}

static struct ort_status *
fake_BindInput(struct ort_binding *binding, const char *name, const struct ort_value *value)
{
    put(slot_of(binding->inputs, &binding->n_inputs, name), value);
    return NULL;
}

static struct ort_status *
fake_BindOutput(struct ort_binding *binding, const char *name, const struct ort_value *value)
{
    put(slot_of(binding->outputs, &binding->n_outputs, name), value);
    return NULL;
}

static struct ort_status *
fake_BindOutputToDevice(struct ort_binding *binding, const char *name,
                        const struct ort_memory *memory)
{
    (void)memory;
    put(slot_of(binding->outputs, &binding->n_outputs, name), NULL);
    return NULL;
}

static struct ort_status *
fake_GetBoundOutputValues(const struct ort_binding *binding, struct ort_allocator *allocator,
                          struct ort_value ***out, size_t *n)
{
    (void)allocator;
    *out = made(sizeof(**out) * SLOTS_MAX);
    *n = binding->n_outputs;
    for (size_t i = 0; i < *n; i++) {
        const struct slot *slot = &binding->outputs[i];

        (*out)[i] = slot->value ? slot->value : slot->given;
        (*out)[i]->refs++;
    }
    return NULL;
}

/* --- runs --- */

static struct ort_value *
in(struct ort_binding *binding, const char *name)
{
    struct slot *slot = slot_of(binding->inputs, &binding->n_inputs, name);

    if (!slot->value)
        abort(); /* not bound */
    return slot->value;
}

/* Returns where the run writes an output, or NULL if the bound memory has another shape. */
static float *
out(struct ort_binding *binding, const char *name, size_t rank, const int64_t *dims)
{
    struct slot *slot = slot_of(binding->outputs, &binding->n_outputs, name);
    const struct ort_value *value = slot->value;

    if (!value) {
        fake_ReleaseValue(slot->given);
        slot->given = value_of(FP32, rank, dims, NULL);
        return slot->given->data;
    }
    if (value->shape.rank != rank || memcmp(value->shape.dims, dims, rank * sizeof(dims[0])) != 0)
        return NULL;
    return value->data;
}

static struct ort_status *
run_sum(struct ort_binding *binding)
{
    const struct ort_value *x = in(binding, "x"), *h = in(binding, "h");
    const int64_t n = x->shape.dims[0];
    float *y = out(binding, "y", 2, (int64_t[]){n, 2});
    float *next = out(binding, "hN", 2, (int64_t[]){2, n});
    const float *values = x->data, *before = h->data;

    if (!y || !next || h->shape.dims[0] != 2 || h->shape.dims[1] != n)
        return failed("wrong shapes");
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < 2; d++) {
            if (values[2 * i + d] < 0)
                return failed("Non-zero status code returned: x is\nnegative");
            y[2 * i + d] = next[d * n + i] = values[2 * i + d] + before[d * n + i];
        }
    return NULL;
}

static struct ort_status *
run_grow(struct ort_binding *binding)
{
    const struct ort_value *x = in(binding, "x"), *past = in(binding, "past");
    const int64_t n = x->shape.dims[0], old = past->shape.dims[1];
    float *y = out(binding, "y", 2, (int64_t[]){n, 2});
    float *present = out(binding, "present", 3, (int64_t[]){n, old + 1, 2});
    const float *values = x->data, *before = past->data;

    if (!y || !present || past->shape.dims[0] != n)
        return failed("wrong shapes");
    for (int64_t i = 0; i < n; i++) {
        float *row = present + 2 * i * (old + 1);

        memcpy(row, before + 2 * i * old, sizeof(float) * 2 * (size_t)old);
        memcpy(row + 2 * old, values + 2 * i, sizeof(float) * 2);
        for (int64_t d = 0; d < 2; d++) {
            y[2 * i + d] = 0;
            for (int64_t t = 0; t <= old; t++)
                y[2 * i + d] += row[2 * t + d];
        }
    }
    return NULL;
}

static struct ort_status *
run_scale(struct ort_binding *binding)
{
    const struct ort_value *x = in(binding, "x"), *rate = in(binding, "rate");
    const int64_t n = x->shape.dims[0];
    float *y = out(binding, "y", 2, (int64_t[]){n, 2});
    const float *values = x->data;
    int64_t times;

    memcpy(&times, rate->data, sizeof(times));
    if (!y || rate->shape.rank != 0)
        return failed("wrong shapes");
    for (int64_t i = 0; i < 2 * n; i++)
        y[i] = values[i] * (float)times;
    return NULL;
}

static struct ort_status *
run_moody(struct ort_binding *binding)
{
    const struct ort_value *x = in(binding, "x");
    const float *values = x->data;
    const int64_t n = x->shape.dims[0], width = values[0] > 50 ? 3 : 2;
    float *y = out(binding, "y", 2, (int64_t[]){n, width});

    if (!y)
        return failed("wrong shapes");
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < width; d++)
            y[i * width + d] = values[2 * i];
    return NULL;
}

static struct ort_status *
run_tied(struct ort_binding *binding)
{
    const struct ort_value *x = in(binding, "x");
    const int64_t n = x->shape.dims[0];
    float *y = out(binding, "y", 2, (int64_t[]){n, 2});
    const float *values = x->data;

    if (n != 4)
        return failed("Got invalid dimensions for input: x");
    if (!y)
        return failed("wrong shapes");
    for (int64_t i = 0; i < 2 * n; i++)
        y[i] = values[i] + values[i % 2] / 64;
    return NULL;
}

static const struct kind kinds[] = {
    {"sum",
     {{"x", true, FP32, 2, {-1, 2}}, {"h", true, FP32, 2, {2, -1}}},
     {{"y", true, FP32, 2, {-1, 2}}, {"hN", true, FP32, 2, {2, -1}}},
     2,
     2,
     run_sum},
    {"grow",
     {{"x", true, FP32, 2, {-1, 2}}, {"past", true, FP32, 3, {-1, -1, 2}}},
     {{"y", true, FP32, 2, {-1, 2}}, {"present", true, FP32, 3, {-1, -1, 2}}},
     2,
     2,
     run_grow},
    {"scale",
     {{"x", true, FP32, 2, {-1, 2}}, {"rate", true, INT64, 0, {0}}},
     {{"y", true, FP32, 2, {-1, 2}}},
     2,
     1,
     run_scale},
    {"fixed",
     {{"x", true, FP32, 2, {4, 2}}, {"rate", true, INT64, 0, {0}}},
     {{"y", true, FP32, 2, {4, 2}}},
     2,
     1,
     run_scale},
    {"tied", {{"x", true, FP32, 2, {4, 2}}}, {{"y", true, FP32, 2, {4, 2}}}, 1, 1, run_tied},
    {"moody", {{"x", true, FP32, 2, {-1, 2}}}, {{"y", true, FP32, 2, {-1, -1}}}, 1, 1, run_moody},
    {"listed",
     {{"x", true, FP32, 2, {-1, 2}}, {"words", false, 0, 0, {0}}},
     {{"y", true, FP32, 2, {-1, 2}}},
     2,
     1,
     NULL},
};

static struct ort_status *
fake_RunWithBinding(struct ort_session *session, const void *run_options,
                    const struct ort_binding *binding)
{
    (void)run_options;
    fake_ort.runs++;
    return session->kind->run((struct ort_binding *)(uintptr_t)binding);
}

/* --- sessions --- */

static struct ort_status *
fake_CreateSession(const struct ort_env *env, const char *path, const struct ort_options *options,
                   struct ort_session **session)
{
    char word[16] = "";
    FILE *file = fopen(path, "r");

    (void)env;
    (void)options;
    if (!file || fscanf(file, "%15s", word) != 1)
        word[0] = '\0';
    if (file)
        fclose(file);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(word, kinds[i].word) != 0)
            continue;
        *session = made(sizeof(**session));
        (*session)->kind = &kinds[i];
        return NULL;
    }
    if (strcmp(word, "old") == 0)
        return failed("Load model from /a/path/model.onnx failed:/src/graph/model.cc:149 "
                      "Model(ModelProto&&, const PathString&) Opset 99 is under development and "
                      "support for this is limited.");
    if (strcmp(word, "absent") == 0)
        return failed("External data path does not exist: weights.bin");
    return failed("Load model from /a/path/model.onnx failed:Protobuf parsing failed.");
}

static void
fake_ReleaseSession(struct ort_session *session)
{
    freed(session);
}

static struct ort_status *
fake_SessionGetInputCount(const struct ort_session *session, size_t *n)
{
    *n = session->kind->n_inputs;
    return NULL;
}

static struct ort_status *
fake_SessionGetOutputCount(const struct ort_session *session, size_t *n)
{
    *n = session->kind->n_outputs;
    return NULL;
}

static struct ort_status *
give_name(const char *name, char **given)
{
    *given = made(strlen(name) + 1);
    strcpy(*given, name);
    return NULL;
}

static struct ort_status *
fake_SessionGetInputName(const struct ort_session *session, size_t i,
                         struct ort_allocator *allocator, char **name)
{
    (void)allocator;
    return give_name(session->kind->inputs[i].name, name);
}

static struct ort_status *
fake_SessionGetOutputName(const struct ort_session *session, size_t i,
                          struct ort_allocator *allocator, char **name)
{
    (void)allocator;
    return give_name(session->kind->outputs[i].name, name);
}

static struct ort_status *
fake_SessionGetInputTypeInfo(const struct ort_session *session, size_t i, struct ort_type **type)
{
    *type = made(sizeof(**type));
    (*type)->shape = session->kind->inputs[i];
    return NULL;
}

static struct ort_status *
fake_SessionGetOutputTypeInfo(const struct ort_session *session, size_t i, struct ort_type **type)
{
    *type = made(sizeof(**type));
    (*type)->shape = session->kind->outputs[i];
    return NULL;
}

static struct ort_status *
fake_CastTypeInfoToTensorInfo(const struct ort_type *type, const struct ort_shape **shape)
{
    *shape = type->shape.tensor ? &type->shape : NULL;
    return NULL;
}

static void
fake_ReleaseTypeInfo(struct ort_type *type)
{
    freed(type);
}

/* --- the environment and the options --- */

static const char *
fake_GetErrorMessage(const struct ort_status *status)
{
    return status->text;
}

static void
fake_ReleaseStatus(struct ort_status *status)
{
    freed(status);
}

/* There is one for the process, which nobody releases. */
static struct ort_status *
fake_CreateEnvWithCustomLogger(ort_log_fn log, void *ctx, int level, const char *name,
                               struct ort_env **env)
{
    static struct ort_env the_env;

    (void)log;
    (void)ctx;
    (void)level;
    (void)name;
    *env = &the_env;
    return NULL;
}

static struct ort_status *
fake_CreateSessionOptions(struct ort_options **options)
{
    *options = made(sizeof(**options));
    return NULL;
}

static void
fake_ReleaseSessionOptions(struct ort_options *options)
{
    freed(options);
}

static struct ort_status *
fake_SetSessionExecutionMode(struct ort_options *options, int mode)
{
    (void)options;
    fake_ort.mode = mode;
    return NULL;
}

static struct ort_status *
fake_SetSessionGraphOptimizationLevel(struct ort_options *options, int level)
{
    (void)options;
    fake_ort.optimization = level;
    return NULL;
}

static struct ort_status *
fake_SetIntraOpNumThreads(struct ort_options *options, int n)
{
    (void)options;
    fake_ort.threads = n;
    return NULL;
}

static struct ort_status *
fake_SetInterOpNumThreads(struct ort_options *options, int n)
{
    (void)options;
    fake_ort.inter_op_threads = n;
    return NULL;
}

static struct ort_status *
fake_AddSessionConfigEntry(struct ort_options *options, const char *key, const char *value)
{
    (void)options;
    snprintf(fake_ort.entry, sizeof(fake_ort.entry), "%s=%s", key, value);
    return NULL;
}

static struct ort_status *
fake_CreateCpuMemoryInfo(int allocator, int memory, struct ort_memory **info)
{
    (void)allocator;
    (void)memory;
    *info = made(sizeof(**info));
    return NULL;
}

static void
fake_ReleaseMemoryInfo(struct ort_memory *info)
{
    freed(info);
}

static struct ort_status *
fake_AllocatorFree(struct ort_allocator *allocator, void *memory)
{
    (void)allocator;
    freed(memory);
    return NULL;
}

static struct ort_status *
fake_GetAllocatorWithDefaultOptions(struct ort_allocator **allocator)
{
    static struct ort_allocator the_allocator;

    *allocator = &the_allocator;
    return NULL;
}

/* --- providers --- */

static struct ort_status *
fake_GetAvailableProviders(char ***names, int *n)
{
    static char *all[] = {(char *)(uintptr_t) "CUDAExecutionProvider",
                          (char *)(uintptr_t) "FakeExecutionProvider",
                          (char *)(uintptr_t) "CPUExecutionProvider"};

    fake_ort.alive++;
    *names = all;
    *n = 3;
    return NULL;
}

static struct ort_status *
fake_ReleaseAvailableProviders(char **names, int n)
{
    (void)names;
    (void)n;
    fake_ort.alive--;
    return NULL;
}

static struct ort_status *
fake_SessionOptionsAppendExecutionProvider(struct ort_options *options, const char *name,
                                           const char *const *keys, const char *const *values,
                                           size_t n)
{
    (void)options;
    snprintf(fake_ort.provider, sizeof(fake_ort.provider), "%s %s=%s", name, n ? keys[0] : "",
             n ? values[0] : "");
    return NULL;
}

static struct ort_status *
fake_CreateCUDAProviderOptions(struct ort_cuda **cuda)
{
    *cuda = made(sizeof(**cuda));
    return NULL;
}

static struct ort_status *
fake_UpdateCUDAProviderOptions(struct ort_cuda *cuda, const char *const *keys,
                               const char *const *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i], "device_id") == 0)
            cuda->device = atoi(values[i]);
    return NULL;
}

static struct ort_status *
fake_SessionOptionsAppendExecutionProvider_CUDA_V2(struct ort_options *options,
                                                   const struct ort_cuda *cuda)
{
    (void)options;
    fake_ort.device = cuda->device;
    return NULL;
}

static void
fake_ReleaseCUDAProviderOptions(struct ort_cuda *cuda)
{
    freed(cuda);
}

/* --- the table --- */

static const void *table[TABLE_FUNCTIONS];

static const void *const *
table_of(uint32_t version)
{
    return version == ORT_TABLE_VERSION ? table : NULL;
}

static const char *
version_of(void)
{
    return getenv("FAKE_ORT_VERSION") ? getenv("FAKE_ORT_VERSION") : "1.99.0";
}

__attribute__((visibility("default"))) const struct ort_base *OrtGetApiBase(void);

const struct ort_base *
OrtGetApiBase(void)
{
    static const struct ort_base base = {table_of, version_of};

#define ORT_FUNCTION(name, position, result, arguments)                                            \
    {                                                                                              \
        result(*function) arguments = fake_##name;                                                 \
        memcpy(&table[position], &function, sizeof(function));                                     \
    }
#include "handlers/onnx/ort_functions.def"
#undef ORT_FUNCTION
    return &base;
}
