/* config/server/address_test.c - tests the three forms of an address, and the messages for
 * everything else. */
#include "config/server/server_config.h"

#include "config/test_support.h"

/* Host, port and scheme are split as they are written. */
static void
the_three_forms_are_read(void **state)
{
    struct cn_address a;

    (void)state;
    assert_int_equal(cn_address_parse("http://127.0.0.1:8080", 1, &a, NULL), 0);
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(a.port, 8080);
    assert_false(a.is_unix || a.is_https);
    assert_int_equal(cn_address_parse("https://[::1]:0", 1, &a, NULL), 0);
    assert_string_equal(a.host, "::1");
    assert_int_equal(a.port, 0);
    assert_true(a.is_https);
    assert_int_equal(cn_address_parse("http://my-host", 8081, &a, NULL), 0);
    assert_int_equal(a.port, 8081);
    assert_int_equal(cn_address_parse("unix:/run/c.sock", 1, &a, NULL), 0);
    assert_true(a.is_unix);
    assert_string_equal(a.host, "/run/c.sock");
}

/* The message names the value and the forms that are allowed. */
static void
others_are_refused(void **state)
{
    static const char *const texts[] = {
        "8080",         "127.0.0.1:8080", "ftp://a:1",      "http://",      "http://:80",
        "http://a:",    "http://a:x",     "http://a:65536", "http://a:80/", "http://a/b",
        "http://[::1",  "http://[]:1",    "http://[x]:1",   "unix:",        "unix:relative",
        "http://a b:1", "http://a:-1",    "http://a:000080"};
    struct cn_address a;
    char text[400];

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct cn_error err = {0};
        assert_int_equal(cn_address_parse(texts[i], 1, &a, &err), CN_E_CONFIG);
        assert_contains(err.message, texts[i]);
        assert_contains(err.message, "write http://HOST:PORT");
    }
    /* longer than the path of a socket or a host may be */
    memset(text, 'a', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    memcpy(text, "unix:/", 6);
    assert_int_equal(cn_address_parse(text, 1, &a, NULL), CN_E_CONFIG);
    memcpy(text, "http://", 7);
    assert_int_equal(cn_address_parse(text, 1, &a, NULL), CN_E_CONFIG);
}

/* Only these addresses are this machine's own. */
static void
loopback_is_known(void **state)
{
    static const char *const own[] = {"http://127.0.0.1:1", "https://127.9.9.9", "http://[::1]",
                                      "http://localhost:8081", "unix:/run/socket"};
    static const char *const open[] = {"http://0.0.0.0", "http://[::]", "http://10.0.0.1",
                                       "http://127.example", "http://host.example"};
    struct cn_address a;

    (void)state;
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        assert_int_equal(cn_address_parse(own[i], 1, &a, NULL), 0);
        assert_true(cn_address_is_loopback(&a));
    }
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++) {
        assert_int_equal(cn_address_parse(open[i], 1, &a, NULL), 0);
        assert_false(cn_address_is_loopback(&a));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_forms_are_read),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(loopback_is_known),
    };
    return cmocka_run_group_tests_name("config.address", tests, NULL, NULL);
}
