/* frontend/http/transport/http_conn_test.c - tests the way of a connection: requests in any pieces,
 * pipelines, ends at any moment, and deadlines. */
#include "frontend/http/transport/test_http.h"

#define POST_A "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
#define CHUNKED                                                                                    \
    "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"                         \
    "4;x=y\r\nwxyz\r\n1\r\n!\r\n0\r\nTrailer: t\r\n\r\n"
#define GET_NOTHING "\r\n\r\nGET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
#define HEAD_A "HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n"
#define HOLD "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"

/* Sends everything in two pieces, and expects four good answers. */
static void
expect_four(const char *text, size_t len, size_t cut)
{
    struct test_answers answers = {.len = 0};
    int fd = test_connect(0);

    test_send(fd, text, cut);
    test_send(fd, text + cut, len - cut);
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 200 OK\r\n"), 3);
    assert_int_equal(test_count(&answers, "HTTP/1.1 204 No Content\r\n"), 1);
    assert_int_equal(test_count(&answers, "\r\n\r\nabcHTTP/1.1"), 1);
    assert_int_equal(test_count(&answers, "\r\n\r\nwxyz!HTTP/1.1"), 1);
    assert_int_equal(test_count(&answers, "Content-Length: 0\r\n"), 1);
    assert_false(answers.ended || answers.lost);
    test_forget(&answers);
    close(fd);
    test_turns();
    assert_int_equal(listener->n_conns, 0);
}

/* A pipeline is answered in order wherever its packets begin. */
static void
a_pipeline_may_be_cut_anywhere(void **state)
{
    static const char text[] = POST_A CHUNKED GET_NOTHING HEAD_A;

    (void)state;
    test_start(false);
    for (size_t cut = 0; cut < sizeof(text) - 1; cut++)
        expect_four(text, sizeof(text) - 1, cut);
    test_stop();
}

/* The same pipeline comes byte by byte. */
static void
bytes_may_come_one_by_one(void **state)
{
    static const char text[] = POST_A CHUNKED GET_NOTHING HEAD_A;
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    for (size_t i = 0; i < sizeof(text) - 1; i++)
        test_send(fd, text + i, 1);
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 20"), 4);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* Hundreds of requests come at once, and each one is held for a while. */
static void
a_long_pipeline_is_answered_in_order(void **state)
{
    struct test_answers answers = {.len = 0};
    char body[16], *at;
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(send(fd, HOLD POST_A, sizeof(HOLD POST_A) - 1, 0),
                         sizeof(HOLD POST_A) - 1);
    test_turns();
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(n_held, i + 1);
        snprintf(body, sizeof(body), "<%u>", i);
        test_let_go(cn_str_from(body));
        test_turns();
    }
    test_read(fd, &answers);
    at = answers.bytes;
    for (unsigned i = 0; i < 300; i++) {
        snprintf(body, sizeof(body), "<%u>HTTP/", i);
        at = strstr(at, body);
        assert_non_null(at);
    }
    assert_int_equal(test_count(&answers, "\r\n\r\nabc"), 300);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* A turn answers only some of the requests that come at once, so that other clients need not wait
 * for all of them. */
static void
a_pipeline_leaves_turns_to_others(void **state)
{
    struct test_answers answers = {.len = 0};
    uint64_t before, now;
    int fd, other;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    other = test_connect(0);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(send(fd, POST_A, sizeof(POST_A) - 1, 0), sizeof(POST_A) - 1);
    assert_int_equal(send(other, POST_A, sizeof(POST_A) - 1, 0), sizeof(POST_A) - 1);
    before = cn_metrics_get(cn_loop_metrics(loop), CN_M_HTTP_REQUESTS);
    cn_loop_turn(loop, 0);
    now = cn_metrics_get(cn_loop_metrics(loop), CN_M_HTTP_REQUESTS);
    assert_in_range(now - before, 2, 20);
    test_read_some(other, &answers, 65536);
    assert_int_equal(test_count(&answers, "\r\n\r\nabc"), 1);
    test_forget(&answers);
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "\r\n\r\nabc"), 200);
    test_forget(&answers);
    close(fd);
    close(other);
    test_stop();
}

/* The client asks whether it should send its body, and is told to. */
static void
a_client_may_ask_before_its_body(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                       "Content-Length: 5\r\n\r\n");
    test_read(fd, &answers);
    assert_string_equal(answers.bytes, "HTTP/1.1 100 Continue\r\n\r\n");
    test_send_text(fd, "12345");
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "\r\n\r\n12345"), 1);
    test_forget(&answers);
    test_send_text(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                       "Content-Length: 99999999\r\n\r\n");
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "100 Continue"), 0);
    assert_int_equal(test_count(&answers, "HTTP/1.1 413 "), 1);
    assert_true(answers.ended);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* A client of HTTP/1.0 keeps its connection only if it asks for that. */
static void
http_1_0_ends_unless_it_asks(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "Connection: Keep-Alive\r\n"), 1);
    assert_false(answers.ended);
    test_send_text(fd, "GET /echo HTTP/1.0\r\n\r\n");
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "Connection: close\r\n"), 1);
    assert_true(answers.ended);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* --- ends */

/* Sends the first `n` bytes and ends the connection in one of three ways. */
static void
end_after(const char *text, size_t n, unsigned how)
{
    struct test_answers answers = {.len = 0};
    int fd = test_connect(0);

    test_send(fd, text, n);
    if (how == 0) {
        test_reset(fd);
    } else if (how == 1) {
        close(fd);
        test_turns();
    } else {
        shutdown(fd, SHUT_WR);
        test_turns();
        if (held_request && held_request->conn)
            test_let_go(CN_STR("late"));
        test_read(fd, &answers);
        assert_true(answers.ended);
        test_forget(&answers);
        close(fd);
        held_request = NULL;
    }
    test_turns();
    if (held_request)
        cn_http_request_release(held_request);
    held_request = NULL;
    assert_true(cn_http_listener_is_empty(listener));
}

/* A client resets, closes or half closes its connection after each byte of what it sends. */
static void
a_client_may_end_anywhere(void **state)
{
    static const char text[] = POST_A CHUNKED HOLD;

    (void)state;
    test_start(false);
    for (unsigned how = 0; how < 3; how++)
        for (size_t n = 0; n < sizeof(text); n++)
            end_after(text, n, how);
    test_stop();
}

/* A half-closed client gets all answers of its pipeline. */
static void
a_half_closed_client_gets_its_answers(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    send(fd, HOLD POST_A CHUNKED, sizeof(HOLD POST_A CHUNKED) - 1, 0);
    shutdown(fd, SHUT_WR);
    test_turns();
    assert_int_equal(n_gone, 1);
    test_let_go(CN_STR("held"));
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 200 OK\r\n"), 3);
    assert_true(answers.ended);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* A request that begins to wait after its client has left is reported, too. */
static void
a_client_that_left_is_reported_for_later_requests(void **state)
{
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    send(fd, HOLD HOLD, sizeof(HOLD HOLD) - 1, 0);
    shutdown(fd, SHUT_WR);
    test_turns();
    assert_int_equal(n_gone, 1);
    test_let_go(CN_STR("first"));
    test_turns();
    assert_int_equal(n_held, 2);
    assert_int_equal(n_gone, 2);
    test_let_go(CN_STR("second"));
    close(fd);
    test_stop();
}

/* A half-closed client whose request is refused before all of it was read gets the reason. */
static void
a_half_closed_client_gets_its_refusal(void **state)
{
    static char body[60000];
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    memset(body, 'x', sizeof(body));
    send(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 58, 0);
    send(fd, body, sizeof(body), MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    test_turns();
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "HTTP/1.1 413 "), 1);
    assert_true(answers.ended);
    assert_false(answers.lost);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* A draining listener ends idle connections, and lets the others have their answers. */
static void
draining_waits_for_requests(void **state)
{
    struct test_answers answers = {.len = 0}, none = {.len = 0};
    int idle, in_head, in_body, held, unread;

    (void)state;
    test_start(false);
    idle = test_connect(0);
    in_head = test_connect(0);
    in_body = test_connect(0);
    held = test_connect(0);
    unread = test_connect(0);
    test_send_text(idle, POST_A);
    test_send_text(in_head, "GET /ec");
    test_send(in_body, POST_A, sizeof(POST_A) - 2);
    test_send_text(held, HOLD);
    send(unread, POST_A, sizeof(POST_A) - 1, 0); /* the listener has not seen it yet */
    cn_http_listener_drain(listener);
    test_turns();
    assert_int_equal(listener->n_conns, 2);
    test_let_go(CN_STR("done"));
    test_send_text(in_body, "c");
    test_read(held, &answers);
    test_read(in_body, &answers);
    answers.ended = false;
    test_read(in_body, &answers);
    test_read(unread, &none);
    assert_int_equal(test_count(&answers, "Connection: close\r\n"), 2);
    assert_int_equal(test_count(&none, "Connection: close\r\n"), 1);
    assert_int_equal(listener->n_conns, 0);
    test_forget(&answers);
    test_forget(&none);
    close(idle), close(in_head), close(in_body), close(held), close(unread);
    test_stop();
}

/* The client of a unix socket sends a request and closes. Its end comes with the request, which is
 * read all the same, and reported as left. */
static void
a_unix_client_may_close_at_once(void **state)
{
    const struct sockaddr address = {.sa_family = AF_UNIX};
    int fds[2];

    (void)state;
    test_start(false);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    cn_http_conn_open(listener, fds[0], &address, NULL);
    test_turns();
    send(fds[1], HOLD, sizeof(HOLD) - 1, 0);
    close(fds[1]);
    test_turns();
    assert_int_equal(n_held, 1);
    assert_int_equal(n_gone, 1);
    test_let_go(CN_STR("nobody"));
    test_turns();
    assert_int_equal(listener->n_conns, 0);
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipeline_may_be_cut_anywhere),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(a_long_pipeline_is_answered_in_order),
        cmocka_unit_test(a_pipeline_leaves_turns_to_others),
        cmocka_unit_test(a_client_may_ask_before_its_body),
        cmocka_unit_test(http_1_0_ends_unless_it_asks),
        cmocka_unit_test(a_client_may_end_anywhere),
        cmocka_unit_test(a_half_closed_client_gets_its_answers),
        cmocka_unit_test(a_client_that_left_is_reported_for_later_requests),
        cmocka_unit_test(a_half_closed_client_gets_its_refusal),
        cmocka_unit_test(draining_waits_for_requests),
        cmocka_unit_test(a_unix_client_may_close_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
