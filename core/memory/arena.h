/* core/memory/arena.h - the memory of one request, freed in one place.
 *
 * Bump allocation in blocks. In sanitizer builds each allocation is its own
 * malloc, so that an overrun is seen. Not thread-safe; the arena goes with the
 * request when that changes threads.
 */
#ifndef CN_CORE_MEMORY_ARENA_H
#define CN_CORE_MEMORY_ARENA_H

#include <stddef.h>

#include "core/text/str.h"

struct cn_arena_block;

struct cn_arena {
    struct cn_arena_block *blocks; /* newest first */
    char *next, *end;              /* free part of the newest block */
    size_t used_bytes;             /* given out so far */
};

void cn_arena_init(struct cn_arena *arena);
/* Frees everything; the arena may be used again. */
void cn_arena_fini(struct cn_arena *arena);
/* The same, but what comes next gets the newest block's memory (64 kB at most): for an arena that
 * is filled again and again. cn_arena_fini() frees that, too. */
void cn_arena_clear(struct cn_arena *arena);

/* 16-byte aligned, not zeroed, never NULL (panics): for small, fixed sizes. */
void *cn_arena_alloc(struct cn_arena *arena, size_t bytes);
/* As cn_arena_alloc, but NULL where there is no memory: for sizes from outside. */
void *cn_arena_try_alloc(struct cn_arena *arena, size_t bytes);
/* Copies and NUL-terminates; never NULL. */
char *cn_arena_strndup(struct cn_arena *arena, const char *text, size_t len);
struct cn_str cn_arena_str(struct cn_arena *arena, struct cn_str text);
char *cn_arena_printf(struct cn_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
