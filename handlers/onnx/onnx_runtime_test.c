/* handlers/onnx/onnx_runtime_test.c - tests the runtime around a stand-in for onnxruntime
 * (testdata/fake_onnxruntime.c). */
#include "handlers/onnx/onnx_runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/modules/test_support.h"
#include "handlers/onnx/testdata/fake_onnxruntime.h"

#define TENSORS                                                                                    \
    "inputs: [{name: x, dataType: FP32, dims: [2]}]\n"                                             \
    "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"

#define SUM_YAML(more)                                                                             \
    "maxBatchSize: 8\n" TENSORS                                                                    \
    "state: [{input: h, output: hN, dataType: FP32, dims: [2], batchAxis: 1}]\n"                   \
    "onnx: {buckets: [1, 4]" more "}\n"

#define GROW_YAML                                                                                  \
    "maxBatchSize: 8\n" TENSORS                                                                    \
    "state: [{input: past, output: present, dataType: FP32, dims: [-1, 2], init: {dims: [0, "      \
    "2]}}]\nonnx: {warmup: 3}\n"

#define PLAIN_YAML(onnx) "maxBatchSize: 8\n" TENSORS "onnx: " onnx "\n"

static char dir[TEST_DIR_MAX], library[4096];
static struct cn_load load;
static struct fake_ort *fake;

static int
setup(void **state)
{
    (void)state;
    test_program_path("onnx/fake_onnxruntime.so", library, sizeof(library));
    cn_log_set_level(CN_LOG_ERROR);
    fake = dlsym(dlopen(library, RTLD_NOW | RTLD_LOCAL), "fake_ort");
    assert_non_null(fake);
    memset(fake, 0, sizeof(*fake));
    test_dir_make(dir);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "model.onnx",
                            .config_file = "m.yaml",
                            .runtime = "onnx",
                            .onnxruntime = library,
                            .store_dir = "",
                            .batch_size = ITEMS_MAX,
                            .stateful = 1,
                            .state_max_bytes = 100000};
    return 0;
}

/* Everything that the library has given out was given back. */
static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(fake->alive, 0);
    return test_dir_remove(dir);
}

static int
open_model(const char *kind, const char *yaml, struct cn_runtime **rt, struct cn_error *err)
{
    test_dir_write(dir, "model.onnx", kind);
    test_dir_write(dir, "m.yaml", yaml);
    return cn_onnx_runtime_ops.open(&load, cn_str_from("{}"), rt, err);
}

static struct cn_runtime *
must_open(const char *kind, const char *yaml)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    if (open_model(kind, yaml, &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

static void
refused(const char *kind, const char *yaml, const char *words)
{
    struct cn_runtime *rt;
    struct cn_error err = {0};

    assert_true(open_model(kind, yaml, &rt, &err) < 0);
    if (!strstr(err.message, words))
        fail_msg("\"%s\" is not in \"%s\"", words, err.message);
}

/* --- runs --- */

/* States lie along their own axis, and each sequence gets its own back, whichever rows run with it
 * and however the batch is padded. */
static void
each_row_has_its_own_state(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML(""));

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (uint32_t n = 1; n <= ITEMS_MAX; n++) { /* one sequence more each time */
        for (uint32_t i = 0; i < n; i++)
            add(&batch, i, "x", 1, 2, (float[]){(float)i, 100});
        rt->ops->run(rt, batch.list, n);
        for (uint32_t i = 0; i < n; i++) {
            const float steps = (float)(n - i);

            assert_float_equal(value(&batch, i, 0), steps * (float)i, 0);
            assert_float_equal(value(&batch, i, 1), steps * 100, 0);
        }
        end(rt, &batch, n);
    }
    drop(rt, &batch);
}

/* A run uses the bindings of the run before if it has the same size: a step must not pay for new
 * ones. */
static void
the_same_size_is_bound_once(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML(""));
    int binds = 0;

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (int step = 0; step < 5; step++) {
        for (uint32_t i = 0; i < 4; i++)
            add(&batch, i, "x", 1, 2, (float[]){1, 2});
        rt->ops->run(rt, batch.list, 4);
        end(rt, &batch, 4);
        if (step == 1)
            binds = fake->binds;
    }
    assert_int_equal(fake->binds, binds);
    drop(rt, &batch);
}

/* The state of a sequence grows with each step; rows of different lengths run apart. */
static void
a_state_grows_from_nothing(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("grow", GROW_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (uint32_t n = 1; n <= 6; n++) {
        for (uint32_t i = 0; i < n; i++)
            add(&batch, i, "x", 1, 2, (float[]){(float)(i + 1), (float)n});
        rt->ops->run(rt, batch.list, n);
        for (uint32_t i = 0; i < n; i++)
            assert_float_equal(value(&batch, i, 0), (float)((n - i) * (i + 1)), 0);
        end(rt, &batch, n);
    }
    drop(rt, &batch);
}

/* A state is encoded, decoded as by another worker, and encoded again, which gives the same
 * bytes. */
static void
states_become_bytes_and_states_again(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("grow", GROW_YAML);
    struct cn_buf bytes, more;
    struct cn_error err = {0};
    void *again = NULL;

    (void)state;
    memset(&batch, 0, sizeof(batch));
    cn_buf_init(&bytes, 0);
    cn_buf_init(&more, 0);
    for (int step = 1; step <= 3; step++) {
        add(&batch, 0, "x", 1, 2, (float[]){1, (float)step});
        rt->ops->run(rt, batch.list, 1);
        assert_float_equal(value(&batch, 0, 0), step, 0);
        end(rt, &batch, 1);
        cn_buf_reset(&bytes);
        cn_buf_reset(&more);
        assert_int_equal(rt->ops->state_encode(rt, batch.items[0].state, &bytes, &err), 0);
        rt->ops->state_free(rt, batch.items[0].state);
        assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &again, &err), 0);
        batch.items[0].state = again;
        assert_int_equal(rt->ops->state_encode(rt, again, &more, &err), 0);
        assert_true(cn_str_eq(cn_buf_str(&bytes), cn_buf_str(&more)));
    }
    cn_buf_fini(&bytes);
    cn_buf_fini(&more);
    drop(rt, &batch);
}

static void
a_rows_fault_is_nobody_elses(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML(""));

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (int step = 1; step <= 2; step++) {
        for (uint32_t i = 0; i < 3; i++)
            add(&batch, i, "x", 1, 2, (float[]){i == 1 && step == 2 ? -1 : 1, 2});
        rt->ops->run(rt, batch.list, 3);
        if (step == 2)
            fails_with(&batch, 1, CN_E_HANDLER_FAILED, "x is negative");
        assert_float_equal(value(&batch, 2, 1), 2 * (float)step, 0);
        end(rt, &batch, 3);
    }
    assert_null(batch.items[1].state);
    drop(rt, &batch);
}

/* An output gets another shape than in earlier runs, and not the one that the YAML declares. */
static void
an_output_of_another_shape_is_refused(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;

    (void)state;
    load.stateful = 0;
    rt = must_open("moody", PLAIN_YAML("{buckets: [1]}"));
    memset(&batch, 0, sizeof(batch));
    for (int step = 0; step < 3; step++) {
        add(&batch, 0, "x", 1, 2, (float[]){step == 1 ? 60 : 7, 0});
        rt->ops->run(rt, batch.list, 1);
        if (step == 1)
            fails_with(&batch, 0, CN_E_HANDLER_FAILED,
                       "returned output y as FP32[1,3], but the model's YAML declares FP32[1,2]");
        else
            assert_float_equal(value(&batch, 0, 0), 7, 0);
        end(rt, &batch, 1);
    }
    rt->ops->close(rt);
}

static void
numbers_are_given_to_each_run(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;

    (void)state;
    load.stateful = 0;
    memset(&batch, 0, sizeof(batch));
    for (uint32_t rows = 1; rows <= 4;
         rows += 3) { /* with one bucket, because measured times would choose among several */
        rt = must_open("scale",
                       rows == 1 ? PLAIN_YAML("{set: {rate: batch}, buckets: [1], probe: false}")
                                 : PLAIN_YAML("{set: {rate: batch}, buckets: [4], probe: false}"));
        for (uint32_t i = 0; i < 4; i++)
            add(&batch, i, "x", 1, 2, (float[]){3, 5});
        rt->ops->run(rt, batch.list, 4);
        for (uint32_t i = 0; i < 4; i++)
            assert_float_equal(value(&batch, i, 1), 5 * (float)rows, 0);
        end(rt, &batch, 4);
        rt->ops->close(rt);
    }
    rt = must_open("fixed", PLAIN_YAML("{set: {rate: 2}, buckets: [4]}"));
    add(&batch, 0, "x", 1, 2, (float[]){3, 5});
    rt->ops->run(rt, batch.list, 1);
    assert_float_equal(value(&batch, 0, 1), 10, 0);
    end(rt, &batch, 1);
    rt->ops->close(rt);
}

/* Rows that depend on each other are run alone, also if the graph takes no other batch than one of
 * 4 rows: copies of the row fill it up. */
static void
rows_of_a_fixed_batch_are_run_alone(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;

    (void)state;
    load.stateful = 0;
    memset(&batch, 0, sizeof(batch));
    rt = must_open("tied", PLAIN_YAML("{buckets: [4]}"));
    assert_non_null(strstr(rt->warning, "each row is run alone (buckets: [4]): output y of a row"));
    for (uint32_t i = 0; i < 4; i++)
        add(&batch, i, "x", 1, 2, (float[]){(float)i * 64, 0});
    rt->ops->run(rt, batch.list, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_float_equal(value(&batch, i, 0), (float)i * 65, 0);
    end(rt, &batch, 4);
    rt->ops->close(rt);
    refused("tied", PLAIN_YAML("{buckets: [4], strictBatching: true}"),
            "output y of a row differs");
}

/* --- what is refused --- */

static void
what_the_library_refuses_is_told_in_one_line(void **state)
{
    (void)state;
    refused("old", SUM_YAML(""),
            "onnxruntime 1.99.0 cannot load model.onnx: Opset 99 is under development");
    refused("absent", SUM_YAML(""), "External data path does not exist: weights.bin");
    refused("noise", SUM_YAML(""), "cannot load model.onnx: Protobuf parsing failed.");
}

static void
what_does_not_fit_the_graph_is_named(void **state)
{
    (void)state;
    refused("scale", SUM_YAML(""),
            "the graph of model.onnx has no input h, which the YAML declares as state; it has x, "
            "rate");
    refused("sum", PLAIN_YAML("{}"), "nothing in the YAML fills the input h of the graph");
    refused("listed", PLAIN_YAML("{set: {words: 1}}"),
            "onnx.set: the input words of the graph of model.onnx takes no numbers");
    refused("fixed", PLAIN_YAML("{set: {rate: 1}}"), "say onnx: {buckets: [4]}");
    refused("sum",
            "maxBatchSize: 8\ninputs: [{name: x, dataType: FP64, dims: [2]}]\n"
            "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"
            "state: [{input: h, output: hN, dataType: FP32, dims: [2], batchAxis: 1}]\n",
            "input x of the graph of model.onnx is FP32[-1,2], but the YAML has FP64[-1,2]");
    refused("sum", SUM_YAML(", provider: [CPUExecutionProvider]"),
            "onnx: unknown key provider (did you mean providers?)");
    refused("sum", SUM_YAML(", providers: [RocmExecutionProvider]"),
            "onnxruntime 1.99.0 has no RocmExecutionProvider here; it has CUDAExecutionProvider, "
            "FakeExecutionProvider, CPUExecutionProvider");
}

static void
a_key_that_is_nearly_known_is_refused(void **state)
{
    (void)state;
    refused("sum", SUM_YAML("") "onxx: {threads: 2}\n", "unknown key onxx (did you mean onnx?)");
    refused("sum", SUM_YAML("") "outpits: []\n", "unknown key outpits (did you mean outputs?)");
    cn_onnx_runtime_ops.close(must_open("sum", SUM_YAML("") "mine: {threads: 2}\n"));
}

/* --- settings --- */

static void
settings_reach_the_session(void **state)
{
    (void)state;
    cn_onnx_runtime_ops.close(must_open(
        "sum", SUM_YAML(", threads: 3, interOpThreads: 2, graphOptimization: basic, "
                        "sessionOptions: {session.use_env_allocators: 1}, "
                        "providers: [{FakeExecutionProvider: {speed: 9}}, CPUExecutionProvider]")));
    assert_int_equal(fake->threads, 3);
    assert_int_equal(fake->inter_op_threads, 2);
    assert_int_equal(fake->mode, 1);
    assert_int_equal(fake->optimization, 1);
    assert_string_equal(fake->entry, "session.use_env_allocators=1");
    assert_string_equal(fake->provider, "Fake speed=9");
}

/* Describes which device a worker gets. */
static void
gets(uint64_t worker, const char *yaml, int device, const char *shown)
{
    struct cn_runtime *rt;

    load.worker_index = worker;
    rt = must_open("sum", yaml);
    assert_int_equal(fake->device, device);
    assert_string_equal(rt->device, shown);
    rt->ops->close(rt);
}

/* Without deviceIds the workers use all devices of the driver in turn. Here the driver has
 * three. */
static void
workers_share_out_the_devices(void **state)
{
    struct cn_error err = {0};
    struct cn_runtime *rt;
    char cuda[4096];

    (void)state;
    if (open_model("sum", SUM_YAML("") "deviceType: gpu\n", &rt, &err) == 0) {
        rt->ops->close(rt); /* this machine has a driver */
        return;
    }
    if (!strstr(err.message, "deviceType is gpu, but"))
        fail_msg("%s", err.message);
    test_program_path("onnx/fake_cuda.so", cuda, sizeof(cuda));
    assert_non_null(dlopen(cuda, RTLD_NOW | RTLD_LOCAL)); /* it has the name of the driver */
    for (uint64_t worker = 1; worker <= 4; worker++) {
        char shown[16];

        snprintf(shown, sizeof(shown), "cuda:%d", (int)((worker - 1) % 3));
        gets(worker, SUM_YAML("") "deviceType: gpu\n", (int)((worker - 1) % 3), shown);
    }
    gets(1, SUM_YAML("") "deviceType: gpu\ndeviceIds: [5, 7]\n", 5, "cuda:5");
    gets(2, SUM_YAML("") "deviceType: gpu\ndeviceIds: [5, 7]\n", 7, "cuda:7");
    gets(2, SUM_YAML(", providers: [{CUDAExecutionProvider: {device_id: 9}}]") "deviceType: gpu\n",
         9, "cuda:1");
}

static void
it_tells_of_itself_in_short_numbers(void **state)
{
    struct cn_runtime *rt = must_open("sum", SUM_YAML(", probe: {tolerance: 1e-3}"));
    char *text = told_of(rt);

    (void)state;
    if (!strstr(text, "\"onnxruntime\":\"1.99.0\"") || !strstr(text, "\"tolerance\":0.001,") ||
        !strstr(text, "graph(FP32 x[-1,2], FP32 h[2,-1]) -> (FP32 y[-1,2], FP32 hN[2,-1])"))
        fail_msg("%s", text);
    free(text);
    rt->ops->close(rt);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_row_has_its_own_state),
        TEST(the_same_size_is_bound_once),
        TEST(a_state_grows_from_nothing),
        TEST(states_become_bytes_and_states_again),
        TEST(a_rows_fault_is_nobody_elses),
        TEST(an_output_of_another_shape_is_refused),
        TEST(numbers_are_given_to_each_run),
        TEST(rows_of_a_fixed_batch_are_run_alone),
        TEST(what_the_library_refuses_is_told_in_one_line),
        TEST(what_does_not_fit_the_graph_is_named),
        TEST(a_key_that_is_nearly_known_is_refused),
        TEST(settings_reach_the_session),
        TEST(workers_share_out_the_devices),
        TEST(it_tells_of_itself_in_short_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
