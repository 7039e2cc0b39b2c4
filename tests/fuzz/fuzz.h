/* tests/fuzz/fuzz.h - what a fuzz target defines. It returns 0 and must take any bytes. */
#ifndef CN_TESTS_FUZZ_FUZZ_H
#define CN_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

#endif
