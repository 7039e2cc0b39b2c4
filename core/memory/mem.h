/* core/memory/mem.h - heap memory.
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

#endif
