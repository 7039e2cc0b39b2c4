/* proto/frame_refused_test.c - malformed frames are refused, before anything is allocated for them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/test_frames.h"

/* A path with a NUL inside would be another path for open(2). */
static void
a_load_with_a_nul_in_a_text_is_refused(void **state)
{
    struct cn_load load = full_load(), got;
    struct cn_frame frame;
    struct cn_error err = {0};

    (void)state;
    cn_frame_put_load(&buf, &load);
    buf.data[CN_FRAME_HEADER_BYTES + 4 + 2] = '\0';
    frame = the_frame(CN_FRAME_LOAD);
    assert_int_equal(cn_frame_get_load(&frame, &arena, &got, &err), CN_E_PROTOCOL);
    assert_string_equal(err.message, "malformed LOAD frame");
}

/* A handler's memory error must not become a number that no reader of metrics takes. */
static void
a_report_with_a_value_that_is_no_number_is_refused(void **state)
{
    struct cn_sample sample = {CN_SAMPLE_GAUGE, CN_STR("x"), CN_STR("y"), NAN, 0, NULL};
    struct cn_report report = {.n_samples = 1, .samples = &sample}, got;
    struct cn_frame frame;

    (void)state;
    cn_frame_put_report(&buf, &report);
    frame = the_frame(CN_FRAME_REPORT);
    assert_int_equal(cn_frame_get_report(&frame, &arena, &got, NULL), CN_E_PROTOCOL);
}

static int
decode(const struct cn_frame *frame, struct cn_error *err)
{
    struct cn_worker_stats stats;
    struct cn_report report;
    struct cn_answer answer;
    struct cn_loaded loaded;
    struct cn_close *closes;
    struct cn_closed closed;
    struct cn_load load;
    struct cn_cancel *cancels;
    struct cn_credit *credits;
    struct cn_progress progress;
    struct cn_forked forked;
    struct cn_memory_order memory;
    struct cn_str label;
    struct cn_row *rows;

    switch (frame->type) {
    case CN_FRAME_LOAD:
        return cn_frame_get_load(frame, &arena, &load, err);
    case CN_FRAME_BATCH:
        return cn_frame_get_batch(frame, &arena, &rows, err);
    case CN_FRAME_CLOSE:
        return cn_frame_get_closes(frame, &arena, &closes, err);
    case CN_FRAME_CANCEL:
        return cn_frame_get_cancels(frame, &arena, &cancels, err);
    case CN_FRAME_CREDIT:
        return cn_frame_get_credits(frame, &arena, &credits, err);
    case CN_FRAME_LOADED:
        return cn_frame_get_loaded(frame, &loaded, err);
    case CN_FRAME_ANSWER:
        return cn_frame_get_answer(frame, &arena, &answer, err);
    case CN_FRAME_STATS:
        return cn_frame_get_stats(frame, &stats, err);
    case CN_FRAME_REPORT:
        return cn_frame_get_report(frame, &arena, &report, err);
    case CN_FRAME_CLOSED:
        return cn_frame_get_closed(frame, &closed, err);
    case CN_FRAME_FORK:
        return cn_frame_get_fork(frame, &label, err);
    case CN_FRAME_MEMORY:
        return cn_frame_get_memory(frame, &memory, err);
    case CN_FRAME_FORKED:
        return cn_frame_get_forked(frame, &forked, err);
    case CN_FRAME_PROGRESS:
        return cn_frame_get_progress(frame, &progress, err);
    case CN_FRAME_STOP:
    case CN_FRAME_QUERY: /* query_test.c */
    case CN_FRAME_RESULT:
        break;
    }
    return 0;
}

/* Takes every frame in `buf` and shortens its payload, and lengthens it, byte by byte: nothing
 * but the true length may be accepted. Copies have just the size, for the sanitizer. */
static void
every_other_length_is_refused(void **state)
{
    struct cn_load load = full_load();
    struct cn_frame frame, wrong;
    struct cn_error err;
    size_t at = 0;

    (void)state;
    put_rows();
    put_answer();
    cn_frame_put_load(&buf, &load);
    put_small();
    put_report();
    while (at < buf.len) {
        size_t len, full;

        at += (size_t)cn_frame_next(buf.data + at, buf.len - at, LIMIT, &frame, NULL);
        full = frame.payload.len;
        if (full == 0)
            continue;
        assert_int_equal(decode(&frame, &err), 0);
        for (len = 0; len <= full + 9; len++) {
            char *copy;

            if (len == full)
                continue;
            copy = calloc(1, len ? len : 1);
            memcpy(copy, frame.payload.ptr, len < full ? len : full);
            wrong = frame;
            wrong.payload = (struct cn_str){copy, len};
            assert_int_equal(decode(&wrong, &err), CN_E_PROTOCOL);
            free(copy);
        }
    }
}

/* For a part of a frame the decoder asks for more bytes, and returns nothing of it. */
static void
a_frame_that_is_not_whole_waits(void **state)
{
    struct cn_frame frame;
    size_t len;

    (void)state;
    put_rows();
    for (len = 0; len < buf.len; len++)
        assert_int_equal(cn_frame_next(buf.data, len, LIMIT, &frame, NULL), 0);
}

/* A count of four billion must not become an allocation, nor a product that wraps. */
static void
counts_that_lie_are_refused_before_allocating(void **state)
{
    static const uint32_t counts[] = {0, 1, 3, 4, 1000, 0x20000001, 0x80000000, UINT32_MAX};
    static const enum cn_frame_type types[] = {CN_FRAME_BATCH, CN_FRAME_CLOSE, CN_FRAME_CANCEL,
                                               CN_FRAME_REPORT};
    struct cn_frame frame;
    struct cn_error err;
    size_t at = 0, i, j;

    (void)state;
    put_rows();
    put_small();
    put_report();
    while (at < buf.len) {
        at += (size_t)cn_frame_next(buf.data + at, buf.len - at, LIMIT, &frame, NULL);
        for (j = 0; j < 4; j++)
            for (i = 0; frame.type == types[j] && i < sizeof(counts) / sizeof(counts[0]); i++) {
                frame.count = counts[i];
                assert_int_equal(decode(&frame, &err), CN_E_PROTOCOL);
            }
    }
    assert_true(arena.used_bytes < 10000);
}

/* The numbers of headers and parts lie within the payload; the test finds them by the layout. */
static void
inner_counts_that_lie_are_refused_before_allocating(void **state)
{
    static const uint32_t counts[] = {1, 2, 0x10000000, 0x20000001, UINT32_MAX};
    const size_t row_bytes = 8 + 4 + 4 + 8 + 2 + 2 + 2; /* in front of a plain row's counts */
    struct cn_row row = {.job_id = 1}, *rows;
    struct cn_frame frame;
    struct cn_error err;
    size_t begun, i;

    (void)state;
    begun = cn_frame_begin_batch(&buf);
    cn_frame_put_row(&buf, &row);
    cn_frame_end_batch(&buf, begun, 1);
    frame = the_frame(CN_FRAME_BATCH);
    for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        cn_patch_u32(&buf, CN_FRAME_HEADER_BYTES + row_bytes, counts[i]);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, &err), CN_E_PROTOCOL);
        cn_patch_u32(&buf, CN_FRAME_HEADER_BYTES + row_bytes, 0);
        cn_patch_u32(&buf, CN_FRAME_HEADER_BYTES + row_bytes + 4, counts[i]);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, &err), CN_E_PROTOCOL);
        cn_patch_u32(&buf, CN_FRAME_HEADER_BYTES + row_bytes + 4, 0);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, &err), 0);
    }
    assert_true(arena.used_bytes < 10000);
}

static void
expect_bad_header(size_t offset, char value, const char *message)
{
    struct cn_error err = {0};
    struct cn_frame frame;
    char was = buf.data[offset];

    buf.data[offset] = value;
    assert_int_equal(cn_frame_next(buf.data, buf.len, 1000, &frame, &err), CN_E_PROTOCOL);
    assert_string_equal(err.message, message);
    buf.data[offset] = was;
}

static void
bad_headers_end_the_stream(void **state)
{
    (void)state;
    cn_frame_put_stop(&buf);
    expect_bad_header(4, 0, "frame of unknown type 0");
    expect_bad_header(4, 10, "frame of unknown type 10");
    expect_bad_header(4, 64, "frame of unknown type 64");
    expect_bad_header(4, 73, "frame of unknown type 73");
    expect_bad_header(5, 2, "frame of version 2, expected 1");
    expect_bad_header(6, 1, "frame of unknown type 5");
    expect_bad_header(0, 1, "frame of type 5 with 1 bytes and count 0");
    expect_bad_header(8, 1, "frame of type 5 with 0 bytes and count 1");
    cn_buf_reset(&buf);
    put_answer();
    expect_bad_header(1, 4, "frame of 1113 bytes exceeds the limit of 1000 bytes");
}

/* The server promises that a key is not longer, and the worker's buffers rely on it. */
static void
a_long_idempotency_key_is_refused(void **state)
{
    char key[CN_IDEMPOTENCY_KEY_MAX + 1];
    struct cn_row row = {.job_id = 1}, *rows;
    struct cn_error err;

    (void)state;
    memset(key, 'k', sizeof(key));
    for (size_t over = 0; over < 2; over++) {
        struct cn_frame frame;
        size_t begun;

        cn_buf_reset(&buf);
        row.idempotency_key = (struct cn_str){key, CN_IDEMPOTENCY_KEY_MAX + over};
        begun = cn_frame_begin_batch(&buf);
        cn_frame_put_row(&buf, &row);
        cn_frame_end_batch(&buf, begun, 1);
        frame = the_frame(CN_FRAME_BATCH);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, &err), over ? CN_E_PROTOCOL : 0);
    }
}

/* Sequence ids go into store keys and tables of a fixed size. */
static void
a_row_and_its_sequence_id_must_agree(void **state)
{
    char id[CN_SEQUENCE_ID_MAX + 1];
    struct cn_row row = {.flags = CN_ROW_STATEFUL}, *rows;
    struct cn_error err;
    unsigned i;

    (void)state;
    memset(id, 's', sizeof(id));
    for (i = 0; i < 4; i++) {
        static const size_t lens[] = {CN_SEQUENCE_ID_MAX + 1, 0, 1, CN_SEQUENCE_ID_MAX};
        struct cn_frame frame;
        size_t begun;

        cn_buf_reset(&buf);
        row.flags = i == 2 ? 0 : CN_ROW_STATEFUL; /* an id on a stateless row */
        row.sequence_id = (struct cn_str){id, lens[i]};
        begun = cn_frame_begin_batch(&buf);
        cn_frame_put_row(&buf, &row);
        cn_frame_end_batch(&buf, begun, 1);
        frame = the_frame(CN_FRAME_BATCH);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, &err),
                         i == 3 ? 0 : CN_E_PROTOCOL);
    }
}

/* A row that moves a sequence between versions arrives with all its fields, and contradictory ones
 * are refused. */
static void
a_row_may_move_a_sequence(void **state)
{
    struct cn_move move = {CN_MOVE_BURY,  CN_CLOSE_MOVED,    7, 8, CN_STR("1.0"),
                           CN_STR("lua"), CN_STR("\0record")};
    struct cn_row row = {.job_id = 1,
                         .flags = CN_ROW_STATEFUL | CN_ROW_MOVE,
                         .sequence_id = CN_STR("s"),
                         .move = &move},
                  *rows;
    static const struct {
        uint8_t op, reason;
        uint32_t flags;
    } bad[] = {{0, 0, CN_ROW_STATEFUL},
               {CN_MOVE_TOLD + 1, CN_CLOSE_MOVED, CN_ROW_STATEFUL},
               {CN_MOVE_BURY, 0, CN_ROW_STATEFUL},
               {CN_MOVE_LOOK, CN_CLOSE_MOVED, CN_ROW_STATEFUL},
               {CN_MOVE_TOLD, CN_CLOSE_WORKER_LOST + 1, CN_ROW_STATEFUL},
               {CN_MOVE_LOOK, 0, 0}};
    struct cn_frame frame;
    size_t begun, i;

    (void)state;
    begun = cn_frame_begin_batch(&buf);
    cn_frame_put_row(&buf, &row);
    cn_frame_end_batch(&buf, begun, 1);
    frame = the_frame(CN_FRAME_BATCH);
    assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), 0);
    assert_int_equal(rows[0].move->op, CN_MOVE_BURY);
    assert_int_equal(rows[0].move->reason, CN_CLOSE_MOVED);
    assert_int_equal(rows[0].move->generation, 7);
    assert_int_equal(rows[0].move->step, 8);
    assert_true(cn_str_eq(rows[0].move->version, CN_STR("1.0")));
    assert_true(cn_str_eq(rows[0].move->runtime, CN_STR("lua")));
    assert_true(cn_str_eq(rows[0].move->record, CN_STR("\0record")));
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        move.op = bad[i].op;
        move.reason = bad[i].reason;
        row.flags = bad[i].flags | CN_ROW_MOVE;
        row.sequence_id = bad[i].flags ? CN_STR("s") : CN_STR("");
        cn_buf_reset(&buf);
        begun = cn_frame_begin_batch(&buf);
        cn_frame_put_row(&buf, &row);
        cn_frame_end_batch(&buf, begun, 1);
        frame = the_frame(CN_FRAME_BATCH);
        assert_int_equal(cn_frame_get_batch(&frame, &arena, &rows, NULL), CN_E_PROTOCOL);
    }
}

static void
a_close_needs_an_id_and_a_known_reason(void **state)
{
    struct cn_close close = {CN_STR("x"), 1, CN_CLOSE_ENDED}, *closes;
    struct cn_frame frame;

    (void)state;
    cn_frame_put_close(&buf, &close, 1);
    frame = the_frame(CN_FRAME_CLOSE);
    buf.data[CN_FRAME_HEADER_BYTES + 8] = 0;
    assert_int_equal(cn_frame_get_closes(&frame, &arena, &closes, NULL), CN_E_PROTOCOL);
    buf.data[CN_FRAME_HEADER_BYTES + 8] = CN_CLOSE_WORKER_LOST + 1;
    assert_int_equal(cn_frame_get_closes(&frame, &arena, &closes, NULL), CN_E_PROTOCOL);
    buf.data[CN_FRAME_HEADER_BYTES + 8] = CN_CLOSE_RESET;
    assert_int_equal(cn_frame_get_closes(&frame, &arena, &closes, NULL), 0);
    assert_string_equal(cn_close_reason_word(CN_CLOSE_UNLOADED), "unloaded");
    assert_string_equal(cn_close_reason_word(CN_CLOSE_RESET), "reset");
    assert_string_equal(cn_close_reason_word(CN_CLOSE_WORKER_LOST), "worker_lost");
    assert_string_equal(cn_close_reason_word(CN_CLOSE_ENDED), "ended");
    assert_string_equal(cn_close_reason_word((enum cn_close_reason)200), "unknown");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FRAME_TEST(a_load_with_a_nul_in_a_text_is_refused),
        FRAME_TEST(a_report_with_a_value_that_is_no_number_is_refused),
        FRAME_TEST(every_other_length_is_refused),
        FRAME_TEST(a_frame_that_is_not_whole_waits),
        FRAME_TEST(counts_that_lie_are_refused_before_allocating),
        FRAME_TEST(inner_counts_that_lie_are_refused_before_allocating),
        FRAME_TEST(bad_headers_end_the_stream),
        FRAME_TEST(a_long_idempotency_key_is_refused),
        FRAME_TEST(a_row_and_its_sequence_id_must_agree),
        FRAME_TEST(a_close_needs_an_id_and_a_known_reason),
        FRAME_TEST(a_row_may_move_a_sequence),
    };

    return cmocka_run_group_tests_name("proto.frame_refused", tests, NULL, NULL);
}
