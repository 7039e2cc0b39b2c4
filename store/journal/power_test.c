/* store/journal/power_test.c - what a store of durability power has on the disk, and when. A power
 * cut leaves a file as it was when it was synced last. */
#include "store/journal/test_journal.h"

#include "store/journal/journal_ledger.h"

#define N_FILES 4

static const char *const names[N_FILES] = {"journal.0", "journal.1", "ledger.0", "ledger.1"};

static struct {
    unsigned n[N_FILES]; /* how often each file was synced */
    unsigned n_reports;  /* how often the report DAMAGED was */
    bool kills;          /* the next sync of a journal's file is not reached */
    bool switched;
} seen;

/* All of this program, with the store and LMDB in it, calls this one. It keeps a copy of each of
 * the journal's files as it is now. */
int
fdatasync(int fd)
{
    char link[64], path[256] = "", copy[300];
    const char *name;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) < 0 || !(name = strrchr(path, '/')))
        return 0;
    for (unsigned i = 0; i < N_FILES; i++) {
        if (strcmp(name + 1, names[i]) != 0)
            continue;
        if (seen.kills && i < 2)
            _exit(0);
        seen.n[i]++;
        snprintf(copy, sizeof(copy), "%s.synced", path);
        test_copy_file(path, copy);
    }
    return 0;
}

int
fsync(int fd)
{
    char link[64], path[256] = "";
    const char *name;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 && (name = strrchr(path, '/')))
        seen.n_reports += strcmp(name, "/" CN_STORE_DAMAGED) == 0;
    return 0;
}

static void
note_switch(enum cn_store_point point)
{
    seen.switched = seen.switched || point == CN_STORE_SWITCHED;
}

static struct cn_store *
open_synced(const char *dir)
{
    return open_with(dir, (struct cn_disk_options){.sync = true, .passing = note_switch});
}

static int
set_up(void **state)
{
    memset(&seen, 0, sizeof(seen));
    return test_dir_set_up(state);
}

/* The machine is started again after a power cut, so the ledger is of another boot. */
static void
change_boot(const char *path)
{
    char header[CN_LEDGER_HEADER_BYTES];
    uint64_t first, seed, boot;
    int fd = open(path, O_RDWR);

    if (pread(fd, header, sizeof(header), 0) == (ssize_t)sizeof(header) &&
        cn_ledger_get_header((struct cn_str){header, sizeof(header)}, &first, &seed, &boot)) {
        cn_ledger_put_header(header, first, seed, boot + 1);
        assert_int_equal(pwrite(fd, header, sizeof(header), 0), sizeof(header));
    }
    close(fd);
}

static void
cut_power(const char *dir)
{
    char path[256], copy[300];

    for (unsigned i = 0; i < N_FILES; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        snprintf(copy, sizeof(copy), "%s.synced", path);
        if (access(copy, F_OK) == 0)
            test_copy_file(copy, path);
        else
            assert_int_equal(truncate(path, 0), 0);
        if (i >= 2)
            change_boot(path);
    }
}

/* A worker is killed between its append and the sync. The next one finds the step, and would answer
 * a repeated request with it. */
static void
what_a_killed_worker_has_not_synced_is_synced_before_it_is_read(void **state)
{
    uint32_t words[] = {1, 2};
    struct cn_store *store;
    int status;
    pid_t pid;

    if ((pid = fork()) == 0) {
        store = open_synced(*state);
        step(store, 0, 1, 24, NULL);
        seen.kills = true;
        step(store, 1, 2, 24, NULL);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    store = open_synced(*state);
    expect_words(store, words, 2);
    assert_int_equal(seen.n[0], 1);
    expect_words(store, words, 2);
    assert_int_equal(seen.n[0], 1);
    cn_store_close(store);
    cut_power(*state);
    store = open_synced(*state);
    expect_words(store, words, 2);
    cn_store_close(store);
    assert_false(is_told(*state));
}

/* A worker that ends in order, or is killed later, leaves nothing to sync. */
static void
what_was_synced_is_not_synced_again(void **state)
{
    uint32_t words[] = {1};
    struct cn_store *store;
    int status;
    pid_t pid;

    if ((pid = fork()) == 0) {
        store = open_synced(*state);
        step(store, 0, 1, 24, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    store = open_synced(*state);
    expect_words(store, words, 1);
    assert_int_equal(seen.n[0], 0);
    cn_store_close(store);
}

/* Loses power after the first commit to a file that was just begun, the first one of the store and
 * later ones. Nothing is lost, so nothing is told. */
static void
a_power_cut_in_a_new_file_is_no_damage(void **state)
{
    uint32_t words[16] = {0}, word = 0;

    for (unsigned round = 0; round < 4; round++) {
        struct cn_store *store = open_synced(*state);

        for (seen.switched = false; !seen.switched;) {
            word++;
            assert_int_equal(step(store, word % 16, word, 400, NULL), 0);
            words[word % 16] = word;
            if (round > 0)
                cn_store_maintain(store);
        }
        cn_store_close(store);
        cut_power(*state);
        store = open_synced(*state);
        expect_words(store, words, 16);
        cn_store_close(store);
        if (is_told(*state))
            fail_msg("round %u", round);
    }
}

/* The repair is synced, so what it tells must be, too. */
static void
a_report_of_damage_is_synced(void **state)
{
    struct cn_store *store = open_synced(*state);
    char path[256];

    step(store, 0, 1, 24, NULL);
    cn_store_close(store);
    snprintf(path, sizeof(path), "%s/ledger.0", (char *)*state);
    assert_int_equal(truncate(path, 0), 0);
    cn_store_close(open_synced(*state));
    assert_true(is_told(*state));
    assert_int_equal(seen.n_reports, 1);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, remove_dir)
    const struct CMUnitTest tests[] = {
        WITH_DIR(what_a_killed_worker_has_not_synced_is_synced_before_it_is_read),
        WITH_DIR(what_was_synced_is_not_synced_again),
        WITH_DIR(a_power_cut_in_a_new_file_is_no_damage),
        WITH_DIR(a_report_of_damage_is_synced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
