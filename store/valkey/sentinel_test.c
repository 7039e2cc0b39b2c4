/* store/valkey/sentinel_test.c - what Sentinels say, and Sentinels that cannot help. */
#include "store/valkey/sentinel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "store/valkey/test_server.h"

/* Reads a reply as the wire does. The caller frees it. */
static redisReply *
parse(const struct cn_hiredis *lib, const char *bytes)
{
    redisReader *reader = lib->create();
    void *reply = NULL;

    assert_int_equal(lib->feed(reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(lib->reply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    lib->destroy(reader);
    return reply;
}

static bool
address(const char *bytes, char host[256], uint16_t *port)
{
    const struct cn_hiredis *lib;
    redisReply *reply;
    bool taken;

    assert_int_equal(cn_hiredis_open(&lib, NULL), 0);
    reply = parse(lib, bytes);
    taken = cn_sentinel_take_address(reply, host, port);
    lib->free_reply(reply);
    return taken;
}

/* Anything but a name and a port must not become an address. */
static void
an_address_is_a_name_and_a_port(void **state)
{
    char host[256] = "before";
    uint16_t port = 7;

    (void)state;
    assert_false(address("*-1\r\n", host, &port));
    assert_false(address("$2\r\nab\r\n", host, &port));
    assert_false(address("*1\r\n$1\r\na\r\n", host, &port));
    assert_false(address("*2\r\n$0\r\n\r\n$4\r\n6379\r\n", host, &port));
    assert_false(address("*2\r\n$1\r\na\r\n$5\r\n70000\r\n", host, &port));
    assert_false(address("*2\r\n$1\r\na\r\n$2\r\n-1\r\n", host, &port));
    assert_false(address("*2\r\n$1\r\na\r\n:6379\r\n", host, &port));
    assert_false(address("-ERR no\r\n", host, &port));
    assert_string_equal(host, "before");
    assert_int_equal(port, 7);
    assert_true(address("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6380\r\n", host, &port));
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 6380);
}

/* One Sentinel may watch several primaries, also ones whose names begin alike. */
static void
a_message_is_about_one_primary(void **state)
{
    (void)state;
    assert_true(cn_sentinel_is_about(CN_STR("mymaster 10.0.0.1 6379 10.0.0.2 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about(CN_STR("mymaster2 10.0.0.1 6379 10.0.0.2 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about(CN_STR("mymaster"), "mymaster"));
    assert_false(cn_sentinel_is_about(CN_STR(""), "mymaster"));
}

static void
fails_to_open(uint16_t port, const char *password, int code, const char *why)
{
    const struct cn_shared_host host = {"127.0.0.1", port};
    const struct cn_shared_options options = {.hosts = &host,
                                              .n_hosts = 1,
                                              .master = "mymaster",
                                              .user = "",
                                              .password = password,
                                              .prefix = "t",
                                              .model = "m",
                                              .version = "1",
                                              .timeout_ms = 1000};
    struct cn_error err = {0};
    struct cn_store *store;

    assert_int_equal(cn_shared_store_open(&options, &store, &err), code);
    assert_null(store);
    if (!strstr(err.message, why) || strstr(err.message, "hunter2"))
        fail_msg("%s", err.message);
}

/* Each mistake in the URL has a message that names it. A plain server does not know SENTINEL. */
static void
sentinels_that_cannot_help_are_named(void **state)
{
    struct test_server server;

    (void)state;
    if (!test_server_exists())
        skip(); /* setup.sh installs it */
    fails_to_open((uint16_t)test_free_port(), "", CN_E_STORE_UNREACHABLE,
                  "the Sentinel at 127.0.0.1");
    test_server_start(&server, "--appendonly", "no");
    fails_to_open((uint16_t)atoi(server.port), "", CN_E_STATE_STORE,
                  "does not know a primary with the name 'mymaster' (it says: ERR unknown command");
    test_server_say(&server, "CONFIG SET requirepass right");
    fails_to_open((uint16_t)atoi(server.port), "", CN_E_STATE_STORE, "wants a password");
    fails_to_open((uint16_t)atoi(server.port), "hunter2", CN_E_STATE_STORE,
                  "Sentinels with a password need the same one");
    test_server_stop(&server);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_is_a_name_and_a_port),
        cmocka_unit_test(a_message_is_about_one_primary),
        cmocka_unit_test(sentinels_that_cannot_help_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
