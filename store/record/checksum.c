/* store/record/checksum.c - the one call of XXH3, on x86-64 through the library's dispatcher, which
 * chooses the instruction set at run time. */
#include "store/record/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>

/* XXH3 uses vector instructions from this many bytes on. */
#define VECTORS_FROM 241

/* Debian's libxxhash (0.8.1, built by gcc 12) returns from its AVX2 and AVX-512 functions without
 * this instruction, and the upper halves of the vector registers stay marked as in use. All SSE
 * code that runs later then becomes slower: a worker took 2.78 us a step instead of 2.03. */
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
