/* store/record/checksum.c - see the header. */
#include "store/record/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>

/* Shorter input is not hashed by vectors. */
#define VECTORS_FROM 241

/* Debian's libxxhash (0.8.1, built by gcc 12) returns from its AVX2 and AVX-512 functions without
 * this, and the upper halves of the registers stay in use. All SSE code that runs after it then
 * waits for them: a worker took a fifth longer for a step (docs/performance.md). */
__attribute__((target("avx"))) static void
leave_vectors(void)
{
    __builtin_ia32_vzeroupper();
}

uint64_t
cn_checksum(const void *bytes, size_t len, uint64_t seed)
{
    const uint64_t sum = XXH3_64bits_withSeed(bytes, len, seed);

    if (len >= VECTORS_FROM && __builtin_cpu_supports("avx"))
        leave_vectors();
    return sum;
}

#else
#include <xxhash.h>

uint64_t
cn_checksum(const void *bytes, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, len, seed);
}

#endif
