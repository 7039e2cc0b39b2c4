/* store/valkey/valkey_store_test.c - the shared store against a real redis-server: conditions,
 * writes that are sent twice, lists, servers that stop, forget scripts, are full or unfit. */
#include "store/shared_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/memory/buf.h"
#include "core/time/clock.h"
#include "store/link/fitness.h"
#include "store/valkey/test_store.h"
#include "store/valkey/valkey_priv.h"

struct fixture {
    struct test_server server;
    struct cn_store *a, *b; /* two nodes */
};

static struct cn_shared_host host = {"127.0.0.1", 0};

static struct cn_shared_options
options_of(const struct test_server *server)
{
    host.port = (uint16_t)atoi(server->port);
    return test_store_options(&host, 1, 10000);
}

static int
set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cn_shared_options options;

    *state = f;
    if (!test_server_exists())
        return 0;
    test_server_start(&f->server, "--appendonly", "no");
    options = options_of(&f->server);
    f->a = test_store_open(&options);
    f->b = test_store_open(&options);
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

/* --- steps, as a worker makes them */

/* Encodes a record with this step. `text` is its state. */
static struct cn_str
record(struct cn_buf *out, uint64_t step, uint64_t job, bool closed, const char *text)
{
    const struct cn_record record = {
        .flags = closed ? CN_RECORD_TOMBSTONE : CN_RECORD_HAS_STATE,
        .generation = 7,
        .step = step,
        .last_job = job,
        .opened_wall_ms = 1000,
        .last_wall_ms = 2000,
        .closed_wall_ms = closed ? 3000 : 0,
        .state = closed ? (struct cn_str){NULL, 0} : cn_str_from(text),
    };

    cn_buf_reset(out);
    assert_int_equal(cn_record_encode(&record, out, NULL), 0);
    return cn_buf_str(out);
}

static struct cn_store_seen
seen_of(uint64_t step, uint64_t job)
{
    return (struct cn_store_seen){.what = step ? CN_SEEN_RECORD : CN_SEEN_NOTHING,
                                  .generation = step ? 7 : 0,
                                  .step = step,
                                  .last_job = job};
}

/* Writes step `step` of `key` if the store holds the step before it, by job `had`. */
static enum cn_store_outcome
step(struct cn_store *store, const char *key, uint64_t n, uint64_t had, uint64_t job)
{
    const struct cn_store_seen seen = seen_of(n - 1, had);
    enum cn_store_outcome outcome = CN_STORE_FAILED;
    struct cn_buf buf;

    if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
        return outcome;
    cn_buf_init(&buf, 0);
    cn_store_expect(store, &seen, &outcome);
    assert_int_equal(
        cn_store_put(store, cn_str_from(key), record(&buf, n, job, false, "state"), NULL), 0);
    cn_store_commit(store, NULL);
    cn_buf_fini(&buf);
    return outcome;
}

/* Makes the same step again and again, as a client does that gets 503, until it is decided. The job
 * stays the same, so a step that was written after all is lost against itself. */
static void
step_in_the_end(struct cn_store *store, const char *key, uint64_t n, uint64_t had, uint64_t job)
{
    for (int i = 0; step(store, key, n, had, job) == CN_STORE_FAILED; i++) {
        assert_true(i < 300);
        usleep(100000);
    }
}

/* --- the condition */

/* The heart of the matter: of two nodes that go on from the same step, one wins. */
static void
one_of_two_nodes_wins(void **state)
{
    struct fixture *f = fixture_of(state);

    assert_true(cn_store_is_shared(f->a));
    assert_int_equal(step(f->a, "s", 1, 0, 100), CN_STORE_WRITTEN);
    assert_int_equal(step(f->b, "s", 1, 0, 200), CN_STORE_LOST); /* it thinks that s is new */
    assert_int_equal(step(f->b, "s", 2, 100, 201), CN_STORE_WRITTEN);
    assert_int_equal(step(f->a, "s", 2, 100, 101), CN_STORE_LOST);
    assert_int_equal(step(f->a, "s", 3, 101, 102), CN_STORE_LOST); /* step 2 was another job */
    assert_int_equal(step(f->a, "s", 3, 201, 102), CN_STORE_WRITTEN);
    assert_int_equal(test_store_step(f->b, "s"), 3);
}

/* One loser in a batch must not take the others with it. */
static void
each_row_of_a_batch_is_decided_alone(void **state)
{
    struct fixture *f = fixture_of(state);
    enum cn_store_outcome outcomes[3];
    struct cn_store_seen seen[3];
    struct cn_buf buf;
    char key[16];

    cn_buf_init(&buf, 0);
    assert_int_equal(step(f->b, "k1", 1, 0, 5), CN_STORE_WRITTEN);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        seen[i] = seen_of(0, 0);
        cn_store_expect(f->a, &seen[i], &outcomes[i]);
        assert_int_equal(cn_store_put(f->a, cn_str_from(key), record(&buf, 1, 9, false, "x"), NULL),
                         0);
    }
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(outcomes[0], CN_STORE_WRITTEN);
    assert_int_equal(outcomes[1], CN_STORE_LOST);
    assert_int_equal(outcomes[2], CN_STORE_WRITTEN);
    cn_buf_fini(&buf);
}

/* A caller that reads and then writes, such as a close, has what it read as its condition. */
static void
what_was_read_is_the_condition(void **state)
{
    struct fixture *f = fixture_of(state);
    enum cn_store_outcome outcome = CN_STORE_FAILED;
    struct cn_buf buf;
    struct cn_str value;

    cn_buf_init(&buf, 0);
    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_get(f->a, CN_STR("s"), &value, NULL), 0);
    assert_int_equal(step(f->b, "s", 2, 1, 2), CN_STORE_WRITTEN); /* between read and write */
    cn_store_expect(f->a, NULL, &outcome);
    assert_int_equal(cn_store_put(f->a, CN_STR("s"), record(&buf, 1, 1, true, ""), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(outcome, CN_STORE_LOST);
    assert_int_equal(test_store_step(f->a, "s"), 2);

    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_get(f->a, CN_STR("s"), &value, NULL), 0);
    assert_int_equal(step(f->b, "s", 3, 2, 3), CN_STORE_WRITTEN);
    assert_int_equal(cn_store_remove(f->a, CN_STR("s"), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, NULL), CN_E_CONFLICT); /* nobody asked for the outcome */
    assert_int_equal(test_store_step(f->a, "s"), 3);
    cn_buf_fini(&buf);
}

/* A tombstone has the same numbers as the record before it. A step that has seen the record must
 * lose against it all the same. */
static void
a_tombstone_beats_a_late_step(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_buf buf;
    struct cn_str value;

    cn_buf_init(&buf, 0);
    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_get(f->a, CN_STR("s"), &value, NULL), 0);
    assert_int_equal(cn_store_put(f->a, CN_STR("s"), record(&buf, 1, 1, true, ""), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(step(f->b, "s", 2, 1, 2), CN_STORE_LOST);
    cn_buf_fini(&buf);
}

/* A write whose answer was lost is sent again with the same number. The entry that it made is not
 * taken for somebody else's. */
static void
a_write_that_is_sent_twice_counts_once(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_valkey_store *vs = cn_valkey_of(f->a);
    const struct cn_store_seen seen = seen_of(0, 0);
    enum cn_store_outcome outcome;
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(f->a, &seen, &outcome);
    assert_int_equal(cn_store_put(f->a, CN_STR("s"), record(&buf, 1, 1, false, "x"), NULL), 0);
    assert_int_equal(cn_valkey_commit(f->a, &(struct cn_error){0}), 0);
    assert_int_equal(outcome, CN_STORE_WRITTEN);
    vs->writes[0].done = false; /* as if its answer had not come */
    outcome = CN_STORE_FAILED;
    assert_int_equal(cn_valkey_commit(f->a, &(struct cn_error){0}), 0);
    assert_int_equal(outcome, CN_STORE_WRITTEN);
    cn_store_abort(f->a);
    assert_int_equal(step(f->b, "s", 1, 0, 1), CN_STORE_LOST); /* same step and job, other write */
    cn_buf_fini(&buf);
}

/* --- reading */

static void
keys_are_bytes_and_lists_are_in_their_order(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_str after = {NULL, 0}, key, front;
    char id[16], last[CN_STORE_KEY_MAX + 1] = "";
    struct cn_buf buf;
    unsigned n = 0;

    cn_buf_init(&buf, 0);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    for (int i = 0; i < 500; i++) {
        snprintf(id, sizeof(id), "s%d}{%c", i, 0);
        assert_int_equal(cn_store_put(f->a, (struct cn_str){id, strlen(id) + 1},
                                      record(&buf, 1, 1, false, "x"), NULL),
                         0);
    }
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(cn_store_count(f->b), 500);
    assert_int_equal(cn_store_begin(f->b, CN_STORE_READ, NULL), 0);
    for (;; n++) {
        assert_int_equal(cn_store_next(f->b, after, &key, &front, NULL), 0);
        if (!key.ptr)
            break;
        assert_true(strcmp(key.ptr, last) > 0); /* no NUL but the last byte */
        assert_int_equal(key.ptr[key.len - 1], 0);
        memcpy(last, key.ptr, key.len);
        after = key;
    }
    assert_int_equal(n, 500);
    assert_int_equal(cn_store_next(f->b, CN_STR("s498"), &key, &front, NULL), 0);
    assert_memory_equal(key.ptr, "s498}", 5);
    cn_store_abort(f->b);
    cn_buf_fini(&buf);
}

/* The first get reads the records of the whole batch, which takes one round trip. */
static void
prefetched_entries_are_read_by_the_first_get(void **state)
{
    struct fixture *f = fixture_of(state);
    const struct cn_str keys[] = {CN_STR("a"), CN_STR("b"), CN_STR("none")};
    const struct cn_store_hint *const hints[] = {NULL, NULL, NULL};
    struct cn_str value;

    assert_int_equal(step(f->a, "a", 1, 0, 1), CN_STORE_WRITTEN);
    assert_int_equal(step(f->a, "b", 1, 0, 1), CN_STORE_WRITTEN);
    cn_store_prefetch(f->b, keys, hints, 1);
    cn_store_prefetch(f->b, keys + 1, hints, 2);
    assert_int_equal(cn_store_begin(f->b, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_get(f->b, keys[1], &value, NULL), 0);
    test_server_end(&f->server);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cn_store_get(f->b, keys[i], &value, NULL), 0);
        assert_int_equal(value.ptr != NULL, i < 2);
    }
    cn_store_abort(f->b);
}

static void
models_versions_and_prefixes_have_keys_of_their_own(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_shared_options options = options_of(&f->server);
    struct cn_store *other;

    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    options.version = "2";
    other = test_store_open(&options);
    assert_int_equal(test_store_step(other, "s"), 0);
    cn_store_close(other);
    options.version = "1";
    options.prefix = "u";
    other = test_store_open(&options);
    assert_int_equal(test_store_step(other, "s"), 0);
    cn_store_close(other);
}

/* --- faults */

/* Scripts are forgotten by SCRIPT FLUSH, a restart and a failover. */
static void
a_forgotten_script_is_loaded_again(void **state)
{
    struct fixture *f = fixture_of(state);

    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    test_server_say(&f->server, "SCRIPT FLUSH");
    assert_int_equal(step(f->a, "s", 2, 1, 2), CN_STORE_WRITTEN);
    assert_int_equal(test_store_step(f->b, "s"), 2);
}

/* The server's `timeout` closes idle connections. The next step must not be refused for that. */
static void
a_lost_connection_is_made_again(void **state)
{
    struct fixture *f = fixture_of(state);

    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    test_server_say(&f->server, "CLIENT KILL TYPE normal");
    assert_int_equal(step(f->a, "s", 2, 1, 2), CN_STORE_WRITTEN);
    test_server_say(&f->server, "CLIENT KILL TYPE normal");
    assert_int_equal(test_store_step(f->b, "s"), 2);
}

static void
a_stopped_server_fails_in_time_and_comes_back(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_shared_options options = options_of(&f->server);
    struct cn_error err = {0};
    struct cn_store *hasty;
    struct cn_str value;
    uint64_t begun_us;

    hasty = test_store_open(&options);
    cn_valkey_of(hasty)->link.options.timeout_ms = 300;
    step_in_the_end(hasty, "s", 1, 0, 1);
    kill(f->server.pid, SIGSTOP); /* it takes connections, but says nothing */
    begun_us = cn_now_us();
    assert_int_equal(cn_store_begin(hasty, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_get(hasty, CN_STR("s"), &value, &err), CN_E_STORE_UNREACHABLE);
    cn_store_abort(hasty);
    assert_non_null(strstr(err.message, "within 300 ms"));
    assert_true(cn_now_us() - begun_us >= 300000); /* it was given its time */
    assert_int_equal(cn_store_begin(hasty, CN_STORE_READ, &err), CN_E_STORE_UNREACHABLE);
    kill(f->server.pid, SIGCONT);
    step_in_the_end(hasty, "s", 2, 1, 2);
    assert_int_equal(test_store_step(f->b, "s"), 2);

    test_server_end(&f->server);
    assert_int_equal(step(hasty, "s", 3, 2, 3), CN_STORE_FAILED);
    test_server_begin(&f->server, "--appendonly", "no");
    step_in_the_end(hasty, "s", 1, 0, 4); /* it came back empty */
    assert_int_equal(test_store_step(f->b, "s"), 1);
    cn_store_close(hasty);
}

/* Nothing is written to a full store, and a sequence can still be closed there. */
static void
a_full_server_refuses_steps_and_takes_closes(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_error err = {0};
    const struct cn_store_seen seen = seen_of(1, 1);
    enum cn_store_outcome outcome;
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    assert_int_equal(step(f->a, "s", 1, 0, 1), CN_STORE_WRITTEN);
    test_server_say(&f->server, "CONFIG SET maxmemory 1");
    assert_int_equal(step(f->a, "new", 1, 0, 1), CN_STORE_FAILED);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(f->a, &seen, &outcome);
    assert_int_equal(cn_store_put(f->a, CN_STR("s"), record(&buf, 2, 2, false, "x"), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, &err), CN_E_STATE_STORE);
    assert_int_equal(outcome, CN_STORE_FAILED);
    assert_non_null(strstr(err.message, "is full"));
    assert_int_equal(test_store_step(f->b, "s"), 1);
    assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, NULL), 0);
    cn_store_expect(f->a, &seen, &outcome);
    assert_int_equal(cn_store_put(f->a, CN_STR("s"), record(&buf, 1, 1, true, ""), NULL), 0);
    assert_int_equal(cn_store_commit(f->a, NULL), 0);
    assert_int_equal(outcome, CN_STORE_WRITTEN);
    assert_int_equal(test_store_step(f->b, "s"), 0); /* without a tombstone */
    cn_buf_fini(&buf);
}

static void
refuses_to_open(const struct cn_shared_options *options, int code, const char *why)
{
    struct cn_store *store;
    struct cn_error err = {0};

    assert_int_equal(cn_shared_store_open(options, &store, &err), code);
    assert_null(store);
    if (!strstr(err.message, why) || strstr(err.message, "hunter2"))
        fail_msg("%s", err.message);
}

static void
an_unfit_server_is_refused(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_shared_options options = options_of(&f->server);

    test_server_say(&f->server, "CONFIG SET maxmemory-policy allkeys-lru");
    refuses_to_open(&options, CN_E_STATE_STORE, "maxmemory-policy is allkeys-lru");
    test_server_say(&f->server, "CONFIG SET maxmemory-policy noeviction");
    options.power = true;
    refuses_to_open(&options, CN_E_STATE_STORE, "aof_enabled is 0");
    options.power = false;
    options.password = "hunter2";
    refuses_to_open(&options, CN_E_STATE_STORE, "refuses the user name or the password");
    test_server_say(&f->server, "CONFIG SET requirepass right");
    refuses_to_open(&options, CN_E_STATE_STORE, "refuses the user name or the password");
    options.password = "";
    refuses_to_open(&options, CN_E_STATE_STORE, "put a password into the URL");
    options.password = "right";
    cn_store_close(test_store_open(&options));
    test_server_end(&f->server);
    options.timeout_ms = 50;
    refuses_to_open(&options, CN_E_STORE_UNREACHABLE, "cannot be reached");
}

/* A step that the replicas do not have must not be answered when they are asked for. */
static void
replicas_must_confirm(void **state)
{
    struct fixture *f = fixture_of(state);
    struct cn_shared_options options = options_of(&f->server);
    struct test_server replica;
    char primary[40];
    struct cn_store *strict;

    options.replicas = 1;
    options.timeout_ms = 300;
    strict = test_store_open(&options);
    assert_int_equal(step(strict, "s", 1, 0, 1), CN_STORE_FAILED);
    snprintf(primary, sizeof(primary), "127.0.0.1 %s", f->server.port);
    test_dir_make(replica.dir);
    snprintf(replica.port, sizeof(replica.port), "%d", test_free_port());
    test_server_begin(&replica, "--appendonly", "no");
    test_server_say(&f->server, "CONFIG SET repl-diskless-sync-delay 0");
    snprintf(primary, sizeof(primary), "REPLICAOF 127.0.0.1 %s", f->server.port);
    test_server_say(&replica, primary);
    for (uint64_t n = 0; step(strict, "t", 1, 0, 1000 + n) != CN_STORE_WRITTEN; n++) {
        struct cn_error err;

        assert_true(n < 200); /* until the replica has caught up */
        usleep(50000);
        assert_int_equal(cn_store_begin(f->a, CN_STORE_WRITE, &err), 0);
        assert_int_equal(cn_store_remove(f->a, CN_STR("t"), NULL), 0);
        assert_int_equal(cn_store_commit(f->a, &err), 0);
    }
    options = options_of(&replica);
    refuses_to_open(&options, CN_E_STORE_UNREACHABLE, "is a replica");
    cn_store_close(strict);
    test_server_stop(&replica);
}

static void
fields_of_info(void **state)
{
    const struct cn_str info = CN_STR("# Server\r\nrole:master\r\nroles:x\r\nlast:1");

    (void)state;
    assert_true(cn_str_eq(cn_valkey_info_field(info, "role"), CN_STR("master")));
    assert_true(cn_str_eq(cn_valkey_info_field(info, "last"), CN_STR("1")));
    assert_int_equal(cn_valkey_info_field(info, "rol").len, 0);
    assert_int_equal(cn_valkey_info_field(CN_STR(""), "role").len, 0);
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(one_of_two_nodes_wins),
        WITH_SERVER(each_row_of_a_batch_is_decided_alone),
        WITH_SERVER(what_was_read_is_the_condition),
        WITH_SERVER(a_tombstone_beats_a_late_step),
        WITH_SERVER(a_write_that_is_sent_twice_counts_once),
        WITH_SERVER(keys_are_bytes_and_lists_are_in_their_order),
        WITH_SERVER(prefetched_entries_are_read_by_the_first_get),
        WITH_SERVER(models_versions_and_prefixes_have_keys_of_their_own),
        WITH_SERVER(a_forgotten_script_is_loaded_again),
        WITH_SERVER(a_lost_connection_is_made_again),
        WITH_SERVER(a_stopped_server_fails_in_time_and_comes_back),
        WITH_SERVER(a_full_server_refuses_steps_and_takes_closes),
        WITH_SERVER(an_unfit_server_is_refused),
        WITH_SERVER(replicas_must_confirm),
        cmocka_unit_test(fields_of_info),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
