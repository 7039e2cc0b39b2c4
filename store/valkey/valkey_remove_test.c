/* store/valkey/valkey_remove_test.c - tests that what an unregistered model version has in a shared
 * store can be removed, in a real server. Skipped where there is no redis-server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "store/record/record.h"
#include "store/valkey/test_store.h"

static struct test_server server;
static struct cn_shared_host host;
static struct cn_shared_removal found;
static struct cn_error err;

static struct cn_shared_options
options_of(const char *version)
{
    struct cn_shared_options options = test_store_options(&host, 1, 10000);

    options.version = version;
    return options;
}

static struct cn_store *
open_version(const char *version)
{
    const struct cn_shared_options options = options_of(version);

    return test_store_open(&options);
}

static int
clear(const char *version, bool removes)
{
    const struct cn_shared_options options = options_of(version);

    return cn_shared_store_remove(&options, removes, &found, &err);
}

static int
set_up(void **state)
{
    (void)state;
    if (!test_server_exists())
        return 0;
    test_server_start(&server, "--appendonly", "no");
    host = (struct cn_shared_host){"127.0.0.1", (uint16_t)atoi(server.port)};
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    if (host.port)
        test_server_stop(&server);
    host.port = 0;
    return 0;
}

static void
write_sequences(const char *version, unsigned n)
{
    static const struct cn_store_seen any = {.what = CN_SEEN_ANYTHING};
    const struct cn_record record = {
        .flags = CN_RECORD_HAS_STATE, .generation = 7, .step = 1, .state = CN_STR("state")};
    enum cn_store_outcome outcome;
    struct cn_store *store = open_version(version);
    struct cn_buf text;
    char id[16];

    cn_buf_init(&text, 0);
    assert_int_equal(cn_record_encode(&record, &text, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, &err), 0);
    for (unsigned i = 0; i < n; i++) {
        snprintf(id, sizeof id, "s%u", i);
        cn_store_expect(store, &any, &outcome);
        assert_int_equal(cn_store_put(store, cn_str_from(id), cn_buf_str(&text), &err), 0);
    }
    assert_int_equal(cn_store_commit(store, &err), 0);
    cn_buf_fini(&text);
    cn_store_close(store);
}

static void
only_the_version_is_removed_with_all_its_keys(void **state)
{
    (void)state;
    if (!host.port)
        skip(); /* there is no redis-server */
    write_sequences("1", 300);
    write_sequences("2", 5);
    assert_int_equal(clear("1", false), 0);
    assert_int_equal(found.left, 300);
    assert_false(found.in_use);
    assert_int_equal(clear("1", true), 0);
    assert_int_equal(found.removed, 300);
    assert_int_equal(found.left, 0);
    test_server_say(&server, "EVAL \"assert(#redis.call('KEYS', '{t/m/1/*') == 0)\" 0");
    assert_int_equal(clear("2", false), 0);
    assert_int_equal(found.left, 5);
    /* Nothing stays of a version that was never there, and removing it succeeds. */
    assert_int_equal(clear("3", true), 0);
    assert_int_equal(found.removed + found.left, 0);
    test_server_say(&server, "EVAL \"assert(#redis.call('KEYS', '{t/m/3/*') == 0)\" 0");
}

/* One call must not take long, so a large bucket needs several. */
static void
a_removal_goes_on_where_the_last_call_ended(void **state)
{
    (void)state;
    if (!host.port)
        skip(); /* there is no redis-server */
    test_server_say(&server,
                    "EVAL \"for i = 1, 600 do redis.call('ZADD', '{t/m/1/05}', 0, 'x' .. i) "
                    "redis.call('ZADD', '{t/m/1/05}times', 1, 'x' .. i) "
                    "redis.call('SET', '{t/m/1/05}:x' .. i, 'v') end\" 0");
    assert_int_equal(clear("1", true), 0);
    assert_int_equal(found.removed, 256);
    assert_int_equal(found.left, 344);
    assert_int_equal(clear("1", true), 0);
    assert_int_equal(clear("1", true), 0);
    assert_int_equal(found.removed, 88);
    assert_int_equal(found.left, 0);
    test_server_say(&server, "EVAL \"assert(redis.call('DBSIZE') == 0)\" 0");
}

static void
a_version_that_a_node_serves_is_not_touched(void **state)
{
    struct cn_store_due due[64];
    struct cn_store *node;
    uint32_t n;

    (void)state;
    if (!host.port)
        skip(); /* there is no redis-server */
    write_sequences("1", 20);
    node = open_version("1");
    assert_int_equal(cn_store_begin(node, CN_STORE_READ, &err), 0);
    assert_int_equal(cn_store_due(node, 1, due, 64, &n, &err), 0); /* the sweeper takes the lease */
    assert_int_equal(clear("1", true), CN_E_CONFLICT);
    assert_non_null(strstr(err.message, "a node still serves model m version 1"));
    assert_int_equal(clear("1", false), 0);
    assert_true(found.in_use);
    assert_int_equal(found.left, 20);
    cn_store_abort(node);
    cn_store_close(node);
    test_server_say(&server, "HSET {t/m/1/00}lease until 1"); /* its time is over */
    assert_int_equal(clear("1", true), 0);
    assert_int_equal(found.removed, 20);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(only_the_version_is_removed_with_all_its_keys),
        TEST(a_removal_goes_on_where_the_last_call_ended),
        TEST(a_version_that_a_node_serves_is_not_touched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
