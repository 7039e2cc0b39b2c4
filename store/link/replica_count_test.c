/* store/link/replica_count_test.c - how many replicas must confirm with state.replicas: all. */
#include "store/link/replica_count.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "store/link/fitness.h"
#include "store/link/sentinel.h"
#include "store/link/test_server.h"

/* What a Sentinel says about the replica at 10.0.0.1, which has this port; the rest is as
 * SENTINEL REPLICAS has it. */
struct seen {
    const char *port, *flags, *runid, *role, *offset, *priority, *away_ms;
};

#define WELL(p)                                                                                    \
    {                                                                                              \
        .port = (p), .flags = "slave", .runid = "run" p, .role = "slave", .offset = "512",         \
        .priority = "100", .away_ms = "0"                                                          \
    }
#define DOWN(p)                                                                                    \
    {                                                                                              \
        .port = (p), .flags = "s_down,slave,disconnected", .runid = "run" p, .role = "slave",      \
        .offset = "512", .priority = "100", .away_ms = "0"                                         \
    }

static void
put_fields(struct cn_buf *out, uint32_t n, const char *const *fields)
{
    cn_wire_put_command(out, n); /* a list in a reply looks like a command */
    for (uint32_t i = 0; i < n; i++)
        cn_wire_put_word(out, cn_str_from(fields[i]));
}

/* Gives the reply that these bytes are to one of the two functions. */
static bool
take(struct cn_replica_views *views, struct cn_buf *bytes, bool primary)
{
    const struct cn_hiredis *lib;
    redisReader *reader;
    void *reply = NULL;
    bool known = true;

    assert_int_equal(cn_hiredis_open(&lib, NULL), 0);
    reader = lib->create();
    assert_int_equal(lib->feed(reader, bytes->data, bytes->len), REDIS_OK);
    assert_int_equal(lib->reply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    if (primary)
        known = cn_replica_views_take_primary(views, reply);
    else
        cn_replica_views_take_replicas(views, reply);
    lib->free_reply(reply);
    lib->destroy(reader);
    cn_buf_fini(bytes);
    return known;
}

static const char *primary_flags = "master";

/* A Sentinel that knows two others answers. */
static void
sentinel_says(struct cn_replica_views *views, const struct seen *seen, uint32_t n)
{
    const char *const primary[] = {
        "name", "mymaster", "flags", primary_flags, "num-other-sentinels", "2"};
    struct cn_buf bytes;

    cn_buf_init(&bytes, 0);
    put_fields(&bytes, 6, primary);
    assert_true(take(views, &bytes, true));
    cn_buf_init(&bytes, 0);
    cn_wire_put_command(&bytes, n);
    for (uint32_t i = 0; i < n; i++) {
        const char *const fields[] = {"ip",
                                      "10.0.0.1",
                                      "port",
                                      seen[i].port,
                                      "flags",
                                      seen[i].flags,
                                      "runid",
                                      seen[i].runid,
                                      "role-reported",
                                      seen[i].role,
                                      "slave-repl-offset",
                                      seen[i].offset,
                                      "slave-priority",
                                      seen[i].priority,
                                      "master-link-down-time",
                                      seen[i].away_ms,
                                      "down-after-milliseconds",
                                      "1000"};

        put_fields(&bytes, 18, fields);
    }
    take(views, &bytes, false);
}

#define SAYS(views, ...)                                                                           \
    sentinel_says(views, (const struct seen[]){__VA_ARGS__},                                       \
                  sizeof((const struct seen[]){__VA_ARGS__}) / sizeof(struct seen))

/* The replicas that the primary's INFO names, each with the seconds since it confirmed last. */
static struct cn_replica_set
primary_says(const char *info)
{
    struct cn_valkey_server server = {0};

    cn_valkey_take_history(&server, cn_str_from(info));
    return server.confirming;
}

#define ONE "slave0:ip=10.0.0.1,port=1,state=online,offset=9,lag=0\r\n"
#define TWO "slave1:ip=10.0.0.1,port=2,state=online,offset=9,lag=1\r\n"
#define TWO_SILENT "slave1:ip=10.0.0.1,port=2,state=online,offset=9,lag=4\r\n"
#define TWO_LOADS "slave1:ip=10.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n"

static void
wants(const struct cn_replica_views *views, const char *info, uint32_t before, uint32_t n,
      bool settled)
{
    const struct cn_replica_set confirming = primary_says(info);
    bool is_settled;

    assert_int_equal(cn_replica_views_wanted(views, &confirming, before, &is_settled), n);
    assert_int_equal(is_settled, settled);
}

/* Two of three Sentinels are enough to say that a replica is down, and one of them to say that it
 * is not. */
static void
a_replica_that_is_down_counts_until_no_sentinel_of_a_majority_reaches_it(void **state)
{
    struct cn_replica_views both = {.sentinels = 3}, one = {.sentinels = 3}, differ = one;

    (void)state;
    SAYS(&both, WELL("1"), WELL("2"));
    SAYS(&both, WELL("2"), WELL("1"));
    wants(&both, ONE TWO, 0, 2, true);
    wants(&both, ONE TWO, 1, 2, true);
    SAYS(&one, WELL("1"), DOWN("2"));
    wants(&one, ONE, 2, 2, false); /* the others may be choosing that one just now */
    wants(&one, ONE, 0, 2, false);
    SAYS(&one, WELL("1"), DOWN("2"));
    wants(&one, ONE, 2, 1, false);
    SAYS(&differ, WELL("1"), DOWN("2"));
    SAYS(&differ, DOWN("1"), WELL("2"));
    SAYS(&differ, DOWN("1"), DOWN("2"));
    wants(&differ, "", 1, 2, false);
}

static void
at_least_one_replica_must_confirm(void **state)
{
    struct cn_replica_views none = {.sentinels = 3}, down = none, silent = none;

    (void)state;
    sentinel_says(&none, NULL, 0);
    sentinel_says(&none, NULL, 0);
    wants(&none, "", 0, 1, true);
    SAYS(&down, DOWN("1"), DOWN("2"));
    SAYS(&down, DOWN("1"), DOWN("2"));
    wants(&down, "", 2, 1, false);
    wants(&silent, "", 0, 1, false);
    wants(&silent, "", 2, 2, false);
    wants(&silent, ONE TWO, 0, 2, false);
}

/* A URL with one of three Sentinels must not make a minority of them a majority. */
static void
sentinels_that_the_url_does_not_name_count(void **state)
{
    struct cn_replica_views views = {.sentinels = 1};

    (void)state;
    SAYS(&views, WELL("1"), DOWN("2"));
    assert_int_equal(views.sentinels, 3);
    wants(&views, ONE, 0, 2, false);
}

/* WAIT counts each replica that confirms. One that cannot become the primary must not confirm in
 * place of one that can. */
static void
each_replica_that_confirms_counts(void **state)
{
    struct seen never = WELL("2"), away = WELL("2");
    struct cn_replica_views prior = {.sentinels = 3}, cut = prior, apart = prior, names = prior;

    (void)state;
    never.priority = "0";
    SAYS(&prior, WELL("1"), never);
    SAYS(&prior, WELL("1"), never);
    wants(&prior, ONE, 0, 2, true);
    SAYS(&cut, WELL("1"), DOWN("2"));
    SAYS(&cut, WELL("1"), DOWN("2"));
    wants(&cut, ONE TWO, 0, 2, false);
    wants(&cut, ONE TWO_SILENT, 0, 1, false);
    wants(&cut, ONE TWO_LOADS, 0, 1, false);
    wants(&cut, TWO, 0, 2, false);
    away.away_ms = "20000";
    SAYS(&apart, WELL("1"), away);
    SAYS(&apart, WELL("1"), away);
    wants(&apart, ONE, 0, 1, false);
    SAYS(&names, WELL("1"), WELL("2"));
    SAYS(&names, WELL("1"), WELL("2"));
    wants(&names,
          "slave0:ip=store-b,port=1,state=online,offset=9,lag=0\r\n"
          "slave1:ip=store-c,port=2,state=online,offset=9,lag=0\r\n",
          0, 2, true);
}

/* A server with two networks may be listed under two addresses. */
static void
a_replica_with_two_addresses_counts_once(void **state)
{
    struct seen again = WELL("2");
    struct cn_replica_views views = {.sentinels = 3};

    (void)state;
    again.runid = "run1";
    SAYS(&views, WELL("1"), again);
    SAYS(&views, WELL("1"), again);
    wants(&views, ONE, 0, 1, true);
}

/* While the primary is down, replicas that lost it with all others may be chosen. */
static void
time_without_a_primary_that_is_down_does_not_count(void **state)
{
    struct seen away = WELL("2");
    struct cn_replica_views views = {.sentinels = 3}, down = views;

    (void)state;
    away.away_ms = "20000";
    SAYS(&views, WELL("1"), away);
    assert_int_equal(views.counted.n, 1);
    primary_flags = "s_down,master";
    SAYS(&down, WELL("1"), away);
    primary_flags = "master";
    assert_int_equal(down.counted.n, 2);
}

/* The primary is asked alone while nothing changes. */
static void
the_number_holds_until_another_replica_confirms(void **state)
{
    struct cn_replica_count count = {.settled = true};
    const struct cn_replica_set one = primary_says(ONE), both = primary_says(ONE TWO);

    (void)state;
    count.seen = one;
    assert_true(cn_replica_count_holds(&count, &one));
    assert_true(count.next_us > 0);
    assert_false(cn_replica_count_holds(&count, &both));
    count.settled = false;
    assert_false(cn_replica_count_holds(&count, &one));
}

/* After a failover the old primary is on the list of replicas before it is one. */
static void
an_old_primary_counts_when_it_has_become_a_replica(void **state)
{
    struct seen old = WELL("2"), promoted = WELL("2");
    struct cn_replica_views dead = {.sentinels = 3}, back = dead, chosen = dead;

    (void)state;
    old.runid = "";
    SAYS(&dead, WELL("1"), old);
    SAYS(&dead, WELL("1"), old);
    wants(&dead, ONE, 0, 1, false);
    old.runid = "cd34";
    old.role = "master";
    old.offset = "0";
    SAYS(&back, WELL("1"), old);
    SAYS(&back, WELL("1"), old);
    wants(&back, ONE, 0, 1, false);
    promoted.role = "master";
    SAYS(&chosen, WELL("1"), promoted);
    SAYS(&chosen, WELL("1"), promoted);
    wants(&chosen, ONE, 0, 2, true);
}

static void
a_sentinel_that_does_not_know_the_primary_is_not_asked_further(void **state)
{
    struct cn_replica_views views = {.sentinels = 3};
    struct cn_buf bytes;

    (void)state;
    cn_buf_init(&bytes, 0);
    cn_buf_puts(&bytes, "-ERR No such master with that name\r\n");
    assert_false(take(&views, &bytes, true));
    cn_buf_init(&bytes, 0);
    cn_buf_puts(&bytes, "-ERR No such master with that name\r\n");
    take(&views, &bytes, false);
    assert_int_equal(views.answered, 0);
}

/* One Sentinel may watch several primaries. */
static void
messages_about_replicas_are_recognized(void **state)
{
    const struct cn_str down = CN_STR("+sdown");

    (void)state;
    assert_true(cn_sentinel_is_about_replica(
        down, CN_STR("slave 10.0.0.3:6379 10.0.0.3 6379 @ mymaster 10.0.0.1 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about_replica(
        down, CN_STR("slave 10.0.0.3:6379 10.0.0.3 6379 @ mymaster2 10.0.0.1 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about_replica(
        down, CN_STR("sentinel ab12 10.0.0.3 26379 @ mymaster 10.0.0.1 6379"), "mymaster"));
    assert_false(
        cn_sentinel_is_about_replica(down, CN_STR("master mymaster 10.0.0.1 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about_replica(down, CN_STR(""), "mymaster"));
    assert_true(cn_sentinel_is_about_replica(CN_STR("+reset-master"),
                                             CN_STR("master mymaster 10.0.0.1 6379"), "mymaster"));
    assert_false(cn_sentinel_is_about_replica(CN_STR("+reset-master"),
                                              CN_STR("master other 10.0.0.1 6379"), "mymaster"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_that_is_down_counts_until_no_sentinel_of_a_majority_reaches_it),
        cmocka_unit_test(at_least_one_replica_must_confirm),
        cmocka_unit_test(sentinels_that_the_url_does_not_name_count),
        cmocka_unit_test(each_replica_that_confirms_counts),
        cmocka_unit_test(a_replica_with_two_addresses_counts_once),
        cmocka_unit_test(time_without_a_primary_that_is_down_does_not_count),
        cmocka_unit_test(the_number_holds_until_another_replica_confirms),
        cmocka_unit_test(an_old_primary_counts_when_it_has_become_a_replica),
        cmocka_unit_test(a_sentinel_that_does_not_know_the_primary_is_not_asked_further),
        cmocka_unit_test(messages_about_replicas_are_recognized),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
