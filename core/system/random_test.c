/* core/system/random_test.c - random bytes and ids. */
#include "core/system/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Pages are refilled and never given out twice. */
static void
bytes_do_not_repeat(void **state)
{
    static uint64_t values[3000];
    size_t i, j;

    (void)state;
    for (i = 0; i < 3000; i++)
        values[i] = cn_random_u64();
    for (i = 0; i < 3000; i++)
        for (j = 0; j < i; j++)
            assert_true(values[i] != values[j]);
}

static void
any_length_is_filled(void **state)
{
    static unsigned char bytes[20000], zero[64];
    size_t len;

    (void)state;
    cn_random_bytes(NULL, 0);
    for (len = 64; len <= sizeof(bytes); len = len * 3 + 1) {
        memset(bytes, 0, sizeof(bytes));
        cn_random_bytes(bytes, len);
        assert_memory_not_equal(bytes, zero, 64);
        assert_memory_not_equal(bytes + len - 64, zero, 64);
        if (len + 64 <= sizeof(bytes))
            assert_memory_equal(bytes + len, zero, 64);
    }
}

/* Generated sequence ids: clients parse them with what their language has. */
static void
uuids_have_the_form_of_version_4(void **state)
{
    char uuid[37];
    int i, j;

    (void)state;
    for (i = 0; i < 100; i++) {
        cn_random_uuid(uuid);
        assert_int_equal(strlen(uuid), 36);
        for (j = 0; j < 36; j++)
            if (j == 8 || j == 13 || j == 18 || j == 23)
                assert_int_equal(uuid[j], '-');
            else
                assert_non_null(strchr("0123456789abcdef", uuid[j]));
        assert_int_equal(uuid[14], '4');
        assert_non_null(strchr("89ab", uuid[19]));
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_do_not_repeat),
        cmocka_unit_test(any_length_is_filled),
        cmocka_unit_test(uuids_have_the_form_of_version_4),
    };

    return cmocka_run_group_tests_name("core.random", tests, NULL, NULL);
}
