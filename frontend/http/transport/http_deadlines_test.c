/* frontend/http/transport/http_deadlines_test.c - tests which clients are cut off, and when, and
 * those above --max-connections. */
#include "frontend/http/transport/test_http.h"

#define GET "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
#define POST "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"
#define TICK_MS (TEST_HEADER_MS / 2 + 1)

/* The client is cut off after `ms` and at most one tick, and not before. */
static void
expect_cut_after(int fd, uint64_t ms)
{
    for (uint64_t passed = 0; passed + 1000 < ms; passed += 1000)
        test_wait(1000);
    assert_int_equal(listener->n_conns, 1);
    test_wait(TICK_MS + 2000);
    assert_int_equal(listener->n_conns, 0);
    close(fd);
}

/* A client that sends nothing, or a head without end, has the header timeout. */
static void
a_head_must_come_in_time(void **state)
{
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    expect_cut_after(fd, TEST_HEADER_MS);
    fd = test_connect(0);
    for (unsigned i = 0; i < 9; i++) {
        test_send_text(fd, "GET");
        test_wait(1000);
    }
    assert_int_equal(listener->n_conns, 1);
    test_wait(TICK_MS);
    assert_int_equal(listener->n_conns, 0);
    close(fd);
    test_stop();
}

/* Also the beginning of a head that came together with the request before. */
static void
the_next_head_must_come_in_time(void **state)
{
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, GET "GET /ec");
    expect_cut_after(fd, TEST_HEADER_MS);
    fd = test_connect(0);
    test_send_text(fd, HOLD "GET /ec");
    test_wait(TEST_KEEPALIVE_MS * 2);
    assert_int_equal(listener->n_conns, 1);
    test_let_go(CN_STR("x"));
    test_turns();
    expect_cut_after(fd, TEST_HEADER_MS);
    fd = test_connect(0);
    test_send_text(fd, GET);
    expect_cut_after(fd, TEST_KEEPALIVE_MS);
    test_stop();
}

/* A body must come in time. A request that waits has no limit. */
static void
a_body_must_come_in_time(void **state)
{
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, POST "a");
    expect_cut_after(fd, TEST_BODY_MS);
    fd = test_connect(0);
    test_send_text(fd, HOLD);
    test_wait(10 * TEST_KEEPALIVE_MS);
    assert_int_equal(listener->n_conns, 1);
    test_let_go(CN_STR("x"));
    test_turns();
    expect_cut_after(fd, TEST_KEEPALIVE_MS);
    test_stop();
}

/* A client that does not read its answer is cut off, and nothing of the answer is kept. */
static void
an_answer_must_be_read_in_time(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    large_bytes = 8000000;
    fd = test_connect(4096);
    test_send_text(fd, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    for (uint64_t passed = 0; passed + 1000 < TEST_WRITE_MS; passed += 1000)
        test_wait(1000);
    assert_int_equal(listener->n_conns, 1);
    assert_int_equal(listener->n_requests, 1);
    test_wait(TICK_MS + 1000);
    assert_true(cn_http_listener_is_empty(listener));
    test_read(fd, &answers);
    assert_true(answers.lost);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* Between two looks of the timer one body ends and another begins: that is not slow. */
static void
two_bodies_are_measured_apart(void **state)
{
    int fd;

    (void)state;
    test_config.min_rate = 100;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, POST "a");
    test_wait(TICK_MS); /* the timer looks */
    test_send_text(fd, "bc");
    test_wait(TICK_MS - 100);
    test_send_text(fd, POST "a");
    test_wait(200); /* and looks again */
    assert_int_equal(listener->n_conns, 1);
    test_wait(TICK_MS);
    test_wait(TICK_MS);
    assert_int_equal(listener->n_conns, 0);
    close(fd);
    test_config.min_rate = 0;
    test_stop();
}

/* A refused client may go on sending its body for a while, or its answer could be lost. */
static void
a_refused_body_may_be_slow(void **state)
{
    static const char post[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 90000000\r\n\r\n";
    struct test_answers answers = {.len = 0};
    unsigned i;
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, post);
    for (i = 0; i < 8; i++) {
        assert_int_equal(listener->n_discards, 1);
        test_wait(1500);
        test_send_text(fd, "more of the body");
    }
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 413 "), 1);
    assert_true(answers.ended);
    test_wait(1900);
    assert_int_equal(listener->n_discards, 1);
    test_wait(200); /* it was silent for too long */
    assert_int_equal(listener->n_discards, 0);
    test_forget(&answers);
    close(fd);
    fd = test_connect(0);
    test_send_text(fd, post);
    for (i = 0; i < 40 && listener->n_discards > 0; i++) {
        test_wait(1000);
        test_send_text(fd, "more of the body");
    }
    assert_int_equal(i, 30);
    close(fd);
    test_stop();
}

/* Clients above the limit are told so; further ones wait until a connection has ended. */
static void
surplus_clients_are_told(void **state)
{
    struct test_answers answers = {.len = 0};
    int fds[40], last;

    (void)state;
    test_start(false);
    test_config.max_connections = 4;
    for (unsigned i = 0; i < 36; i++)
        fds[i] = test_connect(0);
    last = test_connect(0);
    test_turns();
    assert_int_equal(listener->n_conns, 36);
    for (unsigned i = 0; i < 36; i++) {
        test_send_text(fds[i], GET);
        test_read(fds[i], &answers);
        assert_int_equal(test_count(&answers, i < 4 ? "HTTP/1.1 200 " : "HTTP/1.1 503 "), 1);
        assert_int_equal(answers.ended, i >= 4);
        test_forget(&answers);
    }
    assert_int_equal(listener->n_conns, 5);
    for (unsigned i = 0; i < 36; i++)
        close(fds[i]);
    test_turns();
    assert_int_equal(listener->n_conns, 1);
    close(last);
    test_turns();
    last = test_connect(0);
    test_send_text(last, GET);
    test_read(last, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 200 "), 1);
    test_forget(&answers);
    close(last);
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_must_come_in_time),
        cmocka_unit_test(the_next_head_must_come_in_time),
        cmocka_unit_test(a_body_must_come_in_time),
        cmocka_unit_test(an_answer_must_be_read_in_time),
        cmocka_unit_test(two_bodies_are_measured_apart),
        cmocka_unit_test(a_refused_body_may_be_slow),
        cmocka_unit_test(surplus_clients_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
