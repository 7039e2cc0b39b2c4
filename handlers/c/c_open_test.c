/* handlers/c/c_open_test.c - tests C handlers that answer items after run() has returned: from the
 * calls for other items, and from timers. */
#include "handlers/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log/log.h"
#include "core/test_support.h"
#include "core/time/clock.h"
#include "handlers/c/testdata/fake_row.h"
#include "proto/tensor.h"

static char dir[4096];
static struct cn_load load;
static struct cn_timer_wheel *wheel;
static uint32_t woken;

static int
setup(void **state)
{
    (void)state;
    test_program_path("handlers", dir, sizeof(dir));
    cn_log_set_level(CN_LOG_ERROR);
    cn_clock_freeze();
    wheel = cn_timer_wheel_create(cn_now_ms());
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "test_open.so",
                            .worker_index = 1,
                            .stateful = 1,
                            .state_max_bytes = 10000};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    cn_timer_wheel_destroy(wheel);
    return 0;
}

static void
on_wake(void *worker, uint64_t job_id)
{
    (void)worker, (void)job_id;
    woken++;
}

static struct cn_runtime *
must_open(void)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};

    if (cn_c_runtime_ops.open(&load, CN_STR("{}"), &rt, &err))
        fail_msg("%s", err.message);
    rt->wake = on_wake;
    rt->wheel = wheel;
    woken = 0;
    return rt;
}

static const char *
look(struct fake *fake)
{
    fake_text(fake);
    if (fake->item.reply.more)
        strcat(fake->text, " ...");
    assert_int_equal(fake->item.resume != NULL, fake->item.reply.more);
    return fake->text;
}

static const char *
run(struct cn_runtime *rt, struct fake *fake, const char *body)
{
    struct cn_item *items[1] = {&fake->item};

    fake_body(fake, body, strlen(body));
    rt->ops->run(rt, items, 1);
    return look(fake);
}

/* Runs the worker's next turn for an open item, which then lies at another address and whose pieces
 * have been sent. */
static const char *
turn(struct cn_runtime *rt, struct fake *fake, enum cn_stop_reason stop)
{
    struct cn_item moved = fake->item, *items[1] = {&moved};

    memset(&fake->item, 0x5a, sizeof(fake->item));
    moved.reply.head_out = moved.reply.head_out || moved.reply.n_chunks > 0;
    cn_reply_next(&moved.reply);
    moved.stop = stop;
    rt->ops->run(rt, items, 1);
    fake->item = moved;
    return look(fake);
}

static void
finish(struct cn_runtime *rt, struct fake *fake)
{
    cn_reply_fini(&fake->item.reply);
    if (fake->item.state)
        rt->ops->state_free(rt, fake->item.state);
    memset(fake, 0, sizeof(*fake));
}

static void
say(struct cn_runtime *rt, const char *body, const char *gives)
{
    struct fake other = {0};

    assert_string_equal(run(rt, &other, body), gives);
    finish(rt, &other);
}

/* Pieces that calls for other items send to an open item leave in their order, bytes as well as
 * tensors. */
static void
another_call_answers(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake open = {0};
    struct cn_tensor *tensors;
    struct cn_arena arena;
    struct cn_error err;
    uint32_t n;

    (void)state;
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    assert_true(open.item.reply.rest_ms == CN_NEVER);
    say(rt, "a", "ok");
    say(rt, "b", "ok");
    assert_int_equal(woken, 2);
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "a|b| ...");
    say(rt, "tensor", "ok");
    turn(rt, &open, CN_STOP_NONE);
    assert_int_equal(open.item.reply.n_chunks, 1);
    cn_arena_init(&arena);
    assert_int_equal(
        cn_tensors_get(cn_buf_str(&open.item.reply.chunks[0].body), &arena, &tensors, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_memory_equal(tensors[0].data.ptr, "\7\0\0\0", 4);
    cn_arena_fini(&arena);
    say(rt, "end", "ok");
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "last");
    say(rt, "heard", "");
    finish(rt, &open);
    rt->ops->close(rt);
}

/* There are several ways to end an open item. An error replaces the pieces that were waiting. */
static void
ends(void **state)
{
    static const struct {
        const char *body, *gives;
    } ways[] = {{"finish", ""},
                {"fail", "bad_request/418 no more"},
                {"end", "last"},
                {"more", "handler_failed/0 Prediction failed: continuo_more: the item is deferred, "
                         "so it already continues by itself"}};

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct cn_runtime *rt = must_open();
        struct fake open = {0};

        assert_string_equal(run(rt, &open, "keep"), "first| ...");
        say(rt, ways[i].body, "ok");
        assert_string_equal(turn(rt, &open, CN_STOP_NONE), ways[i].gives);
        finish(rt, &open);
        rt->ops->close(rt);
    }
}

/* An item may be answered in the same batch in which it was deferred, or end without any response.
 */
static void
the_same_batch_answers(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake open = {0}, other = {0}, none = {0};
    struct cn_item *items[] = {&open.item, &none.item, &other.item};

    (void)state;
    fake_body(&open, "keep", 4);
    fake_body(&none, "none", 4);
    fake_body(&other, "end", 3);
    rt->ops->run(rt, items, 3);
    assert_string_equal(look(&open), "first|last");
    assert_string_equal(look(&none), "");
    finish(rt, &open);
    finish(rt, &none);
    finish(rt, &other);
    rt->ops->close(rt);
}

/* The handler learns once why the item must end, and may still answer it. If it does not, the
 * worker gives the item up. */
static void
stop_is_heard(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake open = {0};

    (void)state;
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    assert_string_equal(turn(rt, &open, CN_STOP_DEADLINE), "late");
    finish(rt, &open);
    say(rt, "heard", "stopped: deadline");
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    assert_string_equal(turn(rt, &open, CN_STOP_GONE), " ...");
    rt->ops->drop(rt, open.item.resume);
    finish(rt, &open);
    say(rt, "heard", "stopped: gone");
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    rt->ops->drop(rt, open.item.resume);
    finish(rt, &open);
    say(rt, "heard", "stopped: failed");
    rt->ops->close(rt);
}

/* If a batch fails, none of its items stays deferred. */
static void
a_failed_batch_keeps_nothing(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake open = {0}, other = {0};
    struct cn_item *items[] = {&open.item, &other.item};

    (void)state;
    fake_body(&open, "keep", 4);
    fake_body(&other, "boom", 4);
    rt->ops->run(rt, items, 2);
    assert_non_null(strstr(look(&open), "run returned 1"));
    finish(rt, &open);
    finish(rt, &other);
    say(rt, "heard", "stopped: failed");
    assert_non_null(strstr(run(rt, &other, "no stop"), "an end function is required"));
    finish(rt, &other);
    rt->ops->close(rt);
}

/* Timers fire in the order of their times. Those that remain when the model is closed never fire.
 */
static void
timers_answer(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake open = {0};

    (void)state;
    assert_string_equal(run(rt, &open, "wait"), "first| ...");
    cn_clock_advance(99);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    assert_int_equal(woken, 0);
    cn_clock_advance(1);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "one| ...");
    rt->ops->drop(rt, open.item.resume);
    finish(rt, &open);
    rt->ops->close(rt);
    cn_clock_advance(1000);
    cn_timer_wheel_advance(wheel, cn_now_ms());
}

/* What an item keeps between calls is the same memory, whichever handle asks for it. */
static void
a_deferred_item_keeps_its_stream(void **state)
{
    struct cn_runtime *rt = must_open();
    struct fake fake = {0};

    (void)state;
    assert_string_equal(run(rt, &fake, "stream"), "same| ...");
    assert_string_equal(turn(rt, &fake, CN_STOP_DEADLINE), "late");
    finish(rt, &fake);
    rt->ops->close(rt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_call_answers),
        cmocka_unit_test(ends),
        cmocka_unit_test(the_same_batch_answers),
        cmocka_unit_test(stop_is_heard),
        cmocka_unit_test(a_failed_batch_keeps_nothing),
        cmocka_unit_test(timers_answer),
        cmocka_unit_test(a_deferred_item_keeps_its_stream),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
