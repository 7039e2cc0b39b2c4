/* store/journal/direct_store_test.c - a store without a journal keeps what it committed, and a
 * store may change between both ways at any start. */
#include "store/disk_store.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/test_support.h"

#define KEYS 48

static struct cn_store *
open_store(const char *dir, bool direct)
{
    const struct cn_disk_options options = {.dir = dir,
                                            .max_bytes = 64u << 20,
                                            .journal_max_bytes = 64u << 10,
                                            .check_max_bytes = UINT64_MAX,
                                            .recheck = true,
                                            .direct = direct};
    struct cn_store *store = NULL;
    struct cn_error err = {0};

    if (cn_disk_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static bool
is_direct(const struct cn_store *store)
{
    return strcmp(store->ops->name, "direct") == 0;
}

static void
begin(struct cn_store *store, enum cn_store_txn kind)
{
    assert_int_equal(cn_store_begin(store, kind, NULL), 0);
}

static struct cn_str
key_of(char out[32], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 32, "session-%u", i)};
}

/* Makes a value that repeats `word` and whose size depends on it, from 4 bytes to three pages. */
static void
put(struct cn_store *store, unsigned i, uint32_t word)
{
    static char value[12288];
    const size_t len = 4 + word * 7919u % (sizeof(value) - 4);
    char key[32];

    memset(value, (int)word, sizeof(value));
    memcpy(value, &word, sizeof(word));
    assert_int_equal(cn_store_put(store, key_of(key, i), (struct cn_str){value, len}, NULL), 0);
}

/* Expects these words, where 0 means that there is no such key. A scan must find the same number.
 */
static void
expect(struct cn_store *store, const uint32_t words[KEYS])
{
    struct cn_str value, id, prefix, after = CN_STR("");
    char key[32], last[CN_STORE_KEY_MAX];
    uint32_t word, n = 0;

    begin(store, CN_STORE_READ);
    for (unsigned i = 0; i < KEYS; i++) {
        assert_int_equal(cn_store_get(store, key_of(key, i), &value, NULL), 0);
        assert_int_equal(value.ptr != NULL, words[i] != 0);
        n += words[i] != 0;
        if (!words[i])
            continue;
        memcpy(&word, value.ptr, sizeof(word));
        assert_int_equal(word, words[i]);
        assert_int_equal(value.len, 4 + word * 7919u % (12288 - 4));
        assert_int_equal(value.len == 4 || value.ptr[value.len - 1] == (char)word, 1);
    }
    while (cn_store_next(store, after, &id, &prefix, NULL) == 0 && id.ptr) {
        assert_true(n > 0 && prefix.len > 0);
        n--;
        memcpy(last, id.ptr, id.len);
        after = (struct cn_str){last, id.len};
    }
    assert_int_equal(n, 0);
    cn_store_abort(store);
}

/* A store that was written in one way can be opened in the other, and everything committed is
 * there. */
static void
it_changes_at_any_start(void **state)
{
    uint32_t words[KEYS] = {0}, word = 0, random = 1;
    struct cn_store *store;
    char key[32];

    for (unsigned round = 0; round < 40; round++) {
        const bool direct = (random = random * 1664525u + 1013904223u) >> 31;

        store = open_store(*state, direct);
        assert_int_equal(is_direct(store), direct);
        expect(store, words);
        for (unsigned batch = 0; batch < 1 + round % 9; batch++) {
            begin(store, CN_STORE_WRITE);
            for (unsigned n = 0; n < 8; n++) {
                const unsigned i = (random = random * 1664525u + 1013904223u) >> 16;

                if (i % 5 == 0)
                    assert_int_equal(cn_store_remove(store, key_of(key, i % KEYS), NULL), 0);
                else
                    put(store, i % KEYS, ++word);
                words[i % KEYS] = i % 5 ? word : 0;
            }
            assert_int_equal(cn_store_commit(store, NULL), 0);
            cn_store_work_off(store);
        }
        expect(store, words);
        cn_store_close(store);
    }
}

/* Commits rounds for ever and reports each of them. */
static _Noreturn void
write_rounds(const char *dir, bool direct, uint32_t round, int fd)
{
    struct cn_store *store = open_store(dir, direct);

    for (;; round++) {
        begin(store, CN_STORE_WRITE);
        for (unsigned i = 0; i < KEYS; i += 6)
            put(store, i + round % 6, round);
        if (cn_store_commit(store, NULL) != 0 || write(fd, &round, sizeof(round)) < 0)
            _exit(1);
        cn_store_work_off(store);
    }
}

/* A writer that is killed loses nothing that it has reported. The next round is there completely or
 * not at all. The next process may use the other way. */
static void
kill_9_loses_nothing_committed(void **state)
{
    uint32_t newest = 0, words[KEYS];
    struct cn_store *store;
    struct cn_str value;
    char key[32];

    for (unsigned death = 0; death < 24; death++) {
        uint32_t round, last = newest, there;
        int fds[2], status;
        pid_t pid;

        assert_int_equal(pipe(fds), 0);
        if ((pid = fork()) == 0) {
            close(fds[0]);
            write_rounds(*state, death % 3 != 2, newest + 1, fds[1]);
        }
        close(fds[1]);
        for (unsigned n = 0; n < 1 + death * 3; n++)
            assert_int_equal(read(fds[0], &last, sizeof(last)), sizeof(last));
        kill(pid, SIGKILL);
        while (read(fds[0], &round, sizeof(round)) == sizeof(round))
            last = round;
        close(fds[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        store = open_store(*state, death % 2);
        begin(store, CN_STORE_READ);
        assert_int_equal(cn_store_get(store, key_of(key, (last + 1) % 6), &value, NULL), 0);
        there = last;
        if (value.ptr && memcmp(value.ptr, &(uint32_t){last + 1}, sizeof(last)) == 0)
            there = last + 1;
        cn_store_abort(store);
        for (unsigned i = 0; i < KEYS; i++)
            words[i] = there < (there + 6 - i % 6) % 6 ? 0 : there - (there + 6 - i % 6) % 6;
        expect(store, words);
        newest = there;
        cn_store_close(store);
    }
}

static void
file_take(const char *dir, const char *name, char *out, size_t size)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    memset(out, 0, size);
    assert_true(read(fd, out, size) >= 0);
    close(fd);
}

/* Nothing is appended to a journal that is switched off. */
static void
the_journal_stays_empty(void **state)
{
    static char before[2][65536], after[65536];
    struct cn_store *store = open_store(*state, true);
    static const char *const files[2] = {"journal.0", "journal.1"};

    for (unsigned f = 0; f < 2; f++)
        file_take(*state, files[f], before[f], sizeof(before[f]));
    for (uint32_t round = 1; round < 50; round++) {
        begin(store, CN_STORE_WRITE);
        put(store, round % KEYS, round);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    for (unsigned f = 0; f < 2; f++) {
        file_take(*state, files[f], after, sizeof(after));
        assert_memory_equal(before[f], after, sizeof(after));
    }
    cn_store_close(store);
}

/* Opens the store in a process of its own, which holds it until it is killed. */
static pid_t
hold_open(const char *dir, bool direct)
{
    char byte = 0;
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    if ((pid = fork()) == 0) {
        struct cn_store *store = open_store(dir, direct);

        byte = is_direct(store);
        if (write(fds[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    assert_int_equal(byte, direct);
    return pid;
}

/* If half of the workers used a journal and half did not, they would not see each other's steps. So
 * later processes do what the first ones do, even if those are killed meanwhile. */
static void
all_processes_use_the_same_way(void **state)
{
    for (unsigned direct = 0; direct < 2; direct++) {
        pid_t pid = hold_open(*state, direct);
        struct cn_store *store = open_store(*state, !direct);
        uint32_t words[KEYS] = {0};

        assert_int_equal(is_direct(store), direct);
        begin(store, CN_STORE_WRITE);
        put(store, direct, words[direct] = 5);
        words[0] = 5;
        assert_int_equal(cn_store_commit(store, NULL), 0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        cn_store_close(store);
        store = open_store(*state, !direct);
        assert_int_equal(is_direct(store), !direct);
        expect(store, words);
        cn_store_close(store);
    }
}

/* A sequence that damage has destroyed is refused, begins anew, or is accepted, without a journal
 * as with one. */
static void
lost_keys_are_refused_until_they_begin_anew(void **state)
{
    struct cn_store *store = open_store(*state, false);
    uint32_t words[KEYS] = {0};
    struct cn_str value;
    uint64_t dropped;
    char path[128], key[32];

    begin(store, CN_STORE_WRITE);
    for (unsigned i = 0; i < 4; i++)
        put(store, i, 1);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    cn_store_close(store);
    snprintf(path, sizeof(path), "%s/journal.0", (const char *)*state);
    assert_int_equal(truncate(path, 0), 0);
    store = open_store(*state, true);
    assert_true(is_direct(store));
    begin(store, CN_STORE_WRITE);
    assert_int_equal(cn_store_get(store, key_of(key, 0), &value, NULL), CN_E_STATE_DAMAGED);
    put(store, 0, words[0] = 2);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, key_of(key, 0), &value, NULL), 0);
    assert_int_equal(cn_store_get(store, key_of(key, 1), &value, NULL), CN_E_STATE_DAMAGED);
    cn_store_abort(store);
    assert_int_equal(cn_store_accept_loss(store, &dropped, NULL), 0);
    assert_int_equal(dropped, 3);
    expect(store, words);
    cn_store_close(store);
}

/* Where nothing that LMDB has can be trusted, the journal tells new values from old ones, so it is
 * used until the loss is accepted. */
static void
a_suspect_store_keeps_its_journal(void **state)
{
    struct cn_store *store = open_store(*state, true);
    uint32_t words[KEYS] = {0};
    struct cn_str value;
    uint64_t dropped;
    char path[128], key[32];

    for (unsigned round = 0; round < 2; round++) { /* with a journal, too, which is then moved */
        begin(store, CN_STORE_WRITE);
        put(store, round, 3);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_close(store);
        store = open_store(*state, round == 1);
    }
    cn_store_close(store);
    snprintf(path, sizeof(path), "%s/data.mdb", (const char *)*state);
    assert_int_equal(unlink(path), 0);
    store = open_store(*state, true);
    assert_false(is_direct(store));
    begin(store, CN_STORE_WRITE);
    assert_int_equal(cn_store_get(store, key_of(key, 0), &value, NULL), CN_E_STATE_DAMAGED);
    put(store, 7, words[7] = 9);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, key_of(key, 7), &value, NULL), 0);
    assert_non_null(value.ptr);
    cn_store_abort(store);
    assert_int_equal(cn_store_accept_loss(store, &dropped, NULL), 0);
    cn_store_close(store);
    store = open_store(*state, true);
    assert_true(is_direct(store));
    expect(store, words);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, test_dir_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DIR(it_changes_at_any_start),
        WITH_DIR(kill_9_loses_nothing_committed),
        WITH_DIR(the_journal_stays_empty),
        WITH_DIR(all_processes_use_the_same_way),
        WITH_DIR(lost_keys_are_refused_until_they_begin_anew),
        WITH_DIR(a_suspect_store_keeps_its_journal),
    };

    return cmocka_run_group_tests_name("store.direct_store", tests, NULL, NULL);
}
