/* frontend/http/http_checks_test.c - tests which requests are refused. */
#include "frontend/http/http_checks.h"
#include "frontend/intake/headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define HEADER(n, v)                                                                               \
    {                                                                                              \
        CN_STR(n), CN_STR(v)                                                                       \
    }
#define CHECK(list, is_1_1, framing, err)                                                          \
    cn_http_check_headers(list, sizeof(list) / sizeof(list[0]), is_1_1, framing, err)

/* A plain POST passes, and its length is known. */
static void
plain_request_passes(void **state)
{
    const struct cn_header list[] = {HEADER("Host", "a"), HEADER("Content-Length", "12"),
                                     HEADER("ts_request_sequence_id", "seq_0"),
                                     HEADER("Accept", "*/*\t;q=1"),
                                     HEADER("X-Name", "caf\xc3\xa9")};
    struct cn_http_framing framing;

    (void)state;
    assert_int_equal(CHECK(list, true, &framing, NULL), 0);
    assert_true(framing.has_length);
    assert_int_equal(framing.length, 12);
    assert_false(framing.chunked);
}

/* Transfer-Encoding: chunked passes in upper and lower case. */
static void
chunked_passes(void **state)
{
    const struct cn_header list[] = {HEADER("host", "a"), HEADER("transfer-encoding", "Chunked")};
    struct cn_http_framing framing;

    (void)state;
    assert_int_equal(CHECK(list, true, &framing, NULL), 0);
    assert_true(framing.chunked);
}

/* HTTP/1.0 needs no Host, and 100-continue is noticed. */
static void
http_1_0_needs_no_host(void **state)
{
    const struct cn_header list[] = {HEADER("Expect", "100-Continue")};
    struct cn_http_framing framing;

    (void)state;
    assert_int_equal(CHECK(list, false, &framing, NULL), 0);
    assert_true(framing.expects_continue);
    assert_int_equal(CHECK(list, true, &framing, NULL), CN_E_BAD_REQUEST);
}

/* Each shape in which two readers could see two different ends of a request is refused. */
static void
smuggling_shapes_are_refused(void **state)
{
    static const struct cn_header shapes[][3] = {
        {HEADER("Host", "a"), HEADER("Content-Length", "1"),
         HEADER("Transfer-Encoding", "chunked")},
        {HEADER("Host", "a"), HEADER("Content-Length", "1"), HEADER("Content-Length", "1")},
        {HEADER("Host", "a"), HEADER("Content-Length", "1"), HEADER("content-length", "2")},
        {HEADER("Host", "a"), HEADER("Host", "b"), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Transfer-Encoding", "gzip"), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Transfer-Encoding", "chunked, gzip"), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Transfer-Encoding", "chunked"),
         HEADER("Transfer-Encoding", "chunked")},
        {HEADER("Host", "a"), HEADER("Content-Length", "+1"), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Content-Length", "1,1"), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Content-Length", ""), HEADER("Accept", "x")},
        {HEADER("Host", "a"), HEADER("Content-Length", "18446744073709551616"), HEADER("A", "x")},
    };
    struct cn_http_framing framing;
    struct cn_error err = {0};
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        err.message[0] = '\0';
        assert_int_equal(CHECK(shapes[i], true, &framing, &err), CN_E_BAD_REQUEST);
        assert_true(err.message[0] != '\0');
    }
}

/* The largest length that fits is a number and not an error. Whether so large a body is allowed is
 * checked elsewhere. */
static void
longest_length_is_read(void **state)
{
    const struct cn_header list[] = {HEADER("Host", "a"),
                                     HEADER("Content-Length", "18446744073709551615")};
    struct cn_http_framing framing;

    (void)state;
    assert_int_equal(CHECK(list, true, &framing, NULL), 0);
    assert_true(framing.length == UINT64_MAX);
}

/* Code that is not careful would end a string at a NUL that was hidden in an escape. */
static void
bad_urls_are_refused(void **state)
{
    (void)state;
    assert_int_equal(cn_http_check_url(CN_STR("/predictions/a%20b"), NULL), 0);
    assert_int_equal(cn_http_check_url(CN_STR(""), NULL), 0);
    assert_int_equal(cn_http_check_url(CN_STR("/a%00b"), NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_http_check_url(CN_STR("/a%2"), NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_http_check_url(CN_STR("/a%"), NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_http_check_url(CN_STR("/a%zz"), NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_http_check_url(CN_STR("/a b"), NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_http_check_url(CN_STR("/a\tb"), NULL), CN_E_BAD_REQUEST);
}

/* Escapes are decoded once, and plus is a space in a query only. */
static void
escapes_are_decoded_once(void **state)
{
    struct cn_arena arena;
    struct cn_str out;

    (void)state;
    cn_arena_init(&arena);
    assert_true(cn_http_decode(&arena, CN_STR("a%20b%2Fc+d%2525"), false, &out));
    assert_true(cn_str_eq(out, CN_STR("a b/c+d%25")));
    assert_true(cn_http_decode(&arena, CN_STR("a+b%2b"), true, &out));
    assert_true(cn_str_eq(out, CN_STR("a b+")));
    assert_true(cn_http_decode(&arena, CN_STR(""), true, &out));
    assert_int_equal(out.len, 0);
    assert_false(cn_http_decode(&arena, CN_STR("a%0"), true, &out));
    assert_false(cn_http_decode(&arena, CN_STR("%00"), true, &out));
    cn_arena_fini(&arena);
}

static void
whole_urls_lose_their_host(void **state)
{
    static const struct {
        const char *sent, *host, *path; /* NULL: no Host header; the request is refused */
    } cases[] = {
        {"/a/b", "x", "/a/b"},
        {"http://x/a/b", "x", "/a/b"},
        {"HTTP://X:80/a", "x:80", "/a"},
        {"https://x/", "x", "/"},
        {"http://x", "x", "/"},
        {"http://x/http://y/", "x", "/http://y/"},
        {"http://x/a", "y", NULL},
        {"http://x/a", NULL, NULL},
        {"http:///a", "x", NULL},
        {"http://u@x/a", "x", NULL},
        {"ftp://x/a", "x", "ftp://x/a"}, /* it has no route */
        {"*", "x", "*"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct cn_header host = {CN_STR("Host"), cn_str_from(cases[i].host)};
        struct cn_str path = cn_str_from(cases[i].sent);
        struct cn_error err;
        int rc = cn_http_take_path(&path, &host, cases[i].host ? 1 : 0, &err);

        assert_int_equal(rc, cases[i].path ? 0 : CN_E_BAD_REQUEST);
        if (cases[i].path)
            assert_true(cn_str_eq(path, cn_str_from(cases[i].path)));
    }
}

/* A handler can neither write a header that ends the block of headers, nor set the server's own
 * headers. */
static void
handlers_cannot_inject_headers(void **state)
{
    (void)state;
    assert_true(cn_http_header_is_valid(CN_STR("X-Score"), CN_STR("0.5 \xc3\xa9")));
    assert_false(cn_http_header_is_valid(CN_STR("X-Score"), CN_STR("1\r\nSet-Cookie: a=b")));
    assert_false(cn_http_header_is_valid(CN_STR("X-Score"), CN_STR("1\n")));
    assert_false(cn_http_header_is_valid(CN_STR("X Score"), CN_STR("1")));
    assert_false(cn_http_header_is_valid(CN_STR("X:"), CN_STR("1")));
    assert_false(cn_http_header_is_valid(CN_STR(""), CN_STR("1")));
    assert_true(cn_header_is_ours(CN_STR("Transfer-Encoding")));
    assert_true(cn_header_is_ours(CN_STR("CONNECTION")));
    assert_true(cn_header_is_ours(CN_STR("content-length")));
    assert_true(cn_header_is_ours(CN_STR("TS-Request-Sequence-Id")));
    assert_false(cn_header_is_ours(CN_STR("content-type")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_request_passes),
        cmocka_unit_test(chunked_passes),
        cmocka_unit_test(http_1_0_needs_no_host),
        cmocka_unit_test(smuggling_shapes_are_refused),
        cmocka_unit_test(longest_length_is_read),
        cmocka_unit_test(bad_urls_are_refused),
        cmocka_unit_test(escapes_are_decoded_once),
        cmocka_unit_test(whole_urls_lose_their_host),
        cmocka_unit_test(handlers_cannot_inject_headers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
