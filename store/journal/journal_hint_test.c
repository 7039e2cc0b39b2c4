/* store/journal/journal_hint_test.c - tests that store location hints save look-ups and never
 * change a result, even if other processes write. */
#include "store/disk_store.h"
#include "store/journal/journal.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "store/journal/journal_priv.h"
#include "store/store.h"

#define KEYS 3000u
/* a journal that is full now and then and takes several slices to drain */
#define SEVERAL_SLICES (256u << 10)
#define SMALL (16u << 10) /* one that is full again and again */

/* What the owner of a key keeps in memory about it. */
struct owned {
    uint32_t word; /* 0: nothing */
    struct cn_store_hint hint;
};

static struct cn_store *
open_store(const char *dir, const char *name, uint64_t journal_bytes)
{
    struct cn_store *store = NULL;
    char path[TEST_DIR_MAX + 16];
    struct cn_disk_options options = {
        .dir = path, .max_bytes = 64u << 20, .journal_max_bytes = journal_bytes};
    struct cn_error err = {0};

    snprintf(path, sizeof(path), "%s%s", dir, name);
    mkdir(path, 0700);
    if (cn_disk_store_open(&options, &store, &err) != 0)
        fail_msg("%s", err.message);
    return store;
}

static struct cn_str
key_of(char out[32], unsigned i)
{
    return (struct cn_str){out, (size_t)snprintf(out, 32, "session-%u", i)};
}

static struct cn_str
value_of(uint32_t word, size_t len)
{
    static char bytes[8192];

    memcpy(bytes, &word, sizeof(word));
    return (struct cn_str){bytes, len};
}

static uint32_t
get_word(struct cn_store *store, unsigned key)
{
    struct cn_str value;
    uint32_t word = 0;
    char bytes[32];

    assert_int_equal(cn_store_prefix(store, key_of(bytes, key), &value, NULL), 0);
    if (value.ptr)
        memcpy(&word, value.ptr, sizeof(word));
    return word;
}

static size_t
random_len(void)
{
    uint32_t kind = test_next_random() % 20;

    return 4 + test_next_random() % (kind == 0 ? 8000 : kind < 5 ? 1000 : 100);
}

static void
expect_same_books(struct cn_store *store, struct cn_store *other)
{
    const struct cn_journal_store *a = (const struct cn_journal_store *)store,
                                  *b = (const struct cn_journal_store *)other;

    assert_int_equal(a->cur, b->cur);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(a->files[i].tail, b->files[i].tail);
        assert_int_equal(a->files[i].live_bytes, b->files[i].live_bytes);
        assert_int_equal(a->files[i].owed, b->files[i].owed);
        assert_int_equal(a->files[i].freed, b->files[i].freed);
    }
}

/* Makes one transaction in two stores, in the first with hints and in the second without them.
 * Returns how many hints were valid. */
static unsigned
change_some(struct cn_store *traced, struct cn_store *plain, struct owned *owned, unsigned range)
{
    static struct owned then[KEYS];
    unsigned held = 0;
    char bytes[32];

    memcpy(then, owned, sizeof(then));
    assert_int_equal(cn_store_begin(traced, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_begin(plain, CN_STORE_WRITE, NULL), 0);
    for (unsigned n = 1 + test_next_random() % 12; n > 0; n--) {
        unsigned i = test_next_random() % range, what = test_next_random() % 12;
        struct cn_str key = key_of(bytes, i);
        uint32_t word = test_next_random() | 1u;
        struct cn_str value = value_of(word, random_len());

        if (cn_store_holds(traced, &then[i].hint)) {
            assert_int_equal(get_word(traced, i), then[i].word);
            held++;
        }
        if (what == 0) {
            assert_int_equal(cn_store_remove(traced, key, NULL), 0);
            assert_int_equal(cn_store_remove(plain, key, NULL), 0);
            assert_false(cn_store_holds(traced, &then[i].hint));
            continue;
        }
        assert_int_equal(cn_store_put(plain, key, value, NULL), 0);
        if (what == 1) { /* written by somebody else, so the owner's hint is out of date */
            assert_int_equal(cn_store_put(traced, key, value, NULL), 0);
            assert_false(cn_store_holds(traced, &then[i].hint));
            continue;
        }
        assert_int_equal(cn_store_replace(traced, key, value, &then[i].hint, NULL), 0);
        then[i].word = word;
    }
    if (test_next_random() % 6 == 0) {
        cn_store_abort(traced);
        cn_store_abort(plain);
        return held;
    }
    assert_int_equal(cn_store_commit(traced, NULL), 0);
    assert_int_equal(cn_store_commit(plain, NULL), 0);
    memcpy(owned, then, sizeof(then));
    return held;
}

/* Two stores get the same writes, one of them with the hints of the values' owners. Both keep the
 * same counts and the same content, even after each drain. */
static void
a_trace_changes_nothing(void **state)
{
    struct cn_store *traced = open_store(*state, "/traced", SEVERAL_SLICES),
                    *plain = open_store(*state, "/plain", SEVERAL_SLICES);
    static struct owned owned[KEYS];
    unsigned held = 0;

    memset(owned, 0, sizeof(owned));
    for (unsigned round = 0; round < 6000; round++) {
        held += change_some(traced, plain, owned, test_next_random() % 2 ? 20 : KEYS);
        expect_same_books(traced, plain);
        if (test_next_random() % 2) {
            cn_store_work_off(traced);
            cn_store_work_off(plain);
        }
        if (test_next_random() % 100 == 0) {
            cn_store_maintain(traced);
            cn_store_maintain(plain);
        }
    }
    assert_true(held > 10000); /* of 39,000 changes */
    assert_int_equal(cn_store_begin(traced, CN_STORE_READ, NULL), 0);
    assert_int_equal(cn_store_begin(plain, CN_STORE_READ, NULL), 0);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get_word(traced, i), get_word(plain, i));
    cn_store_close(traced);
    cn_store_close(plain);
}

/* Each byte from `wishes` asks for that number of transactions with one key each. Replies when they
 * are committed. */
static _Noreturn void
write_as_told(const char *dir, int wishes, int done)
{
    struct cn_store *store = open_store(dir, "", SMALL);
    unsigned char n;
    char key[32];

    while (read(wishes, &n, 1) == 1) {
        for (unsigned i = 0; i < n; i++) {
            unsigned at = test_next_random() % KEYS;

            if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0 ||
                (at % 7 == 0
                     ? cn_store_remove(store, key_of(key, at), NULL)
                     : cn_store_put(store, key_of(key, at), value_of(2 * i + 2, 400), NULL)) ||
                cn_store_commit(store, NULL) != 0)
                _exit(1);
            cn_store_work_off(store);
        }
        if (write(done, &n, 1) != 1)
            _exit(2);
    }
    cn_store_close(store);
    _exit(0);
}

/* While the owner does nothing, another process writes some keys or many, up to a full round
 * through both files. A hint that is still valid then describes the stored value. */
static void
others_make_a_trace_stale(void **state)
{
    static struct owned owned[KEYS];
    unsigned held = 0, stale = 0;
    int wishes[2], done[2], status;
    struct cn_store *store;
    unsigned char n;
    pid_t pid;

    memset(owned, 0, sizeof(owned));
    assert_int_equal(pipe(wishes), 0);
    assert_int_equal(pipe(done), 0);
    if ((pid = fork()) == 0) {
        close(wishes[1]);
        write_as_told(*state, wishes[0], done[1]);
    }
    store = open_store(*state, "", SMALL);
    for (unsigned round = 0; round < 400; round++) {
        char bytes[32];

        n = (unsigned char)(round % 10 == 0 ? 250 : test_next_random() % 8);
        assert_int_equal(write(wishes[1], &n, 1), 1);
        assert_int_equal(read(done[0], &n, 1), 1);
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        for (unsigned i = 0; i < KEYS; i++) {
            if (cn_store_holds(store, &owned[i].hint)) {
                assert_int_equal(get_word(store, i), owned[i].word);
                held++;
            } else if (owned[i].hint.txn != 0) {
                stale++;
            }
        }
        for (unsigned i = 0; i < KEYS; i += 1 + test_next_random() % 30) {
            owned[i].word = test_next_random() | 1u;
            assert_int_equal(cn_store_replace(store, key_of(bytes, i),
                                              value_of(owned[i].word, random_len()), &owned[i].hint,
                                              NULL),
                             0);
        }
        assert_int_equal(cn_store_commit(store, NULL), 0);
        cn_store_work_off(store);
    }
    assert_true(held > 1000 && stale > 1000);
    close(wishes[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    cn_store_close(store);
    close(wishes[0]);
    close(done[0]);
    close(done[1]);
}

/* Writes key 1 with the word 2. Then it damages the ledger, and repairs the store. */
static _Noreturn void
write_and_repair(const char *dir, int go)
{
    static const char zeros[64];
    struct cn_store *store;
    char path[TEST_DIR_MAX + 16], key[32];
    int fd;

    if (read(go, key, 1) != 1)
        _exit(1);
    store = open_store(dir, "", SMALL);
    if (cn_store_begin(store, CN_STORE_WRITE, NULL) != 0 ||
        cn_store_put(store, key_of(key, 1), value_of(2, 40), NULL) != 0 ||
        cn_store_commit(store, NULL) != 0)
        _exit(2);
    cn_store_close(store);
    snprintf(path, sizeof(path), "%s/ledger.0", dir);
    fd = open(path, O_WRONLY);
    if (pwrite(fd, zeros, sizeof(zeros), 0) != sizeof(zeros))
        _exit(3);
    close(fd);
    cn_store_close(open_store(dir, "", SMALL));
    _exit(0);
}

/* A worker with a value in its memory does nothing while another one replaces it, and while a third
 * one finds damage and moves the whole journal to LMDB. */
static void
a_repair_makes_a_trace_stale(void **state)
{
    struct cn_store_hint hint = {0};
    struct cn_store *store;
    int go[2], status;
    char bytes[32];
    pid_t pid;

    assert_int_equal(pipe(go), 0);
    if ((pid = fork()) == 0)
        write_and_repair(*state, go[0]);
    store = open_store(*state, "", SMALL);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_replace(store, key_of(bytes, 1), value_of(1, 40), &hint, NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_true(((struct cn_journal_store *)store)->salvaged_below > 0);
    assert_false(cn_store_holds(store, &hint));
    assert_int_equal(get_word(store, 1), 2);
    cn_store_close(store);
    close(go[0]);
    close(go[1]);
}

/* A store of another kind ignores hints and stores the values. */
static void
a_table_in_memory_has_none(void **state)
{
    struct cn_store *store = cn_mem_store_open(1u << 20);
    struct cn_store_hint hint = {0};
    char bytes[32];

    (void)state;
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    assert_int_equal(cn_store_replace(store, key_of(bytes, 1), value_of(7, 40), &hint, NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    assert_false(cn_store_holds(store, &hint));
    assert_int_equal(get_word(store, 1), 7);
    cn_store_close(store);
}

int
main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, test_dir_set_up, test_dir_tear_down)
    const struct CMUnitTest tests[] = {
        WITH_DIR(a_trace_changes_nothing),
        WITH_DIR(others_make_a_trace_stale),
        WITH_DIR(a_repair_makes_a_trace_stale),
        cmocka_unit_test(a_table_in_memory_has_none),
    };

    return cmocka_run_group_tests_name("cache.journal_trace", tests, NULL, NULL);
}
