/* store/memory/memory_store_test.c - tests the store in memory against an array. store_test.c tests
 * what all kinds of stores promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "store/store.h"

#define KEYS 50
#define VALUE_MAX 20000 /* larger than the entries that are kept for reuse */

/* What the store should hold. A value repeats one letter. */
struct expected {
    size_t len; /* 0: no such key */
    char letter;
};

static char value[VALUE_MAX];

static struct cn_str
key_at(int i)
{
    static char text[16];

    snprintf(text, sizeof(text), "key-%d", i);
    return cn_str_from(text);
}

static void
write_one(struct cn_store *store, struct expected *expected)
{
    /* Mostly one of two sizes, like the records of a model. */
    static const size_t sizes[] = {1300, 1300, 1300, 200, 200, VALUE_MAX};
    int i = (int)(test_next_random() % KEYS);
    size_t len =
        test_next_random() % 8 ? sizes[test_next_random() % 6] : 1 + test_next_random() % VALUE_MAX;

    if (test_next_random() % 5 == 0) {
        assert_int_equal(cn_store_remove(store, key_at(i), NULL), 0);
        expected[i].len = 0;
        return;
    }
    expected[i] = (struct expected){len, (char)('a' + test_next_random() % 26)};
    memset(value, expected[i].letter, len);
    assert_int_equal(cn_store_put(store, key_at(i), (struct cn_str){value, len}, NULL), 0);
}

static void
holds(struct cn_store *store, const struct expected *expected)
{
    struct cn_str got;
    uint64_t n = 0;

    assert_int_equal(cn_store_begin(store, CN_STORE_READ, NULL), 0);
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(cn_store_get(store, key_at(i), &got, NULL), 0);
        assert_int_equal(got.len, expected[i].len);
        for (size_t at = 0; at < got.len; at += 97)
            assert_int_equal(got.ptr[at], expected[i].letter);
        n += got.len > 0;
    }
    cn_store_abort(store);
    assert_int_equal(cn_store_count(store), n);
}

/* Replaced entries are used again, for values of other sizes, and after an abort. */
static void
random_transactions_agree_with_an_array(void **state)
{
    struct cn_store *store = cn_mem_store_open(1u << 30);
    struct expected now[KEYS] = {0}, before[KEYS];

    (void)state;
    for (int i = 0; i < 3000; i++) {
        memcpy(before, now, sizeof(before));
        assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
        for (uint32_t n = test_next_random() % 40; n > 0; n--)
            write_one(store, now);
        if (test_next_random() % 3) {
            assert_int_equal(cn_store_commit(store, NULL), 0);
        } else {
            cn_store_abort(store);
            memcpy(now, before, sizeof(now));
        }
        if (i % 10 == 0)
            holds(store, now);
    }
    assert_int_equal(cn_store_begin(store, CN_STORE_WRITE, NULL), 0);
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(cn_store_remove(store, key_at(i), NULL), 0);
    assert_int_equal(cn_store_commit(store, NULL), 0);
    assert_int_equal(cn_store_bytes(store), 0); /* nothing was counted twice */
    cn_store_close(store);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_transactions_agree_with_an_array)};

    return cmocka_run_group_tests_name("cache.mem_store", tests, NULL, NULL);
}
