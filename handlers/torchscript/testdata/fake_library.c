/* A stand-in for libcontinuo_torch.so, so that everything around it is tested without libtorch. The
 * model's file says what it is:
 *   sum        run(x [rows, 2], h [2, rows]) -> y = h + x, h = y, rows [rows, 1]; x below 0 throws
 *              the method "again" does the same
 *   attribute  run(x [rows, 2]) -> y; the sum lies in the attribute _h [rows, 2], and the attribute
 *              _rows must be the number of rows
 *   neighbour  like sum, but a part of the first row's x is added to the y of each row: a model
 *              whose rows depend on each other
 *   hidden     like sum, but x of the earlier runs is added to y
 *   random     like sum, but a random number is added to y
 * A second word in the file is an order for load(): "thread" starts a thread and leaves it running,
 * "die" ends the process, and with a path it waits until that file exists. Results lie in static
 * memory, and libtorch's stay valid until the next run, too. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "handlers/torchlib/torch_abi.h"

#define ROWS_MAX 64
#define FP32 11
#define INT64 9
#define RUN_NS 5000 /* what a run says that it took */

struct ctt_model {
    int attribute, neighbour, hidden, random;
    int64_t rows;
};

/* The number of models that are loaded; tests read it. */
__attribute__((visibility("default"))) extern int fake_models;
int fake_models;

static struct ctt_model the_model;
static float left_behind;
static uint64_t random_state;
static float y[ROWS_MAX * 2], h[ROWS_MAX * 2], kept[ROWS_MAX * 2];
static int64_t n_rows[ROWS_MAX];

static int
refuse(char *error, size_t n, const char *text)
{
    snprintf(error, n, "The following operation failed\nTraceback, line 1\nRuntimeError: %s", text);
    return -1;
}

static struct ctt_tensor
tensor(void *data, int32_t datatype, int64_t a, int64_t b)
{
    return (struct ctt_tensor){data, {a, b}, 2, datatype};
}

static void *
wait_for_ever(void *arg)
{
    for (;;)
        pause();
    return arg;
}

static void
obey(const char *order)
{
    pthread_t thread;

    if (strcmp(order, "thread") == 0)
        pthread_create(&thread, NULL, wait_for_ever, NULL);
    else if (strcmp(order, "die") == 0)
        _exit(9);
    while (order[0] == '/' && access(order, F_OK) != 0)
        usleep(1000);
}

static int
load(const struct ctt_options *options, struct ctt_model **out, char *error, size_t n)
{
    char word[16] = "", order[300] = "";
    FILE *file = fopen(options->file, "r");

    if (!file)
        return refuse(error, n, "no file");
    if (fscanf(file, "%15s", word) != 1 ||
        !strstr(" sum attribute neighbour hidden random ", word)) {
        fclose(file);
        return refuse(error, n, "no model");
    }
    if (fscanf(file, "%299s", order) == 1)
        obey(order);
    fclose(file);
    the_model.attribute = strcmp(word, "attribute") == 0;
    the_model.neighbour = strcmp(word, "neighbour") == 0;
    the_model.hidden = strcmp(word, "hidden") == 0;
    the_model.random = strcmp(word, "random") == 0;
    fake_models++;
    *out = &the_model;
    return 0;
}

static void
unload(struct ctt_model *model)
{
    if (model)
        fake_models--;
}

static const char *
schema(struct ctt_model *model)
{
    return model->attribute ? "forward(Tensor x) -> Tensor" : "forward(Tensor x, Tensor h) -> ...";
}

static int
set_attribute(struct ctt_model *model, const char *name, const struct ctt_value *value, char *error,
              size_t n)
{
    if (strcmp(name, "_rows") == 0 && value->kind == CTT_INT)
        model->rows = value->integer;
    else if (strcmp(name, "_h") == 0 && value->kind == CTT_TENSOR)
        memcpy(kept, value->tensor.data, sizeof(float) * 2 * (size_t)value->tensor.dims[0]);
    else
        return refuse(error, n, "there is no such attribute");
    return 0;
}

static int
get_attribute(struct ctt_model *model, const char *name, struct ctt_tensor *out, char *error,
              size_t n)
{
    if (strcmp(name, "_h") != 0)
        return refuse(error, n, "there is no such attribute");
    *out = tensor(kept, FP32, model->rows, 2);
    return 0;
}

static int
room(struct ctt_model *model, uint32_t i, struct ctt_tensor *out, char *error, size_t n)
{
    static double memory[2][ROWS_MAX * 2];
    int64_t elements = 1;

    (void)model;
    for (int32_t d = 0; d < out->rank; d++)
        elements *= out->dims[d];
    if (i >= 2 || elements > ROWS_MAX * 2)
        return refuse(error, n, "no room for the argument");
    out->data = memory[i];
    return 0;
}

static int
run(struct ctt_model *model, const struct ctt_value *arguments, uint32_t n_arguments,
    struct ctt_tensor *results, uint32_t max_results, uint32_t *n_results, uint64_t *method_ns,
    char *error, size_t n)
{
    const struct ctt_tensor *x = &arguments[0].tensor;
    const float *values = x->data;
    const int64_t rows = x->dims[0];

    if (n_arguments != (model->attribute ? 1 : 2) || x->rank != 2 || rows > ROWS_MAX)
        return refuse(error, n, "wrong arguments");
    if (model->attribute && model->rows != rows)
        return refuse(error, n, "the attribute has other rows");
    if (max_results < (model->attribute ? 1 : 3))
        return refuse(error, n, "no room for the results");
    for (int64_t b = 0; b < rows; b++)
        for (int64_t d = 0; d < 2; d++) {
            const float *before = model->attribute ? kept : (float *)arguments[1].tensor.data;

            if (values[2 * b + d] < 0)
                return refuse(error, n, "x is negative");
            y[2 * b + d] = values[2 * b + d] + before[model->attribute ? 2 * b + d : d * rows + b];
            h[d * rows + b] = y[2 * b + d];
            y[2 * b + d] += model->neighbour ? values[d] / 64 : 0;
            y[2 * b + d] += model->hidden ? left_behind : 0;
            random_state = random_state * 6364136223846793005u + 1442695040888963407u;
            y[2 * b + d] += model->random ? (float)(random_state >> 40) : 0;
            n_rows[b] = rows;
        }
    left_behind += values[0];
    if (model->attribute)
        memcpy(kept, y, sizeof(float) * 2 * (size_t)rows);
    results[0] = tensor(y, FP32, rows, 2);
    *n_results = 1;
    if (!model->attribute) {
        results[1] = tensor(h, FP32, 2, rows);
        results[2] = tensor(n_rows, INT64, rows, 1);
        *n_results = 3;
    }
    if (method_ns)
        *method_ns = RUN_NS;
    return 0;
}

static int
method(struct ctt_model *model, const char *name, struct ctt_model **out, char *error, size_t n)
{
    if (strcmp(name, "again") != 0)
        return refuse(error, n, "there is no such method");
    fake_models++;
    *out = model;
    return 0;
}

static void
seed(uint64_t from)
{
    random_state = from;
}

static int
attribute_kind(struct ctt_model *model, const char *name, enum ctt_kind *out, char *error, size_t n)
{
    (void)model;
    *out = strcmp(name, "_rows") == 0 ? CTT_INT : CTT_TENSOR;
    return strcmp(name, "_h") == 0 || *out == CTT_INT
               ? 0
               : refuse(error, n, "there is no such attribute");
}

static int
changed(struct ctt_model *model, char *names, size_t names_n, char *error, size_t n)
{
    static float before;

    (void)error;
    (void)n;
    snprintf(names, names_n, "%s", model->hidden && before != left_behind ? "left_behind" : "");
    before = left_behind;
    return 0;
}

static int
devices(uint32_t *count, char *error, size_t n)
{
    (void)error;
    (void)n;
    *count = 2;
    return 0;
}

static struct ctt_api api = {CTT_ABI, sizeof(api),    "0.0 (fake)",  "0.0 (fake)", load, unload,
                             schema,  set_attribute,  get_attribute, room,         run,  method,
                             seed,    attribute_kind, changed,       devices};

__attribute__((visibility("default"))) const struct ctt_api *continuo_torch(uint32_t abi);

const struct ctt_api *
continuo_torch(uint32_t abi)
{
    const char *version = getenv("FAKE_LIBTORCH"); /* the one that is loaded */
    static char named[8];
    const char *at;
    Dl_info me;

    /* A copy says in its name against which version it would have been built. The folder's name may
     * have such an end, too. */
    if (dladdr(&api, &me) && (at = strrchr(me.dli_fname, '/')) && (at = strrchr(at, '-')))
        (void)sscanf(at, "-%7[0-9.]", named);
    if (version) {
        api.version = version;
        api.compiled = named[0] ? named : "2.13.0";
    }
    if (getenv("FAKE_FIRST_IS_STRANGE") && !named[0])
        return NULL;
    return abi == CTT_ABI ? &api : NULL;
}
