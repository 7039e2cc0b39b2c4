/* store/journal/journal_store_test.c - the journal store, compared with what a plain table would
 * say: single processes, deaths at any point, and several processes. */
#include "store/journal/test_journal.h"

/* Keys are written, removed, dropped, drained, and the store is opened again. It always agrees with
 * a plain table. */
static void
it_says_what_a_table_would(void **state)
{
    uint32_t words[400] = {0}, then[400], seed = 7, round = 0;
    struct cn_store *store = open_small(*state);
    char bytes[32];

    for (; round < 3000; round++) {
        uint32_t n = 1 + draw(&seed, 12), range = draw(&seed, 3) ? 20 : 400;

        memcpy(then, words, sizeof(words));
        begin(store, CN_STORE_WRITE);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t key = draw(&seed, range);

            assert_int_equal(get_word(store, key), then[key]);
            if (draw(&seed, 5) == 0) {
                assert_int_equal(cn_store_remove(store, key_of(bytes, key), NULL), 0);
                then[key] = 0;
            } else {
                then[key] = round * 16 + i + 1;
                put_word(store, key, then[key], 4 + draw(&seed, draw(&seed, 20) ? 100 : 2500) * 4);
            }
            assert_int_equal(get_word(store, key), then[key]);
        }
        if (draw(&seed, 6) == 0) {
            cn_store_abort(store);
        } else {
            assert_int_equal(cn_store_commit(store, NULL), 0);
            memcpy(words, then, sizeof(words));
        }
        if (draw(&seed, 2))
            cn_store_work_off(store);
        if (draw(&seed, 100) == 0)
            cn_store_maintain(store);
        if (draw(&seed, 100) == 0) {
            cn_store_close(store);
            store = open_with(*state, (struct cn_disk_options){.read_only = true});
            expect_words(store, words, 400);
            cn_store_close(store);
            store = open_small(*state);
        }
        if (round % 16 == 0)
            expect_words(store, words, 400);
    }
    expect_words(store, words, 400);
    cn_store_close(store);
}

/* --- deaths --- */

static enum cn_store_point dies_at;
static unsigned passings;

static void
die_there(enum cn_store_point point)
{
    if (point == dies_at && passings-- == 0)
        raise(SIGKILL);
}

/* Commits rounds for ever and reports each committed one through the pipe. Each round puts 8 keys,
 * and every fourth one also removes a key. */
static _Noreturn void
write_rounds(const char *dir, uint32_t round, int pipe_fd, bool sync)
{
    struct cn_disk_options options = {.dir = dir,
                                      .max_bytes = 64u << 20,
                                      .journal_max_bytes = SMALL,
                                      .sync = sync,
                                      .passing = die_there};
    struct cn_store *store;
    char key[32];

    if (cn_disk_store_open(&options, &store, NULL) != 0)
        _exit(1);
    for (;; round++) {
        if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
            _exit(2);
        for (unsigned i = 0; i < 8; i++)
            put_word(store, (round * 8 + i) % KEYS, round, 64 + (round * 97 + i * 31) % 200 * 4);
        if (round % 4 == 0 &&
            cn_store_remove(store, key_of(key, ((round + 3) * 8) % KEYS), NULL) != 0)
            _exit(3);
        if (cn_store_commit(store, NULL) != 0)
            _exit(4);
        if (write(pipe_fd, &round, sizeof(round)) != sizeof(round))
            _exit(5);
        cn_store_work_off(store);
    }
}

/* Computes what the store holds after this round. */
static void
words_after(uint32_t round, uint32_t words[KEYS])
{
    memset(words, 0, sizeof(*words) * KEYS);
    for (uint32_t r = round > 2 * KEYS ? round - 2 * KEYS : 1; r <= round; r++) {
        for (unsigned i = 0; i < 8; i++)
            words[(r * 8 + i) % KEYS] = r;
        if (r % 4 == 0)
            words[((r + 3) * 8) % KEYS] = 0;
    }
}

/* Runs a writer until it dies. Checks the newest round that the store has, and returns it. */
static uint32_t
run_to_death(const char *dir, uint32_t newest, unsigned moment_us, bool sync)
{
    struct cn_store *store;
    uint32_t acked = newest, round, words[KEYS];
    int fds[2], status;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        write_rounds(dir, newest + 1, fds[1], sync);
    }
    close(fds[1]);
    if (moment_us) {
        if (read(fds[0], &round, sizeof(round)) == sizeof(round))
            acked = round;
        usleep(moment_us);
        kill(pid, SIGKILL);
    }
    while (read(fds[0], &round, sizeof(round)) == sizeof(round))
        acked = round;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);

    store = open_small(dir);
    begin(store, CN_STORE_READ);
    round = get_word(store, ((acked + 1) * 8 + 1) % KEYS) == acked + 1 ? acked + 1 : acked;
    cn_store_abort(store);
    words_after(round, words);
    expect_words(store, words, KEYS);
    cn_store_close(store);
    return round;
}

/* This is the promise of `durability: process`: a kill -9 at any moment loses no committed step,
 * and no part of an uncommitted one is there. */
static void
kill_9_loses_nothing_committed(void **state)
{
    uint32_t newest = 0, seed = 20261121;

    passings = UINT32_MAX;
    for (int n = 0; n < 60; n++)
        newest = run_to_death(*state, newest, 1 + draw(&seed, 3000), n % 8 == 7);
    assert_in_range(newest, 60, UINT32_MAX);
}

/* The same holds at the points where the journal and LMDB differ most. */
static void
death_at_each_point_loses_nothing(void **state)
{
    uint32_t newest = 0;

    for (unsigned n = 0; n < 12; n++)
        for (dies_at = CN_STORE_APPENDED; dies_at <= CN_STORE_DRAINED; dies_at++) {
            passings = n / 2 * (dies_at == CN_STORE_APPENDED ? 1 : 3);
            newest = run_to_death(*state, newest, 0, n % 2);
        }
    assert_in_range(newest, 100, UINT32_MAX);
}

/* If a process dies before it has listed a new key in LMDB, another process that has had the store
 * open all the time lists it. */
static void
a_key_of_the_dead_is_listed_by_the_living(void **state)
{
    int to_child[2], status;
    struct cn_store *store;
    uint32_t words[4] = {0};
    char byte;
    pid_t pid;

    assert_int_equal(pipe(to_child), 0);
    pid = fork();
    if (pid == 0) {
        dies_at = CN_STORE_APPENDED;
        passings = 1;
        store = open_with(*state, (struct cn_disk_options){.passing = die_there});
        if (read(to_child[0], &byte, 1) != 1)
            _exit(1);
        begin(store, CN_STORE_WRITE);
        put_word(store, 1, 11, 40);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        begin(store, CN_STORE_WRITE);
        put_word(store, 2, 12, 40);
        cn_store_remove(store, CN_STR("session-0"), NULL);
        cn_store_commit(store, NULL);
        _exit(2);
    }
    store = open_small(*state);
    begin(store, CN_STORE_WRITE);
    put_word(store, 0, 10, 40);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(write(to_child[1], "g", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    words[1] = 11;
    words[2] = 12;
    expect_words(store, words, 4);
    cn_store_close(store);
    close(to_child[0]);
    close(to_child[1]);
}

/* --- several processes --- */

static _Noreturn void
count_up(const char *dir, unsigned who, uint32_t rounds)
{
    struct cn_store *store = open_small(dir);
    uint32_t seed = who * 7919 + 1;

    for (uint32_t i = 0; i < rounds; i++) {
        if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0)
            _exit(2);
        for (unsigned k = 0; k < 3; k++) {
            unsigned key = draw(&seed, KEYS);

            put_word(store, key, get_word(store, key) + 1, 64 + draw(&seed, 100) * 4);
        }
        if (cn_store_commit(store, NULL) != 0)
            _exit(3);
        if (draw(&seed, 3) == 0)
            cn_store_work_off(store);
        if (draw(&seed, 50) == 0)
            usleep(1000); /* meanwhile others fill both files */
    }
    cn_store_close(store);
    _exit(0);
}

/* Workers share the folder. Each one sees what the others wrote, and none overwrites it, whichever
 * of them drains. */
static void
processes_share_a_journal(void **state)
{
    uint64_t sum = 0;
    struct cn_store *store;
    pid_t pids[4];
    int status;

    for (unsigned i = 0; i < 4; i++)
        if ((pids[i] = fork()) == 0)
            count_up(*state, i, 2000);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    store = open_small(*state);
    begin(store, CN_STORE_READ);
    for (unsigned i = 0; i < KEYS; i++)
        sum += get_word(store, i);
    cn_store_abort(store);
    assert_int_equal(sum, 4 * 2000 * 3);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(it_says_what_a_table_would),
        WITH_DIR(kill_9_loses_nothing_committed),
        WITH_DIR(death_at_each_point_loses_nothing),
        WITH_DIR(a_key_of_the_dead_is_listed_by_the_living),
        WITH_DIR(processes_share_a_journal),
    };

    return cmocka_run_group_tests_name("cache.journal_store", tests, NULL, NULL);
}
