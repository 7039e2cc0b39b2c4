/* store/record/checksum_test.c - tests that the checksums are XXH3's, and that the upper halves of
 * the vector registers are clean. */
#include "store/record/checksum.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <xxhash.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define BYTES_MAX 4096

static unsigned char bytes[BYTES_MAX];

static int
fill(void **state)
{
    uint32_t x = 20261122;

    (void)state;
    for (size_t i = 0; i < BYTES_MAX; i++)
        bytes[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    return 0;
}

static void
sums_are_those_of_the_library(void **state)
{
    (void)state;
    assert_int_equal(cn_checksum("", 0, 0), 0x2d06800538d394c2u); /* from the definition of XXH3 */
    for (size_t len = 0; len <= BYTES_MAX; len += len < 600 ? 1 : 97) {
        assert_int_equal(cn_checksum(bytes, len, 0), XXH3_64bits(bytes, len));
        assert_int_equal(cn_checksum(bytes, len, 7), XXH3_64bits_withSeed(bytes, len, 7));
    }
}

/* XGETBV says whether upper halves are in use, on processors that have it (CPUID 0xd, 1). */
static void
upper_halves_are_not_in_use_afterwards(void **state)
{
    (void)state;
#if defined(__x86_64__)
    unsigned a = 0, b, c, d;

    if (!__builtin_cpu_supports("avx2") || !__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 4))
        skip(); /* the processor cannot say */
    for (size_t len = 1; len <= BYTES_MAX; len *= 2) {
        cn_checksum(bytes, len, len % 3);
        __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
        assert_int_equal(a & 4, 0);
    }
#else
    skip(); /* no such registers */
#endif
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_library),
        cmocka_unit_test(upper_halves_are_not_in_use_afterwards),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
