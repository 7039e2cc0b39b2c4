/* core/memory/arena.h - the memory of one request, freed in one place.
 *
 * Allocation moves a pointer forward in a block. In sanitizer builds each allocation is a malloc of
 * its own, so that an overrun is seen. Not thread-safe; the arena goes with the request when that
 * changes threads. */
#ifndef CN_CORE_MEMORY_ARENA_H
#define CN_CORE_MEMORY_ARENA_H

#include <stddef.h>

#include "core/text/str.h"

struct cn_arena_block;

struct cn_arena {
    struct cn_arena_block *blocks; /* the newest one first */
    char *next, *end;              /* the free part of the newest block */
    size_t used_bytes;             /* the bytes given out so far */
};

void cn_arena_init(struct cn_arena *arena);
/* Frees everything. The arena may be used again. */
void cn_arena_fini(struct cn_arena *arena);
/* Frees everything except the newest block (if that has at most 64 kB), which the next allocations
 * use; for an arena that is filled again and again. cn_arena_fini frees that block, too. */
void cn_arena_clear(struct cn_arena *arena);

/* Allocates memory, aligned to 16 bytes and not zeroed. Never NULL: panics if there is no memory.
 * For small, fixed sizes. */
void *cn_arena_alloc(struct cn_arena *arena, size_t bytes);
/* Allocates like cn_arena_alloc, but returns NULL if there is no memory; for sizes that come from
 * outside. */
void *cn_arena_try_alloc(struct cn_arena *arena, size_t bytes);
/* Copy a text into the arena, with a NUL behind it; never NULL. */
char *cn_arena_strndup(struct cn_arena *arena, const char *text, size_t len);
struct cn_str cn_arena_str(struct cn_arena *arena, struct cn_str text);
char *cn_arena_printf(struct cn_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
