/* core/memory/mem_test.c - tests the allocation functions. */
#include "core/memory/huge_pages.h"
#include "core/memory/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Memory is zeroed, so structures start in a known state. */
static void
alloc_gives_zeroes(void **state)
{
    unsigned char *bytes = cn_alloc(1000);
    size_t i;

    (void)state;
    for (i = 0; i < 1000; i++)
        assert_int_equal(bytes[i], 0);
    cn_free(bytes);
    bytes = cn_alloc(0);
    assert_non_null(bytes);
    cn_free(bytes);
    cn_free(NULL);
}

/* If there is no memory for a size from outside, the result is NULL, and nothing crashes. */
static void
try_alloc_says_no(void **state)
{
    volatile size_t huge = SIZE_MAX / 4; /* volatile, or the compiler warns */
    char *kept = cn_try_alloc(4);

    (void)state;
    assert_null(cn_try_alloc(huge));
    strcpy(kept, "abc");
    assert_null(cn_try_realloc(kept, huge));
    assert_string_equal(kept, "abc");
    kept = cn_try_realloc(kept, 100);
    assert_string_equal(kept, "abc");
    cn_free(kept);
}

/* Asking for huge pages does not change the bytes. Memory that contains no whole huge page is left
 * alone. */
static void
huge_pages_change_no_bytes(void **state)
{
    const size_t large = (size_t)5 << 20;
    unsigned char *bytes = cn_alloc(large);

    (void)state;
    bytes[0] = bytes[large - 1] = 7;
    cn_prefer_huge(bytes, large);
    for (size_t i = 1; i < large - 1; i++)
        assert_int_equal(bytes[i], 0);
    assert_int_equal(bytes[0] + bytes[large - 1], 14);
    cn_prefer_huge(bytes, 100);
    cn_prefer_huge(bytes, 0);
    cn_prefer_huge(NULL, 0);
    bytes = cn_try_realloc(bytes, 10);
    assert_int_equal(bytes[0], 7);
    cn_free(bytes);
}

static void
strndup_copies_exactly_and_ends_with_nul(void **state)
{
    char *copy = cn_strndup("abcdef", 3);

    (void)state;
    assert_string_equal(copy, "abc");
    cn_free(copy);
    copy = cn_strndup(NULL, 0);
    assert_string_equal(copy, "");
    cn_free(copy);
    copy = cn_strdup("xyz");
    assert_string_equal(copy, "xyz");
    cn_free(copy);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_gives_zeroes),
        cmocka_unit_test(try_alloc_says_no),
        cmocka_unit_test(huge_pages_change_no_bytes),
        cmocka_unit_test(strndup_copies_exactly_and_ends_with_nul),
    };

    return cmocka_run_group_tests_name("core.mem", tests, NULL, NULL);
}
