/* proto/test_frames.h - frames of each type for the tests of frames, in a buffer that is empty when
 * a test begins. Only tests include it. */
#ifndef CN_PROTO_TEST_FRAMES_H
#define CN_PROTO_TEST_FRAMES_H

#include "proto/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/memory/mem.h"

#define LIMIT (1 << 20)

static struct cn_buf buf;
static struct cn_arena arena;

static inline int
set_up(void **state)
{
    (void)state;
    cn_buf_init(&buf, 0);
    cn_arena_init(&arena);
    return 0;
}

static inline int
tear_down(void **state)
{
    (void)state;
    cn_buf_fini(&buf);
    cn_arena_fini(&arena);
    return 0;
}

/* Returns the only frame in `buf`. */
static inline struct cn_frame
the_frame(enum cn_frame_type type)
{
    struct cn_frame frame = {0};

    assert_false(buf.failed);
    assert_int_equal(cn_frame_next(buf.data, buf.len, LIMIT, &frame, NULL), buf.len);
    assert_int_equal(frame.type, type);
    return frame;
}

static inline void
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

static inline struct cn_load
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

static inline void
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

static inline void
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

static inline void
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

#define FRAME_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
