/* proto/query_test.c - QUERY, RESULT and CLOSED are encoded and decoded, and malformed ones are
 * refused. */
#include "proto/query.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cn_buf buf;
static struct cn_arena arena;

static int
set_up(void **state)
{
    (void)state;
    cn_buf_init(&buf, 0);
    cn_arena_init(&arena);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_buf_fini(&buf);
    cn_arena_fini(&arena);
    return 0;
}

/* Returns the only frame in `buf`. */
static struct cn_frame
the_frame(enum cn_frame_type type)
{
    struct cn_frame frame = {0};

    assert_false(buf.failed);
    assert_int_equal(cn_frame_next(buf.data, buf.len, 1 << 20, &frame, NULL), buf.len);
    assert_int_equal(frame.type, type);
    return frame;
}

static int
there_and_back(const struct cn_query *query, struct cn_query *out)
{
    struct cn_frame frame;

    cn_buf_reset(&buf);
    cn_frame_put_query(&buf, query);
    frame = the_frame(CN_FRAME_QUERY);
    return cn_frame_get_query(&frame, out, NULL);
}

static const struct cn_query list = {.query_id = UINT64_C(1) << 60,
                                     .op = CN_QUERY_LIST,
                                     .flags = CN_QUERY_OPEN,
                                     .limit = 100,
                                     .min_idle_ms = 5000,
                                     .max_bytes = 1 << 20,
                                     .sequence_id = {"s7", 2},
                                     .prefix = {"s", 1}};
static const struct cn_query reading = {.op = CN_QUERY_READ, .sequence_id = {"s7", 2}};
static const struct cn_query writing = {.op = CN_QUERY_WRITE,
                                        .flags = CN_QUERY_REPLACE | CN_QUERY_MOVE | CN_QUERY_FORK,
                                        .sequence_id = {"s7", 2},
                                        .record = {"\0\1\2", 3}};

static void
a_query_arrives_whole(void **state)
{
    struct cn_query got;

    (void)state;
    assert_int_equal(there_and_back(&list, &got), 0);
    assert_true(got.query_id == list.query_id && got.op == CN_QUERY_LIST);
    assert_true(got.flags == CN_QUERY_OPEN && got.limit == 100 && got.min_idle_ms == 5000);
    assert_true(got.max_bytes == 1 << 20 && cn_str_eq(got.sequence_id, list.sequence_id));
    assert_true(cn_str_eq(got.prefix, CN_STR("s")));
    assert_int_equal(there_and_back(&writing, &got), 0);
    assert_true(got.op == CN_QUERY_WRITE && cn_str_eq(got.record, writing.record));
    assert_int_equal(there_and_back(&reading, &got), 0);
}

/* A worker carries out a query without checking it again, so the decoder must refuse one that lacks
 * what its operation needs. */
static void
a_query_that_does_not_fit_its_operation_is_refused(void **state)
{
    static const char long_id[CN_SEQUENCE_ID_MAX + 1] = {'x'};
    struct cn_query wrong, got;

    (void)state;
#define REFUSED(from, change)                                                                      \
    do {                                                                                           \
        wrong = from;                                                                              \
        wrong.change;                                                                              \
        assert_int_equal(there_and_back(&wrong, &got), CN_E_PROTOCOL);                             \
    } while (0)
    REFUSED(list, limit = 0);
    REFUSED(list, limit = CN_QUERY_LIMIT_MAX + 1);
    REFUSED(list, record = CN_STR("x"));
    REFUSED(list, flags = CN_QUERY_RECORD);
    REFUSED(list, op = (enum cn_query_op)4);
    REFUSED(list, op = (enum cn_query_op)0);
    REFUSED(list, prefix = ((struct cn_str){long_id, sizeof(long_id)}));
    REFUSED(list, sequence_id = ((struct cn_str){long_id, sizeof(long_id)}));
    REFUSED(reading, sequence_id.len = 0);
    REFUSED(reading, flags = CN_QUERY_REPLACE);
    REFUSED(reading, limit = 1);
    REFUSED(reading, prefix = CN_STR("x"));
    REFUSED(writing, sequence_id.len = 0);
    REFUSED(writing, flags = 1u << 6);
#undef REFUSED
}

static void
put_result(void)
{
    struct cn_sequence_info infos[] = {
        {.id = CN_STR("a"), .flags = CN_INFO_HAS_STATE, .generation = 7, .step = 3},
        {.id = CN_STR("b"), .flags = CN_INFO_CLOSED, .close_reason = 2, .state_bytes = 9}};
    struct cn_query_result result = {.query_id = 5,
                                     .n_sequences = 2,
                                     .sequences = infos,
                                     .next = CN_STR("b"),
                                     .record = CN_STR("abc")};

    cn_frame_put_result(&buf, &result);
}

static void
a_result_arrives_whole(void **state)
{
    struct cn_query_result got, failed = {.error_code = CN_E_CONFLICT, .message = CN_STR("no")};
    struct cn_frame frame;

    (void)state;
    put_result();
    frame = the_frame(CN_FRAME_RESULT);
    assert_int_equal(cn_frame_get_result(&frame, &arena, &got, NULL), 0);
    assert_true(got.query_id == 5 && got.n_sequences == 2 && got.error_code == 0);
    assert_true(cn_str_eq(got.next, CN_STR("b")) && cn_str_eq(got.record, CN_STR("abc")));
    assert_true(got.sequences[0].generation == 7 && got.sequences[0].step == 3);
    assert_true(got.sequences[1].close_reason == 2 && got.sequences[1].state_bytes == 9);
    cn_buf_reset(&buf);
    cn_frame_put_result(&buf, &failed);
    frame = the_frame(CN_FRAME_RESULT);
    assert_int_equal(cn_frame_get_result(&frame, &arena, &got, NULL), 0);
    assert_int_equal(got.error_code, CN_E_CONFLICT);
}

/* Only the true length is accepted. Each copy has exactly the frame's size, so that the address
 * sanitizer sees a read beyond it. */
static void
every_other_length_and_count_is_refused(void **state)
{
    static const uint32_t counts[] = {0, 1, 3, 1000, 0x20000001, UINT32_MAX};
    struct cn_query_result got;
    struct cn_frame frame, wrong;
    size_t len, i;

    (void)state;
    put_result();
    frame = wrong = the_frame(CN_FRAME_RESULT);
    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        wrong.count = counts[i];
        assert_int_equal(cn_frame_get_result(&wrong, &arena, &got, NULL), CN_E_PROTOCOL);
    }
    for (len = 0; len < frame.payload.len; len++) {
        char *copy = malloc(len ? len : 1);

        memcpy(copy, frame.payload.ptr, len);
        wrong = frame;
        wrong.payload = (struct cn_str){copy, len};
        assert_int_equal(cn_frame_get_result(&wrong, &arena, &got, NULL), CN_E_PROTOCOL);
        free(copy);
    }
    assert_true(arena.used_bytes < 100000);
}

/* A deletion that failed must not look like one that was done. */
static void
closed_says_how_many_and_why_not_the_others(void **state)
{
    struct cn_closed some = {
        .count = 3, .done = 1, .error_code = CN_E_STATE_STORE, .message = CN_STR("disk full")};
    struct cn_closed got;
    struct cn_frame frame;

    (void)state;
    cn_frame_put_closed(&buf, &some);
    frame = the_frame(CN_FRAME_CLOSED);
    assert_int_equal(cn_frame_get_closed(&frame, &got, NULL), 0);
    assert_true(got.count == 3 && got.done == 1 && got.error_code == CN_E_STATE_STORE);
    assert_true(cn_str_eq(got.message, CN_STR("disk full")));
    frame.count = 1; /* all done, and yet an error */
    assert_int_equal(cn_frame_get_closed(&frame, &got, NULL), CN_E_PROTOCOL);
    cn_buf_reset(&buf);
    cn_frame_put_closed(&buf, &(struct cn_closed){.count = 3, .done = 3});
    frame = the_frame(CN_FRAME_CLOSED);
    assert_int_equal(cn_frame_get_closed(&frame, &got, NULL), 0);
    assert_true(got.done == 3 && got.error_code == 0);
}

#define QUERY_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        QUERY_TEST(a_query_arrives_whole),
        QUERY_TEST(a_query_that_does_not_fit_its_operation_is_refused),
        QUERY_TEST(a_result_arrives_whole),
        QUERY_TEST(every_other_length_and_count_is_refused),
        QUERY_TEST(closed_says_how_many_and_why_not_the_others),
    };

    return cmocka_run_group_tests_name("proto.query", tests, NULL, NULL);
}
