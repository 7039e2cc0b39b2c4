/* store/valkey/valkey_sweep_test.c - finding what has expired in a shared store, against a real
 * redis-server: one worker at a time, the fencing number, entries that are put off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "core/time/clock.h"
#include "store/valkey/test_store.h"
#include "store/valkey/valkey_priv.h"

struct fixture {
    struct test_server server;
    struct cn_store *a, *b; /* two nodes */
};

static struct cn_store *
open_node(const struct test_server *server)
{
    const struct cn_shared_host host = {"127.0.0.1", (uint16_t)atoi(server->port)};
    const struct cn_shared_options options = test_store_options(&host, 1, 10000);

    return test_store_open(&options);
}

static int
set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    *state = f;
    if (!test_server_exists())
        return 0;
    test_server_start(&f->server, "--appendonly", "no");
    f->a = open_node(&f->server);
    f->b = open_node(&f->server);
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;

    cn_store_close(f->a);
    cn_store_close(f->b);
    if (f->server.port[0])
        test_server_stop(&f->server);
    free(f);
    return 0;
}

static struct fixture *
fixture_of(void **state)
{
    struct fixture *f = *state;

    test_needs_server(f->a);
    return f;
}

/* Writes a record that expires at this time, whatever is there. */
static void
put(struct cn_store *store, const char *key, uint64_t expires_ms, bool closed)
{
    static const struct cn_store_seen any = {.what = CN_SEEN_ANYTHING};
    const struct cn_record record = {
        .flags = closed ? CN_RECORD_TOMBSTONE : CN_RECORD_HAS_STATE,
        .generation = 7,
        .step = 1,
        .last_job = 1,
        .opened_wall_ms = 1000,
        .last_wall_ms = 2000,
        .closed_wall_ms = closed ? 3000 : 0,
        .expires_wall_ms = expires_ms,
        .state = closed ? (struct cn_str){NULL, 0} : CN_STR("state"),
    };
    enum cn_store_outcome outcome = CN_STORE_FAILED;
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    assert_int_equal(cn_record_encode(&record, &buf, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(store, &any, &outcome);
    assert_int_equal(cn_store_put(store, cn_str_from(key), cn_buf_str(&buf), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(outcome, CN_STORE_WRITTEN);
    cn_buf_fini(&buf);
}

/* Returns how many entries are due, and puts each off until `later_ms` unless that is UINT64_MAX.
 */
static uint32_t
count_due(struct cn_store *store, uint64_t now_ms, uint64_t later_ms)
{
    struct cn_store_due due[CN_STORE_DUE_MAX];
    struct cn_record record;
    uint32_t n;

    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_due(store, now_ms, due, CN_STORE_DUE_MAX, &n, NULL), 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(cn_record_peek(due[i].prefix, &record, NULL), 0);
        if (later_ms != UINT64_MAX)
            cn_store_later(store, due[i].key, later_ms);
    }
    cn_store_abort(store);
    return n;
}

/* Ids that are given out come again only after a while. */
static void
due_entries_are_given_once_and_again_if_nobody_acts(void **state)
{
    struct fixture *f = fixture_of(state);

    put(f->a, "early", 5000, false);
    put(f->b, "gone", 6000, true);
    put(f->b, "late", 90000, false);
    assert_int_equal(count_due(f->a, 4999, UINT64_MAX), 0);
    assert_int_equal(count_due(f->a, 7000, UINT64_MAX), 2);
    assert_int_equal(count_due(f->a, 7001, UINT64_MAX), 0);
    assert_int_equal(count_due(f->a, 7000 + 60000, UINT64_MAX), 2);
    assert_int_equal(count_due(f->a, 90000, UINT64_MAX), 1);
}

/* A step does not change the time at which its sequence is looked at; looking does. */
static void
a_live_sequence_is_put_off(void **state)
{
    struct fixture *f = fixture_of(state);

    put(f->a, "s", 5000, false);
    put(f->a, "s", 50000, false);
    assert_int_equal(count_due(f->a, 5000, 50000), 1);
    assert_int_equal(count_due(f->a, 49999, UINT64_MAX), 0);
    assert_int_equal(count_due(f->a, 50000, UINT64_MAX), 1);
    put(f->a, "s", 51000, true); /* a tombstone has a time of its own */
    assert_int_equal(count_due(f->a, 50999, UINT64_MAX), 0);
    assert_int_equal(count_due(f->a, 51000, UINT64_MAX), 1);
}

/* A time that is far away, or none, is tomorrow for the sweeper. */
static void
nothing_is_looked_at_less_than_once_a_day(void **state)
{
    struct fixture *f = fixture_of(state);
    const uint64_t day_ms = 86400000, now_ms = cn_wall_ms();

    put(f->a, "never", 0, false);
    assert_int_equal(count_due(f->a, now_ms + day_ms - 60000, 0), 0);
    assert_int_equal(count_due(f->a, now_ms + day_ms + 60000, 0), 1);
}

/* The lease ends by the server's clock, and then the late holder gets nothing. */
static void
one_worker_sweeps_and_a_late_one_is_refused(void **state)
{
    struct fixture *f = fixture_of(state);

    put(f->a, "s", 5000, false);
    assert_int_equal(count_due(f->a, 4000, UINT64_MAX), 0); /* it has the lease now */
    assert_int_equal(count_due(f->b, 7000, UINT64_MAX), 0);
    test_server_say(&f->server, "HSET {t/m/1/00}lease until 0"); /* as if 5 s had gone by */
    cn_clock_advance(3000);
    assert_int_equal(count_due(f->b, 7000, UINT64_MAX), 1);
    assert_int_equal(cn_valkey_of(f->b)->sweep.fence, cn_valkey_of(f->a)->sweep.fence + 1);
    cn_valkey_of(f->a)->sweep.ask_ms = UINT64_MAX; /* it was stopped, and thinks it has the lease */
    assert_int_equal(count_due(f->a, 7000 + 60000, 5000), 0);
    assert_int_equal(cn_valkey_of(f->a)->sweep.fence, 0);
    assert_int_equal(count_due(f->b, 7000 + 60000, UINT64_MAX), 1);
}

/* The server's clock was wrong when the lease was given, and is right now. The holder is gone. */
static void
a_lease_until_next_year_is_over(void **state)
{
    struct fixture *f = fixture_of(state);
    char command[96];

    put(f->a, "s", 5000, false);
    assert_int_equal(count_due(f->a, 4000, UINT64_MAX), 0);
    snprintf(command, sizeof(command), "HSET {t/m/1/00}lease until %llu",
             (unsigned long long)cn_wall_ms() + 365 * 86400000ull);
    test_server_say(&f->server, command);
    assert_int_equal(count_due(f->b, 7000, UINT64_MAX), 1);
    assert_int_equal(cn_valkey_of(f->b)->sweep.fence, cn_valkey_of(f->a)->sweep.fence + 1);
}

/* A server of a cluster that has lost its data has no lease any more, while the buckets of other
 * servers know the numbers of earlier holders. */
static void
a_lease_that_was_lost_does_not_end_the_sweep(void **state)
{
    struct fixture *f = fixture_of(state);
    char command[64];

    put(f->a, "s", 5000, false);
    assert_int_equal(count_due(f->a, 4000, UINT64_MAX), 0);
    snprintf(command, sizeof(command), "SET {t/m/1/%02x}fence 7", cn_valkey_bucket(CN_STR("s")));
    test_server_say(&f->server, command);
    assert_int_equal(count_due(f->a, 7000, UINT64_MAX), 0);
    cn_clock_advance(3000);
    assert_int_equal(count_due(f->a, 7000, UINT64_MAX), 1);
}

static void
a_removed_entry_leaves_nothing(void **state)
{
    struct fixture *f = fixture_of(state);

    put(f->a, "s", 5000, true);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_remove(f->a, CN_STR("s"), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(count_due(f->a, 7000, UINT64_MAX), 0);
    test_server_say(&f->server, "DEL {t/m/1/00}lease");
    assert_int_equal(cn_store_count(f->a), 0);
}

/* A server that has lost the script gets it again, and the same call finds what is due. */
static void
a_flushed_script_does_not_delay_the_sweep(void **state)
{
    struct fixture *f = fixture_of(state);

    put(f->a, "s", 5000, false);
    assert_int_equal(count_due(f->a, 4000, UINT64_MAX), 0);
    test_server_say(&f->server, "SCRIPT FLUSH");
    assert_int_equal(count_due(f->a, 7000, UINT64_MAX), 1);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(due_entries_are_given_once_and_again_if_nobody_acts),
        WITH_SERVER(a_live_sequence_is_put_off),
        WITH_SERVER(nothing_is_looked_at_less_than_once_a_day),
        WITH_SERVER(one_worker_sweeps_and_a_late_one_is_refused),
        WITH_SERVER(a_lease_until_next_year_is_over),
        WITH_SERVER(a_lease_that_was_lost_does_not_end_the_sweep),
        WITH_SERVER(a_removed_entry_leaves_nothing),
        WITH_SERVER(a_flushed_script_does_not_delay_the_sweep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
