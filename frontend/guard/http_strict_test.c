/* frontend/guard/http_strict_test.c - tests which bytes of a request are refused, and where. */
#include "frontend/guard/http_strict.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEAD "POST /p HTTP/1.1\r\nHost: t\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"

struct shape {
    const char *text;
    size_t len;
};
#define SHAPE(text)                                                                                \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static size_t
feed(struct cn_http_strict *strict, const char *bytes, size_t len)
{
    *strict = (struct cn_http_strict){0};
    return cn_http_strict_feed(strict, bytes, len);
}

/* Each of these is one request after the other, whole. */
static void
good_requests_pass(void **state)
{
    static const struct shape shapes[] = {
        SHAPE("GET /ping HTTP/1.0\r\n\r\nGET /ping HTTP/1.1\r\nHost: t\r\n\r\n"),
        SHAPE("\r\n\r\n" HEAD "\r\n"),
        SHAPE(HEAD "Content-Length:3\r\n\r\nabc" HEAD "content-length: \t0\r\n\r\n"),
        SHAPE(HEAD "Content-Length: 5\r\n\r\n\0\n\r: " HEAD "\r\n"),
        SHAPE(HEAD "X:\r\nY: a\tb \xc3\xa9\r\nZ_1: \x80\r\n\r\n"),
        SHAPE(CHUNKED "3\r\n\0\n\r\r\n0a ; x=\"y\"\r\n0123456789\r\n000\r\n\r\n" HEAD "\r\n"),
        SHAPE(CHUNKED "0\r\nX: y\r\nZ: \r\n\r\n" CHUNKED "1;\r\n:\r\n0\r\n\r\n"),
        SHAPE("M-SEARCH * HTTP/1.1\r\nHost: t\r\n\r\n"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cn_http_strict strict;

        if (feed(&strict, shapes[i].text, shapes[i].len) != shapes[i].len)
            fail_msg("shape %zu: %s", i, strict.why);
        assert_true(cn_http_strict_is_between(&strict));
    }
}

/* The last byte of each of these is the one that is refused. */
static void
bad_bytes_are_refused_where_they_stand(void **state)
{
    static const struct shape shapes[] = {
        SHAPE("GET /ping HTTP/1.1\n"),
        SHAPE("GET /ping HTTP/1.1\r\nHost: t\n"),
        SHAPE("GET /ping HTTP/1.1\r\nHost: t\r\n\n"),
        SHAPE("GET /ping HTTP/1.1\r\nHost: t\rX"),
        SHAPE(HEAD "\rX"),
        SHAPE("\n"),
        SHAPE("\rG"),
        SHAPE("GET  "),
        SHAPE("GET /ping  "),
        SHAPE("GET /ping\r"),
        SHAPE("GET /p\0"),
        SHAPE("GET /p\t"),
        SHAPE("G\0"),
        SHAPE("G\x1b"),
        SHAPE("\x16"),
        SHAPE("GET /ping HTTP/1.1 "),
        SHAPE("GET /ping HTTP/2"),
        SHAPE("GET /ping HTTP/1.2"),
        SHAPE("GET /ping h"),
        SHAPE(HEAD ":"),
        SHAPE(HEAD "X\0"),
        SHAPE(HEAD "no colon\r"),
        SHAPE(HEAD "X: a\0"),
        SHAPE(HEAD "X: a\x7f"),
        SHAPE(HEAD "Content-Length: 00000000000000000003\r"),
        SHAPE(HEAD "Content-Length: 3 \r"),
        SHAPE(HEAD "Content-Length: +1\r"),
        SHAPE(HEAD "Content-Length: 1, 1\r"),
        SHAPE(HEAD "Content-Length: 0x1\r"),
        SHAPE(HEAD "Content-Length:\r"),
        SHAPE(CHUNKED "\r"),
        SHAPE(CHUNKED "x"),
        SHAPE(CHUNKED "3\n"),
        SHAPE(CHUNKED "3;a\n"),
        SHAPE(CHUNKED "3\rx"),
        SHAPE(CHUNKED "-"),
        SHAPE(CHUNKED "0x"),
        SHAPE(CHUNKED "3_"),
        SHAPE(CHUNKED "10000000000000000"),
        SHAPE(CHUNKED "3\r\nabcd"),
        SHAPE(CHUNKED "3\r\nabc\n"),
        SHAPE(CHUNKED "3\r\nabc\rx"),
        SHAPE(CHUNKED "0\r\nX: y\n"),
        SHAPE(CHUNKED "0\r\n:"),
        SHAPE(CHUNKED "0\r\n "),
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cn_http_strict strict;
        size_t len = shapes[i].len, good = feed(&strict, shapes[i].text, len);

        if (good != len - 1 || !strict.why)
            fail_msg("shape %zu: %zu of %zu bytes: %s", i, good, len, strict.why);
    }
}

/* A chunk's line has a limit, however it is filled. */
static void
chunk_lines_are_bounded(void **state)
{
    static const char *const begins[] = {CHUNKED "2;", CHUNKED "0", CHUNKED "2 "};
    struct cn_http_strict strict;
    char more[CN_HTTP_CHUNK_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        memset(more, '0', sizeof(more));
        assert_int_equal(feed(&strict, begins[i], strlen(begins[i])), strlen(begins[i]));
        assert_true(cn_http_strict_feed(&strict, more, sizeof(more)) < sizeof(more));
        assert_non_null(strict.why);
    }
}

/* Requests that http_checks.c refuses are left to it, and what follows them is not read. */
static void
odd_heads_are_left_to_the_checks(void **state)
{
    static const char *const shapes[] = {
        HEAD "Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        HEAD "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD "Transfer-Encoding: gzip\r\n\r\n",
        HEAD "X: a\r\n b\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct cn_http_strict strict;

        assert_int_equal(feed(&strict, shapes[i], strlen(shapes[i])), strlen(shapes[i]));
        assert_int_equal(cn_http_strict_feed(&strict, "\0\n:", 3), 3);
        assert_false(cn_http_strict_is_between(&strict));
    }
}

/* A connection that speaks another protocol is not read. */
static void
other_protocols_are_left_alone(void **state)
{
    struct cn_http_strict strict = {.is_off = true};

    (void)state;
    assert_int_equal(cn_http_strict_feed(&strict, "\0\1\2\n", 4), 4);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests_pass),
        cmocka_unit_test(bad_bytes_are_refused_where_they_stand),
        cmocka_unit_test(chunk_lines_are_bounded),
        cmocka_unit_test(odd_heads_are_left_to_the_checks),
        cmocka_unit_test(other_protocols_are_left_alone),
    };

    return cmocka_run_group_tests_name("frontend.http_strict", tests, NULL, NULL);
}
