/* handlers/c/c_runtime_test.c - tests the C runtime through its functions, with small handlers from
 * handlers/c/testdata. */
#include "handlers/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "handlers/c/testdata/fake_row.h"
#include "proto/tensor.h"

static char dir[4096];
static struct cn_load load;

/* The handlers are in the folder handlers/ beside this program. */
static int
setup(void **state)
{
    (void)state;
    test_program_path("handlers", dir, sizeof(dir));
    cn_log_set_level(CN_LOG_ERROR);
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "test_flat.so",
                            .worker_index = 2,
                            .stateful = 1,
                            .state_max_bytes = 10000,
                            .samples_max = 10};
    return 0;
}

static struct cn_runtime *
must_open(const char *file)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    load.handler = file;
    if (cn_c_runtime_ops.open(&load, CN_STR("{\"handler\":{\"name\":\"n\",\"rate\":2}}"), &rt,
                              &err))
        fail_msg("%s", err.message);
    return rt;
}

/* A state continues from step to step, and in another worker. A step that fails does not change it.
 */
static void
flat_state_goes_on(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "5"), "5/1");
    assert_string_equal(fake_step(rt, &fake, "{\"input\":{\"n\":-3}}"), "2/2");
    assert_int_equal(fake_move(rt, &fake, &err), 0);
    assert_string_equal(fake_step(rt, &fake, "1"), "3/3");
    assert_string_equal(fake_step(rt, &fake, "x"), "bad_request/400 x is not an integer");
    assert_null(fake.item.state);
    assert_string_equal(rt->ops->describe(rt), "C, ABI 1.0");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* Everything that the header offers to read and to set works. */
static void
api_shows_request_and_model(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "info", 4);
    fake.parts[1] = (struct cn_part){CN_STR("extra"), CN_STR(""), CN_STR("more")};
    fake.headers[0] = (struct cn_header){CN_STR("X-Probe"), CN_STR("yes")};
    fake.row.n_parts = 2;
    fake.row.n_headers = 1;
    fake.row.flags |= CN_ROW_END;
    fake.item.step = 4;
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "piece |m 1.0 2 seq-1 yes more 1101 4 n 7 2 1");
    assert_int_equal(fake.item.reply.status, 201);
    assert_true(fake.item.reply.end_sequence);
    assert_int_equal(fake.item.reply.n_headers, 1);
    assert_memory_equal(fake.item.reply.content_type.data, "text/x-info", 11);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* What a handler measures is kept for the worker. For a sample that is not allowed the function
 * returns -1, and nothing else happens. */
static void
metrics_wait_for_the_worker(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "metric"), "-11");
    assert_int_equal(rt->samples.n, 1);
    assert_int_equal(rt->samples.list[0].type, CN_SAMPLE_HISTOGRAM);
    assert_true(cn_str_eq(rt->samples.list[0].name, CN_STR("took")));
    assert_true(cn_str_eq(rt->samples.list[0].unit, CN_STR("ms")));
    assert_true(cn_str_eq(rt->samples.list[0].dims[0].value, CN_STR("2")));
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

static void
run_three(struct cn_runtime *rt, struct fake *fakes, const char *const bodies[3])
{
    struct cn_item *items[3];

    for (int i = 0; i < 3; i++) {
        fake_body(&fakes[i], bodies[i], strlen(bodies[i]));
        items[i] = &fakes[i].item;
    }
    rt->ops->run(rt, items, 3);
    for (int i = 0; i < 3; i++) {
        fake_text(&fakes[i]);
        fake_end(rt, &fakes[i]);
    }
}

/* An item that the handler leaves open fails. If run() returns nonzero, all items fail, except
 * those that the handler has refused. */
static void
batch_failures_are_the_items_own(void **state)
{
    static struct fake fakes[3];
    struct cn_runtime *rt = must_open("test_flat.so");

    (void)state;
    run_three(rt, fakes, (const char *const[]){"1", "skip", "x"});
    assert_string_equal(fakes[0].text, "1/1");
    assert_string_equal(fakes[1].text, "handler_failed/0 Prediction failed: test_flat.so: handler "
                                       "answered 2 of 3 items");
    assert_string_equal(fakes[2].text, "bad_request/400 x is not an integer");
    run_three(rt, fakes, (const char *const[]){"1", "x", "fail"});
    assert_string_equal(fakes[0].text,
                        "handler_failed/0 Prediction failed: test_flat.so: run returned 7");
    assert_string_equal(fakes[1].text, "bad_request/400 x is not an integer");
    assert_null(fakes[0].item.state);
    run_three(rt, fakes, (const char *const[]){"2", "big", "twice"});
    assert_string_equal(fakes[0].text, "2/1");
    assert_non_null(strstr(fakes[1].text, "answerMaxBytes"));
    assert_non_null(strstr(fakes[2].text, "answered an item twice"));
    for (int i = 0; i < 3; i++)
        rt->ops->state_free(rt, fakes[i].item.state);
    memset(fakes, 0, sizeof(fakes));
    rt->ops->close(rt);
}

/* A flat state of an older schema goes through migrate. One of another size is refused, and the
 * message says what to do. */
static void
older_states_are_migrated(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};
    struct cn_error err;
    int64_t old = 40;

    (void)state;
    assert_int_equal(rt->ops->state_decode(rt, (struct cn_str){(char *)&old, sizeof(old)}, 1,
                                           &fake.item.state, &err),
                     0);
    assert_string_equal(fake_step(rt, &fake, "2"), "42/1001");
    fake_drop(rt, &fake);
    assert_int_equal(rt->ops->state_decode(rt, CN_STR("abc"), 1, &fake.item.state, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "test_flat.so: migrate cannot read a state of schema 1");
    /* The state has 3 bytes, and close() would read 16. */
    assert_int_equal(rt->ops->state_decode(rt, CN_STR("abc"), 2, &fake.item.state, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message, "test_flat.so: a stored state of schema 2 has 3 bytes, but "
                                     "state_bytes is 16: increment state_schema and add migrate()");
    assert_string_equal(fake_step(rt, &fake, "wide"),
                        "handler_failed/0 Prediction failed: the handler asks for a state of 24 "
                        "bytes, but its state_bytes is 16");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* If a handler reads a value that is not there or has another type, the message has the value. */
static void
mistakes_are_told_by_their_value(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "teapot"),
                        "handler_failed/0 Prediction failed: the status of a refusal must be from "
                        "400 to 599, got 200: not so");
    assert_string_equal(fake_step(rt, &fake, "nothing"),
                        "handler_failed/0 Prediction failed: continuo_stream: asked for 0 bytes");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A state with pointers is saved and restored, and close() gets it. */
static void
objects_are_saved_and_restored(void **state)
{
    struct cn_runtime *rt = must_open("test_pointers.so");
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    assert_string_equal(fake_step(rt, &fake, "one"), "one,");
    assert_int_equal(fake_move(rt, &fake, &err), 0);
    assert_string_equal(fake_step(rt, &fake, "two"), "one,two,");
    rt->ops->on_close(rt, CN_STR("s7"), fake.item.state, CN_CLOSE_LIFETIME);
    assert_string_equal(getenv("CN_TEST_CLOSED"), "s7 lifetime one");
    rt->ops->on_close(rt, CN_STR("s8"), NULL, CN_CLOSE_IDLE);
    assert_string_equal(getenv("CN_TEST_CLOSED"), "s8 idle -");
    fake_drop(rt, &fake);
    assert_int_equal(rt->ops->state_decode(rt,
                                           CN_STR("\x09"
                                                  "abc"),
                                           1, &fake.item.state, &err),
                     CN_E_HANDLER_FAILED);
    assert_string_equal(err.message,
                        "test_pointers.so: restore cannot read a state of 4 bytes and schema 1");
    rt->ops->close(rt);
}

/* A state over its limit fails the step, whether it is flat or an object. */
static void
size_is_bounded(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};
    struct cn_error err;

    (void)state;
    load.state_max_bytes = 8;
    rt = must_open("test_flat.so");
    assert_non_null(strstr(fake_step(rt, &fake, "1"), "a state of 16 bytes cannot be kept"));
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    rt = must_open("test_pointers.so");
    fake_step(rt, &fake, "123456789");
    assert_int_equal(fake_move(rt, &fake, &err), CN_E_STATE_TOO_LARGE);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    load.state_max_bytes = 10000;
}

/* A library that cannot run is refused when the model is registered. */
static void
load_errors_name_the_fix(void **state)
{
    struct cn_runtime *rt;
    struct cn_error err;

    (void)state;
    load.handler = "test_broken.so";
    assert_int_equal(cn_c_runtime_ops.open(&load, CN_STR(""), &rt, &err), CN_E_LOAD_FAILED);
    assert_string_equal(
        err.message, "test_broken.so was built for handler ABI 2.0, but this server has ABI 1.0; "
                     "build it again with this server's continuo/handler.h");
    load.handler = "test_newer.so";
    assert_int_equal(cn_c_runtime_ops.open(&load, CN_STR(""), &rt, &err), CN_E_LOAD_FAILED);
    assert_string_equal(err.message,
                        "test_newer.so was built for handler ABI 1.1, which is newer than this "
                        "server's 1.0; upgrade the server, or build the handler with its "
                        "continuo/handler.h");
    load.handler = "none.so";
    assert_int_equal(cn_c_runtime_ops.open(&load, CN_STR(""), &rt, &err), CN_E_LOAD_FAILED);
    assert_string_equal(err.message, "the model has no file none.so");
    load.handler = "../handlers/test_flat.so";
    assert_int_equal(cn_c_runtime_ops.open(&load, CN_STR(""), &rt, &err), CN_E_LOAD_FAILED);
    load.handler = "test_flat.so";
    assert_int_equal(
        cn_c_runtime_ops.open(&load, CN_STR("{\"handler\":{\"refuse\":true}}"), &rt, &err),
        CN_E_LOAD_FAILED);
    assert_string_equal(err.message, "test_flat.so: refused by handler.refuse");
}

/* describe() touches no sequence, even if the handler asks for a state. A handler without it
 * describes itself as {}. */
static void
a_handler_describes_itself(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_metadata(rt, &fake), "{\"rate\": 2}");
    assert_null(fake.item.state);
    rt->ops->close(rt);
    rt = must_open("test_pointers.so");
    assert_string_equal(fake_metadata(rt, &fake), "{}");
    rt->ops->close(rt);
}

/* The names are those that archives and configurations use. */
static void
runtimes_are_found_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(cn_runtime_find("c"), &cn_c_runtime_ops);
    assert_ptr_equal(cn_runtime_find("lua"), &cn_lua_runtime_ops);
    assert_null(cn_runtime_find("python"));
    assert_null(cn_runtime_find(NULL));
}

/* An item that calls continuo_more() comes again at another address with what it kept. The head of
 * its answer is in the first piece. */
static void
item_goes_on(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};
    struct cn_item moved, *items[1] = {&moved};

    (void)state;
    fake_body(&fake, "stream", 6);
    moved = fake.item;
    for (int i = 1; i <= 3; i++) {
        rt->ops->run(rt, items, 1);
        assert_true(moved.reply.more);
        assert_int_equal(moved.reply.n_chunks, 1);
        assert_int_equal(moved.reply.chunks[0].body.data[0], '0' + i);
        assert_int_equal(moved.reply.rest_ms, i == 2 ? 500 : 0);
        assert_non_null(moved.resume);
        moved.reply.head_out = true;
        cn_reply_next(&moved.reply);
        fake.item = moved;
    }
    rt->ops->run(rt, items, 1);
    assert_null(moved.resume);
    fake.item = moved;
    assert_string_equal(fake_text(&fake), "done");
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

static void
item_hears_why_to_stop(void **state)
{
    struct cn_runtime *rt = must_open("test_flat.so");
    struct fake fake = {0};
    struct cn_item *items[1] = {&fake.item};

    (void)state;
    fake_body(&fake, "stream", 6);
    rt->ops->run(rt, items, 1);
    cn_reply_next(&fake.item.reply);
    fake.item.stop = CN_STOP_ENDED;
    rt->ops->run(rt, items, 1);
    assert_string_equal(fake_text(&fake), "ended");
    fake_end(rt, &fake);
    fake_body(&fake, "stream", 6);
    rt->ops->run(rt, items, 1);
    rt->ops->drop(rt, fake.item.resume);
    cn_reply_fini(&fake.item.reply);
    assert_string_equal(fake_step(rt, &fake, "more"),
                        "handler_failed/0 Prediction failed: the handler answered an item twice");
    fake_body(&fake, "stop", 4);
    rt->ops->run(rt, items, 1);
    assert_true(fake.item.reply.stop_streams);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

static void
run_tensors(struct cn_runtime *rt, struct fake *fake, const struct cn_tensor *tensors, uint32_t n)
{
    struct cn_item *items[1] = {&fake->item};
    struct cn_arena arena;

    cn_arena_init(&arena);
    fake_body(fake, "", 0);
    for (uint32_t i = 0; i < n; i++)
        fake->parts[i] = cn_tensor_part(&tensors[i], &arena);
    fake->row.n_parts = n;
    rt->ops->run(rt, items, 1);
    cn_arena_fini(&arena);
}

/* The handler may read a tensor as an array, wherever its bytes lie in the frame. */
static void
tensors_are_aligned_for_the_handler(void **state)
{
    struct cn_runtime *rt = must_open("test_tensors.so");
    const double values[2] = {1.5, 2.25};
    struct fake fake = {0};
    struct cn_tensor in = {CN_STR("X"), CN_DATATYPE_FP64, 1, {2}, {NULL, sizeof(values)}};
    struct cn_tensor *out;
    struct cn_arena arena;
    struct cn_error err;
    _Alignas(16) char room[sizeof(values) + 8];
    double sum;
    uint32_t n;

    (void)state;
    cn_arena_init(&arena);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(room + shift, values, sizeof(values));
        in.data.ptr = room + shift;
        run_tensors(rt, &fake, &in, 1);
        assert_int_equal(fake.item.reply.error_code, 0);
        assert_string_equal(cn_arena_strndup(&arena, fake.item.reply.content_type.data,
                                             fake.item.reply.content_type.len),
                            CN_TENSORS_TYPE);
        assert_int_equal(cn_tensors_get(cn_buf_str(&fake.item.reply.body), &arena, &out, &n, &err),
                         0);
        assert_int_equal(n, 1);
        memcpy(&sum, out[0].data.ptr, sizeof(sum));
        assert_true(sum == 3.75);
        fake_end(rt, &fake);
    }
    cn_arena_fini(&arena);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A malformed tensor fails its item, and the message names the tensor. */
static void
wrong_tensors_fail_the_item(void **state)
{
    static const struct {
        const char *how, *says;
    } rows[] = {
        {"\3\0\0\0cut", "tensor HOW: element 0 of BYTES is truncated"},
        {"\4\0\0\0rank", "a tensor of rank 1000"},
        {"\4\0\0\0type", "unknown datatype 99 or rank 1 out of range"},
        {"\5\0\0\0twice", "answered an item twice"},
        {"\1\0\0\0?", "1 tensors, none at 9: 1, none of a name: 1"},
    };
    struct cn_runtime *rt = must_open("test_tensors.so");
    struct fake fake = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cn_tensor how = {CN_STR("HOW"), CN_DATATYPE_BYTES, 1, {1}, {rows[i].how, 0}};

        how.data.len = 4 + (size_t)rows[i].how[0];
        run_tensors(rt, &fake, &how, 1);
        if (!strstr(fake_text(&fake), rows[i].says))
            fail_msg("%s: %s", rows[i].says, fake.text);
        assert_int_not_equal(fake.item.reply.error_code, 0);
        fake_end(rt, &fake);
    }
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(item_goes_on),
        cmocka_unit_test(item_hears_why_to_stop),
        cmocka_unit_test(flat_state_goes_on),
        cmocka_unit_test(metrics_wait_for_the_worker),
        cmocka_unit_test(api_shows_request_and_model),
        cmocka_unit_test(batch_failures_are_the_items_own),
        cmocka_unit_test(older_states_are_migrated),
        cmocka_unit_test(mistakes_are_told_by_their_value),
        cmocka_unit_test(objects_are_saved_and_restored),
        cmocka_unit_test(size_is_bounded),
        cmocka_unit_test(load_errors_name_the_fix),
        cmocka_unit_test(a_handler_describes_itself),
        cmocka_unit_test(runtimes_are_found_by_name),
        cmocka_unit_test(tensors_are_aligned_for_the_handler),
        cmocka_unit_test(wrong_tensors_fail_the_item),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
