/* Tests requests that are answered after their handler has returned: by other calls and by
 * timers. */
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

static char dir[TEST_DIR_MAX];
static struct cn_load load;
static struct cn_timer_wheel *wheel;
static uint32_t woken;

static void
on_wake(void *worker, uint64_t job_id)
{
    (void)worker, (void)job_id;
    woken++;
}

static struct cn_runtime *
must_open(const char *module)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};
    char source[8000];

    load.stateful = strstr(module, "step =") != NULL;
    snprintf(source, sizeof(source), "local kept\nreturn {%s}\n", module);
    test_dir_write(dir, "handler.lua", source);
    if (cn_lua_runtime_ops.open(&load, CN_STR(""), &rt, &err) != 0)
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

    if (body)
        fake_body(fake, body, strlen(body));
    rt->ops->run(rt, items, 1);
    return look(fake);
}

/* Runs the worker's next turn for an open item, which is then at another address and has lost the
 * pieces that were sent. */
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

static int
setup(void **state)
{
    (void)state;
    test_dir_make(dir);
    cn_log_set_level(CN_LOG_ERROR);
    cn_clock_freeze();
    wheel = cn_timer_wheel_create(cn_now_ms());
    load = (struct cn_load){.model_name = "m",
                            .model_version = "1.0",
                            .model_dir = dir,
                            .handler = "handler.lua",
                            .worker_index = 1,
                            .stateful = 1,
                            .state_max_bytes = 10000,
                            .memory_max_bytes = 4 << 20};
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    cn_timer_wheel_destroy(wheel);
    return test_dir_remove(dir);
}

/* The handler: "keep" leaves the request open, "end" answers and ends it, and any other text is
 * sent to it as a response. */
#define KEEPER                                                                                     \
    "step = function(state, req)\n"                                                                \
    "  if req.text == 'keep' then\n"                                                               \
    "    req:respond('first')\n"                                                                   \
    "    kept = req\n"                                                                             \
    "    req:defer(function(r, why) kept = nil; r:respond('stop ' .. why); r:finish() end)\n"      \
    "    return\n"                                                                                 \
    "  elseif req.text == 'end' then kept:reply('last')\n"                                         \
    "  elseif req.text == 'finish' then kept:finish()\n"                                           \
    "  elseif req.text == 'fail' then kept:fail('no more', 418)\n"                                 \
    "  else return { json = kept:respond({ json = req.text }) } end\n"                             \
    "  return 'ok'\n"                                                                              \
    "end"

static void
finish(struct cn_runtime *rt, struct fake *fake)
{
    cn_reply_fini(&fake->item.reply);
    if (fake->item.state)
        rt->ops->state_free(rt, fake->item.state);
    memset(fake, 0, sizeof(*fake));
}

/* Calls for other requests answer an open request. Its pieces leave in the order in which they were
 * sent, and it can still be read meanwhile. */
static void
another_call_answers(void **state)
{
    struct cn_runtime *rt = must_open(KEEPER);
    struct fake open = {0}, other = {0};

    (void)state;
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    assert_true(open.item.reply.rest_ms == CN_NEVER);
    assert_string_equal(run(rt, &other, "a"),
                        "3"); /* "a", with its quotes, waits to be sent: 3 bytes */
    finish(rt, &other);
    assert_string_equal(run(rt, &other, "b"), "6");
    finish(rt, &other);
    assert_int_equal(woken, 2);
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "\"a\"|\"b\"| ...");
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), " ...");
    assert_string_equal(run(rt, &other, "end"), "ok");
    finish(rt, &other);
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "last");
    assert_non_null(open.item.state);
    assert_non_null(strstr(run(rt, &other, "c"), "this request has ended"));
    finish(rt, &other);
    finish(rt, &open);
    rt->ops->close(rt);
}

/* A request may be answered in the same batch that leaves it open. Nothing is lost between the
 * calls. */
static void
the_same_batch_answers(void **state)
{
    struct cn_runtime *rt = must_open(KEEPER);
    struct fake open = {0}, other = {0};
    struct cn_item *items[] = {&open.item, &other.item};

    (void)state;
    fake_body(&open, "keep", 4);
    fake_body(&other, "end", 3);
    rt->ops->run(rt, items, 2);
    assert_string_equal(look(&open), "first|last");
    finish(rt, &open);
    finish(rt, &other);
    rt->ops->close(rt);
}

/* There are several ways to end an open request. An error replaces everything that was waiting. */
static void
ends(void **state)
{
    static const struct {
        const char *body, *gives;
    } ways[] = {{"finish", ""}, {"fail", "bad_request/418 no more"}, {"end", "last"}};

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct cn_runtime *rt = must_open(KEEPER);
        struct fake open = {0}, other = {0};

        assert_string_equal(run(rt, &open, "keep"), "first| ...");
        assert_string_equal(run(rt, &other, ways[i].body), "ok");
        finish(rt, &other);
        assert_string_equal(turn(rt, &open, CN_STOP_NONE), ways[i].gives);
        finish(rt, &open);
        rt->ops->close(rt);
    }
}

/* The handler is told once why the request must end, and may still answer it, because the client
 * may still be there. */
static void
stop_is_heard(void **state)
{
    struct cn_runtime *rt = must_open(KEEPER);
    struct fake open = {0};

    (void)state;
    assert_string_equal(run(rt, &open, "keep"), "first| ...");
    assert_string_equal(turn(rt, &open, CN_STOP_DEADLINE), "stop deadline|");
    finish(rt, &open);
    rt->ops->close(rt);
}

/* If the handler gave no function for the end, the item stays open, and the worker gives it up. */
static void
a_dropped_request_is_over(void **state)
{
    struct cn_runtime *rt =
        must_open("handle = function(req)\n"
                  "  if req.text == 'keep' then kept = req; req:defer() return end\n"
                  "  kept:respond('x')\n"
                  "end");
    struct fake open = {0}, other = {0};

    (void)state;
    assert_string_equal(run(rt, &open, "keep"), " ...");
    assert_string_equal(turn(rt, &open, CN_STOP_GONE), " ...");
    rt->ops->drop(rt, open.item.resume);
    assert_non_null(strstr(run(rt, &other, "x"), "this request has ended"));
    finish(rt, &other);
    finish(rt, &open);
    rt->ops->close(rt);
}

/* The items of batch() can be left open, too, not only the request of step(). */
static void
items_of_a_batch(void **state)
{
    struct cn_runtime *rt = must_open("batch = function(items)\n"
                                      "  for _, item in ipairs(items) do\n"
                                      "    if item.text == 'keep' then kept = item; item:defer()\n"
                                      "    elseif item.text == 'none' then item:finish()\n"
                                      "    else kept:reply(item.text); item:reply('ok') end\n"
                                      "  end\n"
                                      "end");
    struct fake open = {0}, none = {0}, other = {0};
    struct cn_item *items[] = {&open.item, &none.item};

    (void)state;
    fake_body(&open, "keep", 4);
    fake_body(&none, "none", 4);
    rt->ops->run(rt, items, 2);
    assert_string_equal(look(&open), " ...");
    assert_string_equal(look(&none), "");
    assert_string_equal(run(rt, &other, "late"), "ok");
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "late");
    finish(rt, &other);
    finish(rt, &none);
    finish(rt, &open);
    rt->ops->close(rt);
}

/* continuo.reply_stack answers requests that were left open, too, as soon as there are enough of
 * them. */
static void
reply_stack_answers(void **state)
{
    struct cn_runtime *rt =
        must_open("batch = function(items)\n"
                  "  kept = kept or {}\n"
                  "  for _, item in ipairs(items) do item:defer(); kept[#kept + 1] = item end\n"
                  "  if #kept < 2 then return end\n"
                  "  local y = { datatype = 'UINT8', shape = {2, 1}, data = 'ab' }\n"
                  "  continuo.reply_stack(kept, { Y = y })\n"
                  "end");
    struct fake first = {0}, second = {0};

    (void)state;
    assert_string_equal(run(rt, &first, ""), " ...");
    assert_false((run(rt, &second, ""), second.item.reply.more));
    assert_int_equal(woken, 1);
    turn(rt, &first, CN_STOP_NONE);
    assert_false(first.item.reply.more);
    assert_int_equal(first.item.reply.error_code, 0);
    assert_int_equal(first.item.reply.body.data[first.item.reply.body.len - 1], 'a');
    assert_int_equal(second.item.reply.body.data[second.item.reply.body.len - 1], 'b');
    finish(rt, &first);
    finish(rt, &second);
    rt->ops->close(rt);
}

/* Timers fire in the order of their times, and may set further timers. */
static void
timers_answer(void **state)
{
    struct cn_runtime *rt =
        must_open("handle = function(req)\n"
                  "  req:defer()\n"
                  "  continuo.after(0.2, function() req:reply('two') end)\n"
                  "  continuo.after(0.05, function()\n"
                  "    req:respond('one')\n"
                  "    continuo.after(0.05, function() req:respond('half') end)\n"
                  "  end)\n"
                  "end");
    struct fake open = {0};

    (void)state;
    assert_string_equal(run(rt, &open, ""), " ...");
    cn_clock_advance(49);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    assert_int_equal(woken, 0);
    cn_clock_advance(1);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    assert_int_equal(woken, 1);
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "one| ...");
    cn_clock_advance(150);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    assert_string_equal(turn(rt, &open, CN_STOP_NONE), "half|two");
    finish(rt, &open);
    rt->ops->close(rt);
}

/* Timers that have not fired when the model is closed are dropped. An error in one affects
 * nobody. */
static void
timers_end_with_the_model(void **state)
{
    struct cn_runtime *rt = must_open("handle = function(req)\n"
                                      "  continuo.after(0, function() error('no') end)\n"
                                      "  continuo.after(1, function() error('never') end)\n"
                                      "  return 'ok'\n"
                                      "end");
    struct fake fake = {0};

    (void)state;
    cn_log_set_level(CN_LOG_ERROR);
    assert_string_equal(run(rt, &fake, ""), "ok");
    cn_clock_advance(1);
    cn_timer_wheel_advance(wheel, cn_now_ms());
    finish(rt, &fake);
    rt->ops->close(rt);
    cn_clock_advance(2000);
    cn_timer_wheel_advance(wheel, cn_now_ms());
}

/* A mistake fails the row, and the message says what is wrong. */
static void
mistakes_are_named(void **state)
{
    static const struct {
        const char *module, *says;
    } wrong[] = {
        {"handle = function(req) req:defer() return 'x' end",
         "deferred its answer (req:defer) but also"},
        {"handle = function(req) req:finish() req:respond('x') end", "already answered"},
        {"handle = function(req) continuo.after(-1, print) end", "seconds must be from 0 to 86400"},
        {"handle = function(req) req:respond({ text = 'x', end_sequence = true }) end",
         "belong to the answer"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cn_runtime *rt = must_open(wrong[i].module);
        struct fake fake = {0};

        if (!strstr(run(rt, &fake, ""), wrong[i].says))
            fail_msg("%s: %s", wrong[i].module, fake.text);
        finish(rt, &fake);
        rt->ops->close(rt);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_call_answers),
        cmocka_unit_test(the_same_batch_answers),
        cmocka_unit_test(ends),
        cmocka_unit_test(stop_is_heard),
        cmocka_unit_test(a_dropped_request_is_over),
        cmocka_unit_test(items_of_a_batch),
        cmocka_unit_test(reply_stack_answers),
        cmocka_unit_test(timers_answer),
        cmocka_unit_test(timers_end_with_the_model),
        cmocka_unit_test(mistakes_are_named),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
