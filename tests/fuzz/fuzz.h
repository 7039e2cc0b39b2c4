/* tests/fuzz/fuzz.h - declares what a fuzz target defines. */
#ifndef CN_TESTS_FUZZ_FUZZ_H
#define CN_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns 0, and must accept any bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* If a target defines this function, all .bin files of its corpus must be valid to their end. A
 * seed with an outdated layout would search nothing behind its first error. */
bool cn_fuzz_is_valid(const uint8_t *bytes, size_t len) __attribute__((weak));

#endif
