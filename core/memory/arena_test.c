/* core/memory/arena_test.c - the memory of one request. */
#include "core/memory/arena.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void
allocations_are_aligned_and_apart(void **state)
{
    struct cn_arena arena;
    unsigned char *ptrs[500];
    size_t i, j;

    (void)state;
    cn_arena_init(&arena);
    for (i = 0; i < 500; i++) {
        ptrs[i] = cn_arena_alloc(&arena, i);
        assert_int_equal((uintptr_t)ptrs[i] % 16, 0);
        memset(ptrs[i], (int)(i & 0xff), i);
    }
    for (i = 0; i < 500; i++)
        for (j = 0; j < i; j++)
            assert_int_equal(ptrs[i][j], i & 0xff);
    assert_true(arena.used_bytes >= 499 * 500 / 2);
    cn_arena_fini(&arena);
}

/* If there is no memory for a size that comes from outside, the result is NULL, and the arena can
 * still be used. */
static void
try_alloc_says_no(void **state)
{
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    assert_null(cn_arena_try_alloc(&arena, SIZE_MAX));
    assert_null(cn_arena_try_alloc(&arena, SIZE_MAX - 15));
    assert_null(cn_arena_try_alloc(&arena, SIZE_MAX / 2 + 1));
    assert_non_null(cn_arena_try_alloc(&arena, 10));
    cn_arena_fini(&arena);
}

/* A large allocation must not throw away the rest of the block that small ones use. */
static void
large_pieces_leave_the_block_in_use(void **state)
{
    struct cn_arena arena;
    char *small, *large;

    (void)state;
    cn_arena_init(&arena);
    large = cn_arena_alloc(&arena, 1 << 20);
    memset(large, 1, 1 << 20);
    small = cn_arena_alloc(&arena, 16);
    large = cn_arena_alloc(&arena, 1 << 20);
    memset(large, 2, 1 << 20);
    assert_non_null(cn_arena_alloc(&arena, 16));
#ifndef CN_MALLOC_EACH
    assert_true((char *)cn_arena_alloc(&arena, 16) == small + 32);
#endif
    assert_non_null(small);
    cn_arena_fini(&arena);
}

static void
text_is_copied_with_its_nul(void **state)
{
    struct cn_arena arena;
    struct cn_str str;
    char longer[5000];

    (void)state;
    cn_arena_init(&arena);
    assert_string_equal(cn_arena_strndup(&arena, "abcdef", 3), "abc");
    assert_string_equal(cn_arena_strndup(&arena, NULL, 0), "");
    str = cn_arena_str(&arena, CN_STR("xyz"));
    assert_int_equal(str.len, 3);
    assert_string_equal(str.ptr, "xyz");
    memset(longer, 'y', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_string_equal(cn_arena_printf(&arena, "%s", longer), longer);
    assert_string_equal(cn_arena_printf(&arena, "%d-%s", 7, "a"), "7-a");
    cn_arena_fini(&arena);
}

/* Connections use one arena for request after request. */
static void
an_arena_may_be_used_again(void **state)
{
    struct cn_arena arena;
    int i;

    (void)state;
    cn_arena_init(&arena);
    for (i = 0; i < 300; i++) {
        memset(cn_arena_alloc(&arena, 1000), i, 1000);
        memset(cn_arena_alloc(&arena, 3000), i, 3000);
        cn_arena_fini(&arena);
        assert_int_equal(arena.used_bytes, 0);
    }
}

/* A worker uses one arena for batch after batch. Once it has the memory for a batch, the next one
 * of that size allocates nothing. Large pieces are not kept. */
static void
a_cleared_arena_has_its_newest_block(void **state)
{
    struct cn_arena arena;
    char *first = NULL;
    int i;

    (void)state;
    cn_arena_init(&arena);
    cn_arena_clear(&arena);
    for (i = 0; i < 100; i++) {
        int n;

        for (n = 0; n < 20; n++)
            memset(cn_arena_alloc(&arena, 500), i, 500);
        memset(cn_arena_alloc(&arena, 1 << 20), i, 1 << 20);
        cn_arena_clear(&arena);
        assert_int_equal(arena.used_bytes, 0);
#ifndef CN_MALLOC_EACH
        if (i == 50)
            first = arena.next;
        assert_true(i < 50 || arena.next == first);
        assert_true(arena.end - arena.next <= 65536);
#endif
    }
    (void)first;
    cn_arena_fini(&arena);
    assert_null(arena.next);
    cn_arena_alloc(&arena, 1 << 20); /* alone in its block */
    cn_arena_clear(&arena);
    assert_null(arena.blocks);
}

static void *
fill(void *arg)
{
    struct cn_arena *arenas = arg;
    int i;

    for (i = 0; i < 100; i++)
        cn_arena_alloc(&arenas[i], 100);
    for (i = 50; i < 100; i++)
        cn_arena_fini(&arenas[i]);
    return NULL;
}

/* A request may move to another thread. The spare blocks of a thread that ends are freed (the leak
 * checker watches). */
static void
arenas_move_between_threads(void **state)
{
    struct cn_arena arenas[100];
    pthread_t thread;
    int i;

    (void)state;
    for (i = 0; i < 100; i++)
        cn_arena_init(&arenas[i]);
    assert_int_equal(pthread_create(&thread, NULL, fill, arenas), 0);
    pthread_join(thread, NULL);
    for (i = 0; i < 100; i++)
        cn_arena_fini(&arenas[i]);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_aligned_and_apart),
        cmocka_unit_test(try_alloc_says_no),
        cmocka_unit_test(large_pieces_leave_the_block_in_use),
        cmocka_unit_test(text_is_copied_with_its_nul),
        cmocka_unit_test(an_arena_may_be_used_again),
        cmocka_unit_test(a_cleared_arena_has_its_newest_block),
        cmocka_unit_test(arenas_move_between_threads),
    };

    return cmocka_run_group_tests_name("core.arena", tests, NULL, NULL);
}
