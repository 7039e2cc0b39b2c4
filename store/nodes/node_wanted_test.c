/* store/nodes/node_wanted_test.c - tests the wanted set of models in a real server. Skipped where
 * there is no redis-server. */
#include "store/shared_wanted.h"

#include <stdio.h>
#include <string.h>

#include "store/link/test_server.h"

static struct test_server server;
static struct cn_shared_link *one, *two;
static struct cn_wanted_look look;
static struct cn_error err;

static int
set_up(void **state)
{
    char url[64];

    (void)state;
    if (!test_server_exists())
        return 0;
    test_server_start(&server, "--appendonly", "no");
    snprintf(url, sizeof url, "valkey://127.0.0.1:%s/t", server.port);
    assert_int_equal(cn_shared_link_open(url, 2000, &one, &err), 0);
    assert_int_equal(cn_shared_link_open(url, 2000, &two, &err), 0);
    cn_buf_init(&look.text, 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    if (!one)
        return 0;
    cn_shared_link_close(one);
    cn_shared_link_close(two);
    cn_buf_fini(&look.text);
    test_server_stop(&server);
    one = two = NULL;
    return 0;
}

static void
read_set(struct cn_shared_link *link, const char *known)
{
    cn_buf_reset(&look.text);
    look.known = known;
    if (cn_shared_wanted_look(link, &look, &err))
        fail_msg("%s", err.message);
}

/* Two nodes change the set at the same time: the store takes one of the writes. */
static void
a_write_counts_only_if_nobody_wrote_in_between(void **state)
{
    char first[CN_WANTED_TOKEN_MAX], second[CN_WANTED_TOKEN_MAX];
    bool written;

    (void)state;
    if (!one)
        skip(); /* there is no redis-server */
    read_set(one, "");
    assert_string_equal(look.token, CN_WANTED_NONE);
    assert_int_equal(
        cn_shared_wanted_write(one, CN_WANTED_NONE, 0, CN_STR("a"), &written, first, &err), 0);
    assert_true(written);
    assert_int_equal(cn_wanted_generation(first), 1);
    assert_int_equal(
        cn_shared_wanted_write(two, CN_WANTED_NONE, 0, CN_STR("b"), &written, second, &err), 0);
    assert_false(written);
    read_set(two, "");
    assert_true(look.is_new);
    assert_string_equal(look.token, first);
    assert_memory_equal(look.text.data, "a", 1);
    read_set(two, first);
    assert_false(look.is_new);
    assert_int_equal(cn_shared_wanted_write(two, first, 9, CN_STR("b"), &written, second, &err), 0);
    assert_true(written);
    assert_int_equal(cn_wanted_generation(second), 9);
}

static unsigned n_reports;

static void
on_report(void *ctx, struct cn_str node, uint64_t age_ms, struct cn_str report)
{
    (void)ctx;
    n_reports++;
    assert_true(cn_str_eq(node, CN_STR("b#2")) && cn_str_eq(report, CN_STR("{\"x\": 1}")));
    assert_true(age_ms < 60000);
}

static void
a_node_reports_and_takes_its_report_back(void **state)
{
    (void)state;
    if (!one)
        skip(); /* there is no redis-server */
    look.report = CN_STR("{}");
    look.node = "a#1";
    read_set(one, "");
    look.report = CN_STR("{\"x\": 1}");
    look.node = "b#2";
    read_set(two, "");
    look.node = NULL;
    assert_int_equal(cn_shared_wanted_leave(one, "a#1", &err), 0);
    n_reports = 0;
    assert_int_equal(cn_shared_wanted_reports(one, 60000, on_report, NULL, &err), 0);
    assert_int_equal(n_reports, 1);
}

/* A store without room still says which models are wanted. */
static void
a_full_store_takes_no_report_but_is_read(void **state)
{
    char token[CN_WANTED_TOKEN_MAX];
    bool written;

    (void)state;
    if (!one)
        skip(); /* there is no redis-server */
    assert_int_equal(
        cn_shared_wanted_write(one, CN_WANTED_NONE, 0, CN_STR("a"), &written, token, &err), 0);
    test_server_say(&server, "CONFIG SET maxmemory 1");
    look.node = "a#1";
    look.report = CN_STR("{}");
    read_set(one, "");
    look.node = NULL;
    assert_string_equal(look.token, token);
    assert_int_equal(cn_shared_wanted_write(one, token, 0, CN_STR("b"), &written, token, &err),
                     CN_E_STATE_STORE);
    assert_false(written);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_write_counts_only_if_nobody_wrote_in_between, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_node_reports_and_takes_its_report_back, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_full_store_takes_no_report_but_is_read, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
