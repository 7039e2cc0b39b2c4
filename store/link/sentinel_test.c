/* store/link/sentinel_test.c - what Sentinels say, and Sentinels that cannot help. */
#include "store/link/sentinel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "store/link/fitness.h"
#include "store/link/test_server.h"

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

static uint32_t
electable(const char *bytes)
{
    const struct cn_hiredis *lib;
    redisReply *reply;
    uint32_t n;

    assert_int_equal(cn_hiredis_open(&lib, NULL), 0);
    reply = parse(lib, bytes);
    n = cn_sentinel_take_replicas(reply);
    lib->free_reply(reply);
    return n;
}

#define REPLICA(flags, away, priority)                                                             \
    "*8\r\n$5\r\nflags\r\n" flags "\r\n$21\r\nmaster-link-down-time\r\n" away                      \
    "\r\n$14\r\nslave-priority\r\n" priority                                                       \
    "\r\n$23\r\ndown-after-milliseconds\r\n$4\r\n1000\r\n"

/* A replica that cannot become the primary must not stop the steps. */
static void
replicas_that_may_become_the_primary_are_counted(void **state)
{
    (void)state;
    assert_int_equal(electable("*0\r\n"), 0);
    assert_int_equal(electable("-ERR no\r\n"), 0);
    assert_int_equal(electable("*2\r\n:1\r\n*1\r\n$5\r\nflags\r\n"), 0);
    assert_int_equal(electable("*1\r\n" REPLICA("$5\r\nslave", "$1\r\n0", "$3\r\n100")), 1);
    assert_int_equal(electable("*2\r\n" REPLICA("$5\r\nslave", "$4\r\n9000", "$3\r\n100")
                                   REPLICA("$18\r\nslave,disconnected", "$1\r\n0", "$1\r\n1")),
                     2);
    assert_int_equal(electable("*3\r\n" REPLICA("$12\r\ns_down,slave", "$1\r\n0", "$3\r\n100")
                                   REPLICA("$5\r\nslave", "$5\r\n11000", "$3\r\n100")
                                       REPLICA("$5\r\nslave", "$1\r\n0", "$1\r\n0")),
                     0);
}

static void
takes_history(const char *info, bool began, uint32_t online)
{
    struct cn_valkey_server server = {.replicas_online = 9};

    cn_valkey_take_history(&server, cn_str_from(info));
    assert_int_equal(server.began_history, began);
    assert_int_equal(server.replicas_online, online);
}

static void
a_primary_says_whether_it_began_a_history(void **state)
{
    (void)state;
    takes_history("", false, 0);
    takes_history(
        "master_replid2:000000\r\nslave0:ip=a,port=1,state=online,offset=0,lag=0\r\n"
        "slave1:ip=a,port=2,state=wait_bgsave,offset=0\r\nslave2:ip=b,port=2,state=online",
        true, 2);
    takes_history("master_replid2:0000a0\r\n", false, 0);
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
        cmocka_unit_test(replicas_that_may_become_the_primary_are_counted),
        cmocka_unit_test(a_primary_says_whether_it_began_a_history),
        cmocka_unit_test(sentinels_that_cannot_help_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
