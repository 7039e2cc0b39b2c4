/* store/memory/state_lru_test.c - tests that the LRU cache keeps the newest states within its
 * bounds. */
#include "store/memory/state_lru.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct object {
    struct cn_lru_entry lru;
    char name[24];
};

static unsigned evicted;
static char last_evicted[24];

static void
on_evict(void *ctx, struct cn_lru_entry *entry)
{
    struct object *object = cn_container_of(entry, struct object, lru);

    (void)ctx;
    evicted++;
    snprintf(last_evicted, sizeof(last_evicted), "%s", object->name);
    free(object);
}

static void
put(struct cn_lru *lru, const char *name, uint64_t bytes)
{
    struct object *object = calloc(1, sizeof(*object));

    snprintf(object->name, sizeof(object->name), "%s", name);
    object->lru.key = cn_str_from(object->name);
    object->lru.bytes = bytes;
    cn_lru_put(lru, &object->lru);
}

/* The number of sequences is bounded: the least recently used one is evicted. */
static void
oldest_goes_when_too_many(void **state)
{
    struct cn_lru *lru = cn_lru_create(2, 1000, on_evict, NULL);
    struct cn_lru_entry *a;

    (void)state;
    evicted = 0;
    put(lru, "a", 1);
    put(lru, "b", 1);
    a = cn_lru_take(lru, CN_STR("a"));
    assert_non_null(a);
    cn_lru_put(lru, a); /* now b is the least recently used */
    put(lru, "c", 1);
    assert_int_equal(evicted, 1);
    assert_string_equal(last_evicted, "b");
    assert_int_equal(cn_lru_count(lru), 2);
    assert_null(cn_lru_take(lru, CN_STR("b")));
    cn_lru_destroy(lru);
    assert_int_equal(evicted, 3);
}

/* The bytes are bounded, too: a large state evicts as many others as it needs. */
static void
oldest_go_when_too_large(void **state)
{
    struct cn_lru *lru = cn_lru_create(100, 100, on_evict, NULL);

    (void)state;
    evicted = 0;
    for (int i = 0; i < 10; i++) {
        char name[16];

        snprintf(name, sizeof(name), "s%d", i);
        put(lru, name, 10);
    }
    assert_int_equal(evicted, 0);
    put(lru, "large", 45);
    assert_int_equal(evicted, 5);
    assert_int_equal(cn_lru_bytes(lru), 95);
    put(lru, "larger than all", 101); /* too large for the cache, so it is not kept */
    assert_int_equal(cn_lru_count(lru), 0);
    assert_int_equal(cn_lru_bytes(lru), 0);
    cn_lru_destroy(lru);
}

/* A sequence that is in use cannot be evicted. */
static void
taken_is_never_evicted(void **state)
{
    struct cn_lru *lru = cn_lru_create(1, 1000, on_evict, NULL);
    struct cn_lru_entry *a;

    (void)state;
    evicted = 0;
    put(lru, "a", 1);
    a = cn_lru_take(lru, CN_STR("a"));
    put(lru, "b", 1);
    put(lru, "c", 1);
    assert_int_equal(evicted, 1);
    assert_true(cn_str_eq(a->key, CN_STR("a")));
    cn_lru_put(lru, a);
    assert_string_equal(last_evicted, "c");
    cn_lru_clear(lru);
    assert_int_equal(evicted, 3);
    cn_lru_destroy(lru);
}

static void
use(struct cn_lru *lru, const char *name)
{
    cn_lru_put(lru, cn_lru_take(lru, cn_str_from(name)));
}

/* An entry that was used is passed over once. If it is not used again before its next turn, it is
 * evicted. */
static void
who_was_used_stays(void **state)
{
    struct cn_lru *lru = cn_lru_create(3, 1000, on_evict, NULL);

    (void)state;
    evicted = 0;
    put(lru, "a", 1);
    put(lru, "b", 1);
    put(lru, "c", 1);
    use(lru, "a");
    use(lru, "b");
    use(lru, "b");
    put(lru, "d", 1);
    assert_string_equal(last_evicted, "c");
    put(lru, "e", 1);
    assert_string_equal(last_evicted, "d");
    put(lru, "f", 1);
    assert_string_equal(last_evicted, "a");
    put(lru, "g", 1);
    assert_string_equal(last_evicted, "b");
    assert_int_equal(evicted, 4);
    cn_lru_destroy(lru);
}

/* If all entries were used, one is evicted all the same, without looking at all of them in one
 * step. */
static void
an_eviction_spares_a_few(void **state)
{
    struct cn_lru *lru = cn_lru_create(1000, 100000, on_evict, NULL);
    char name[16];

    (void)state;
    evicted = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 1000; i++) {
            snprintf(name, sizeof(name), "s%d", i);
            if (round == 0)
                put(lru, name, 1);
            else
                use(lru, name);
        }
    put(lru, "new", 1);
    assert_int_equal(evicted, 1);
    assert_string_equal(last_evicted, "s32");
    put(lru, "newer", 1);
    assert_string_equal(last_evicted, "s65");
    cn_lru_destroy(lru);
}

/* Entries that are taken out are passed over at once, however many they are. When they come back,
 * they count again. */
static void
those_that_are_out_are_passed_over(void **state)
{
    struct cn_lru *lru = cn_lru_create(10, 1000, on_evict, NULL);
    struct cn_lru_entry *out[10];
    char name[16];

    (void)state;
    evicted = 0;
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        put(lru, name, 1);
        out[i] = cn_lru_take(lru, cn_str_from(name));
    }
    for (int i = 0; i < 15; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        put(lru, name, 1);
    }
    assert_int_equal(evicted, 5);
    assert_string_equal(last_evicted, "t4");
    for (int i = 0; i < 9; i++)
        cn_lru_put(lru, out[i]);
    assert_int_equal(cn_lru_count(lru), 10);
    assert_int_equal(evicted, 14);
    assert_string_equal(last_evicted, "t13");
    cn_lru_forget(lru, out[9]);
    free(out[9]);
    cn_lru_clear(lru);
    assert_int_equal(evicted, 24);
    assert_int_equal(cn_lru_bytes(lru), 0);
    cn_lru_destroy(lru);
}

/* Nobody else can take an entry that is taken out. It comes back by itself. If it does not, its key
 * is free for another entry, which may be put in before or after the first one is forgotten. */
static void
taken_comes_back_or_is_forgotten(void **state)
{
    struct cn_lru *lru = cn_lru_create(10, 1000, on_evict, NULL);
    struct cn_lru_entry *a, *found[2];
    const struct cn_str keys[] = {CN_STR("a"), CN_STR("b")};

    (void)state;
    evicted = 0;
    put(lru, "a", 1);
    a = cn_lru_take(lru, CN_STR("a"));
    assert_non_null(a);
    assert_int_equal(cn_lru_count(lru), 0);
    assert_int_equal(cn_lru_bytes(lru), 0);
    assert_null(cn_lru_take(lru, CN_STR("a")));
    cn_lru_prefetch(lru, keys, 2, sizeof(struct object), found); /* one is taken out */
    cn_lru_put(lru, a);
    assert_ptr_equal(cn_lru_take(lru, CN_STR("a")), a);
    cn_lru_forget(lru, a);
    free(a);
    assert_null(cn_lru_take(lru, CN_STR("a")));
    put(lru, "a", 2); /* after */
    a = cn_lru_take(lru, CN_STR("a"));
    put(lru, "a", 3); /* before */
    cn_lru_forget(lru, a);
    free(a);
    assert_int_equal(cn_lru_bytes(lru), 3);
    a = cn_lru_take(lru, CN_STR("a"));
    assert_int_equal(a->bytes, 3);
    cn_lru_put(lru, a);
    cn_lru_clear(lru);
    assert_int_equal(evicted, 1);
    assert_null(cn_lru_take(lru, CN_STR("a")));
    a = calloc(1, sizeof(struct object)); /* never put in */
    cn_lru_forget(lru, a);
    free(a);
    cn_lru_destroy(lru);
}

/* cacheEntries 0 turns the cache off. */
static void
capacity_zero_keeps_nothing(void **state)
{
    struct cn_lru *lru = cn_lru_create(0, 1000, on_evict, NULL);

    (void)state;
    evicted = 0;
    put(lru, "a", 1);
    assert_int_equal(evicted, 1);
    assert_int_equal(cn_lru_count(lru), 0);
    cn_lru_destroy(lru);
    cn_lru_destroy(NULL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_goes_when_too_many),
        cmocka_unit_test(oldest_go_when_too_large),
        cmocka_unit_test(taken_is_never_evicted),
        cmocka_unit_test(who_was_used_stays),
        cmocka_unit_test(an_eviction_spares_a_few),
        cmocka_unit_test(those_that_are_out_are_passed_over),
        cmocka_unit_test(taken_comes_back_or_is_forgotten),
        cmocka_unit_test(capacity_zero_keeps_nothing),
    };

    return cmocka_run_group_tests_name("cache.lru", tests, NULL, NULL);
}
