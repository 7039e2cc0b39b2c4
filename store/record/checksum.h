/* store/record/checksum.h - XXH3 of stored bytes, 64 bits, by the widest instructions that this
 * processor has: the library's plain functions use SSE2 and take two and a half times as long for a
 * record of a KiB. The sums are the same. Any thread. */
#ifndef CN_STORE_RECORD_CHECKSUM_H
#define CN_STORE_RECORD_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Seed 0 is XXH3 without a seed. */
uint64_t cn_checksum(const void *bytes, size_t len, uint64_t seed);

#endif
