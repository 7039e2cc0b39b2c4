/* store/journal/journal_room_test.c - full disks, limits and long journals. */
#include "store/journal/test_journal.h"

/* --- full --- */

/* A commit for which the file system has no room never appears, and what was there before stays
 * usable. */
static void
a_failed_append_leaves_nothing(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 8u << 20});
    uint32_t words[200] = {0}, key = 0;
    struct rlimit was, limit;
    struct cn_error err = {0};
    int rc = 0;

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    limit = (struct rlimit){1u << 20, was.rlim_max}; /* also for LMDB's file */
    begin(store, CN_STORE_WRITE);
    put_word(store, 0, 1, 4000);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    words[0] = 1;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (key = 1; rc == 0 && key < 200; key++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, key, key + 1, 12000);
        rc = cn_store_commit(store, &err);
        if (rc == 0)
            words[key] = key + 1;
    }
    setrlimit(RLIMIT_FSIZE, &was);
    assert_int_equal(rc, CN_E_STATE_STORE);
    assert_in_range(key, 20, 199);
    expect_words(store, words, 200);
    cn_store_close(store);
    store = open_small(*state);
    expect_words(store, words, 200);
    begin(store, CN_STORE_WRITE);
    put_word(store, key, key + 1, 12000);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    words[key] = key + 1;
    expect_words(store, words, 200);
    cn_store_close(store);
}

/* When the disk is full, the batch fails with a message. Existing sequences can still make steps,
 * and ending sequences makes room. */
static void
full_disk_fails_what_grows_only(void **state)
{
    uint32_t words[300] = {0}, n = 0, round = 1000;
    struct cn_store *store;
    struct cn_error err = {0};
    int rc = 0;

    if (mount("tmpfs", *state, "tmpfs", 0, "size=6m") != 0) {
        print_message("skipped: cannot mount a tmpfs: %s\n", strerror(errno));
        skip(); /* only root may mount */
    }
    store = open_with(
        *state, (struct cn_disk_options){.journal_max_bytes = 64u << 20, .max_bytes = 1u << 30});
    while (n < 300 && (rc = step(store, n, n + 1, 16000, &err)) == 0) {
        words[n] = n + 1;
        n++;
    }
    print_message("%u values of 16 kB, then: %s\n", n, err.message);
    assert_int_equal(rc, CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, *state));
    assert_in_range(n, 60, 350);
    expect_words(store, words, 300);
    for (unsigned i = 0; i < 500; i++, round++) { /* steps go on while the files keep their size */
        if (step(store, i % n, round, 16000, &err) != 0)
            fail_msg("step %u: %s", i, err.message);
        words[i % n] = round;
        cn_store_work_off(store);
    }
    expect_words(store, words, 300);
    begin(store, CN_STORE_WRITE);
    for (unsigned i = 0; i < 5; i++) {
        put_word(store, i, 5, 40);
        words[i] = 5;
    }
    assert_int_equal(cn_store_commit(store, &err), 0);
    for (unsigned i = 0; i < 200; i++, round++) {
        if (step(store, 6, round, 16000, &err) != 0)
            fail_msg("step %u: %s", i, err.message);
        words[6] = round;
        cn_store_work_off(store);
    }
    assert_int_equal(step(store, n + 1, n + 2, 16000, &err), 0);
    words[n + 1] = n + 2;
    expect_words(store, words, 300);
    cn_store_close(store);
    store = open_small(*state);
    expect_words(store, words, 300);
    cn_store_close(store);
    assert_int_equal(umount(*state), 0);
}

/* storeMaxBytes includes what is still in the journal. */
static void
the_limit_counts_the_journal(void **state)
{
    struct cn_store *store = open_with(
        *state, (struct cn_disk_options){.max_bytes = 4u << 20, .journal_max_bytes = 64u << 20});
    struct cn_error err = {0};
    unsigned n = 0;
    char key[32];
    static char value[10000];
    int rc = 0;

    for (; rc == 0 && n < 1000; n++) {
        begin(store, CN_STORE_WRITE);
        rc = cn_store_put(store, key_of(key, n), (struct cn_str){value, sizeof(value)}, &err);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    assert_int_equal(rc, 1);
    assert_non_null(strstr(err.message, "state.storeMaxBytes"));
    assert_in_range(n, 250, 400);
    for (int i = 0; i < 10; i++)
        cn_store_maintain(store);
    begin(store, CN_STORE_WRITE); /* it is not larger than before, so it is accepted */
    assert_int_equal(
        cn_store_put(store, key_of(key, 0), (struct cn_str){value, sizeof(value)}, &err), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
}

/* A store that processes fill and empty again and again, and in which they die, uses the room that
 * it has: large values fill the holes that small ones have left. */
static void
fill_and_empty(const char *dir, unsigned round)
{
    static char value[500000];
    struct cn_store *store = open_with(
        dir, (struct cn_disk_options){.max_bytes = 8u << 20, .journal_max_bytes = 256u << 10});
    const unsigned stay = test_next_random() % 3 ? 0 : test_next_random() % 8;
    char key[32];
    unsigned n = 0;
    int rc = 0;

    for (; rc == 0 && n < 100; n++) {
        begin(store, CN_STORE_WRITE);
        rc = cn_store_put(store, key_of(key, 1000 * (round % 3) + n),
                          (struct cn_str){value, sizeof(value) - test_next_random() % 90000}, NULL);
        for (unsigned i = 0; i < 8; i++)
            put_word(store, test_next_random() % 300, round + 1,
                     100 + 4 * (test_next_random() % 500));
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    for (unsigned i = 0; i < 3 * 30; i++) {
        if (i % 30 < stay && round % 5)
            continue;
        begin(store, CN_STORE_WRITE);
        assert_int_equal(cn_store_remove(store, key_of(key, 1000 * (i / 30) + i % 30), NULL), 0);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    if (test_next_random() % 2)
        cn_store_maintain(store);
    if (test_next_random() % 2)
        kill(getpid(), SIGKILL);
    cn_store_close(store);
}

static void
the_file_stays_near_its_limit(void **state)
{
    struct stat stat;
    char path[256];
    int status;

    for (unsigned round = 0; round < 60; round++) {
        pid_t child = fork();

        if (child == 0) {
            for (unsigned i = 0; i < 100 * round; i++)
                test_next_random();
            fill_and_empty(*state, round);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
    }
    snprintf(path, sizeof(path), "%s/data.mdb", (char *)*state);
    assert_int_equal(lstat(path, &stat), 0);
    print_message("%ld bytes\n", (long)stat.st_size);
    assert_in_range(stat.st_size, 8 << 20, 11 << 20);
}

/* Opening reads the journal in several parts, and other processes continue to write between them.
 */
static void
a_long_journal_is_read_in_parts(void **state)
{
    const struct cn_disk_options options = {.journal_max_bytes = 32u << 20};
    struct cn_store *store = open_with(*state, options);
    const unsigned n = 20000;
    int status;
    pid_t child;

    for (unsigned i = 0; i < n; i++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, i, i + 1, 700);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    child = fork();
    if (child == 0) {
        struct cn_store *reader = open_with(*state, options);
        char key[32];
        struct cn_str got;

        begin(reader, CN_STORE_WRITE);
        for (unsigned i = 0; i < n; i++) {
            assert_int_equal(cn_store_get(reader, key_of(key, i), &got, NULL), 0);
            assert_true(word_of(got) == i + 1 || word_of(got) == i + 7);
        }
        put_word(reader, n, 5, 8);
        assert_int_equal(cn_store_commit(reader, NULL), 0);
        cn_store_close(reader);
        _exit(0);
    }
    for (unsigned i = 0; waitpid(child, &status, WNOHANG) == 0; i++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, i % n, i % n + 7, 700);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    assert_int_equal(status, 0);
    assert_int_equal(cn_store_count(store), n + 1);
    cn_store_close(store);
}

/* States of few busy sequences are never drained to LMDB, because the newer file always has them.
 */
static void
busy_keys_stay_in_the_journal(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 64u << 20});
    static char data[1 << 20];
    size_t len, found = 0;

    for (uint32_t round = 1; round <= 20000; round++) {
        begin(store, CN_STORE_WRITE);
        put_word(store, round % 10, 0x5a5a5a5a, 400);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    assert_in_range(cn_store_bytes(store), 1 << 18, 4 << 20);
    cn_store_close(store);
    len = slurp(*state, "data.mdb", data, sizeof(data));
    for (size_t at = 0; at + 400 < len; at += 4)
        found += memcmp(data + at, "ZZZZZZZZ", 8) == 0;
    assert_int_equal(found, 0);
}

/* With more keys than a processor's caches hold, prefetching in look-ups and in the drain is only
 * an optimisation: the results are the same. */
static void
many_keys_are_fetched_ahead(void **state)
{
    struct cn_store *store =
        open_with(*state, (struct cn_disk_options){.journal_max_bytes = 1u << 20});
    static uint32_t words[MANY];
    static struct cn_store_hint known[MANY]; /* of every other value, by its owner */
    const struct cn_store_hint *hints[CN_PREFETCH_MAX] = {NULL};
    struct cn_str keys[CN_PREFETCH_MAX];
    char bytes[CN_PREFETCH_MAX][32];

    memset(words, 0, sizeof(words));
    memset(known, 0, sizeof(known));
    for (unsigned round = 0; round < 4 * MANY; round += CN_PREFETCH_MAX) {
        unsigned first = round < MANY ? round : (unsigned)test_next_random() % (MANY / 3);

        for (unsigned i = 0; i < CN_PREFETCH_MAX; i++)
            keys[i] = key_of(bytes[i], first + i);
        for (unsigned i = 0; i < CN_PREFETCH_MAX; i += 2)
            hints[i] = &known[first + i];
        cn_store_prefetch(store, keys, hints, 0);
        cn_store_prefetch(store, keys, hints, CN_PREFETCH_MAX);
        begin(store, CN_STORE_WRITE);
        for (unsigned i = 0; i < CN_PREFETCH_MAX; i++) {
            assert_int_equal(get_word(store, first + i), words[first + i]);
            put_word_by(store, first + i, words[first + i] = round + 1, 60,
                        i % 2 ? NULL : &known[first + i]);
        }
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    expect_words(store, words, MANY);
    cn_store_close(store);
    store = open_with(*state, (struct cn_disk_options){.journal_max_bytes = 1u << 20});
    expect_words(store, words, MANY);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(a_failed_append_leaves_nothing),  WITH_DIR(full_disk_fails_what_grows_only),
        WITH_DIR(the_limit_counts_the_journal),    WITH_DIR(the_file_stays_near_its_limit),
        WITH_DIR(a_long_journal_is_read_in_parts), WITH_DIR(busy_keys_stay_in_the_journal),
        WITH_DIR(many_keys_are_fetched_ahead),
    };

    return cmocka_run_group_tests_name("cache.journal_room", tests, NULL, NULL);
}
