/* frontend/websocket/ws_handshake_test.c - tests which handshakes are accepted, and with what. */
#include "frontend/websocket/ws_handshake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEADERS_MAX 12

struct fixture {
    struct cn_arena arena;
    struct cn_header headers[HEADERS_MAX];
    uint32_t n;
    struct cn_ws_handshake out;
    struct cn_error err;
};

static void
add(struct fixture *f, const char *name, const char *value)
{
    f->headers[f->n++] = (struct cn_header){cn_str_from(name), cn_str_from(value)};
}

/* The handshake of RFC 6455, 1.3. */
static void
begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    cn_arena_init(&f->arena);
    add(f, "Host", "localhost");
    add(f, "Upgrade", "WebSocket");
    add(f, "Connection", "keep-alive, Upgrade");
    add(f, "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    add(f, "Sec-WebSocket-Version", "13");
}

static int
read_it(struct fixture *f)
{
    return cn_ws_handshake_read(f->headers, f->n, true, &f->arena, &f->out, &f->err);
}

static void
accepts_the_example_of_the_standard(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    assert_int_equal(read_it(&f), 0);
    assert_string_equal(f.out.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_null(f.out.protocol);
    assert_null(f.out.extensions);
    assert_int_equal(f.out.form, CN_WS_PLAIN);
    cn_arena_fini(&f.arena);
}

static void
refuses_what_is_no_handshake(void **state)
{
    struct fixture f;

    (void)state;
    for (uint32_t left_out = 1; left_out < 5; left_out++) {
        begin(&f);
        f.headers[left_out] = f.headers[0];
        assert_int_equal(read_it(&f), CN_E_BAD_REQUEST);
        cn_arena_fini(&f.arena);
    }
    begin(&f);
    assert_int_equal(cn_ws_handshake_read(f.headers, f.n, false, &f.arena, &f.out, &f.err),
                     CN_E_BAD_REQUEST);
    f.headers[3].value = CN_STR("short");
    assert_int_equal(read_it(&f), CN_E_BAD_REQUEST);
    f.headers[3].value = CN_STR("dGhlIHNhbXBsZSBub25jZQ==");
    f.headers[4].value = CN_STR("8");
    assert_int_equal(read_it(&f), CN_E_BAD_REQUEST);
    cn_arena_fini(&f.arena);
}

static void
takes_the_first_known_subprotocol(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    add(&f, "Sec-WebSocket-Protocol", "chat, continuo.key.abc");
    assert_int_equal(read_it(&f), CN_E_BAD_REQUEST);
    assert_non_null(strstr(f.err.message, "chat"));
    assert_true(cn_str_eq(cn_ws_find_key(f.headers, f.n), CN_STR("abc")));
    add(&f, "Sec-WebSocket-Protocol", "continuo.v1.binary,continuo.v1.json");
    assert_int_equal(read_it(&f), 0);
    assert_string_equal(f.out.protocol, "continuo.v1.binary");
    assert_int_equal(f.out.form, CN_WS_BINARY);
    cn_arena_fini(&f.arena);
}

/* A message must not show a key, which would be in logs then. */
static void
shows_no_key(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f);
    add(&f, "Sec-WebSocket-Protocol", "continuo.key.secret");
    assert_int_equal(read_it(&f), CN_E_BAD_REQUEST);
    assert_null(strstr(f.err.message, "secret"));
    cn_arena_fini(&f.arena);
}

static void
offers_of_compression(void **state)
{
    static const struct {
        const char *offer;
        unsigned bits; /* 0: declined */
    } cases[] = {
        {"permessage-deflate", 15},
        {"permessage-deflate; client_max_window_bits", 15},
        {"permessage-deflate; client_max_window_bits=10; server_no_context_takeover", 15},
        {"permessage-deflate; server_max_window_bits=9", 9},
        {"permessage-deflate; server_max_window_bits=\"10\"", 10},
        {"permessage-deflate; server_max_window_bits=8, permessage-deflate", 15},
        {"permessage-deflate; server_max_window_bits=8", 0},
        {"permessage-deflate; server_max_window_bits", 0},
        {"permessage-deflate; server_max_window_bits=16", 0},
        {"permessage-deflate; unknown", 0},
        {"permessage-deflate; server_no_context_takeover=1", 0},
        {"permessage-deflate; client_no_context_takeover; client_no_context_takeover", 0},
        {"permessage-deflate;;", 0},
        {"x-webkit-deflate-frame", 0},
    };
    struct fixture f;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(&f);
        add(&f, "Sec-WebSocket-Extensions", cases[i].offer);
        assert_int_equal(read_it(&f), 0);
        assert_int_equal(f.out.window_bits, cases[i].bits);
        assert_true((f.out.extensions != NULL) == (cases[i].bits != 0));
        cn_arena_fini(&f.arena);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_the_example_of_the_standard),
        cmocka_unit_test(refuses_what_is_no_handshake),
        cmocka_unit_test(takes_the_first_known_subprotocol),
        cmocka_unit_test(shows_no_key),
        cmocka_unit_test(offers_of_compression),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
