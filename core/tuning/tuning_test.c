/* core/tuning/tuning_test.c - the list of --tuning says exactly which mechanisms are on, and a
 * mistake in it is reported with all the names. */
#include "core/tuning/tuning.h"

#include <string.h>

#include "core/test_support.h"

static uint64_t
bits_of(const char *list)
{
    struct cn_error err = {0};
    uint64_t bits = 0;

    assert_int_equal(cn_tuning_parse(list, &bits, &err), 0);
    return bits;
}

static bool
has(uint64_t bits, enum cn_tuning which)
{
    return bits >> which & 1;
}

/* The words are read from left to right, so that a bench can say "all but this" and "only this". */
static void
words_are_applied_from_left_to_right(void **state)
{
    (void)state;
    assert_int_equal(bits_of("none"), 0);
    assert_int_equal(bits_of("all"), (UINT64_C(1) << CN_N_TUNINGS) - 1);
    assert_int_equal(bits_of("all,none"), 0);
    assert_int_equal(bits_of("none,prefetch"), UINT64_C(1) << CN_TUNING_PREFETCH);
    assert_int_equal(bits_of("all,-prefetch,-lockstep,lockstep"),
                     bits_of("all") & ~(UINT64_C(1) << CN_TUNING_PREFETCH));
    assert_int_equal(bits_of("none,default"), bits_of("default"));
}

/* A list that only names mechanisms to switch off changes nothing else. */
static void
a_list_begins_with_the_defaults(void **state)
{
    uint64_t bits = bits_of("-busy-wait");

    (void)state;
    for (int i = 0; i < CN_N_TUNINGS; i++)
        assert_int_equal(has(bits, (enum cn_tuning)i),
                         i != CN_TUNING_BUSY_WAIT && cn_tuning_rows[i].on);
}

/* Somebody who misspells a name must not measure the wrong thing. */
static void
an_unknown_word_is_refused_with_all_names(void **state)
{
    static const char *const wrong[] = {"",  "busywait", "all,",     ",all",
                                        "-", "-all",     "none;all", "all -prefetch"};
    struct cn_error err;
    uint64_t bits;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(cn_tuning_parse(wrong[i], &bits, &err), CN_E_CONFIG);
        for (int row = 0; row < CN_N_TUNINGS; row++)
            assert_non_null(strstr(err.message, cn_tuning_rows[row].name));
    }
}

static void
the_switches_are_what_was_set(void **state)
{
    const uint64_t before = cn_tuning_bits;

    (void)state;
    for (int i = 0; i < CN_N_TUNINGS; i++) {
        cn_tuning_set(UINT64_C(1) << i);
        for (int other = 0; other < CN_N_TUNINGS; other++)
            assert_int_equal(cn_tuned((enum cn_tuning)other), other == i);
    }
    cn_tuning_set(before);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_applied_from_left_to_right),
        cmocka_unit_test(a_list_begins_with_the_defaults),
        cmocka_unit_test(an_unknown_word_is_refused_with_all_names),
        cmocka_unit_test(the_switches_are_what_was_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
