/* core/memory/prefetch.h - tells the processor which memory will be used soon, so that a batch
 * waits for all its cache misses at once and not for each one by itself (decision 0019).
 *
 * The functions of other files that are named prefetch all end here. They change nothing and return
 * nothing that an answer depends on. Switched by the tuning `prefetch`. Any thread. */
#ifndef CN_CORE_MEMORY_PREFETCH_H
#define CN_CORE_MEMORY_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

#include "core/tuning/tuning.h"

#define CN_PREFETCH_LEAST 4096 /* tables with fewer items are in the processor's caches anyway */
/* the most look-ups that a function named prefetch prepares in one call */
#define CN_PREFETCH_MAX 64

/* Is it worth finding out which memory a look-up in a table of this many items will touch? */
static inline bool
cn_prefetch_pays(uint64_t n_items)
{
    return n_items >= CN_PREFETCH_LEAST && cn_tuned(CN_TUNING_PREFETCH);
}

/* Asks the processor to load these bytes, which will be used soon, without waiting for them. The
 * address need not be valid. */
static inline void
cn_prefetch(const void *at, size_t bytes)
{
    const uintptr_t line = 64, end = (uintptr_t)at + bytes;

    if (!cn_tuned(CN_TUNING_PREFETCH))
        return;
    for (uintptr_t p = (uintptr_t)at & ~(line - 1); p < end; p += line)
        __builtin_prefetch((const void *)p);
}

#endif
