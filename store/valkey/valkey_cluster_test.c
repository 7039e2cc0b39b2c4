/* store/valkey/valkey_cluster_test.c - the shared store on a real Redis cluster of three primaries:
 * keys are where the cluster wants them, slots move, servers stop, are replaced or are not fit. */
#include "store/shared_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "core/time/clock.h"
#include "store/link/test_cluster.h"
#include "store/link/valkey_cluster.h"
#include "store/record/record.h"
#include "store/shared_nodes.h"
#include "store/valkey/test_store.h"
#include "store/valkey/valkey_priv.h"

#define KEYS 300

static struct test_cluster cluster;
static struct cn_shared_host hosts[TEST_MEMBERS];
static struct cn_store *a, *b; /* two nodes */

static struct cn_shared_options
options_of(uint32_t timeout_ms)
{
    struct cn_shared_options options;

    for (int i = 0; i < cluster.n; i++)
        hosts[i] = (struct cn_shared_host){"127.0.0.1", (uint16_t)atoi(cluster.members[i].port)};
    options = test_store_options(hosts, (uint32_t)cluster.n, timeout_ms);
    options.cluster = true;
    return options;
}

static struct cn_store *
open_node(uint32_t timeout_ms)
{
    const struct cn_shared_options options = options_of(timeout_ms);

    return test_store_open(&options);
}

static int
set_up_with(bool replicas)
{
    cluster = (struct test_cluster){0};
    a = b = NULL;
    if (!test_server_exists())
        return 0;
    test_cluster_start(&cluster, replicas);
    a = open_node(5000);
    b = open_node(5000);
    return 0;
}

static int
set_up(void **state)
{
    (void)state;
    return set_up_with(false);
}

static int
set_up_replicas(void **state)
{
    (void)state;
    return set_up_with(true);
}

static int
tear_down(void **state)
{
    (void)state;
    cn_store_close(a);
    cn_store_close(b);
    test_cluster_stop(&cluster);
    return 0;
}

static void
needs_servers(void)
{
    test_needs_server(a);
}

/* --- steps, as a worker makes them */

static const char *
key_of(int i, char out[16])
{
    snprintf(out, 16, "k%d", i);
    return out;
}

static void
put_step(struct cn_store *store, const char *key, uint64_t n, uint64_t job,
         enum cn_store_outcome *outcome)
{
    const struct cn_store_seen seen = {.what = n > 1 ? CN_SEEN_RECORD : CN_SEEN_NOTHING,
                                       .generation = n > 1 ? 7 : 0,
                                       .step = n - 1,
                                       .last_job = n > 1 ? n - 1 : 0};
    const struct cn_record record = {.flags = CN_RECORD_HAS_STATE,
                                     .generation = 7,
                                     .step = n,
                                     .last_job = job,
                                     .opened_wall_ms = 1000,
                                     .last_wall_ms = 2000,
                                     .state = CN_STR("state")};
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    assert_int_equal(cn_record_encode(&record, &buf, NULL), 0);
    *outcome = CN_STORE_FAILED;
    cn_store_expect(store, &seen, outcome);
    assert_int_equal(cn_store_put(store, cn_str_from(key), cn_buf_str(&buf), NULL), 0);
    cn_buf_fini(&buf);
}

/* Makes step n of all keys in batches of 50. Returns how many were written. */
static unsigned
step_all(struct cn_store *store, uint64_t n, struct cn_error *err)
{
    enum cn_store_outcome outcomes[50];
    unsigned written = 0;
    char key[16];

    for (int i = 0; i < KEYS; i += 50) {
        if (cn_store_begin(store, CN_STORE_WRITE, err) != 0)
            continue;
        for (int k = 0; k < 50; k++)
            put_step(store, key_of(i + k, key), n, n, &outcomes[k]);
        cn_store_commit(store, err);
        for (int k = 0; k < 50; k++)
            written += outcomes[k] == CN_STORE_WRITTEN;
    }
    return written;
}

/* Reads all keys in batches of 50. Returns how many have step n. */
static unsigned
count_at(struct cn_store *store, uint64_t n, unsigned *failed)
{
    const struct cn_store_hint *hints[50] = {NULL};
    char names[50][16];
    struct cn_str keys[50], value;
    struct cn_record record;
    unsigned found = 0;

    *failed = 0;
    for (int i = 0; i < KEYS; i += 50) {
        for (int k = 0; k < 50; k++)
            keys[k] = cn_str_from(key_of(i + k, names[k]));
        for (int k = 0; k < 50; k += 10)
            cn_store_prefetch(store, keys + k, hints, 10);
        assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
        for (int k = 0; k < 50; k++) {
            if (cn_store_get(store, keys[k], &value, NULL) != 0)
                ++*failed;
            else if (value.ptr && cn_record_peek(value, &record, NULL) == 0)
                found += record.step == n;
        }
        cn_store_abort(store);
        cn_store_work_off(store);
    }
    return found;
}

static void
expect_all_at(struct cn_store *store, uint64_t n)
{
    unsigned failed;

    assert_int_equal(count_at(store, n, &failed), KEYS);
    assert_int_equal(failed, 0);
}

/* --- tests */

/* Steps, reads, lists, counts and conditions mean on a cluster what they mean on one server, and
 * the keys are spread over all primaries. */
static void
a_cluster_is_one_store(void **state)
{
    struct cn_str after = {NULL, 0}, key, front;
    enum cn_store_outcome outcome;
    char last[64] = "", text[32];
    unsigned n = 0;

    (void)state;
    needs_servers();
    assert_int_equal(step_all(a, 1, NULL), KEYS);
    expect_all_at(b, 1);
    assert_int_equal(step_all(b, 2, NULL), KEYS);
    assert_int_equal(step_all(a, 2, NULL), 0); /* all lost */
    expect_all_at(a, 2);
    assert_int_equal(cn_store_begin(a, CN_STORE_WRITE, NULL), 0);
    put_step(a, "k7", 2, 99, &outcome);
    assert_int_equal(cn_store_commit(a, NULL), 0);
    assert_int_equal(outcome, CN_STORE_LOST);
    assert_int_equal(cn_store_count(b), KEYS);
    assert_int_equal(cn_store_begin(b, CN_STORE_READ, NULL), 0);
    for (;; n++) {
        assert_int_equal(cn_store_next(b, after, &key, &front, NULL), 0);
        if (!key.ptr)
            break;
        snprintf(text, sizeof(text), "%.*s", CN_STR_ARG(key));
        assert_true(strcmp(text, last) > 0);
        strcpy(last, text);
        after = key;
    }
    assert_int_equal(n, KEYS);
    cn_store_abort(b);
    for (int i = 0; i < TEST_PRIMARIES; i++) {
        test_server_ask(&cluster.members[i], "DBSIZE", text, sizeof(text));
        assert_true(atoi(text) > KEYS / 10);
    }
}

/* The sweeper finds what is due on every primary. */
static void
what_is_due_is_found_on_all_servers(void **state)
{
    struct cn_store_due due[CN_STORE_DUE_MAX];
    unsigned total = 0;
    uint32_t n;

    (void)state;
    needs_servers();
    assert_int_equal(step_all(a, 1, NULL), KEYS);
    for (int round = 0; round < 20; round++) {
        assert_int_equal(cn_store_begin(b, CN_STORE_READ, NULL), 0);
        assert_int_equal(
            cn_store_due(b, cn_wall_ms() + 2 * CN_VALKEY_LOOK_MS, due, CN_STORE_DUE_MAX, &n, NULL),
            0);
        total += n;
        cn_store_abort(b);
    }
    assert_int_equal(total, KEYS); /* each once; then it is claimed for a minute */
}

/* The servers forget the script, one by one and all together. */
static void
a_flushed_script_is_loaded_again_where_it_is_missing(void **state)
{
    (void)state;
    needs_servers();
    assert_int_equal(step_all(a, 1, NULL), KEYS);
    test_server_say(&cluster.members[1], "SCRIPT FLUSH");
    assert_int_equal(step_all(a, 2, NULL), KEYS);
    for (int i = 0; i < TEST_PRIMARIES; i++)
        test_server_say(&cluster.members[i], "SCRIPT FLUSH");
    assert_int_equal(step_all(a, 3, NULL), KEYS);
    expect_all_at(b, 3);
}

/* Moves a slot, with all of its keys or only the first half of them. */
static void
move_slot(unsigned slot, int from, int to, bool whole)
{
    static const char script[] =
        "a=\"redis-cli -p $1\"; b=\"redis-cli -p $2\"; A=$($a CLUSTER MYID); B=$($b CLUSTER MYID)\n"
        "$b CLUSTER SETSLOT $3 IMPORTING $A && $a CLUSTER SETSLOT $3 MIGRATING $B\n"
        "n=$($a CLUSTER COUNTKEYSINSLOT $3); [ $4 = 1 ] || n=$((n / 2))\n"
        "$a CLUSTER GETKEYSINSLOT $3 $n | while read -r k; do\n"
        "  $a MIGRATE 127.0.0.1 $2 \"$k\" 0 5000; done\n"
        "[ $4 = 1 ] || exit 0\n"
        "$b CLUSTER SETSLOT $3 NODE $B && $a CLUSTER SETSLOT $3 NODE $B\n";
    char command[100];
    FILE *shell;

    snprintf(command, sizeof(command), "sh -s %s %s %u %d >/dev/null 2>&1",
             cluster.members[from].port, cluster.members[to].port, slot, whole);
    shell = popen(command, "w");
    assert_non_null(shell);
    fputs(script, shell);
    assert_int_equal(pclose(shell), 0);
}

/* Which primary has the slot now, by the ranges with which the cluster begins. */
static int
owner_of(unsigned slot)
{
    return slot <= 5460 ? 0 : slot <= 10922 ? 1 : 2;
}

/* A slot that has moved is found by MOVED, and one in the middle of its move by ASK. Steps of a
 * bucket whose keys are on both servers go one by one. */
static void
slots_that_move_are_followed(void **state)
{
    const struct cn_valkey_cluster *map;
    unsigned moved, halfway;

    (void)state;
    needs_servers();
    map = &cn_valkey_of(a)->link.cluster;
    moved = map->slots[cn_valkey_bucket(CN_STR("k1"))];
    halfway = map->slots[cn_valkey_bucket(CN_STR("k2"))];
    assert_int_not_equal(moved, halfway);
    assert_int_equal(step_all(a, 1, NULL), KEYS);
    move_slot(moved, owner_of(moved), (owner_of(moved) + 1) % TEST_PRIMARIES, true);
    assert_int_equal(step_all(a, 2, NULL), KEYS);
    expect_all_at(b, 2);
    move_slot(halfway, owner_of(halfway), (owner_of(halfway) + 1) % TEST_PRIMARIES, false);
    assert_int_equal(step_all(a, 3, NULL), KEYS);
    expect_all_at(b, 3);
    for (int i = 0; i < TEST_PRIMARIES; i++) /* so the target has no script */
        test_server_say(&cluster.members[i], "SCRIPT FLUSH");
    assert_int_equal(step_all(b, 4, NULL), KEYS);
    move_slot(halfway, owner_of(halfway), (owner_of(halfway) + 1) % TEST_PRIMARIES, true);
    assert_int_equal(step_all(a, 5, NULL), KEYS);
    expect_all_at(b, 5);
}

/* A server that is away takes only its own sequences with it, and comes back by itself. */
static void
one_server_that_is_away_does_not_stop_the_others(void **state)
{
    struct cn_error err = {0};
    unsigned written, failed;

    (void)state;
    needs_servers();
    assert_int_equal(step_all(a, 1, NULL), KEYS);
    test_server_end(&cluster.members[1]);
    written = step_all(a, 2, &err);
    assert_in_range(written, KEYS / 3, KEYS * 9 / 10);
    assert_int_equal(err.code, CN_E_STORE_UNREACHABLE);
    assert_int_equal(count_at(a, 2, &failed), written);
    assert_int_equal(failed, KEYS - written);
    test_member_begin(&cluster, 1);
    /* A step whose answer was too late is lost against itself, so the store is what counts. */
    for (int i = 0; count_at(b, 2, &failed) < KEYS; i++) {
        assert_true(i < 300);
        usleep(100000);
        step_all(a, 2, &err);
    }
    expect_all_at(b, 2);
}

/* A server that is stopped costs the others its time once, and then only a short attempt now and
 * then. */
static void
a_server_that_is_silent_delays_the_others_once(void **state)
{
    struct cn_store *hasty;
    struct cn_error err = {0};
    unsigned written, failed = 0, attempts = 0;

    (void)state;
    needs_servers();
    hasty = open_node(500);
    assert_int_equal(step_all(hasty, 1, NULL), KEYS);
    kill(cluster.members[1].pid, SIGSTOP);
    written = step_all(hasty, 2, &err);
    assert_in_range(written, KEYS / 3, KEYS * 9 / 10);
    for (uint64_t n = 3; n < 10; n++)
        assert_int_equal(step_all(hasty, n, &err), written);
    for (uint32_t i = 0; i < cn_valkey_of(hasty)->link.n_servers; i++)
        attempts += cn_valkey_of(hasty)->link.servers[i]->retry.failures;
    assert_in_range(attempts, 1, 20); /* there were 42 batches */
    kill(cluster.members[1].pid, SIGCONT);
    /* It may do what it got before it was stopped, so steps may be lost against themselves. */
    for (int i = 0; count_at(hasty, 2, &failed) < KEYS - written || failed; i++) {
        assert_true(i < 300);
        usleep(100000);
        step_all(hasty, 2, &err);
    }
    cn_store_close(hasty);
}

/* When a replica has become the primary, nodes find it. With replicas that confirm, no step is
 * lost. */
static void
a_replica_that_becomes_the_primary_is_found(void **state)
{
    struct cn_shared_options options;
    struct cn_store *safe;
    struct cn_error err = {0};
    unsigned written, failed;

    (void)state;
    needs_servers();
    options = options_of(3000);
    options.replicas = 1;
    if (cn_shared_store_open(&options, &safe, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(step_all(safe, 1, NULL), KEYS);
    test_server_end(&cluster.members[0]);
    for (int i = 0; count_at(a, 2, &failed) < KEYS; i++) {
        assert_true(i < 300);
        step_all(b, 2, &err);
        usleep(100000);
    }
    expect_all_at(a, 2);
    /* The new primary has no replica, so its steps are not confirmed, and the others are. */
    written = step_all(safe, 3, &err);
    assert_in_range(written, KEYS / 3, KEYS * 9 / 10);
    if (!strstr(err.message, "replicas of the state store"))
        fail_msg("%s", err.message);
    cn_store_close(safe);
}

static void
refuses(const struct cn_shared_options *options, const char *why)
{
    struct cn_store *store;
    struct cn_error err = {0};

    assert_int_equal(cn_shared_store_open(options, &store, &err), CN_E_STATE_STORE);
    if (!strstr(err.message, why))
        fail_msg("%s", err.message);
    assert_null(store);
}

/* Every primary must be fit, not only the first one. */
static void
servers_that_are_not_fit_are_named(void **state)
{
    struct cn_shared_options options;
    char port[16];

    (void)state;
    needs_servers();
    snprintf(port, sizeof(port), ":%s ", cluster.members[2].port);
    test_server_say(&cluster.members[2], "CONFIG SET maxmemory-policy allkeys-lru");
    options = options_of(2000);
    refuses(&options, "may evict keys");
    refuses(&options, port);
    test_server_say(&cluster.members[2], "CONFIG SET maxmemory-policy noeviction");
    test_server_say(&cluster.members[1], "CONFIG SET requirepass secret");
    refuses(&options, "NOAUTH");
    for (int i = 0; i < TEST_PRIMARIES; i++)
        test_server_say(&cluster.members[i], "CONFIG SET requirepass secret");
    refuses(&options, "valkey+cluster://:password@host");
    options.password = "wrong";
    refuses(&options, "refuses the user name or the password");
    options = options_of(2000);
    options.cluster = false;
    options.password = "secret";
    refuses(&options, "begin the URL with valkey+cluster://");
}

static void
one_server_is_not_a_cluster(void **state)
{
    struct test_server alone;
    struct cn_shared_options options;

    (void)state;
    needs_servers();
    test_server_start(&alone, "--appendonly", "no");
    options = options_of(2000);
    hosts[0].port = (uint16_t)atoi(alone.port);
    refuses(&options, "is not a node of a cluster; begin the URL with valkey://");
    test_server_stop(&alone);
}

static void
note(void *ctx, struct cn_str entry, struct cn_str value)
{
    (void)entry;
    (void)value;
    ++*(unsigned *)ctx;
}

/* The list of nodes is in a cluster, too, and INFO asks all primaries. */
static void
the_list_of_nodes_is_in_the_cluster(void **state)
{
    struct cn_shared_renewal renewal = {
        .name = "n", .instance = "1", .value = CN_STR("v"), .ttl_ms = 60000};
    struct cn_shared_link *link;
    struct cn_shared_facts facts;
    struct cn_error err = {0};
    char url[64];
    unsigned n = 0;

    (void)state;
    needs_servers();
    snprintf(url, sizeof(url), "valkey+cluster://127.0.0.1:%s/t", cluster.members[1].port);
    if (cn_shared_link_open(url, 5000, &link, &err) != 0 ||
        cn_shared_nodes_renew(link, &renewal, note, &n, &err) != 0 ||
        cn_shared_nodes_read(link, note, &n, &err) != 0 ||
        cn_shared_link_facts(link, &facts, &err) != 0)
        fail_msg("%s", err.message);
    assert_int_equal(n, 1);
    assert_int_equal(facts.n_replicas, 3); /* one of each primary */
    assert_true(facts.has_aof);
    cn_shared_link_close(link);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cluster_is_one_store, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_due_is_found_on_all_servers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flushed_script_is_loaded_again_where_it_is_missing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(slots_that_move_are_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_server_that_is_away_does_not_stop_the_others, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_is_silent_delays_the_others_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_replica_that_becomes_the_primary_is_found,
                                        set_up_replicas, tear_down),
        cmocka_unit_test_setup_teardown(servers_that_are_not_fit_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_server_is_not_a_cluster, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_list_of_nodes_is_in_the_cluster, set_up_replicas,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
