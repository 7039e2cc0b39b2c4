/* core/memory/mem_test.c - tests the allocation functions. */
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
        cmocka_unit_test(strndup_copies_exactly_and_ends_with_nul),
    };

    return cmocka_run_group_tests_name("core.mem", tests, NULL, NULL);
}
