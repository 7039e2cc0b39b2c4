/* proto/frame_test.c - frames are encoded and decoded. */
#include <string.h>

#include "proto/test_frames.h"

static void
a_batch_arrives_whole(void **state)
{
    struct cn_frame frame;
    struct cn_row *rows;

    (void)state;
    put_rows();
    frame = the_frame(CN_FRAME_BATCH);
    assert_int_equal(frame.count, 2);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    assert_true(rows[0].job_id == UINT64_C(1) << 60);
    assert_int_equal(rows[0].flags, CN_ROW_STATEFUL | CN_ROW_START);
    assert_int_equal(rows[0].deadline_ms, 120000);
    assert_int_equal(rows[0].generation, 7);
    assert_true(cn_str_eq(rows[0].sequence_id, CN_STR("seq_0")));
    assert_true(cn_str_eq(rows[0].request_id, CN_STR("r-1")));
    assert_true(cn_str_eq(rows[0].idempotency_key, CN_STR("key 1")));
    assert_int_equal(rows[1].idempotency_key.len, 0);
    assert_int_equal(rows[0].n_headers, 2);
    assert_true(cn_str_eq(rows[0].headers[0].value, CN_STR("*/*")));
    assert_true(cn_str_eq(rows[0].headers[1].name, CN_STR("X")));
    assert_int_equal(rows[0].n_parts, 2);
    assert_true(cn_str_eq(rows[0].parts[0].content_type, CN_STR("text/plain")));
    assert_true(cn_str_eq(rows[0].parts[1].data, CN_STR("\0\1\2")));
    assert_int_equal(rows[1].job_id, 2);
    assert_int_equal(rows[1].n_parts + rows[1].n_headers, 0);
}

/* Checks each field, because the list is long and two swapped fields would be found late. */
static void
a_load_arrives_field_by_field(void **state)
{
    struct cn_load sent = full_load(), got;
    struct cn_frame frame;

    (void)state;
    cn_frame_put_load(&buf, &sent);
    frame = the_frame(CN_FRAME_LOAD);
    assert_int_equal(cn_frame_get_load(&frame, &arena, &got, NULL), 0);
#define SAME_STR(name) assert_string_equal(got.name, sent.name);
#define SAME_NUM(name) assert_true(got.name == sent.name);
    CN_LOAD_FIELDS(SAME_STR, SAME_NUM)
#undef SAME_STR
#undef SAME_NUM
}

static void
an_answer_arrives_whole(void **state)
{
    struct cn_answer got;
    struct cn_frame frame;

    (void)state;
    put_answer();
    frame = the_frame(CN_FRAME_ANSWER);
    assert_int_equal(cn_frame_get_answer(&frame, &arena, &got, NULL), 0);
    assert_int_equal(got.job_id, 9);
    assert_int_equal(got.flags, CN_ANSWER_FINAL | CN_ANSWER_OPENED);
    assert_int_equal(got.error_code, CN_E_HANDLER_FAILED);
    assert_int_equal(got.status, 418);
    assert_int_equal(got.generation, 3);
    assert_int_equal(got.step, 12);
    assert_true(got.opened_wall_ms == UINT64_C(1700000000000));
    assert_true(cn_str_eq(got.content_type, CN_STR("text/plain")));
    assert_true(cn_str_eq(got.body, CN_STR("raised")));
    assert_true(cn_str_eq(got.headers[0].name, CN_STR("X-Step")));
}

static void
a_report_arrives_whole(void **state)
{
    struct cn_frame frame;
    struct cn_report got;

    (void)state;
    put_report();
    frame = the_frame(CN_FRAME_REPORT);
    assert_int_equal(cn_frame_get_report(&frame, &arena, &got, NULL), 0);
    assert_int_equal(got.rows, 16);
    assert_int_equal(got.batch, 20);
    assert_int_equal(got.before_us, 5);
    assert_int_equal(got.handler_us, 1234);
    assert_int_equal(got.after_us, 99);
    assert_int_equal(got.n_jobs, 2);
    assert_true(got.job_ids[1] == UINT64_MAX);
    assert_int_equal(got.n_samples, 2);
    assert_int_equal(got.samples[0].type, CN_SAMPLE_HISTOGRAM);
    assert_true(got.samples[0].value == 2.5);
    assert_true(cn_str_eq(got.samples[0].dims[0].value, CN_STR("prompt")));
    assert_true(cn_str_eq(got.samples[1].name, CN_STR("hits")));
}

/* A read may bring many frames: they are taken one by one, in order. */
static void
frames_follow_each_other_in_a_stream(void **state)
{
    struct cn_worker_stats stats;
    struct cn_loaded loaded;
    struct cn_close *closes;
    struct cn_cancel *cancels;
    struct cn_credit *credits;
    struct cn_frame frame;
    struct cn_memory_order memory;
    struct cn_progress progress;
    struct cn_forked forked;
    struct cn_str label;
    size_t at = 0;

    (void)state;
#define NEXT(wanted)                                                                               \
    do {                                                                                           \
        long size = cn_frame_next(buf.data + at, buf.len - at, LIMIT, &frame, NULL);               \
        assert_true(size > 0);                                                                     \
        assert_int_equal(frame.type, wanted);                                                      \
        at += (size_t)size;                                                                        \
    } while (0)
    put_small();
    NEXT(CN_FRAME_LOADED);
    assert_int_equal(cn_frame_get_loaded(&frame, &loaded, NULL), 0);
    assert_int_equal(loaded.error_code, CN_E_LOAD_FAILED);
    assert_true(cn_str_eq(loaded.message, CN_STR("no handler")));
    assert_true(cn_str_eq(loaded.device, CN_STR("cuda:1")));
    assert_true(cn_str_eq(loaded.warning, CN_STR("rows are run alone")));
    assert_true(cn_str_eq(loaded.walls, CN_STR("no_new_privs")));
    assert_true(cn_str_eq(loaded.lacking, CN_STR("landlock: too old")));
    NEXT(CN_FRAME_STATS);
    assert_int_equal(cn_frame_get_stats(&frame, &stats, NULL), 0);
    assert_int_equal(stats.rss_bytes, 1);
    assert_int_equal(stats.rows, 7);
    assert_int_equal(stats.streams, 8);
    assert_int_equal(stats.busy_us, 9);
    assert_true(stats.store.shared && stats.store.connected);
    assert_int_equal(stats.store.since_wall_ms, 10);
    assert_int_equal(stats.store.conflicts, 11);
    assert_int_equal(stats.store.reloads, 12);
    assert_int_equal(stats.store.trips[CN_DURATION_VALUES - 1], 13);
    assert_int_equal(stats.store.commits[0], 14);
    assert_string_equal(stats.store.last_error, "it is full");
    NEXT(CN_FRAME_CLOSE);
    assert_int_equal(cn_frame_get_closes(&frame, &arena, &closes, NULL), 0);
    assert_int_equal(closes[0].generation, 5);
    assert_int_equal(closes[1].reason, CN_CLOSE_DELETED);
    assert_true(cn_str_eq(closes[1].sequence_id, CN_STR("b")));
    NEXT(CN_FRAME_CANCEL);
    assert_int_equal(cn_frame_get_cancels(&frame, &arena, &cancels, NULL), 0);
    assert_true(cancels[0].job_id == 1 && cancels[1].job_id == UINT64_MAX);
    assert_int_equal(cancels[0].reason, CN_STOP_GONE);
    assert_string_equal(cn_stop_reason_word(cancels[1].reason), "cancelled");
    NEXT(CN_FRAME_CREDIT);
    assert_int_equal(cn_frame_get_credits(&frame, &arena, &credits, NULL), 0);
    assert_true(credits[0].job_id == 3 && credits[0].bytes == 4096);
    assert_true(credits[1].job_id == UINT64_MAX && credits[1].bytes == 1);
    NEXT(CN_FRAME_CLOSED);
    assert_int_equal(frame.count, 2);
    NEXT(CN_FRAME_FORK);
    assert_int_equal(cn_frame_get_fork(&frame, &label, NULL), 0);
    assert_true(cn_str_eq(label, CN_STR("m/1.0#2")));
    NEXT(CN_FRAME_FORKED);
    assert_int_equal(cn_frame_get_forked(&frame, &forked, NULL), 0);
    assert_int_equal(forked.pid, 77);
    NEXT(CN_FRAME_PROGRESS);
    assert_int_equal(cn_frame_get_progress(&frame, &progress, NULL), 0);
    assert_true(progress.done == 2 && progress.total == 6);
    assert_true(cn_str_eq(progress.what, CN_STR("warming up")));
    NEXT(CN_FRAME_MEMORY);
    assert_int_equal(cn_frame_get_memory(&frame, &memory, NULL), 0);
    assert_int_equal(memory.half_bytes, 1 << 20);
    NEXT(CN_FRAME_STOP);
    assert_int_equal(at, buf.len);
#undef NEXT
}

/* The layout is a contract between two programs: these bytes are version 1. */
static void
the_header_is_twelve_little_endian_bytes(void **state)
{
    struct cn_cancel cancel = {0x0102, CN_STOP_ENDED};

    (void)state;
    cn_frame_put_cancel(&buf, &cancel, 1);
    assert_int_equal(buf.len, 21);
    assert_memory_equal(buf.data, "\x09\0\0\0\x04\x01\0\0\x01\0\0\0\x02\x01\0\0\0\0\0\0\x03", 21);
}

/* A buffer that is too small sets `failed`, whichever field is the one that does not fit. */
static void
an_encoder_without_room_fails(void **state)
{
    size_t full, limit;

    (void)state;
    put_rows();
    put_answer();
    put_small();
    full = buf.len;
    for (limit = 1; limit < full; limit++) {
        cn_buf_fini(&buf);
        cn_buf_init(&buf, limit);
        put_rows();
        put_answer();
        put_small();
        assert_true(buf.failed);
        assert_true(buf.len <= limit);
    }
}

/* The bytes that are copied and those that are borrowed make the same frame as a full copy. */
static void
lent_parts_stand_where_they_would(void **state)
{
    static char large[CN_BORROW_MIN_BYTES + 3];
    struct cn_part parts[] = {{CN_STR("a"), CN_STR(""), CN_STR("small")},
                              {CN_STR("b"), CN_STR("type"), {large, sizeof(large)}},
                              {CN_STR("c"), CN_STR(""), CN_STR("")}};
    struct cn_row row = {.job_id = 1, .n_parts = 3, .parts = parts};
    const struct cn_answer answer = {.body = {large, sizeof(large)}};
    struct cn_borrowed_output borrowed;
    struct cn_buf whole;
    uint32_t unsent = 0;
    size_t begun, at = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (char)i;
    cn_borrowed_output_init(&borrowed);
    begun = cn_frame_begin_batch(&buf);
    cn_frame_lend_row(&buf, &borrowed, NULL, &unsent, &row);
    cn_frame_lend_row(&buf, &borrowed, NULL, &unsent, &row);
    cn_frame_end_borrowed_batch(&buf, begun, 2, borrowed.bytes);
    cn_frame_lend_answer(&buf, &borrowed, NULL, &answer);
    assert_int_equal(unsent, 2);
    assert_int_equal(borrowed.n, 3);
    cn_buf_init(&whole, 0);
    for (uint32_t i = 0; i < borrowed.n; i++) {
        cn_buf_append(&whole, buf.data + at, borrowed.list[i].at - at);
        cn_buf_append_str(&whole, borrowed.list[i].bytes);
        at = borrowed.list[i].at;
    }
    cn_buf_append(&whole, buf.data + at, buf.len - at);
    cn_buf_reset(&buf);
    begun = cn_frame_begin_batch(&buf);
    cn_frame_put_row(&buf, &row);
    cn_frame_put_row(&buf, &row);
    cn_frame_end_batch(&buf, begun, 2);
    cn_frame_put_answer(&buf, &answer);
    assert_true(cn_str_eq(cn_buf_str(&whole), cn_buf_str(&buf)));
    cn_buf_fini(&whole);
    cn_borrowed_output_fini(&borrowed);
}

/* A large part is found as soon as the bytes in front of it have arrived. */
static void
a_large_part_is_found_before_it_is_there(void **state)
{
    static char large[CN_BORROW_MIN_BYTES];
    struct cn_header header = {CN_STR("Accept"), CN_STR("*/*")};
    struct cn_part parts[] = {{CN_STR("a"), CN_STR("t"), CN_STR("small")},
                              {CN_STR("b"), CN_STR(""), {large, sizeof(large)}}};
    struct cn_row first = {.job_id = 2, .request_id = CN_STR("r"), .n_parts = 1, .parts = parts};
    struct cn_row second = {
        .job_id = 1, .n_headers = 1, .headers = &header, .n_parts = 2, .parts = parts};
    size_t begun = cn_frame_begin_batch(&buf), at;

    (void)state;
    memset(large, 'x', sizeof(large));
    cn_frame_put_row(&buf, &first);
    cn_frame_put_row(&buf, &second);
    cn_frame_end_batch(&buf, begun, 2);
    at = (size_t)((char *)memchr(buf.data, 'x', buf.len) - buf.data);
    for (size_t len = 0; len <= buf.len; len += len < at + 10 ? 1 : 5000)
        assert_int_equal(cn_frame_find_large(buf.data, len), len < at ? 0 : at);
    cn_buf_reset(&buf);
    begun = cn_frame_begin_batch(&buf);
    cn_frame_put_row(&buf, &first);
    cn_frame_end_batch(&buf, begun, 1);
    assert_int_equal(cn_frame_find_large(buf.data, buf.len), 0);
    cn_buf_reset(&buf);
    put_answer();
    assert_int_equal(cn_frame_find_large(buf.data, buf.len), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FRAME_TEST(a_batch_arrives_whole),
        FRAME_TEST(a_load_arrives_field_by_field),
        FRAME_TEST(an_answer_arrives_whole),
        FRAME_TEST(a_report_arrives_whole),
        FRAME_TEST(frames_follow_each_other_in_a_stream),
        FRAME_TEST(the_header_is_twelve_little_endian_bytes),
        FRAME_TEST(an_encoder_without_room_fails),
        FRAME_TEST(lent_parts_stand_where_they_would),
        FRAME_TEST(a_large_part_is_found_before_it_is_there),
    };

    return cmocka_run_group_tests_name("proto.frame", tests, NULL, NULL);
}
