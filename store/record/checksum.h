/* store/record/checksum.h - the 64-bit checksum of stored bytes: XXH3, with the widest vector
 * instructions that this processor has. The library's plain functions use SSE2, which takes two and
 * a half times as long for a record of 1 KiB; the results are equal. Any thread. */
#ifndef CN_STORE_RECORD_CHECKSUM_H
#define CN_STORE_RECORD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of `len` bytes. Seed 0 gives XXH3 without a seed. */
uint64_t cn_checksum(const void *bytes, size_t len, uint64_t seed);

#endif
