/* proto/frame_test.c - frames are encoded and decoded, and malformed frames are refused. */
#include "proto/frame.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/memory/mem.h"

#define LIMIT (1 << 20)

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
    assert_int_equal(cn_frame_next(buf.data, buf.len, LIMIT, &frame, NULL), buf.len);
    assert_int_equal(frame.type, type);
    return frame;
}

static void
put_rows(void)
{
    struct cn_header headers[] = {{CN_STR("Accept"), CN_STR("*/*")}, {CN_STR("X"), CN_STR("")}};
    struct cn_part parts[] = {{CN_STR("body"), CN_STR("text/plain"), CN_STR("42")},
                              {CN_STR("data"), CN_STR(""), CN_STR("\0\1\2")}};
    struct cn_row first = {.job_id = UINT64_C(1) << 60,
                           .flags = CN_ROW_STATEFUL | CN_ROW_START,
                           .deadline_ms = 120000,
                           .generation = 7,
                           .sequence_id = CN_STR("seq_0"),
                           .request_id = CN_STR("r-1"),
                           .idempotency_key = CN_STR("key 1"),
                           .n_headers = 2,
                           .headers = headers,
                           .n_parts = 2,
                           .parts = parts};
    struct cn_row second = {.job_id = 2};
    size_t begun = cn_frame_begin_batch(&buf);

    cn_frame_put_row(&buf, &first);
    cn_frame_put_row(&buf, &second);
    cn_frame_end_batch(&buf, begun, 2);
}

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

static struct cn_load
full_load(void)
{
    struct cn_load load;
    uint64_t n = 1;

#define FILL_STR(name) load.name = #name;
#define FILL_NUM(name) load.name = n++ << 40;
    CN_LOAD_FIELDS(FILL_STR, FILL_NUM)
#undef FILL_STR
#undef FILL_NUM
    load.handler = "";
    return load;
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

static void
put_answer(void)
{
    struct cn_header headers[] = {{CN_STR("X-Step"), CN_STR("7")}};
    struct cn_answer answer = {.job_id = 9,
                               .flags = CN_ANSWER_FINAL | CN_ANSWER_OPENED,
                               .error_code = CN_E_HANDLER_FAILED,
                               .status = 418,
                               .generation = 3,
                               .step = 12,
                               .opened_wall_ms = UINT64_C(1700000000000),
                               .content_type = CN_STR("text/plain"),
                               .body = CN_STR("raised"),
                               .n_headers = 1,
                               .headers = headers};

    cn_frame_put_answer(&buf, &answer);
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
put_small(void)
{
    struct cn_loaded loaded = {CN_E_LOAD_FAILED,       CN_STR("no handler"),
                               CN_STR("cuda:1"),       CN_STR("rows are run alone"),
                               CN_STR("no_new_privs"), CN_STR("landlock: too old")};
    struct cn_worker_stats stats = {1,
                                    2,
                                    3,
                                    4,
                                    5,
                                    6,
                                    7,
                                    8,
                                    9,
                                    .store = {.shared = true,
                                              .connected = true,
                                              .since_wall_ms = 10,
                                              .conflicts = 11,
                                              .reloads = 12,
                                              .last_error = "it is full"}};
    struct cn_close closes[] = {{CN_STR("a"), 5, CN_CLOSE_IDLE},
                                {CN_STR("b"), 0, CN_CLOSE_DELETED}};
    struct cn_cancel cancels[] = {{1, CN_STOP_GONE}, {UINT64_MAX, CN_STOP_CANCELLED}};
    struct cn_credit credits[] = {{3, 4096}, {UINT64_MAX, 1}};

    cn_frame_put_loaded(&buf, &loaded);
    stats.store.trips[CN_DURATION_VALUES - 1] = 13;
    stats.store.commits[0] = 14;
    cn_frame_put_stats(&buf, &stats);
    cn_frame_put_close(&buf, closes, 2);
    cn_frame_put_cancel(&buf, cancels, 2);
    cn_frame_put_credit(&buf, credits, 2);
    cn_frame_put_closed(&buf, &(struct cn_closed){.count = 2, .done = 2});
    cn_frame_put_fork(&buf, CN_STR("m/1.0#2"));
    cn_frame_put_forked(&buf, &(struct cn_forked){.pid = 77, .message = CN_STR("")});
    cn_frame_put_progress(&buf, &(struct cn_progress){2, 6, CN_STR("warming up")});
    cn_frame_put_memory(&buf, &(struct cn_memory_order){1 << 20});
    cn_frame_put_stop(&buf);
}

static void
put_report(void)
{
    struct cn_header dims[] = {{CN_STR("Kind"), CN_STR("prompt")}};
    struct cn_sample samples[] = {
        {CN_SAMPLE_HISTOGRAM, CN_STR("tokens"), CN_STR("Count"), 2.5, 1, dims},
        {CN_SAMPLE_COUNTER, CN_STR("hits"), CN_STR("Count"), 1, 0, NULL}};
    uint64_t jobs[] = {7, UINT64_MAX};
    struct cn_report report = {16, 20, 5, 1234, 99, 2, jobs, 2, samples};

    cn_frame_put_report(&buf, &report);
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

#define FRAME_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        FRAME_TEST(a_batch_arrives_whole),
        FRAME_TEST(a_load_arrives_field_by_field),
        FRAME_TEST(a_load_with_a_nul_in_a_text_is_refused),
        FRAME_TEST(an_answer_arrives_whole),
        FRAME_TEST(a_report_arrives_whole),
        FRAME_TEST(a_report_with_a_value_that_is_no_number_is_refused),
        FRAME_TEST(frames_follow_each_other_in_a_stream),
        FRAME_TEST(the_header_is_twelve_little_endian_bytes),
        FRAME_TEST(every_other_length_is_refused),
        FRAME_TEST(a_frame_that_is_not_whole_waits),
        FRAME_TEST(counts_that_lie_are_refused_before_allocating),
        FRAME_TEST(inner_counts_that_lie_are_refused_before_allocating),
        FRAME_TEST(bad_headers_end_the_stream),
        FRAME_TEST(a_long_idempotency_key_is_refused),
        FRAME_TEST(a_row_and_its_sequence_id_must_agree),
        FRAME_TEST(a_close_needs_an_id_and_a_known_reason),
        FRAME_TEST(a_row_may_move_a_sequence),
        FRAME_TEST(an_encoder_without_room_fails),
        FRAME_TEST(lent_parts_stand_where_they_would),
        FRAME_TEST(a_large_part_is_found_before_it_is_there),
    };

    return cmocka_run_group_tests_name("proto.frame", tests, NULL, NULL);
}
