/* worker/stream_input/window_answers_test.c - tests how answers to windows become one. */
#include "worker/stream_input/window_answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "handlers/reply.h"
#include "proto/tensor.h"

static struct cn_window_answers answers;
static struct cn_reply reply;
static struct cn_error err;

static void
begin(enum cn_stream_answers form, const struct cn_model_io *io, uint64_t max_bytes)
{
    cn_reply_init(&reply, max_bytes);
    cn_answers_init(&answers, form, io, max_bytes);
}

static int
take(const char *type, const char *body)
{
    assert_int_equal(cn_reply_set_content_type(&reply, cn_str_from(type), NULL), 0);
    cn_buf_puts(&reply.body, body);
    return cn_answers_take(&answers, &reply, &err);
}

static void
end(const char *type, const char *body)
{
    assert_int_equal(cn_answers_finish(&answers, &reply, &err), 0);
    assert_true(cn_str_eq(cn_buf_str(&reply.content_type), cn_str_from(type)));
    assert_int_equal(reply.body.len, strlen(body));
    assert_memory_equal(reply.body.data, body, strlen(body));
    cn_answers_fini(&answers);
    cn_reply_fini(&reply);
}

static void
failed(const char *part)
{
    if (err.code != CN_E_HANDLER_FAILED || !strstr(err.message, part))
        fail_msg("%d %s", err.code, err.message);
    cn_answers_fini(&answers);
    cn_reply_fini(&reply);
}

/* Whatever handlers return, the client gets a valid JSON list with one element for each window. */
static void
a_list_has_an_element_for_each_window(void **state)
{
    (void)state;
    begin(CN_STREAM_LIST, NULL, 1000);
    assert_int_equal(take("application/json", "{\"a\":1}"), 0);
    assert_int_equal(take("text/plain; charset=utf-8", "say \"h\xc3\xa9\"\\\n"), 0);
    assert_int_equal(take("", ""), 0);
    end("application/json", "[{\"a\":1},\"say \\\"h\xc3\xa9\\\"\\\\\\u000a\",null]");
    begin(CN_STREAM_LIST, NULL, 1000);
    end("application/json", "[]");
}

static void
what_cannot_be_in_a_list_is_refused(void **state)
{
    (void)state;
    begin(CN_STREAM_LIST, NULL, 1000);
    assert_int_equal(take("text/plain", "ok"), 0);
    assert_int_equal(take("audio/x-pcm", "xx"), CN_E_HANDLER_FAILED);
    failed("window 1 with 'audio/x-pcm'");
    begin(CN_STREAM_LIST, NULL, 1000);
    assert_int_equal(take("text/plain", "\xff"), CN_E_HANDLER_FAILED);
    failed("not UTF-8");
    begin(CN_STREAM_LIST, NULL, 20);
    assert_int_equal(take("text/plain", "0123456789"), 0);
    assert_int_equal(take("text/plain", "0123456789"), CN_E_HANDLER_FAILED);
    failed("2 windows exceed the limit of 20 bytes");
}

/* A handler that streams answers in pieces; its window is still one element. */
static void
pieces_of_a_window_are_joined(void **state)
{
    (void)state;
    begin(CN_STREAM_LIST, NULL, 1000);
    cn_buf_puts(&reply.content_type, "text/plain");
    assert_int_equal(cn_reply_add_chunk(&reply, CN_STR("one "), NULL), 0);
    assert_int_equal(cn_answers_take_pieces(&answers, &reply, &err), 0);
    assert_int_equal(reply.n_chunks, 0);
    assert_int_equal(take("text/plain", "text"), 0);
    cn_buf_puts(&reply.content_type, "application/json");
    assert_int_equal(cn_reply_add_chunk(&reply, CN_STR("1"), NULL), 0);
    assert_int_equal(cn_reply_add_chunk(&reply, CN_STR("2"), NULL), 0);
    assert_int_equal(take("application/json", ""), 0);
    end("application/json", "[\"one text\",[1,2]]");
}

static void
bytes_follow_each_other(void **state)
{
    (void)state;
    begin(CN_STREAM_BYTES, NULL, 1000);
    assert_int_equal(take("audio/x-pcm", "ab"), 0);
    assert_int_equal(take("audio/x-pcm", "cd"), 0);
    end("audio/x-pcm", "abcd");
    begin(CN_STREAM_BYTES, NULL, 1000);
    end("application/octet-stream", "");
}

/* Headers of the last window that has some, and the last status, go with the joined answer. */
static void
heads_of_windows_are_kept(void **state)
{
    (void)state;
    begin(CN_STREAM_LIST, NULL, 1000);
    reply.status = 202;
    assert_int_equal(cn_reply_put_header(&reply, CN_STR("a"), CN_STR("1"), NULL), 0);
    assert_int_equal(take("text/plain", "x"), 0);
    assert_int_equal(reply.n_headers, 0);
    assert_int_equal(cn_reply_put_header(&reply, CN_STR("b"), CN_STR("2"), NULL), 0);
    assert_int_equal(take("text/plain", "y"), 0);
    assert_int_equal(take("text/plain", "z"), 0);
    assert_int_equal(cn_answers_finish(&answers, &reply, &err), 0);
    assert_int_equal(reply.status, 202);
    assert_int_equal(reply.n_headers, 1);
    assert_memory_equal(reply.headers.data,
                        "\1\0b\1\0\0\0"
                        "2",
                        8);
    cn_answers_fini(&answers);
    cn_reply_fini(&reply);
}

/* --- tensors --- */

static struct cn_tensor_spec output = {
    .name = CN_STR("Y"), .type = CN_DATATYPE_INT32, .rank = 1, .dims = {-1}};

static int
take_tensor(const char *name, int64_t size)
{
    static const int32_t values[4] = {1, 2, 3, 4};
    struct cn_tensor tensor = {.name = cn_str_from(name),
                               .type = CN_DATATYPE_INT32,
                               .rank = 1,
                               .shape = {size},
                               .data = {(const char *)values, (size_t)size * 4}};

    cn_buf_puts(&reply.content_type, CN_TENSORS_TYPE);
    cn_tensors_put(&reply.body, &tensor, 1);
    return cn_answers_take(&answers, &reply, &err);
}

static void
expect_shape(uint32_t rank, int64_t first, int64_t second)
{
    struct cn_tensor *tensors;
    struct cn_arena arena;
    uint32_t n;

    assert_int_equal(cn_answers_finish(&answers, &reply, &err), 0);
    cn_arena_init(&arena);
    assert_int_equal(cn_tensors_get(cn_buf_str(&reply.body), &arena, &tensors, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tensors[0].rank, rank);
    assert_int_equal(tensors[0].shape[0], first);
    assert_true(rank < 2 || tensors[0].shape[1] == second);
    cn_arena_fini(&arena);
    cn_answers_fini(&answers);
    cn_reply_fini(&reply);
}

/* The windows are the first dimension of each output, also when there are none. */
static void
outputs_get_the_windows_as_first_dimension(void **state)
{
    struct cn_model_io io = {.n_outputs = 1, .outputs = &output};

    (void)state;
    begin(CN_STREAM_LIST, &io, 1000);
    assert_int_equal(take_tensor("Y", 2), 0);
    assert_int_equal(take_tensor("Y", 2), 0);
    assert_int_equal(take_tensor("Y", 2), 0);
    expect_shape(2, 3, 2);
    begin(CN_STREAM_LIST, &io, 1000);
    expect_shape(2, 0, 0);
    io.max_batch_size = 8;
    begin(CN_STREAM_LIST, &io, 1000);
    assert_int_equal(take_tensor("Y", 1), 0);
    assert_int_equal(take_tensor("Y", 1), 0);
    expect_shape(1, 2, 0);
}

static void
outputs_that_differ_cannot_be_joined(void **state)
{
    const struct cn_model_io io = {.n_outputs = 1, .outputs = &output};

    (void)state;
    begin(CN_STREAM_LIST, &io, 1000);
    assert_int_equal(take_tensor("Y", 2), 0);
    assert_int_equal(take_tensor("Y", 3), CN_E_HANDLER_FAILED);
    failed("output 'Y' of window 1 has another type or shape");
    begin(CN_STREAM_LIST, &io, 1000);
    assert_int_equal(take_tensor("Y", 2), 0);
    assert_int_equal(take_tensor("Z", 2), CN_E_HANDLER_FAILED);
    failed("with output 'Z', unlike the windows before it");
    begin(CN_STREAM_LIST, &io, 1000);
    assert_int_equal(take_tensor("Y", 2), 0);
    assert_int_equal(take("text/plain", "x"), CN_E_HANDLER_FAILED);
    failed("some windows with tensors");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_an_element_for_each_window),
        cmocka_unit_test(what_cannot_be_in_a_list_is_refused),
        cmocka_unit_test(pieces_of_a_window_are_joined),
        cmocka_unit_test(bytes_follow_each_other),
        cmocka_unit_test(heads_of_windows_are_kept),
        cmocka_unit_test(outputs_get_the_windows_as_first_dimension),
        cmocka_unit_test(outputs_that_differ_cannot_be_joined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
