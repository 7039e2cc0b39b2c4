/* store/journal/no_fallocate_test.c - a journal store on a file system without fallocate, such as
 * NFS before version 4.2 and most of FUSE. */
#include "store/journal/test_journal.h"

#define N_WORDS 64
#define VALUE_BYTES 12000

/* All of this program, with the store in it, calls this one. */
int
fallocate(int fd, int mode, off_t offset, off_t len)
{
    (void)fd;
    (void)mode;
    (void)offset;
    (void)len;
    errno = EOPNOTSUPP;
    return -1;
}

static struct cn_store *
open_large(const char *dir)
{
    return open_with(dir, (struct cn_disk_options){.journal_max_bytes = 16u << 20});
}

/* Fills the journal beyond the room that its files get at first, and the ledger, too. */
static void
fill(struct cn_store *store, uint32_t words[N_WORDS])
{
    for (uint32_t i = 0; i < 4 * N_WORDS; i++) {
        words[i % N_WORDS] = i + 1;
        assert_int_equal(step(store, i % N_WORDS, i + 1, VALUE_BYTES, NULL), 0);
    }
    for (uint32_t i = 0; i < 2000; i++) {
        words[0] = 10000 + i;
        assert_int_equal(step(store, 0, words[0], 4, NULL), 0);
    }
}

static off_t
bytes_of(const char *dir, const char *name)
{
    char path[256];
    struct stat stat_of;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(stat(path, &stat_of), 0);
    return stat_of.st_size;
}

static void
opening_again_keeps_what_was_written(void **state)
{
    struct cn_store *store = open_large(*state);
    uint32_t words[N_WORDS] = {0};
    off_t ledger;

    fill(store, words);
    cn_store_close(store);
    assert_in_range(bytes_of(*state, "journal.0"), 2u << 20, 16u << 20);
    ledger = bytes_of(*state, "ledger.0");
    assert_in_range(ledger, 100u << 10, 1u << 20);
    store = open_large(*state);
    expect_words(store, words, N_WORDS);
    assert_int_equal(bytes_of(*state, "ledger.0"), ledger);
    cn_store_close(store);
}

/* Another worker starts while this one uses the store. The child is made before the store is open,
 * because LMDB does not survive a fork. */
static void
a_worker_that_starts_takes_nothing_away(void **state)
{
    uint32_t words[N_WORDS] = {0};
    struct cn_store *store;
    int go[2], status;
    off_t ledger;
    pid_t pid;

    assert_int_equal(pipe(go), 0);
    pid = fork();
    if (pid == 0) {
        if (read(go[0], words, sizeof(words)) != (ssize_t)sizeof(words))
            _exit(2);
        store = open_large(*state);
        expect_words(store, words, N_WORDS);
        cn_store_close(store);
        _exit(0);
    }
    store = open_large(*state);
    fill(store, words);
    ledger = bytes_of(*state, "ledger.0");
    assert_int_equal(write(go[1], words, sizeof(words)), sizeof(words));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(bytes_of(*state, "ledger.0"), ledger);
    expect_words(store, words, N_WORDS);
    words[1] = 77;
    assert_int_equal(step(store, 1, words[1], VALUE_BYTES, NULL), 0);
    expect_words(store, words, N_WORDS);
    cn_store_close(store);
    close(go[0]);
    close(go[1]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(opening_again_keeps_what_was_written, test_dir_set_up,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(a_worker_that_starts_takes_nothing_away, test_dir_set_up,
                                        remove_dir),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
