/* core/memory/base64_test.c - base64 in both directions. */
#include "core/memory/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void
base64_is_that_of_the_standard(void **state)
{
    static const char *const pairs[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}};
    static const char *const wrong[] = {"Z", "Zg=", "Z===", "Zg==x", "Zm8*", "====", "Zh=="};
    struct cn_arena arena;
    struct cn_buf text;
    struct cn_str bytes;

    (void)state;
    cn_arena_init(&arena);
    cn_buf_init(&text, 0);
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        cn_buf_reset(&text);
        cn_base64_put(cn_str_from(pairs[i][0]), &text);
        assert_true(cn_str_eq(cn_buf_str(&text), cn_str_from(pairs[i][1])));
        assert_true(cn_base64_get(cn_str_from(pairs[i][1]), &arena, &bytes));
        assert_true(cn_str_eq(bytes, cn_str_from(pairs[i][0])));
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(cn_base64_get(cn_str_from(wrong[i]), &arena, &bytes));
    cn_buf_fini(&text);
    cn_arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_is_that_of_the_standard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
