/* frontend/http/transport/http_output_test.c - tests answers of which the socket takes only parts,
 * streams with pieces of all sizes, and streams that end early. */
#include "frontend/http/transport/test_http.h"

#define GET_LARGE "GET /large HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_STREAM "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_ECHO "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"

/* Checks that the bytes are the first `n` of test_byte(). */
static void
expect_bytes(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != test_byte(i))
            fail_msg("byte %zu of %zu differs", i, n);
}

/* Reads an answer in small and large parts, as slowly as a client may. */
static void
read_slowly(int fd, struct test_answers *out, size_t at_least)
{
    for (unsigned i = 0, quiet = 0; quiet < 50 && !out->ended && !out->lost; i++) {
        const size_t len = out->len;

        test_read_some(fd, out, i % 3 ? 1 + i * 37 % 9000 : 65536);
        cn_loop_turn(loop, 0);
        quiet = out->len > len || out->len < at_least ? 0 : quiet + 1;
        if (i > 200000)
            fail_msg("only %zu of %zu bytes came", out->len, at_least);
    }
}

/* Large answers in a pipeline arrive as a whole over a small socket. */
static void
large_answers_arrive(void **state)
{
    struct test_answers answers = {.len = 0};
    char *at;
    int fd;

    (void)state;
    test_start(false);
    large_bytes = 700001;
    fd = test_connect(4096);
    test_send_text(fd, GET_LARGE GET_ECHO GET_LARGE GET_LARGE);
    read_slowly(fd, &answers, 3 * large_bytes + 4 * 200);
    at = answers.bytes;
    for (unsigned i = 0; i < 4; i++) {
        at = strstr(at, "\r\n\r\n");
        assert_non_null(at);
        at += 4;
        if (i == 1)
            continue;
        expect_bytes(at, large_bytes);
        at += large_bytes;
    }
    assert_ptr_equal(at, answers.bytes + answers.len);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* Takes the chunks of an answer off, one after the other, and returns how many bytes they had; each
 * of them begins with test_byte(0). */
static size_t
join_chunks(const struct test_answers *answers, unsigned *n_chunks, bool *is_whole)
{
    char *at = strstr(answers->bytes, "\r\n\r\n") + 4, *end = answers->bytes + answers->len;
    size_t sum = 0;

    *n_chunks = 0;
    *is_whole = false;
    while (at < end) {
        const size_t n = strtoul(at, &at, 16);

        assert_memory_equal(at, "\r\n", 2);
        at += 2;
        if (n == 0) {
            assert_memory_equal(at, "\r\n", 2);
            *is_whole = true;
            return sum;
        }
        if (at + n + 2 > end)
            return sum;
        expect_bytes(at, n);
        assert_memory_equal(at + n, "\r\n", 2);
        at += n + 2;
        sum += n;
        ++*n_chunks;
    }
    return sum;
}

static const size_t sizes[] = {1,    0,    4096, 4097, 5,      100000, 4095,
                               4096, 4096, 4096, 1,    300000, 70000,  2};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static size_t
sum_of_sizes(void)
{
    size_t sum = 0;

    for (unsigned i = 0; i < N_SIZES; i++)
        sum += sizes[i];
    return sum;
}

/* Pieces come all at once, or each one when the ones before are read. */
static void
streams_arrive(void **state)
{
    struct test_answers answers = {.len = 0};
    unsigned n_chunks;
    bool is_whole;
    int fd;

    (void)state;
    for (unsigned one_by_one = 0; one_by_one < 2; one_by_one++) {
        test_start(false);
        fd = test_connect(one_by_one ? 0 : 4096);
        test_send_text(fd, GET_STREAM);
        for (unsigned i = 0; i < N_SIZES; i++) {
            test_piece(sizes[i], false);
            if (one_by_one)
                test_read(fd, &answers);
        }
        test_piece(0, true);
        read_slowly(fd, &answers, sum_of_sizes());
        assert_int_equal(join_chunks(&answers, &n_chunks, &is_whole), sum_of_sizes());
        assert_int_equal(n_chunks, N_SIZES - 1);
        assert_true(is_whole);
        assert_int_equal(n_taken, sum_of_sizes());
        test_forget(&answers);
        test_send_text(fd, GET_ECHO); /* the connection is good for more */
        test_read(fd, &answers);
        assert_int_equal(test_count(&answers, "HTTP/1.1 200 OK"), 1);
        test_forget(&answers);
        close(fd);
        test_stop();
    }
}

/* HTTP/1.0 gets the pieces without chunks, and the end of the connection. */
static void
http_1_0_gets_a_stream(void **state)
{
    struct test_answers answers = {.len = 0};
    char *at;
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    test_piece(50000, false);
    test_piece(0, true);
    test_read(fd, &answers);
    assert_true(answers.ended);
    at = strstr(answers.bytes, "\r\n\r\n") + 4;
    assert_int_equal(answers.bytes + answers.len - at, 50000);
    expect_bytes(at, 50000);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* HEAD gets the length of a stream that has ended, and nothing of it. */
static void
head_gets_the_length_of_a_stream(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, "HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    test_piece(50000, false);
    test_piece(3, false);
    test_piece(0, true);
    test_read(fd, &answers);
    assert_int_equal(test_count(&answers, "Content-Length: 50003\r\n"), 1);
    assert_string_equal(answers.bytes + answers.len - 4, "\r\n\r\n");
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* Events may make nothing of a piece, which ends in the middle of a character. Its bytes count as
 * taken all the same. */
static void
pieces_without_bytes_are_taken(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    fd = test_connect(0);
    test_send_text(fd, GET_STREAM);
    test_piece(10, false);
    for (unsigned i = 0; i < 2; i++) {
        struct cn_answer_box *box =
            cn_answer_box_text(CN_STR("text/plain"), i ? CN_STR("a") : CN_STR(""), false);

        box->remade = true;
        box->made_of_bytes = 100;
        cn_http_answer_piece(held_request, box);
        test_read(fd, &answers);
        assert_int_equal(n_taken, 110 + 100 * i);
    }
    test_piece(0, true);
    test_read(fd, &answers);
    test_forget(&answers);
    close(fd);
    test_stop();
}

/* A stream whose head cannot be sent is answered with an error, and its holder is told that nobody
 * gets the rest. A complete answer of this kind needs no such word. */
static void
holder_learns_that_its_stream_cannot_be_sent(void **state)
{
    struct test_answers answers = {.len = 0};
    int fd;

    (void)state;
    test_start(false);
    for (unsigned is_final = 0; is_final < 2; is_final++) {
        struct cn_answer_box *box = cn_answer_box_text(CN_STR(""), CN_STR("a"), is_final);

        fd = test_connect(0);
        test_send_text(fd, GET_STREAM);
        box->answer.status = 700;
        cn_http_answer_piece(held_request, box);
        test_read(fd, &answers);
        assert_int_equal(test_count(&answers, "HTTP/1.1 500 "), 1);
        assert_int_equal(n_gone, 1);
        if (is_final)
            cn_http_request_release(held_request);
        else
            test_piece(0, true);
        test_forget(&answers);
        close(fd);
    }
    test_stop();
}

/* Clients that leave in the middle of a stream or of a large answer leave nothing behind. */
static void
clients_may_leave_answers(void **state)
{
    struct test_answers answers = {.len = 0};

    (void)state;
    test_start(false);
    for (unsigned how = 0; how < 12; how++) {
        int fd = test_connect(4096);

        large_bytes = 3000000;
        test_send_text(fd, how % 2 ? GET_LARGE : GET_STREAM);
        if (how % 2 == 0)
            test_piece(how % 4 ? 300000 : 3, false);
        if (how % 3 == 1)
            test_read_some(fd, &answers, 10000);
        test_turns();
        if (how < 6)
            test_reset(fd);
        else
            close(fd);
        test_turns();
        if (how % 2 == 0) {
            test_piece(100000, false);
            test_turns();
            test_piece(3, true);
        }
        test_turns();
        assert_true(cn_http_listener_is_empty(listener));
        test_forget(&answers);
    }
    test_stop();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_answers_arrive),
        cmocka_unit_test(streams_arrive),
        cmocka_unit_test(http_1_0_gets_a_stream),
        cmocka_unit_test(head_gets_the_length_of_a_stream),
        cmocka_unit_test(pieces_without_bytes_are_taken),
        cmocka_unit_test(holder_learns_that_its_stream_cannot_be_sent),
        cmocka_unit_test(clients_may_leave_answers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
