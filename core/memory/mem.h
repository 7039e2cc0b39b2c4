/* core/memory/mem.h - heap memory, and what the processor is told about it.
 *
 * cn_alloc is for small structures and never returns NULL: it panics. A size that comes from
 * outside is first compared with a configured limit, and then allocated with cn_try_alloc, whose
 * NULL becomes an ordinary error. Any thread. */
#ifndef CN_CORE_MEMORY_MEM_H
#define CN_CORE_MEMORY_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Allocates `bytes` of zeroed memory. Never NULL. Freed with cn_free. */
void *cn_alloc(size_t bytes) __attribute__((malloc, returns_nonnull));
/* Allocates memory that is not zeroed. NULL if there is none. */
void *cn_try_alloc(size_t bytes) __attribute__((malloc));
/* Changes the size of a block like realloc. If it returns NULL, `ptr` stays valid. */
void *cn_try_realloc(void *ptr, size_t bytes);
/* Copies `len` bytes and adds a NUL. Never NULL. */
char *cn_strndup(const char *text, size_t len);
char *cn_strdup(const char *text);
void cn_free(void *ptr);

#define CN_HUGE_BYTES ((size_t)2 << 20)
/* Asks the system for huge pages wherever whole ones lie within the block; Linux gives them by
 * default to those who ask. It is meant for large blocks that stay and are accessed at random, such
 * as the tables of a million sequences: with small pages nearly every access also misses the
 * processor's table of pages (TLB). It is only a hint. NULL is allowed. */
void cn_prefer_huge(void *ptr, size_t bytes);

#define CN_PREFETCH_LEAST 4096 /* tables with fewer items are in the processor's caches anyway */
/* the most look-ups that a function named prefetch prepares in one call */
#define CN_PREFETCH_MAX 64
/* Asks the processor to load these bytes, which will be used soon, without waiting for them. The
 * address need not be valid. */
static inline void
cn_prefetch(const void *at, size_t bytes)
{
    const uintptr_t line = 64, end = (uintptr_t)at + bytes;

    for (uintptr_t p = (uintptr_t)at & ~(line - 1); p < end; p += line)
        __builtin_prefetch((const void *)p);
}

#endif
