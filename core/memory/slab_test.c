/* core/memory/slab_test.c - tests the pool of small blocks: no block's bytes are touched, and
 * memory is given back. */
#include "core/memory/slab.h"

#include <string.h>

#include "core/memory/mem.h"
#include "core/test_support.h"

#define MANY 20000
#define LEFT_MAX ((size_t)4 << 20) /* what may be left when no block is in use: one chunk */

struct block {
    unsigned char *at;
    size_t bytes;
    unsigned char mark;
};

static int
set_up(void **state)
{
    struct cn_slab *pool = cn_alloc(sizeof(*pool));

    cn_slab_init(pool, CN_SLAB_BLOCK_MAX, 0);
    *state = pool;
    return 0;
}

static int
tear_down(void **state)
{
    cn_slab_fini(*state);
    cn_free(*state);
    return 0;
}

static void
fill(struct block *block)
{
    block->mark = (unsigned char)test_next_random();
    memset(block->at, block->mark, block->bytes);
}

static void
assert_filled(const struct block *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(block->at[i], block->mark);
}

/* Blocks of all sizes are allocated, resized and freed in any order. Each keeps what was written
 * there. */
static void
blocks_keep_their_bytes(void **state)
{
    struct cn_slab *pool = *state;
    struct block *blocks = cn_alloc(MANY * sizeof(*blocks));

    for (int i = 0; i < 20 * MANY; i++) {
        struct block *block = &blocks[test_next_random() % MANY];
        size_t bytes = test_next_random() % (CN_SLAB_BLOCK_MAX + 40), kept = block->bytes;

        assert_filled(block, kept);
        if (test_next_random() % 2 == 0)
            bytes = 0;
        if (bytes == 0) {
            cn_slab_free(pool, block->at, kept);
            *block = (struct block){0};
            continue;
        }
        block->at = cn_slab_resize(pool, block->at, kept, bytes);
        assert_non_null(block->at);
        assert_int_equal((uintptr_t)block->at % (bytes % 16 == 0 ? 16 : 8), 0);
        block->bytes = bytes;
        assert_filled(block, kept < bytes ? kept : bytes);
        fill(block);
    }
    for (int i = 0; i < MANY; i++)
        cn_slab_free(pool, blocks[i].at, blocks[i].bytes);
    cn_free(blocks);
    assert_true(pool->bytes <= LEFT_MAX);
}

/* Allocates `n` blocks of `bytes`, each of which points to the one before. Returns the last one. */
static void *
take_chain(struct cn_slab *pool, size_t bytes, int n, void *chain)
{
    for (int i = 0; i < n; i++) {
        void *block = cn_slab_alloc(pool, bytes);

        assert_non_null(block);
        memcpy(block, &chain, sizeof(chain));
        chain = block;
    }
    return chain;
}

static void
free_chain(struct cn_slab *pool, size_t bytes, void *chain)
{
    while (chain) {
        void *next;

        memcpy(&next, chain, sizeof(next));
        cn_slab_free(pool, chain, bytes);
        chain = next;
    }
}

/* Memory that blocks of one size had is used for other sizes, and unused memory goes back to
 * malloc. */
static void
pages_serve_any_size_and_chunks_go_back(void **state)
{
    struct cn_slab *pool = *state;
    void *chain = take_chain(pool, 24, 1000000, NULL);
    size_t peak = pool->bytes;

    assert_in_range(peak, 24000000, 34000000);
    free_chain(pool, 24, chain);
    assert_true(pool->bytes <= LEFT_MAX);
    for (size_t bytes = 8; bytes <= CN_SLAB_BLOCK_MAX; bytes += 8) {
        chain = take_chain(pool, bytes, (int)(20000000 / bytes), NULL);
        assert_true(pool->bytes <= peak);
        free_chain(pool, bytes, chain);
        assert_true(pool->bytes <= LEFT_MAX);
    }
}

/* A freed block is used again before a new one is cut. */
static void
freed_blocks_come_again(void **state)
{
    struct cn_slab *pool = *state;
    void *chain = take_chain(pool, 88, 100000, NULL), *kept = NULL;
    size_t peak = pool->bytes;

    for (int round = 0; round < 10; round++) {
        /* Every second block is freed, and as many are taken. */
        for (int i = 0; chain; i++) {
            void *next;

            memcpy(&next, chain, sizeof(next));
            if (i % 2 == 0) {
                cn_slab_free(pool, chain, 88);
            } else {
                memcpy(chain, &kept, sizeof(kept));
                kept = chain;
            }
            chain = next;
        }
        chain = take_chain(pool, 88, 50000, kept);
        kept = NULL;
        assert_int_equal(pool->bytes, peak);
    }
    free_chain(pool, 88, chain);
}

/* A pool that is hardly used is small. */
static void
a_few_blocks_take_little(void **state)
{
    struct cn_slab *pool = *state;

    assert_int_equal(pool->bytes, 0);
    free_chain(pool, 16, take_chain(pool, 16, 100, NULL));
    assert_true(pool->bytes <= 65536);
}

static void
nothing_is_nobodys_block(void **state)
{
    struct cn_slab *pool = *state;
    char *block;

    assert_null(cn_slab_alloc(pool, 0));
    cn_slab_free(pool, NULL, 0);
    cn_slab_free(pool, NULL, 24);
    block = cn_slab_resize(pool, NULL, 0, 5);
    strcpy(block, "abcd");
    assert_ptr_equal(cn_slab_resize(pool, block, 5, 8), block); /* both sizes need the same block */
    cn_slab_free(pool, block, 8);
}

/* If there is no memory for a larger block, the old one stays. */
static void
a_size_that_cannot_be_had_changes_nothing(void **state)
{
    struct cn_slab *pool = *state;
    volatile size_t huge = SIZE_MAX / 4; /* volatile, or the compiler warns */
    char *small = cn_slab_alloc(pool, 6), *large;

    strcpy(small, "small");
    assert_null(cn_slab_alloc(pool, huge));
    assert_null(cn_slab_resize(pool, small, 6, huge));
    assert_string_equal(small, "small");
    large = cn_slab_resize(pool, small, 6, 1000);
    assert_string_equal(large, "small");
    assert_null(cn_slab_resize(pool, large, 1000, huge));
    assert_string_equal(large, "small");
    small = cn_slab_resize(pool, large, 1000, 6);
    assert_string_equal(small, "small");
    cn_slab_free(pool, small, 6);
}

/* A page that is kept by a single block counts as a whole. */
static void
a_bound_holds_for_pages(void **state)
{
    const size_t bound = (size_t)3 << 20;
    struct cn_slab pool;
    void *chain = NULL, *kept = NULL, *block;
    int n;

    (void)state;
    cn_slab_init(&pool, CN_SLAB_BLOCK_MAX, bound);
    for (n = 0; (block = cn_slab_alloc(&pool, 16)); n++) {
        void **of = n % 500 ? &chain : &kept;

        memcpy(block, of, sizeof(*of));
        *of = block;
    }
    assert_in_range(n, 170000, bound / 16);
    assert_in_range(pool.bytes, bound - 65536, bound);
    free_chain(&pool, 16, chain);
    assert_null(cn_slab_alloc(&pool, 24)); /* each page still has a block in use */
    block = cn_slab_alloc(&pool, 16);
    assert_non_null(block);
    cn_slab_free(&pool, block, 16);
    block = cn_slab_alloc(&pool, 1000); /* too large for a page */
    assert_non_null(block);
    cn_slab_free(&pool, block, 1000);
    free_chain(&pool, 16, kept);
    free_chain(&pool, 24, take_chain(&pool, 24, 100, NULL));
    cn_slab_fini(&pool);
}

/* In sanitizer builds every block comes from malloc, which the sanitizers watch. */
static void
larger_blocks_are_mallocs(void **state)
{
    struct cn_slab pool;
    char *block;

    (void)state;
    cn_slab_init(&pool, 0, 0);
    block = cn_slab_alloc(&pool, 24);
    block = cn_slab_resize(&pool, block, 24, 48);
    assert_int_equal(pool.bytes, 0);
    cn_slab_free(&pool, block, 48);
    cn_slab_fini(&pool);
}

/* Destroying the pool frees its blocks, even those that are in use. */
static void
the_end_frees_all(void **state)
{
    struct cn_slab *pool = *state;

    take_chain(pool, 40, 100000, NULL);
    cn_slab_fini(pool);
    assert_int_equal(pool->bytes, 0);
    free_chain(pool, 40, take_chain(pool, 40, 10, NULL));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_keep_their_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pages_serve_any_size_and_chunks_go_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(freed_blocks_come_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_few_blocks_take_little, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_is_nobodys_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_size_that_cannot_be_had_changes_nothing, set_up,
                                        tear_down),
        cmocka_unit_test(a_bound_holds_for_pages),
        cmocka_unit_test_setup_teardown(larger_blocks_are_mallocs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_frees_all, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
