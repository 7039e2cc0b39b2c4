/* store/store_test.c - tests what every kind of store promises: in memory, in LMDB, with the
 * journal above LMDB, and on the same files without a journal. */
#include "store/disk_store.h"
#include "store/lmdb/lmdb_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"

struct fixture {
    char dir[64];
    struct cn_store *store;
};

static int
open_memory(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->store = cn_mem_store_open(1 << 20);
    *state = f;
    return 0;
}

static int
open_lmdb(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cn_lmdb_options options = {.dir = f->dir, .max_bytes = 1 << 20};

    test_dir_make(f->dir);
    if (cn_lmdb_store_open(&options, &f->store, NULL) != 0)
        return -1;
    *state = f;
    return 0;
}

static int
open_journal(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cn_disk_options options = {
        .dir = f->dir, .max_bytes = 1 << 20, .journal_max_bytes = 256 << 10};

    test_dir_make(f->dir);
    if (cn_disk_store_open(&options, &f->store, NULL) != 0)
        return -1;
    *state = f;
    return 0;
}

static int
open_direct(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cn_disk_options options = {
        .dir = f->dir, .max_bytes = 1 << 20, .journal_max_bytes = 256 << 10, .direct = true};

    test_dir_make(f->dir);
    if (cn_disk_store_open(&options, &f->store, NULL) != 0)
        return -1;
    *state = f;
    return 0;
}

static int
close_any(void **state)
{
    struct fixture *f = *state;

    cn_store_close(f->store);
    if (f->dir[0])
        test_dir_remove(f->dir);
    free(f);
    return 0;
}

static void
begin(struct cn_store *store, enum cn_store_txn kind)
{
    assert_int_equal(cn_store_begin(store, kind, NULL), 0);
}

static void
put(struct cn_store *store, const char *key, const char *value)
{
    assert_int_equal(cn_store_put(store, cn_str_from(key), cn_str_from(value), NULL), 0);
}

static void
expect(struct cn_store *store, const char *key, const char *value)
{
    struct cn_str got;

    begin(store, CN_STORE_READ);
    assert_int_equal(cn_store_get(store, cn_str_from(key), &got, NULL), 0);
    if (value) {
        assert_non_null(got.ptr);
        assert_true(cn_str_eq(got, cn_str_from(value)));
    } else {
        assert_null(got.ptr);
    }
    cn_store_abort(store);
}

/* A commit is all or nothing, and what it wrote is found. */
static void
commit_keeps_and_abort_undoes(void **state)
{
    struct cn_store *store = ((struct fixture *)*state)->store;

    begin(store, CN_STORE_WRITE);
    put(store, "a", "1");
    put(store, "b", "2");
    put(store, "a", "3");
    assert_int_equal(cn_store_commit(store, NULL), 0);
    expect(store, "a", "3");
    assert_int_equal(cn_store_count(store), 2);
    assert_true(cn_store_bytes(store) > 0);

    begin(store, CN_STORE_WRITE);
    put(store, "a", "4");
    put(store, "a", "5");
    put(store, "c", "6");
    assert_int_equal(cn_store_remove(store, CN_STR("b"), NULL), 0);
    assert_int_equal(cn_store_remove(store, CN_STR("never there"), NULL), 0);
    cn_store_abort(store);
    expect(store, "a", "3");
    expect(store, "b", "2");
    expect(store, "c", NULL);
    assert_int_equal(cn_store_count(store), 2);
    cn_store_abort(store); /* harmless */

    begin(store, CN_STORE_WRITE);
    assert_int_equal(cn_store_remove(store, CN_STR("b"), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    expect(store, "b", NULL);
    assert_int_equal(cn_store_count(store), 1);
}

/* Keys are any bytes: NULs, prefixes of each other, the longest ones. None is confused with
 * another. */
static void
keys_are_bytes(void **state)
{
    struct cn_store *store = ((struct fixture *)*state)->store;
    char longest[CN_STORE_KEY_MAX];
    struct cn_str keys[] = {CN_STR("a"),
                            CN_STR("a\0"),
                            CN_STR("\0"),
                            CN_STR("\1"),
                            CN_STR("format"),
                            {longest, sizeof(longest)},
                            {longest, sizeof(longest) - 1}};
    struct cn_str got;

    memset(longest, 0xff, sizeof(longest));
    begin(store, CN_STORE_WRITE);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(cn_store_put(store, keys[i], (struct cn_str){(char *)&i, sizeof(i)}, NULL),
                         0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    begin(store, CN_STORE_READ);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(cn_store_get(store, keys[i], &got, NULL), 0);
        assert_memory_equal(got.ptr, &i, sizeof(i));
    }
    cn_store_abort(store);
    assert_int_equal(cn_store_count(store), 7);
}

/* A sweep visits everything once, in bounded steps, even if entries are removed meanwhile. */
static void
scan_sees_each_once(void **state)
{
    struct cn_store *store = ((struct fixture *)*state)->store;
    char key[16], at[CN_STORE_KEY_MAX];
    struct cn_str after = {at, 0}, id, value;
    unsigned seen[100] = {0}, n = 0;

    begin(store, CN_STORE_WRITE);
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "%d", i);
        put(store, key, "v");
    }
    assert_int_equal(cn_store_commit(store, NULL), 0);
    for (;;) {
        begin(store, CN_STORE_READ);
        for (int i = 0; i < 7; i++) {
            assert_int_equal(cn_store_next(store, after, &id, &value, NULL), 0);
            if (!id.ptr)
                break;
            memcpy(at, id.ptr, id.len);
            after.len = id.len;
            snprintf(key, sizeof(key), "%.*s", CN_STR_ARG(id));
            seen[atoi(key)]++;
            n++;
        }
        cn_store_abort(store);
        if (!id.ptr)
            break;
    }
    assert_int_equal(n, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
}

/* "Full" is an ordinary error that names the limit. What is stored can still be read, changed in
 * place and removed, and then there is room again. */
static void
full_refuses_growth_only(void **state)
{
    struct cn_store *store = ((struct fixture *)*state)->store;
    static char large[20000];
    struct cn_str value = {large, sizeof(large)};
    struct cn_error err;
    char key[16];
    int n = 0, rc;

    for (rc = 0; rc == 0; n++) {
        snprintf(key, sizeof(key), "%d", n);
        begin(store, CN_STORE_WRITE);
        rc = cn_store_put(store, cn_str_from(key), value, &err);
        assert_int_equal(cn_store_commit(store, NULL), 0);
        assert_in_range(n, 0, 60);
    }
    assert_int_equal(rc, 1);
    assert_int_equal(err.code, CN_E_STATE_STORE);
    assert_non_null(strstr(err.message, "state.storeMaxBytes"));
    assert_in_range(n, 30, 60); /* 1 MiB less what the store itself needs */
    expect(store, key, NULL);
    for (int i = 0; i < 200; i++) {
        begin(store, CN_STORE_WRITE);
        large[0] = (char)i;
        assert_int_equal(cn_store_put(store, CN_STR("3"), value, NULL), 0);
        assert_int_equal(cn_store_commit(store, NULL), 0);
    }
    begin(store, CN_STORE_WRITE);
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof(key), "%d", i);
        put(store, key, "tombstone");
    }
    assert_int_equal(cn_store_commit(store, NULL), 0);
    begin(store, CN_STORE_WRITE);
    assert_int_equal(cn_store_put(store, CN_STR("new"), value, NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
}

/* Makes a value each of whose bytes depends on its key. */
static void
make_value(char *bytes, size_t len, uint32_t seed)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (char)(seed * 31 + i * 7 + (i >> 8));
}

static void
expect_whole(struct cn_store *store, struct cn_str key, size_t len, uint32_t seed)
{
    static char wanted[60000];
    struct cn_str got, prefix;

    make_value(wanted, len, seed);
    assert_int_equal(cn_store_prefix(store, key, &prefix, NULL), 0);
    assert_int_equal(cn_store_get(store, key, &got, NULL), 0);
    if (len == 0) {
        assert_null(got.ptr);
        assert_null(prefix.ptr);
        return;
    }
    assert_int_equal(got.len, len);
    assert_memory_equal(got.ptr, wanted, len);
    assert_in_range(prefix.len, len < CN_STORE_PREFIX_BYTES ? len : CN_STORE_PREFIX_BYTES, len);
    assert_memory_equal(prefix.ptr, wanted, prefix.len);
}

/* Values of any size come back complete, also around the size of a file's page, and whatever the
 * key held before. Keys that look like parts of other keys are not confused. */
static void
values_of_any_size(void **state)
{
    static const size_t sizes[] = {0,    1,    2038, 2039,  4079,  4080,  4081,
                                   8159, 8160, 8161, 12240, 12241, 40001, 59999};
    const struct cn_str keys[] = {CN_STR("k"),         CN_STR("k\0"), CN_STR("k\0\0\0\1"),
                                  CN_STR("k\0\0\0\2"), CN_STR("l"),   CN_STR("l1"),
                                  CN_STR("\2pieces")};
    enum { KEYS = sizeof(keys) / sizeof(*keys) };
    struct cn_store *store = ((struct fixture *)*state)->store;
    size_t is[KEYS] = {0}, will[KEYS];
    uint32_t seeds[KEYS] = {0}, new_seeds[KEYS];
    static char value[60000];
    struct cn_str after = {NULL, 0}, id, prefix;
    unsigned n;

    for (uint32_t round = 1; round < 400; round++) {
        memcpy(will, is, sizeof(is));
        memcpy(new_seeds, seeds, sizeof(seeds));
        begin(store, CN_STORE_WRITE);
        for (unsigned i = 0; i < 1 + test_next_random() % 3; i++) {
            unsigned key = test_next_random() % KEYS;

            will[key] = sizes[test_next_random() % (sizeof(sizes) / sizeof(*sizes))];
            new_seeds[key] = round + i;
            make_value(value, will[key], new_seeds[key]);
            assert_int_equal(
                will[key] ? cn_store_put(store, keys[key], (struct cn_str){value, will[key]}, NULL)
                          : cn_store_remove(store, keys[key], NULL),
                0);
            expect_whole(store, keys[key], will[key], new_seeds[key]);
        }
        if (test_next_random() % 4 == 0) {
            cn_store_abort(store);
        } else {
            assert_int_equal(cn_store_commit(store, NULL), 0);
            memcpy(is, will, sizeof(is));
            memcpy(seeds, new_seeds, sizeof(seeds));
        }
        cn_store_work_off(store);
        if (round % 40 == 0)
            cn_store_maintain(store);
        begin(store, CN_STORE_READ);
        for (unsigned i = 0; i < KEYS; i++)
            expect_whole(store, keys[i], is[i], seeds[i]);
        cn_store_abort(store);
    }
    begin(store, CN_STORE_READ);
    for (n = 0; cn_store_next(store, after, &id, &prefix, NULL) == 0 && id.ptr; n++) {
        unsigned i = 0;

        while (!cn_str_eq(keys[i], id))
            assert_in_range(++i, 0, KEYS - 1);
        make_value(value, is[i], seeds[i]);
        assert_in_range(prefix.len, is[i] < CN_STORE_PREFIX_BYTES ? is[i] : CN_STORE_PREFIX_BYTES,
                        is[i]);
        assert_memory_equal(prefix.ptr, value, prefix.len);
        after = id;
    }
    cn_store_abort(store);
    assert_int_equal(cn_store_count(store), n);
    for (unsigned i = 0; i < KEYS; i++)
        n -= is[i] != 0;
    assert_int_equal(n, 0);
}

int
main(void)
{
#define EACH(test)                                                                                 \
    {"memory: " #test, test, open_memory, close_any, NULL},                                        \
        {"lmdb: " #test, test, open_lmdb, close_any, NULL},                                        \
        {"direct: " #test, test, open_direct, close_any, NULL},                                    \
    {                                                                                              \
        "journal: " #test, test, open_journal, close_any, NULL                                     \
    }
    const struct CMUnitTest tests[] = {
        EACH(commit_keeps_and_abort_undoes), EACH(keys_are_bytes),     EACH(scan_sees_each_once),
        EACH(full_refuses_growth_only),      EACH(values_of_any_size),
    };

    return cmocka_run_group_tests_name("cache.store", tests, NULL, NULL);
}
