/* handlers/torchscript/torch_runtime_test.c - tests the runtime around a stand-in for libtorch
 * (testdata/fake_library.c). */
#include <stdlib.h>
#include <string.h>

#include "handlers/torchscript/test_torch.h"

/* A model without the output that says how many rows its run had. */
#define BUCKETS_YAML(more)                                                                         \
    "maxBatchSize: 8\n"                                                                            \
    "inputs: [{name: x, dataType: FP32, dims: [2]}]\n"                                             \
    "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"                                            \
    "state: [{name: h, dataType: FP32, dims: [2], batchAxis: 1}]\n"                                \
    "torch: {results: [y, h, _], buckets: [1, 4]" more "}\n"

#define ATTRIBUTE_YAML                                                                             \
    "maxBatchSize: 8\n"                                                                            \
    "inputs: [{name: x, dataType: FP32, dims: [2]}]\n"                                             \
    "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"                                            \
    "state: [{name: h, dataType: FP32, dims: [2]}]\n"                                              \
    "torch: {attributes: {_h: h}, set: {_rows: batch}, buckets: [4]}\n"

static int64_t
rows_of_run(struct batch *batch, uint32_t i)
{
    int64_t out;

    memcpy(&out, output(batch, i, 1)->data.ptr, sizeof(out));
    return out;
}

/* States are joined along their own axis, runs are padded to the bucket, and each sequence gets its
 * own state back. */
static void
each_row_has_its_own_state(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (uint32_t n = 1; n <= ITEMS_MAX; n++) { /* one more sequence each time */
        for (uint32_t i = 0; i < n; i++)
            add(&batch, i, "x", 1, 2, (float[]){(float)i, 100});
        rt->ops->run(rt, batch.list, n);
        for (uint32_t i = 0; i < n; i++) {
            const float steps = (float)(n - i);

            assert_float_equal(value(&batch, i, 0), steps * (float)i, 0);
            assert_float_equal(value(&batch, i, 1), steps * 100, 0);
            assert_int_equal(rows_of_run(&batch, i), 4);
        }
        end(rt, &batch, n);
    }
    drop(rt, &batch);
}

static void
a_rows_fault_is_nobody_elses(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (int step = 1; step <= 2; step++) {
        for (uint32_t i = 0; i < 3; i++)
            add(&batch, i, "x", 1, 2, (float[]){i == 1 && step == 2 ? -1 : 1, 2});
        rt->ops->run(rt, batch.list, 3);
        if (step == 2)
            fails_with(&batch, 1, CN_E_HANDLER_FAILED,
                       "Prediction failed: forward of model.pt: RuntimeError: x is negative");
        else
            assert_float_equal(value(&batch, 1, 0), 1, 0);
        assert_float_equal(value(&batch, 2, 1), 2 * (float)step, 0);
        end(rt, &batch, 3);
    }
    assert_null(batch.items[1].state);
    assert_non_null(batch.items[0].state);
    drop(rt, &batch);
}

static void
attributes_are_set_and_read(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("attribute", ATTRIBUTE_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    for (int step = 1; step <= 3; step++) {
        const uint32_t n = step == 2 ? 2 : 5; /* the third sequence has no second step */

        for (uint32_t i = 0; i < n; i++)
            add(&batch, i, "x", 1, 2, (float[]){1, (float)i});
        rt->ops->run(rt, batch.list, n);
        for (uint32_t i = 0; i < n; i++)
            assert_float_equal(value(&batch, i, 0), step == 3 && i >= 2 ? 2 : step, 0);
        end(rt, &batch, n);
    }
    drop(rt, &batch);
}

/* A state is turned into bytes and back, as when another worker reads it. Bytes of another model
 * are refused, and the message names the tensor. */
static void
states_become_bytes_and_states_again(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML);
    struct cn_error err = {0};
    struct cn_buf bytes;
    void *again = NULL;

    (void)state;
    memset(&batch, 0, sizeof(batch));
    cn_buf_init(&bytes, 0);
    add(&batch, 0, "x", 1, 2, (float[]){3, 4});
    rt->ops->run(rt, batch.list, 1);
    end(rt, &batch, 1);
    assert_int_equal(rt->ops->state_encode(rt, batch.items[0].state, &bytes, &err), 0);
    rt->ops->state_free(rt, batch.items[0].state);
    assert_int_equal(rt->ops->state_decode(rt, cn_buf_str(&bytes), 1, &again, &err), 0);
    batch.items[0].state = again;
    add(&batch, 0, "x", 1, 2, (float[]){1, 1});
    rt->ops->run(rt, batch.list, 1);
    assert_float_equal(value(&batch, 0, 0), 4, 0);
    assert_float_equal(value(&batch, 0, 1), 5, 0);
    end(rt, &batch, 1);
    assert_int_equal(rt->ops->state_decode(rt, CN_STR("no state"), 1, &again, &err),
                     CN_E_STATE_STORE);
    cn_buf_fini(&bytes);
    drop(rt, &batch);
}

static void
state_over_its_limit(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;
    struct cn_error err = {0};
    struct cn_buf bytes;

    (void)state;
    load.state_max_bytes = 16;
    rt = must_open("sum", SUM_YAML);
    memset(&batch, 0, sizeof(batch));
    cn_buf_init(&bytes, 0);
    add(&batch, 0, "x", 1, 2, (float[]){3, 4});
    rt->ops->run(rt, batch.list, 1);
    end(rt, &batch, 1);
    assert_int_equal(rt->ops->state_encode(rt, batch.items[0].state, &bytes, &err),
                     CN_E_STATE_TOO_LARGE);
    assert_non_null(strstr(err.message, "the sequence's state is over 16 bytes (state.maxBytes)"));
    assert_non_null(strstr(err.message, "the largest is h, FP32[2], with 8 bytes"));
    cn_buf_fini(&bytes);
    drop(rt, &batch);
}

/* If a row has the same tensors as the row before, their description is read once. Its data is
 * still checked, and so is every row that differs. */
static void
rows_that_look_alike_are_checked(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    add(&batch, 0, "x", 1, 2, (float[]){1, 2});
    add(&batch, 1, "x", 1, 2, (float[]){3, 4});
    batch.parts[1].data.len = 4;
    add(&batch, 2, "x", 1, 2, (float[]){5, 6});
    add(&batch, 3, "x", 1, 3, (float[]){1, 2, 3});
    batch.parts[3].data.len = 8; /* the right length for the others, but not for this type */
    rt->ops->run(rt, batch.list, 4);
    assert_float_equal(value(&batch, 0, 1), 2, 0);
    fails_with(&batch, 1, CN_E_BAD_REQUEST, "4 bytes");
    assert_float_equal(value(&batch, 2, 1), 6, 0);
    fails_with(&batch, 3, CN_E_BAD_REQUEST, "8 bytes");
    end(rt, &batch, 4);
    drop(rt, &batch);
}

static void
wrong_requests_name_what_is_wrong(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", SUM_YAML);

    (void)state;
    memset(&batch, 0, sizeof(batch));
    add(&batch, 0, "z", 1, 2, (float[]){1, 2});
    add(&batch, 1, "x", 1, 3, (float[]){1, 2, 3});
    add(&batch, 2, "x", 2, 2, (float[]){1, 2, 3, 4});
    add(&batch, 3, "x", 1, 2, (float[]){1, 2});
    rt->ops->run(rt, batch.list, 4);
    fails_with(&batch, 0, CN_E_BAD_REQUEST, "no tensor x");
    fails_with(&batch, 1, CN_E_BAD_REQUEST, "input x is FP32[1,3], but the model takes FP32[2]");
    fails_with(&batch, 2, CN_E_BAD_REQUEST, "one row, not 2");
    assert_float_equal(value(&batch, 3, 0), 1, 0);
    end(rt, &batch, 4);
    drop(rt, &batch);
}

static void
what_the_yaml_says_wrongly_shows_at_load(void **state)
{
    (void)state;
    refused("nothing", SUM_YAML, "cannot load model.pt as TorchScript");
    refused("sum", "batchSize: 2\n", "needs inputs and outputs");
    refused(
        "sum",
        "maxBatchSize: 8\ninputs: [{name: x, dataType: FP32, dims: [2]}]\n"
        "outputs: [{name: y, dataType: FP32, dims: [3]}, {name: r, dataType: INT64, dims: [1]}]\n"
        "state: [{name: h, dataType: FP32, dims: [2], batchAxis: 1}]\n"
        "torch: {results: [y, h, r]}\n",
        "returned output y as FP32[1,2], but the model's YAML declares FP32[1,3]");
    refused("attribute",
            "maxBatchSize: 8\ninputs: [{name: x, dataType: FP32, dims: [2]}]\n"
            "outputs: [{name: y, dataType: FP32, dims: [2]}]\n"
            "state: [{name: h, dataType: FP32, dims: [2]},\n"
            "        {name: n, dataType: INT64, dims: [-1], init: {dims: [0]}}]\n"
            "torch: {attributes: {_h: h, _rows: n}}\n",
            "the module holds one number in _rows, but the state n has the shape [-1]");
    load.torch_library = "/nowhere/libcontinuo_torch.so";
    refused("sum", SUM_YAML, "scripts/setup.sh --torch");
    load.torch_library = "/lib/x86_64-linux-gnu/libm.so.6";
    refused("sum", SUM_YAML, "exports no symbol continuo_torch");
}

static void
it_tells_of_its_buckets(void **state)
{
    struct cn_item item = {.deadline_ms = CN_NEVER};
    struct cn_runtime *rt = must_open("sum", SUM_YAML);

    (void)state;
    cn_reply_init(&item.reply, 10000);
    rt->ops->metadata(rt, &item);
    cn_buf_append(&item.reply.body, "", 1);
    assert_non_null(strstr(item.reply.body.data, "\"buckets\":[{\"rows\":4,\"microseconds\":"));
    assert_non_null(strstr(item.reply.body.data, "forward(Tensor x, Tensor h)"));
    cn_reply_fini(&item.reply);
    rt->ops->close(rt);
}

/* --- the probe of rows (module_probe.h) --- */

static void
must_tell(const char *kind, const char *yaml, const char *words, const char *warning)
{
    struct cn_runtime *rt = must_open(kind, yaml);
    char *text = told_of(rt);

    if (!strstr(text, words))
        fail_msg("\"%s\" is not in \"%s\"", words, text);
    if (!strstr(rt->warning, warning) || (!*warning && *rt->warning))
        fail_msg("\"%s\" is not in \"%s\"", warning, rt->warning);
    free(text);
    rt->ops->close(rt);
}

static void
rows_alike_keep_their_buckets(void **state)
{
    (void)state;
    must_tell("sum", BUCKETS_YAML(""),
              "\"probe\":{\"result\":\"alike\",\"rows\":8,\"largestBucket\":4", "");
    must_tell("sum", BUCKETS_YAML(", probe: false"), "\"probe\":{\"result\":\"off\"}", "");
    must_tell("attribute", ATTRIBUTE_YAML, "\"result\":\"alike\"", "");
}

/* A row that gets a part of its neighbour's data is run alone from then on, and then its result is
 * right. */
static void
rows_that_depend_on_others_are_run_alone(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;

    (void)state;
    memset(&batch, 0, sizeof(batch));
    must_tell("neighbour", BUCKETS_YAML(""), "\"buckets\":[{\"rows\":1,",
              "each row is run alone (buckets: [1]): output y of a row differs by");
    rt = must_open("neighbour", BUCKETS_YAML(""));
    for (uint32_t i = 0; i < 4; i++)
        add(&batch, i, "x", 1, 2, (float[]){(float)i * 64, 0});
    rt->ops->run(rt, batch.list, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_float_equal(value(&batch, i, 0), (float)i * 65, 0);
    end(rt, &batch, 4);
    drop(rt, &batch);
    refused("neighbour", BUCKETS_YAML(", strictBatching: true"), "output y of a row differs by");
    must_tell("neighbour", BUCKETS_YAML(", probe: {tolerance: 10}"), "\"result\":\"alike\"", "");
}

static void
a_module_that_remembers_is_refused(void **state)
{
    struct cn_runtime *rt;

    (void)state;
    refused("hidden", BUCKETS_YAML(""),
            "the module keeps data between its calls (it changes left_behind)");
    rt = must_open("hidden", BUCKETS_YAML(", probe: false"));
    rt->ops->close(rt);
}

/* A model that draws random numbers cannot be checked for neighbours, but its memory can. */
static void
random_numbers_are_no_neighbours(void **state)
{
    (void)state;
    must_tell("random", BUCKETS_YAML(""), "\"result\":\"random\"", "");
}

/* The stand-in throws for numbers below 0, and the second try has none. If the YAML demands them,
 * the model accepts no row. */
static void
random_rows_are_those_that_the_model_takes(void **state)
{
    (void)state;
    must_tell("sum", BUCKETS_YAML(", probe: {ranges: {x: [-2, -1]}}"), "\"result\":\"skipped\"",
              "");
    refused("sum", BUCKETS_YAML(", probe: {ranges: {z: [0, 1]}}"), "names of inputs");
    refused("sum", BUCKETS_YAML(", probe: {ranges: {x: [1, 0]}}"), "[low, high]");
    refused("sum", BUCKETS_YAML(", probe: 3"), "torch.probe");
    refused("sum", BUCKETS_YAML(", probe: {rows: 3}"), "torch.probe");
    refused("sum", BUCKETS_YAML(", seed: -1"), "torch.seed");
    refused("sum", BUCKETS_YAML(", nanPolicy: yes"), "pass or refuse");
}

/* A row with a NaN fails and keeps its state. Its neighbours do not fail. */
static void
nan_is_refused_where_the_yaml_says_so(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt = must_open("sum", BUCKETS_YAML(", nanPolicy: refuse"));
    float nan = 0;

    (void)state;
    nan /= nan;
    memset(&batch, 0, sizeof(batch));
    for (int step = 1; step <= 2; step++) {
        for (uint32_t i = 0; i < 3; i++)
            add(&batch, i, "x", 1, 2, (float[]){1, i == 1 && step == 2 ? nan : 2});
        rt->ops->run(rt, batch.list, 3);
        assert_float_equal(value(&batch, 2, 1), 2 * (float)step, 0);
        if (step == 2)
            fails_with(&batch, 1, CN_E_HANDLER_FAILED,
                       "gives NaN or an infinity in output y, which torch.nanPolicy refuses");
        end(rt, &batch, 3);
    }
    drop(rt, &batch);
}

/* Batches do not pay for samples: the worker asks once a second, and each count is reported once.
 */
static void
runs_are_told_when_asked(void **state)
{
    static struct batch batch;
    struct cn_runtime *rt;

    (void)state;
    memset(&batch, 0, sizeof(batch));
    load.samples_max = 100;
    rt = must_open("sum", SUM_YAML);
    assert_true(sample_of(rt, "TorchBucketTime") > 0);
    cn_samples_clear(&rt->samples);
    for (int i = 0; i < 10; i++) {
        add(&batch, 0, "x", 1, 2, (float[]){1, 2});
        rt->ops->run(rt, batch.list, 1);
        end(rt, &batch, 1);
    }
    assert_int_equal(rt->samples.n, 0);
    rt->ops->report(rt);
    assert_float_equal(sample_of(rt, "TorchRuns"), 10, 0);
    /* Only some runs are timed, and they stand for all of them. The library says 5 us for each. */
    assert_float_equal(sample_of(rt, "TorchRunTime"), 50, 0);
    cn_samples_clear(&rt->samples);
    rt->ops->report(rt);
    assert_int_equal(rt->samples.n, 0);
    drop(rt, &batch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_row_has_its_own_state),
        TEST(a_rows_fault_is_nobody_elses),
        TEST(attributes_are_set_and_read),
        TEST(states_become_bytes_and_states_again),
        TEST(state_over_its_limit),
        TEST(rows_that_look_alike_are_checked),
        TEST(wrong_requests_name_what_is_wrong),
        TEST(what_the_yaml_says_wrongly_shows_at_load),
        TEST(it_tells_of_its_buckets),
        TEST(runs_are_told_when_asked),
        TEST(rows_alike_keep_their_buckets),
        TEST(rows_that_depend_on_others_are_run_alone),
        TEST(a_module_that_remembers_is_refused),
        TEST(random_numbers_are_no_neighbours),
        TEST(random_rows_are_those_that_the_model_takes),
        TEST(nan_is_refused_where_the_yaml_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
