/* cache/checksum.h - XXH3_64bits() and XXH3_64bits_withSeed(), by the widest instructions that this
 * processor has: the library's plain ones use SSE2 and take two and a half times as long for a record of a
 * KiB. The sums are the same. Any thread. */
#ifndef CN_CACHE_CHECKSUM_H
#define CN_CACHE_CHECKSUM_H

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
