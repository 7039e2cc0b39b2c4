/* core/memory/mem.h - heap memory.
 *
 * cn_alloc is for small structures and never returns NULL: it panics. A size
 * that comes from outside is first checked against a configured limit, then
 * uses cn_try_alloc, whose NULL becomes an ordinary error.
 */
#ifndef CN_CORE_MEMORY_MEM_H
#define CN_CORE_MEMORY_MEM_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory of `bytes`; never NULL. Free with cn_free. */
void *cn_alloc(size_t bytes) __attribute__((malloc, returns_nonnull));
/* Memory that isn't zeroed, or NULL. */
void *cn_try_alloc(size_t bytes) __attribute__((malloc));
/* As realloc; NULL when there is none, `ptr` then stays valid. */
void *cn_try_realloc(void *ptr, size_t bytes);
/* Copies `len` bytes and adds a NUL; never NULL. */
char *cn_strndup(const char *text, size_t len);
char *cn_strdup(const char *text);
void cn_free(void *ptr);

#define CN_HUGE_BYTES ((size_t)2 << 20)
/* Asks the system for huge pages where whole ones lie within the block, which Linux gives by
 * default to who asks. For large blocks that stay, and are used all over: what lies anywhere among
 * the states of a million sequences is in no table of small pages that the processor knows by
 * heart. A hint: without it all is as it was. NULL is allowed. */
void cn_prefer_huge(void *ptr, size_t bytes);

#define CN_PREFETCH_LEAST 4096 /* items of a table; fewer are in the processor's caches anyway */
#define CN_PREFETCH_MAX 64     /* look-ups that functions named prefetch prepare in one call */
/* Asks the processor for the lines of these bytes, which will be used soon, without waiting for
 * them. The bytes need not exist. */
static inline void
cn_prefetch(const void *at, size_t bytes)
{
    const uintptr_t line = 64, end = (uintptr_t)at + bytes;

    for (uintptr_t p = (uintptr_t)at & ~(line - 1); p < end; p += line)
        __builtin_prefetch((const void *)p);
}

#endif
