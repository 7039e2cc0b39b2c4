/* store/nodes/node_list_test.c - the list of nodes in a real redis-server, and what is read of
 * the store's INFO. */
#include "store/shared_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/link/test_server.h"

struct seen {
    unsigned n;
    char text[4096]; /* "ENTRY=VALUE ENTRY=VALUE " */
};

static void
note(void *ctx, struct cn_str entry, struct cn_str value)
{
    struct seen *seen = ctx;
    const size_t len = strlen(seen->text);

    seen->n++;
    snprintf(seen->text + len, sizeof(seen->text) - len, "%.*s=%.*s ", CN_STR_ARG(entry),
             CN_STR_ARG(value));
}

static struct cn_shared_link *
open_link(const struct test_server *server)
{
    struct cn_shared_link *link;
    struct cn_error err = {0};
    char url[64];

    snprintf(url, sizeof(url), "valkey://127.0.0.1:%s/t", server->port);
    if (cn_shared_link_open(url, 5000, &link, &err) != 0)
        fail_msg("%s", err.message);
    return link;
}

static struct cn_shared_renewal
renew(struct cn_shared_link *link, const char *name, const char *instance, const char *value,
      struct seen *namesakes)
{
    struct cn_shared_renewal renewal = {
        .name = name, .instance = instance, .value = cn_str_from(value), .ttl_ms = 60000};
    struct cn_error err = {0};

    if (cn_shared_nodes_renew(link, &renewal, note, namesakes, &err) != 0)
        fail_msg("%s", err.message);
    return renewal;
}

static void
assert_list(struct cn_shared_link *link, const char *expected)
{
    struct seen all = {0};
    struct cn_error err = {0};

    if (cn_shared_nodes_read(link, note, &all, &err) != 0)
        fail_msg("%s", err.message);
    assert_string_equal(all.text, expected);
}

/* Every node sees every node; one that leaves is gone at once, and one that expires soon after. */
static void
nodes_come_and_go(void **state)
{
    struct test_server server;
    struct cn_shared_link *link;
    struct cn_shared_renewal renewal;
    struct seen namesakes = {0};
    struct cn_error err = {0};

    (void)state;
    if (!test_server_exists())
        skip(); /* there is no redis-server */
    test_server_start(&server, "--appendonly", "no");
    link = open_link(&server);
    renewal = renew(link, "b", "1", "one", &namesakes);
    assert_true(renewal.store_wall_ms > 1500000000000u);
    assert_true(renewal.round_trip_us > 0);
    renew(link, "a", "2", "two", &namesakes);
    renew(link, "a1", "3", "three", &namesakes); /* not a namesake of a */
    assert_int_equal(namesakes.n, 0);
    assert_list(link, "a#2=two a1#3=three b#1=one ");
    assert_int_equal(cn_shared_nodes_leave(link, "a1", "3", &err), 0);
    test_server_say(&server, "DEL '{t/nodes}b#1'"); /* as the store does when it expires */
    assert_list(link, "a#2=two ");
    test_server_say(&server, "SET '{t/nodes}b#1' zombie"); /* its name was removed from the set */
    assert_list(link, "a#2=two ");
    renew(link, "b", "1", "back", &namesakes);
    assert_list(link, "a#2=two b#1=back ");
    cn_shared_link_close(link);
    test_server_stop(&server);
}

/* A node sees the other entries of its own name, and its own never. */
static void
a_namesake_is_told_of(void **state)
{
    struct test_server server;
    struct cn_shared_link *link;
    struct seen first = {0}, second = {0}, third = {0};

    (void)state;
    if (!test_server_exists())
        skip(); /* there is no redis-server */
    test_server_start(&server, "--appendonly", "no");
    link = open_link(&server);
    renew(link, "a", "1", "one", &first);
    assert_int_equal(first.n, 0);
    renew(link, "a", "2", "two", &second);
    assert_string_equal(second.text, "a#1=one ");
    renew(link, "a", "1", "one", &third);
    assert_string_equal(third.text, "a#2=two ");
    cn_shared_link_close(link);
    test_server_stop(&server);
}

/* A list that needs several pages is whole. */
static void
a_long_list_is_read_whole(void **state)
{
    struct test_server server;
    struct cn_shared_link *link;
    struct seen none = {0};
    struct cn_error err = {0};
    char name[16];

    (void)state;
    if (!test_server_exists())
        skip(); /* there is no redis-server */
    test_server_start(&server, "--appendonly", "no");
    link = open_link(&server);
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "n%03d", i);
        renew(link, name, "1", "x", &none);
    }
    memset(&none, 0, sizeof(none));
    assert_int_equal(cn_shared_nodes_read(link, note, &none, &err), 0);
    assert_int_equal(none.n, 600);
    cn_shared_link_close(link);
    test_server_stop(&server);
}

/* The lag of replicas and the memory come from INFO; a field that is missing counts as 0. */
static void
facts_are_read_from_info(void **state)
{
    static const char info[] = "# Server\r\nredis_version:7.0.15\r\nused_memory:1000\r\n"
                               "maxmemory:5000\r\naof_enabled:1\r\n"
                               "instantaneous_ops_per_sec:42\r\nmaster_repl_offset:900\r\n"
                               "slave0:ip=10.0.0.2,port=6380,state=online,offset=880,lag=1\r\n"
                               "slave1:ip=fe80::1,port=6381,state=wait_bgsave,offset=0,lag=0\r\n";
    struct cn_shared_facts facts;

    (void)state;
    cn_shared_facts_read(cn_str_from(info), &facts);
    assert_string_equal(facts.version, "7.0.15");
    assert_int_equal(facts.used_bytes, 1000);
    assert_int_equal(facts.max_bytes, 5000);
    assert_int_equal(facts.commands_per_s, 42);
    assert_true(facts.has_aof);
    assert_int_equal(facts.n_replicas, 2);
    assert_string_equal(facts.replicas[0].address, "10.0.0.2:6380");
    assert_true(facts.replicas[0].online);
    assert_int_equal(facts.replicas[0].lag_bytes, 20);
    assert_int_equal(facts.replicas[0].lag_s, 1);
    assert_string_equal(facts.replicas[1].address, "fe80::1:6381");
    assert_false(facts.replicas[1].online);
    assert_int_equal(facts.replicas[1].lag_bytes, 900);
    cn_shared_facts_read(CN_STR("slave0:\r\nused_memory:\r\n"), &facts);
    assert_int_equal(facts.n_replicas, 0);
    assert_int_equal(facts.used_bytes, 0);
}

/* A URL that is wrong, or of an embedded store, makes no link. */
static void
a_wrong_url_is_refused(void **state)
{
    struct cn_shared_link *link;
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(cn_shared_link_open("valkey://", 100, &link, &err), CN_E_CONFIG);
    assert_null(link);
    assert_int_equal(cn_shared_link_open("embedded", 100, &link, &err), CN_E_CONFIG);
    assert_null(link);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_come_and_go),         cmocka_unit_test(a_namesake_is_told_of),
        cmocka_unit_test(a_long_list_is_read_whole), cmocka_unit_test(facts_are_read_from_info),
        cmocka_unit_test(a_wrong_url_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
