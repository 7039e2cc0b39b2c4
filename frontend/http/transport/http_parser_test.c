/* frontend/http/transport/http_parser_test.c - tests which bytes of a request are refused,
 * and where. */
#include "frontend/http/transport/http_parser.h"

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

/* Takes bytes with all their events. Returns how many were taken. */
static size_t
go_on(struct cn_http_parser *parser, const char *bytes, size_t len)
{
    enum cn_http_event event = CN_PARSED_MORE;
    size_t at = 0;

    while (at < len && event != CN_PARSED_BAD)
        at += cn_http_parser_next(parser, bytes + at, len - at, &event);
    return at;
}

static size_t
feed(struct cn_http_parser *parser, const char *bytes, size_t len)
{
    *parser = (struct cn_http_parser){0};
    return go_on(parser, bytes, len);
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
        struct cn_http_parser parser;

        if (feed(&parser, shapes[i].text, shapes[i].len) != shapes[i].len)
            fail_msg("shape %zu: %s", i, parser.why);
        assert_true(cn_http_parser_is_between(&parser));
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
        SHAPE(HEAD "("),
        SHAPE(HEAD "Content-Length "),
        SHAPE(HEAD "X: a\rT"),
        SHAPE(HEAD "X\xe9"),
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
        SHAPE(HEAD "no-colon\r"),
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
        struct cn_http_parser parser;
        size_t len = shapes[i].len, good = feed(&parser, shapes[i].text, len);

        if (good != len - 1 || !parser.why)
            fail_msg("shape %zu: %zu of %zu bytes: %s", i, good, len, parser.why);
    }
}

/* A chunk's line has a limit, however it is filled. */
static void
chunk_lines_are_bounded(void **state)
{
    static const char *const begins[] = {CHUNKED "2;", CHUNKED "0", CHUNKED "2 "};
    struct cn_http_parser parser;
    char more[CN_HTTP_CHUNK_LINE_MAX];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        memset(more, '0', sizeof(more));
        assert_int_equal(feed(&parser, begins[i], strlen(begins[i])), strlen(begins[i]));
        assert_true(go_on(&parser, more, sizeof(more)) < sizeof(more));
        assert_non_null(parser.why);
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
        struct cn_http_parser parser;

        assert_int_equal(feed(&parser, shapes[i], strlen(shapes[i])), strlen(shapes[i]));
        assert_int_equal(go_on(&parser, "\0\n:", 3), 3);
        assert_false(cn_http_parser_is_between(&parser));
    }
}

/* Each event ends where the next one begins, so data never comes with a chunk's lines. */
static void
data_is_reported_apart_from_lines(void **state)
{
    static const char text[] =
        CHUNKED "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" HEAD "Content-Length: 2\r\n\r\nfg";
    struct cn_http_parser parser = {0};
    char data[16], events[64];
    size_t at = 0, n_data = 0, n_events = 0;

    (void)state;
    while (at < sizeof(text) - 1) {
        enum cn_http_event event;
        const size_t n = cn_http_parser_next(&parser, text + at, sizeof(text) - 1 - at, &event);

        assert_true(n > 0 && n_events < sizeof(events));
        if (event == CN_PARSED_DATA) {
            memcpy(data + n_data, text + at, n);
            n_data += n;
        }
        events[n_events++] = "mhdb"[event];
        at += n;
    }
    assert_int_equal(n_data, 7);
    assert_memory_equal(data, "abcdefg", 7);
    events[n_events] = '\0';
    assert_string_equal(events, "hmdmdmhd");
    assert_true(cn_http_parser_is_between(&parser));
}

static void
assert_text(struct cn_str text, const char *wanted)
{
    assert_int_equal(text.len, strlen(wanted));
    assert_memory_equal(text.ptr, wanted, text.len);
}

/* The parts of a head are found: blanks around values, empty values, parameters without a value,
 * and empty ones. */
static void
heads_are_split(void **state)
{
    static const char text[] = "\r\nPUT /a/b?x=1&y&&z=&=w HTTP/1.0\r\nA: \t b c\t\r\nEmpty:\r\n"
                               "Folded: 1\r\n 2\r\nLast:x\r\n\r\n";
    struct cn_http_parser parser;
    struct cn_http_head head;
    struct cn_arena arena;

    (void)state;
    assert_int_equal(feed(&parser, text, sizeof(text) - 1), sizeof(text) - 1);
    cn_arena_init(&arena);
    cn_http_head_split(&parser, (struct cn_str){text, sizeof(text) - 1}, &arena, &head);
    assert_text(head.method, "PUT");
    assert_text(head.path, "/a/b");
    assert_false(head.is_http_1_1);
    assert_true(head.has_folded);
    assert_int_equal(head.n_headers, 4);
    assert_text(head.headers[0].name, "A");
    assert_text(head.headers[0].value, "b c");
    assert_text(head.headers[1].value, "");
    assert_text(head.headers[3].name, "Last");
    assert_text(head.headers[3].value, "x");
    assert_int_equal(head.n_query, 4);
    assert_text(head.query[0].value, "1");
    assert_text(head.query[1].name, "y");
    assert_text(head.query[2].name, "z");
    assert_text(head.query[3].name, "");
    assert_text(head.query[3].value, "w");
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests_pass),
        cmocka_unit_test(bad_bytes_are_refused_where_they_stand),
        cmocka_unit_test(chunk_lines_are_bounded),
        cmocka_unit_test(odd_heads_are_left_to_the_checks),
        cmocka_unit_test(data_is_reported_apart_from_lines),
        cmocka_unit_test(heads_are_split),
    };

    return cmocka_run_group_tests_name("frontend.http_parser", tests, NULL, NULL);
}
