/* core/memory/arena.c - bump allocation for one request.
 *
 * An allocation takes the next bytes of the newest block; when that is full, a block of twice what
 * was used so far is added, up to LAST_BLOCK_BYTES. A large allocation gets a block of its own
 * behind the newest one, whose rest stays in use.
 *
 * Most requests fit into the first block, and each needs one. So freed first blocks are kept in a
 * short list of the thread that freed them, and a request usually costs no malloc at all. A request
 * that moves between threads may take its block from one thread's list and leave it in another's;
 * the limit of the list keeps that from piling up. An arena has one owner at a time, so nothing is
 * locked. */
#include "core/memory/arena.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"

#define ALIGNMENT 16
#define FIRST_BLOCK_BYTES 3072 /* with its header; enough for a small HTTP request and its job */
#define LAST_BLOCK_BYTES 65536 /* blocks double up to this */
#define SPARE_BLOCKS_MAX 256   /* 768 kB a thread */

struct cn_arena_block {
    struct cn_arena_block *older;
    size_t bytes; /* the size with this header */
};

#define HEADER_BYTES ((sizeof(struct cn_arena_block) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1))

#ifndef CN_MALLOC_EACH
static _Thread_local struct {
    struct cn_arena_block *blocks;
    unsigned count;
    int registered; /* the clean-up at the end of the thread is arranged */
} spare;

static pthread_key_t spare_key;
static pthread_once_t spare_key_once = PTHREAD_ONCE_INIT;

static void
free_spare(void *unused)
{
    (void)unused;
    while (spare.blocks) {
        struct cn_arena_block *block = spare.blocks;

        spare.blocks = block->older;
        cn_free(block);
    }
    spare.count = SPARE_BLOCKS_MAX; /* arenas that this thread frees from here on keep nothing */
}

static void
make_spare_key(void)
{
    cn_assert(pthread_key_create(&spare_key, free_spare) == 0);
}

static struct cn_arena_block *
take_spare(void)
{
    struct cn_arena_block *block = spare.blocks;

    if (block) {
        spare.blocks = block->older;
        spare.count--;
    }
    return block;
}

static void
keep_or_free(struct cn_arena_block *block)
{
    if (block->bytes != FIRST_BLOCK_BYTES || spare.count >= SPARE_BLOCKS_MAX) {
        cn_free(block);
        return;
    }
    if (!spare.registered) {
        pthread_once(&spare_key_once, make_spare_key);
        pthread_setspecific(spare_key, &spare);
        spare.registered = 1;
    }
    block->older = spare.blocks;
    spare.blocks = block;
    spare.count++;
}
#else
static void
keep_or_free(struct cn_arena_block *block)
{
    cn_free(block);
}
#endif

void
cn_arena_init(struct cn_arena *arena)
{
    *arena = (struct cn_arena){0};
}

void
cn_arena_fini(struct cn_arena *arena)
{
    struct cn_arena_block *block = arena->blocks;

    if (!block)
        return;
    while (block) {
        struct cn_arena_block *older = block->older;

        keep_or_free(block);
        block = older;
    }
    cn_arena_init(arena);
}

void
cn_arena_clear(struct cn_arena *arena)
{
#ifndef CN_MALLOC_EACH
    struct cn_arena_block *newest = arena->blocks;

    if (newest && newest->bytes <= LAST_BLOCK_BYTES) {
        arena->blocks = newest->older;
        newest->older = NULL;
        cn_arena_fini(arena);
        arena->blocks = newest;
        arena->next = (char *)newest + HEADER_BYTES;
        arena->end = (char *)newest + newest->bytes;
        return;
    }
#endif
    cn_arena_fini(arena);
}

/* An allocation in a block of its own, behind the newest one, whose free part stays in use. */
static void *
alloc_alone(struct cn_arena *arena, size_t bytes)
{
    struct cn_arena_block *block = cn_try_alloc(HEADER_BYTES + bytes);

    if (!block)
        return NULL;
    block->bytes = HEADER_BYTES + bytes;
    if (arena->blocks) {
        block->older = arena->blocks->older;
        arena->blocks->older = block;
    } else {
        block->older = NULL;
        arena->blocks = block;
        arena->next = arena->end = (char *)block + block->bytes;
    }
    arena->used_bytes += bytes;
    return (char *)block + HEADER_BYTES;
}

#ifndef CN_MALLOC_EACH
static int
add_block(struct cn_arena *arena, size_t bytes)
{
    size_t want = FIRST_BLOCK_BYTES;
    struct cn_arena_block *block = NULL;

    if (arena->blocks)
        want = arena->used_bytes < LAST_BLOCK_BYTES / 2 ? arena->used_bytes * 2 : LAST_BLOCK_BYTES;
    while (want < bytes + HEADER_BYTES || want < FIRST_BLOCK_BYTES)
        want = want < FIRST_BLOCK_BYTES ? FIRST_BLOCK_BYTES : want * 2;
    if (want == FIRST_BLOCK_BYTES)
        block = take_spare();
    if (!block)
        block = cn_try_alloc(want);
    if (!block)
        return -1;
    block->bytes = want;
    block->older = arena->blocks;
    arena->blocks = block;
    arena->next = (char *)block + HEADER_BYTES;
    arena->end = (char *)block + want;
    return 0;
}
#endif

void *
cn_arena_try_alloc(struct cn_arena *arena, size_t bytes)
{
    size_t rounded;

    if (bytes > SIZE_MAX / 2)
        return NULL;
    rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (rounded == 0)
        rounded = ALIGNMENT;
#ifdef CN_MALLOC_EACH
    return alloc_alone(arena, bytes);
#else
    if (rounded > (size_t)(arena->end - arena->next)) {
        if (rounded > LAST_BLOCK_BYTES / 4)
            return alloc_alone(arena, rounded);
        if (add_block(arena, rounded) < 0)
            return NULL;
    }
    arena->next += rounded;
    arena->used_bytes += rounded;
    return arena->next - rounded;
#endif
}

void *
cn_arena_alloc(struct cn_arena *arena, size_t bytes)
{
    void *ptr = cn_arena_try_alloc(arena, bytes);

    if (!ptr)
        cn_panic(__FILE__, __LINE__, "out of memory: %zu bytes could not be allocated", bytes);
    return ptr;
}

char *
cn_arena_strndup(struct cn_arena *arena, const char *text, size_t len)
{
    char *copy = cn_arena_alloc(arena, len + 1);

    if (len)
        memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}

struct cn_str
cn_arena_str(struct cn_arena *arena, struct cn_str text)
{
    return (struct cn_str){cn_arena_strndup(arena, text.ptr, text.len), text.len};
}

char *
cn_arena_printf(struct cn_arena *arena, const char *fmt, ...)
{
    va_list args;
    char *text;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return cn_arena_strndup(arena, "", 0);
    text = cn_arena_alloc(arena, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}
