/* tests/fuzz/fuzz.h - what a fuzz target defines. */
#ifndef CN_TESTS_FUZZ_FUZZ_H
#define CN_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns 0 and must take any bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* A target that has it must find the corpus' .bin files valid to their end: seeds that stale
 * layouts made would search nothing behind their first error. */
bool cn_fuzz_is_valid(const uint8_t *bytes, size_t len) __attribute__((weak));

#endif
