/* store/valkey/valkey_send_test.c - commits that are on their way while the caller does something
 * else, against a real redis-server: what is decided when, and that none is lost or done twice. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "store/valkey/test_store.h"
#include "store/valkey/valkey_priv.h"

struct fixture {
    struct test_server server;
    struct cn_store *a;         /* of a worker */
    struct cn_store *beside[2]; /* its further connections */
};

/* A step that is on its way. */
struct sent {
    struct cn_store_seen seen;
    enum cn_store_outcome outcome;
};

static struct cn_store *
open_store(const struct test_server *server, struct cn_store *beside, uint32_t timeout_ms)
{
    const struct cn_shared_host host = {"127.0.0.1", (uint16_t)atoi(server->port)};
    struct cn_shared_options options = test_store_options(&host, 1, timeout_ms);

    options.beside = beside;
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
    f->a = open_store(&f->server, NULL, 60000);
    for (int i = 0; i < 2; i++)
        f->beside[i] = open_store(&f->server, f->a, 60000);
    return 0;
}

static int
tear_down(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++)
        cn_store_close(f->beside[i]);
    cn_store_close(f->a);
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

/* Sends step `n` of `key`, by job `n`, if the store holds the step before it. */
static void
send_step(struct cn_store *store, const char *key, uint64_t n, struct sent *out)
{
    const struct cn_record record = {
        .flags = CN_RECORD_HAS_STATE,
        .generation = 7,
        .step = n,
        .last_job = n,
        .opened_wall_ms = 1000,
        .last_wall_ms = 2000,
        .state = CN_STR("state"),
    };
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    assert_int_equal(cn_record_encode(&record, &buf, NULL), 0);
    *out = (struct sent){.outcome = CN_STORE_FAILED};
    if (n > 1)
        out->seen = (struct cn_store_seen){
            .what = CN_SEEN_RECORD, .generation = 7, .step = n - 1, .last_job = n - 1};
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(store, &out->seen, &out->outcome);
    assert_int_equal(cn_store_put(store, cn_str_from(key), cn_buf_str(&buf), NULL), 0);
    cn_store_send(store);
    cn_buf_fini(&buf);
}

/* Waits for the replies as a worker does. */
static void
wait_until_decided(struct cn_store *store)
{
    struct pollfd watched[4];

    while (!cn_store_decided(store))
        assert_true(poll(watched, cn_store_watch(store, watched, 4), 60000) > 0);
}

/* Two commits are on their way at once, and what is not answered is not decided: an answer of the
 * worker leaves only behind this. */
static void
two_commits_are_away_at_once(void **state)
{
    struct fixture *f = fixture_of(state);
    struct sent sent[2];

    test_server_say(&f->server, "CLIENT PAUSE 600000 WRITE");
    for (int i = 0; i < 2; i++)
        send_step(f->beside[i], i ? "t" : "s", 1, &sent[i]);
    for (int i = 0; i < 2; i++)
        assert_false(cn_store_decided(f->beside[i]));
    assert_int_equal(test_store_step(f->a, "s"), 0); /* the worker's first connection is free */
    test_server_say(&f->server, "CLIENT UNPAUSE");
    for (int i = 2; i-- > 0;) {
        wait_until_decided(f->beside[i]);
        assert_int_equal(cn_store_commit(f->beside[i], NULL), 0);
        assert_int_equal(sent[i].outcome, CN_STORE_WRITTEN);
    }
    assert_int_equal(test_store_step(f->a, "s"), 1);
    assert_int_equal(test_store_step(f->a, "t"), 1);
    assert_true(cn_store_activity(f->a)->trip_us > 0);
}

/* The worker may have to end without waiting for a good moment, when it is told to stop. */
static void
a_commit_waits_for_what_is_not_decided(void **state)
{
    struct fixture *f = fixture_of(state);
    struct sent sent;

    test_server_say(&f->server, "CLIENT PAUSE 100 WRITE");
    send_step(f->beside[0], "s", 1, &sent);
    assert_int_equal(cn_store_commit(f->beside[0], NULL), 0);
    assert_int_equal(sent.outcome, CN_STORE_WRITTEN);
}

static void
a_row_that_another_node_has_changed_is_lost(void **state)
{
    struct fixture *f = fixture_of(state);
    struct sent first, late;

    send_step(f->beside[0], "s", 1, &first);
    assert_int_equal(cn_store_commit(f->beside[0], NULL), 0);
    send_step(f->beside[1], "s", 1, &late);
    wait_until_decided(f->beside[1]);
    cn_store_commit(f->beside[1], NULL);
    assert_int_equal(late.outcome, CN_STORE_LOST);
    assert_int_equal(cn_store_activity(f->a)->conflicts, 1);
}

/* The connection breaks while the commit is away, and nobody knows whether it was done. It is sent
 * again, and the number of the write tells the store whether it has it. */
static void
a_commit_whose_connection_breaks_is_sent_again(void **state)
{
    struct fixture *f = fixture_of(state);
    struct sent sent;

    for (uint64_t n = 1; n <= 3; n++) {
        test_server_say(&f->server, "CLIENT PAUSE 600000 WRITE");
        send_step(f->beside[0], "s", n, &sent);
        assert_false(cn_store_decided(f->beside[0]));
        test_server_say(&f->server, "CLIENT KILL TYPE normal SKIPME yes");
        wait_until_decided(f->beside[0]);
        assert_int_equal(sent.outcome, CN_STORE_FAILED); /* until the commit */
        test_server_say(&f->server, "CLIENT UNPAUSE");
        assert_int_equal(cn_store_commit(f->beside[0], NULL), 0);
        assert_int_equal(sent.outcome, CN_STORE_WRITTEN);
    }
    assert_int_equal(test_store_step(f->beside[1], "s"), 3);
}

static void
a_forgotten_script_is_loaded_again(void **state)
{
    struct fixture *f = fixture_of(state);
    struct sent sent;

    for (uint64_t n = 1; n <= 2; n++) {
        test_server_say(&f->server, "SCRIPT FLUSH");
        send_step(f->beside[0], "s", n, &sent);
        wait_until_decided(f->beside[0]);
        assert_int_equal(cn_store_commit(f->beside[0], NULL), 0);
        assert_int_equal(sent.outcome, CN_STORE_WRITTEN);
    }
}

/* What the store refuses fails with the store's reason, whenever its reply was read. */
static void
a_refusal_has_its_reason(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_error err = {0};
    struct sent sent;

    send_step(f->beside[0], "s", 1, &sent);
    assert_int_equal(cn_store_commit(f->beside[0], NULL), 0);
    test_server_say(&f->server, "CONFIG SET maxmemory 1");
    send_step(f->beside[0], "s", 2, &sent);
    wait_until_decided(f->beside[0]);
    assert_int_equal(cn_store_commit(f->beside[0], &err), CN_E_STATE_STORE);
    assert_int_equal(sent.outcome, CN_STORE_FAILED);
    assert_non_null(strstr(err.message, "is full (maxmemory)"));
}

/* A store that is away costs a commit its time once, and the commit can be made again. */
static void
a_store_that_is_away_fails_the_commit(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_store *store = open_store(&f->server, f->a, 300);
    struct cn_error err = {0};
    struct sent sent;

    test_server_end(&f->server);
    send_step(store, "s", 1, &sent);
    wait_until_decided(store);
    assert_int_equal(cn_store_commit(store, &err), CN_E_STORE_UNREACHABLE);
    assert_int_equal(sent.outcome, CN_STORE_FAILED);
    test_server_begin(&f->server, "--appendonly", "no");
    for (int i = 0; sent.outcome != CN_STORE_WRITTEN; i++) {
        assert_true(i < 300);
        usleep(100000);
        send_step(store, "s", 1, &sent);
        cn_store_commit(store, NULL);
    }
    cn_store_close(store);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(two_commits_are_away_at_once),
        WITH_SERVER(a_commit_waits_for_what_is_not_decided),
        WITH_SERVER(a_row_that_another_node_has_changed_is_lost),
        WITH_SERVER(a_commit_whose_connection_breaks_is_sent_again),
        WITH_SERVER(a_forgotten_script_is_loaded_again),
        WITH_SERVER(a_refusal_has_its_reason),
        WITH_SERVER(a_store_that_is_away_fails_the_commit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
