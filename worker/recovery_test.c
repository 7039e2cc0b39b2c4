/* worker/recovery_test.c - workers die by kill -9, and no step is lost, doubled or reordered.
 *
 * The test plays the server: it sends jobs without an answer again, under their ids, to a new
 * worker.
 */
#include "store/disk_store.h"
#include "store/store.h"
#include "worker/test_client.h"

#include <signal.h>

#include "worker/process/kill_point.h"

#define SEQUENCES 6
#define ROUNDS 12

/* A worker has died: reads the rest of its answers and starts another one. */
static void
restart(struct client *c)
{
    int status;

    waitpid(c->pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(c->fd);
    cn_buf_reset(&c->out);
    assert_int_equal(client_start(c, true), 0);
}

/* Sends one step of every sequence as one batch. Each is answered in the end, correctly and once.
 */
static unsigned
round_of_all(struct client *c, uint64_t round)
{
    bool answered[SEQUENCES] = {false};
    unsigned left = SEQUENCES, deaths = 0;
    char id[8], wanted[16];
    struct got got;

    while (left) {
        size_t begun = cn_frame_begin_batch(&c->out);

        for (unsigned i = 0; i < SEQUENCES; i++) {
            struct cn_part part;
            struct cn_row row;

            if (answered[i])
                continue;
            snprintf(id, sizeof(id), "s%u", i);
            row =
                row_of(round * SEQUENCES + i + 1, id, "1", deaths ? CN_ROW_REDELIVERED : 0, &part);
            cn_frame_put_row(&c->out, &row);
        }
        cn_frame_end_batch(&c->out, begun, left);
        send(c->fd, c->out.data, c->out.len, MSG_NOSIGNAL);
        cn_buf_reset(&c->out);
        while (left && client_get(c, &got)) {
            unsigned i = (unsigned)((got.job - 1) % SEQUENCES);

            assert_int_equal(got.code, 0);
            assert_false(answered[i]);
            snprintf(wanted, sizeof(wanted), "%d", (int)round + 1);
            assert_string_equal(got.body, wanted);
            answered[i] = true;
            left--;
        }
        if (left) {
            restart(c);
            deaths++;
        }
        assert_in_range(deaths, 0, 3);
    }
    return deaths;
}

/* The worker dies at every named point of a batch, once, in its third batch. The sums stay right.
 */
static void
death_at_any_point_loses_nothing(void **state)
{
    static const char *const points[] = {"batch_read",     "handler_done", "before_commit",
                                         "appended",       "after_commit", "answers_half_written",
                                         "answers_written"};
    struct client *c = *state;
    char once[128], at[64];

    c->load.idle_ms = c->load.lifetime_ms = 0;
    for (size_t p = 0; p < sizeof(points) / sizeof(*points); p++) {
        unsigned deaths = 0;

        snprintf(once, sizeof(once), "%s.killed", c->dir);
        unlink(once);
        snprintf(at, sizeof(at), "%s:3", points[p]);
        setenv("CONTINUO_TEST_KILL_AT", at, 1);
        setenv("CONTINUO_TEST_KILL_ONCE", once, 1);
        assert_int_equal(client_start(c, true), 0);
        for (uint64_t round = 0; round < ROUNDS; round++)
            deaths += round_of_all(c, round);
        unsetenv("CONTINUO_TEST_KILL_AT");
        if (access(once, F_OK) != 0)
            fail_msg("the worker did not come to %s", points[p]);
        unlink(once);
        /* If it dies after the last byte of a batch, only waitpid may notice. */
        (void)deaths;
        client_stop(c);
        test_dir_remove(c->dir);
        test_dir_make(c->dir);
    }
    unsetenv("CONTINUO_TEST_KILL_ONCE");
}

/* The worker dies at random moments, again and again. */
static void
random_kills_lose_nothing(void **state)
{
    struct client *c = *state;
    uint32_t seed = 4711;
    uint64_t round = 0;

    c->load.idle_ms = c->load.lifetime_ms = 0;
    assert_int_equal(client_start(c, true), 0);
    for (int kills = 0; kills < 40; kills++) {
        pid_t victim = c->pid, killer;

        seed = seed * 1664525 + 1013904223;
        killer = fork();
        if (killer == 0) {
            usleep((seed >> 8) % 3000);
            kill(victim, SIGKILL);
            _exit(0);
        }
        while (round_of_all(c, round++) == 0)
            ;
        waitpid(killer, NULL, 0);
    }
    client_stop(c);
    assert_in_range(round, 40, UINT32_MAX);
}

/* If a kill point has an unknown name, the test must not pass without testing anything. */
static void
unknown_kill_point_stops_the_worker(void **state)
{
    struct client *c = *state;

    setenv("CONTINUO_TEST_KILL_AT", "before_lunch", 1);
    assert_int_equal(client_start(c, true), -1);
    unsetenv("CONTINUO_TEST_KILL_AT");
    assert_int_equal(client_stop(c), -SIGABRT);
}

/* While the hold file exists, rows only gather, so a test can make a full batch from single frames.
 */
static void
hold_file_gathers_a_batch(void **state)
{
    struct client *c = *state;
    struct got got;
    char path[128], id[8];
    FILE *file;

    snprintf(path, sizeof(path), "%s.hold", c->dir);
    file = fopen(path, "w");
    fclose(file);
    setenv("CONTINUO_TEST_HOLD", path, 1);
    assert_int_equal(client_start(c, false), 0);
    for (unsigned i = 0; i < 5; i++) {
        snprintf(id, sizeof(id), "s%u", i);
        client_put(c, i + 1, id, "1", 0, 0);
        client_send(c);
        usleep(3000); /* longer than any batch takes */
    }
    unlink(path);
    for (unsigned i = 0; i < 5; i++)
        assert_true(client_get(c, &got));
    assert_int_equal(fake.largest_batch, 5);
    client_stop(c);
    unsetenv("CONTINUO_TEST_HOLD");
}

/* The check after a power cut finds a damaged record, and accepts a whole store. */
static void
check_store_finds_damage(void **state)
{
    struct client *c = *state;
    struct cn_disk_options options = {
        .dir = c->dir, .max_bytes = 64 << 20, .journal_max_bytes = 1 << 20};
    struct cn_store *store;
    struct cn_str record;
    char bytes[1024];

    assert_int_equal(cn_worker_check_store(c->dir, false), 0); /* the store is empty */
    c->load.idle_ms = c->load.lifetime_ms = 0;
    assert_int_equal(client_start(c, true), 0);
    for (uint64_t round = 0; round < 3; round++)
        round_of_all(c, round);
    client_stop(c);
    assert_int_equal(cn_worker_check_store(c->dir, false), 0);
    assert_int_equal(cn_disk_store_open(&options, &store, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_get(store, CN_STR("s0"), &record, NULL), 0);
    assert_in_range(record.len, 17, sizeof(bytes));
    memcpy(bytes, record.ptr, record.len);
    bytes[16] = 99; /* its step count */
    record.ptr = bytes;
    assert_int_equal(cn_store_put(store, CN_STR("s0"), record, NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
    assert_int_equal(cn_worker_check_store(c->dir, false), CN_CHECK_DAMAGED);
    assert_int_equal(cn_worker_check_store("/nonexistent", false), 1);
    /* Such a sequence is refused until it begins anew. */
    assert_int_equal(client_start(c, true), 0);
    assert_int_equal(client_step(c, 1000, "s0", "1", 0, 0).code, CN_E_STATE_STORE);
    assert_string_equal(client_step(c, 1001, "s0", "4", CN_ROW_START, 0).body, "4");
    client_stop(c);
}

int
main(void)
{
#define WORKER(test) cmocka_unit_test_setup_teardown(test, client_setup, client_teardown)
    const struct CMUnitTest tests[] = {
        WORKER(death_at_any_point_loses_nothing),
        WORKER(random_kills_lose_nothing),
        WORKER(unknown_kill_point_stops_the_worker),
        WORKER(hold_file_gathers_a_batch),
        WORKER(check_store_finds_damage),
    };

    return cmocka_run_group_tests_name("worker.recovery", tests, NULL, NULL);
}
