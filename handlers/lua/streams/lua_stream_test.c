/* Tests Lua steps that yield: pieces, rests, stops, errors, limits. */
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

static char dir[TEST_DIR_MAX];
static struct cn_load load;

static struct cn_runtime *
must_open(const char *step)
{
    struct cn_runtime *rt = NULL;
    struct cn_error err = {0};
    char source[8000];

    snprintf(source, sizeof(source),
             "local M = {}\nfunction M.step(state, req)\n%s\nend\nreturn M\n", step);
    test_dir_write(dir, "handler.lua", source);
    if (cn_lua_runtime_ops.open(&load, CN_STR(""), &rt, &err) != 0)
        fail_msg("%s", err.message);
    return rt;
}

/* Returns what a step has sent so far, as text, with " ..." at its end if the step continues. */
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
begin(struct cn_runtime *rt, struct fake *fake, const char *body)
{
    struct cn_item *items[1] = {&fake->item};

    fake_body(fake, body, strlen(body));
    rt->ops->run(rt, items, 1);
    return look(fake);
}

/* Runs the next turn as the worker does: the item is at another address and has lost the pieces
 * that were sent. */
static const char *
go_on(struct cn_runtime *rt, struct fake *fake, enum cn_stop_reason stop)
{
    struct cn_item moved = fake->item, *items[1] = {&moved};

    memset(&fake->item, 0x5a, sizeof(fake->item)); /* nobody may read the old item any more */
    if (!moved.reply.head_out)
        moved.reply.head_out = moved.reply.n_chunks > 0;
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
    return test_dir_remove(dir);
}

/* coroutine.yield sends a piece and continues where it was, with the same request and state. */
static void
step_goes_on_where_it_yielded(void **state)
{
    struct cn_runtime *rt = must_open("for i = 1, 2 do\n"
                                      "  state.n = (state.n or 0) + 1\n"
                                      "  assert(coroutine.yield(req.text .. i) == true)\n"
                                      "end\n"
                                      "return { text = state.n .. req.sequence_id }");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(begin(rt, &fake, "p"), "p1| ...");
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "p2| ...");
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "2seq-1");
    fake_end(rt, &fake);
    assert_string_equal(begin(rt, &fake, "q"), "q1| ...");
    assert_non_null(fake.item.state); /* a worker may commit it now, or give the stream up */
    rt->ops->drop(rt, fake.item.resume);
    cn_reply_fini(&fake.item.reply);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* A piece may be anything that a reply may be. A rest is rounded up to whole milliseconds. */
static void
pieces_are_what_replies_are(void **state)
{
    struct cn_runtime *rt = must_open("coroutine.yield({ json = { 1, 'a' }, status = 201,\n"
                                      "                  headers = { ['x-a'] = 'b' } })\n"
                                      "coroutine.yield(7, 0.0101)\n"
                                      "coroutine.yield({ json = { b = true } })\n"
                                      "coroutine.yield(nil, 3)\n"
                                      "coroutine.yield()\n");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(begin(rt, &fake, ""), "[1,\"a\"]| ...");
    assert_int_equal(fake.item.reply.status, 201);
    assert_int_equal(fake.item.reply.n_headers, 1);
    assert_true(cn_str_eq(cn_buf_str(&fake.item.reply.content_type), CN_STR("application/json")));
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "7| ...");
    assert_int_equal(fake.item.reply.rest_ms, 11);
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "{\"b\":true}| ...");
    assert_int_equal(fake.item.reply.rest_ms, 0);
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), " ...");
    assert_int_equal(fake.item.reply.rest_ms, 3000);
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), " ...");
    /* A stream may end without a last piece. */
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "");
    assert_int_equal(fake.item.reply.error_code, 0);
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* The pieces of send() leave before the next yielded piece, in order. */
static void
sent_pieces_leave_with_the_next_yield(void **state)
{
    struct cn_runtime *rt =
        must_open("req:send('a')\ncoroutine.yield('b')\nreq:send('c')\nreturn 'd'");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(begin(rt, &fake, ""), "a|b| ...");
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "c|d");
    fake_end(rt, &fake);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* If the stream is told to stop, yield returns nil and the reason, and req.cancelled is true. */
static void
yield_tells_why_to_stop(void **state)
{
    static const char *const words[] = {"gone", "deadline", "ended", "cancelled"};
    struct cn_runtime *rt =
        must_open("local ok, why = coroutine.yield('p')\n"
                  "return tostring(ok) .. ' ' .. why .. ' ' .. tostring(req.cancelled)");
    struct fake fake = {0};
    char wanted[40];

    (void)state;
    for (int reason = CN_STOP_GONE; reason <= CN_STOP_CANCELLED; reason++) {
        begin(rt, &fake, "");
        snprintf(wanted, sizeof(wanted), "nil %s true", words[reason - 1]);
        assert_string_equal(go_on(rt, &fake, (enum cn_stop_reason)reason), wanted);
        fake_end(rt, &fake);
    }
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* Streams of different rows do not affect each other, and steps that do not yield run between their
 * turns. */
static void
streams_are_apart(void **state)
{
    struct cn_runtime *rt = must_open("if req.text == 'plain' then return 'plain' end\n"
                                      "for i = 1, 3 do coroutine.yield(req.text .. i) end\n"
                                      "return 'end ' .. req.text");
    static struct fake a, b, c;

    (void)state;
    assert_string_equal(begin(rt, &a, "a"), "a1| ...");
    assert_string_equal(begin(rt, &b, "b"), "b1| ...");
    assert_string_equal(go_on(rt, &a, CN_STOP_NONE), "a2| ...");
    assert_string_equal(fake_step(rt, &c, "plain"), "plain");
    assert_string_equal(go_on(rt, &b, CN_STOP_NONE), "b2| ...");
    go_on(rt, &a, CN_STOP_NONE);
    assert_string_equal(go_on(rt, &a, CN_STOP_NONE), "end a");
    assert_string_equal(begin(rt, &c, "c"), "c1| ...");
    go_on(rt, &b, CN_STOP_NONE);
    assert_string_equal(go_on(rt, &b, CN_STOP_NONE), "end b");
    rt->ops->drop(rt, c.item.resume);
    cn_reply_fini(&c.item.reply);
    fake_end(rt, &a);
    fake_end(rt, &b);
    fake_drop(rt, &a);
    fake_drop(rt, &b);
    fake_drop(rt, &c);
    rt->ops->close(rt);
}

/* A failure concerns only its row. It is reported as in any step, with file and line, and the VM
 * works as before. */
static void
failures_after_a_yield(void **state)
{
    static const struct {
        const char *step, *message;
    } cases[] = {
        {"coroutine.yield('p')\nerror('broke')",
         "handler_failed/0 Prediction failed: handler.lua:4: broke"},
        {"coroutine.yield('p')\nerror({ status = 404, message = 'none' })", "not_found/404 none"},
        {"coroutine.yield('p')\nreturn nil, 'late', 409", "conflict/409 late"},
        {"coroutine.yield('p')\ncoroutine.yield({ status = 201, text = 'q' })",
         "handler_failed/0 Prediction failed: reply: the status of the answer was sent with its "
         "first piece: set it there"},
        {"coroutine.yield('p')\ncoroutine.yield(print)",
         "handler_failed/0 Prediction failed: a reply must be a string, a number or a table such "
         "as { "
         "json = ... }, got function"},
        {"coroutine.yield('p')\ncoroutine.yield({ text = 'q', end_sequence = true })",
         "handler_failed/0 Prediction failed: end_sequence and stop_streams belong to the answer, "
         "not to a piece of it"},
        {"coroutine.yield('p')\nreq:reply('last') coroutine.yield('q')",
         "handler_failed/0 Prediction failed: handler.lua: coroutine.yield was called after the "
         "answer (req:reply, fail or finish); yield pieces before it"},
        {"coroutine.yield('p')\nreq:reply('last') coroutine.yield(nil, 1)",
         "handler_failed/0 Prediction failed: handler.lua: coroutine.yield was called after the "
         "answer (req:reply, fail or finish); yield pieces before it"},
        {"coroutine.yield('p')\ncoroutine.yield('q', -1)",
         "handler_failed/0 Prediction failed: handler.lua: coroutine.yield(piece, seconds): "
         "seconds must be from 0 to 86400, got -1"},
    };
    struct fake fake = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_runtime *rt = must_open(cases[i].step);

        assert_string_equal(begin(rt, &fake, ""), "p| ...");
        assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), cases[i].message);
        fake_end(rt, &fake);
        assert_string_equal(begin(rt, &fake, ""), "p| ...");
        rt->ops->drop(rt, fake.item.resume);
        cn_reply_fini(&fake.item.reply);
        fake_drop(rt, &fake);
        rt->ops->close(rt);
    }
}

/* A request ends with its row, and not with the call in which it was made. */
static void
kept_request_is_over(void **state)
{
    struct cn_runtime *rt = must_open("kept = kept or req\n"
                                      "if req.text == 'use' then return kept.text end\n"
                                      "coroutine.yield('p')\nreturn kept.text");
    static struct fake a, b;

    (void)state;
    begin(rt, &a, "mine");
    assert_non_null(strstr(fake_step(rt, &b, "use"), "this request has ended"));
    assert_string_equal(go_on(rt, &a, CN_STOP_NONE), "mine");
    fake_end(rt, &a);
    assert_non_null(strstr(fake_step(rt, &b, "use"), "this request has ended"));
    fake_drop(rt, &a);
    fake_drop(rt, &b);
    rt->ops->close(rt);
}

/* The time limit begins anew with each call. A stream may take hours, but a loop without a yield
 * may not run longer than the limit, however many pieces came before, and also inside pcall. */
static void
time_limit_is_one_of_calls(void **state)
{
    struct cn_runtime *rt;
    struct fake fake = {0};

    (void)state;
    load.step_time_ms = 30;
    rt = must_open(
        "coroutine.yield('p')\ncoroutine.yield('q')\nwhile true do pcall(function() while "
        "true do end end) end");
    begin(rt, &fake, "");
    usleep(40000);
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "q| ...");
    assert_string_equal(
        go_on(rt, &fake, CN_STOP_NONE),
        "deadline/0 Prediction failed: handler.lua reached its time limit of 30 ms");
    fake_end(rt, &fake);
    assert_string_equal(begin(rt, &fake, ""), "p| ...");
    fake.item.deadline_ms =
        1; /* a stream is told at a yield that its deadline has passed; no call is interrupted */
    assert_string_equal(go_on(rt, &fake, CN_STOP_NONE), "q| ...");
    rt->ops->drop(rt, fake.item.resume);
    cn_reply_fini(&fake.item.reply);
    fake_drop(rt, &fake);
    rt->ops->close(rt);
    load.step_time_ms = 0;
}

/* A handler that is given up may close what it has opened, within a time limit, but it cannot
 * continue. */
static void
dropped_streams_close_their_variables(void **state)
{
    struct cn_runtime *rt =
        must_open("if req.text == 'count' then return closed or 0 end\n"
                  "local guard <close> = setmetatable({}, { __close = function()\n"
                  "  closed = (closed or 0) + 1\n"
                  "  if req_text == 'hang' then while true do end end\n"
                  "end })\n"
                  "req_text = req.text\n"
                  "while true do pcall(coroutine.yield, 'p') end");
    struct fake fake = {0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        begin(rt, &fake, i ? "hang" : "go");
        go_on(rt, &fake, CN_STOP_NONE);
        rt->ops->drop(rt, fake.item.resume);
        cn_reply_fini(&fake.item.reply);
    }
    assert_string_equal(fake_step(rt, &fake, "count"), "2");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

/* If the memory is used up in the middle of a stream, only that row fails, and its memory is free
 * again. */
static void
memory_limit_fails_one_stream(void **state)
{
    struct cn_runtime *rt = must_open("if req.text == 'small' then return 'ok' end\n"
                                      "local all = {}\n"
                                      "while true do\n"
                                      "  coroutine.yield('p')\n"
                                      "  all[#all + 1] = ('x'):rep(1000000 + #all)\n"
                                      "end");
    static struct fake a, b;
    int calls = 0;

    (void)state;
    begin(rt, &a, "");
    while (a.item.reply.more && calls++ < 100)
        go_on(rt, &a, CN_STOP_NONE);
    assert_int_equal(a.item.reply.error_code, CN_E_OUT_OF_MEMORY);
    fake_end(rt, &a);
    assert_string_equal(fake_step(rt, &b, "small"), "ok");
    fake_drop(rt, &a);
    fake_drop(rt, &b);
    rt->ops->close(rt);
}

/* What a reply that could not be made has written is not part of the answer. */
static void
failed_attempts_leave_nothing(void **state)
{
    static const char *const steps[] = {
        "local bad = { json = { 1, print }, status = 201, headers = { a = 'b' } }\n"
        "assert(not pcall(req.reply, req, bad))\n"
        "req:finish()",
        "req:send('x')\n"
        "assert(not pcall(req.respond, req, { json = { 1, print } }))",
    };
    static const char *const answers[] = {"", "x|"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct cn_runtime *rt = must_open(steps[i]);
        struct fake fake = {0};

        assert_string_equal(begin(rt, &fake, ""), answers[i]);
        assert_int_equal(fake.item.reply.status, 0);
        assert_int_equal(fake.item.reply.n_headers, 0);
        fake_end(rt, &fake);
        fake_drop(rt, &fake);
        rt->ops->close(rt);
    }
}

/* Coroutines that the handler makes are its own: only a yield of the step itself sends a piece. */
static void
own_coroutines_are_no_streams(void **state)
{
    struct cn_runtime *rt = must_open("local gen = coroutine.wrap(function()\n"
                                      "  for i = 1, 3 do coroutine.yield(i) end\n"
                                      "end)\n"
                                      "return gen() + gen() + gen()");
    struct fake fake = {0};

    (void)state;
    assert_string_equal(fake_step(rt, &fake, ""), "6");
    fake_drop(rt, &fake);
    rt->ops->close(rt);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(step_goes_on_where_it_yielded),
        cmocka_unit_test(pieces_are_what_replies_are),
        cmocka_unit_test(sent_pieces_leave_with_the_next_yield),
        cmocka_unit_test(yield_tells_why_to_stop),
        cmocka_unit_test(streams_are_apart),
        cmocka_unit_test(failures_after_a_yield),
        cmocka_unit_test(kept_request_is_over),
        cmocka_unit_test(time_limit_is_one_of_calls),
        cmocka_unit_test(dropped_streams_close_their_variables),
        cmocka_unit_test(memory_limit_fails_one_stream),
        cmocka_unit_test(failed_attempts_leave_nothing),
        cmocka_unit_test(own_coroutines_are_no_streams),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
