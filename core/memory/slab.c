/* core/memory/slab.c - small blocks in pages of one size. One thread.
 *
 * A Lua handler allocates and frees many small blocks, and tells the size when it frees one. So a
 * block needs no header: its page is found from its address, since pages lie at multiples of their
 * size, and the page knows the size of its blocks.
 *
 * The life of a page: it is cut from a chunk, or taken from the empty pages, and gets a size. Its
 * blocks are given out from the beginning (`uncut`). A freed block is pushed on the page's list
 * (`freed`), whose links are in the blocks themselves, and is given out next. When no block is
 * free, the page leaves the lists; the first block that is freed puts it into `more` of its size.
 * When the last block is freed, the page is empty and may get any size. When the last page of a
 * chunk is empty, the chunk goes back to malloc, unless it is the only such chunk.
 *
 * Each size takes blocks from one page (`now`) until that is full, so blocks that are allocated
 * together lie together. */
#include "core/memory/slab.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/memory/prefetch.h"
#include "core/tuning/tuning.h"

/* The first chunk is small, because most handlers need little. Each further one is as large as all
 * before it, up to the maximum. */
#define CHUNK_BYTES_MIN ((size_t)64 << 10)
#define CHUNK_BYTES_MAX ((size_t)4 << 20)
#define HEADER_BYTES 64 /* the size of a page's header; its blocks then begin at a cache line */

/* Pages lie at multiples of their size, so that a block's address leads to its page. */
struct cn_slab_page {
    /* In `more` of its size or in empty_pages. In no list while the page is full or is `now`. */
    struct cn_list link;
    struct cn_slab_chunk *chunk;
    void *freed;     /* the block that was freed last; its first bytes point to the one before */
    uint32_t uncut;  /* the offset of the first block that was never given out */
    uint32_t n_used; /* the number of blocks in use */
    uint16_t size;   /* the size of its blocks, an index of cn_slab.sizes */
    bool listed;     /* the page is in `more` or is `now`; otherwise all its blocks are in use */
};

struct cn_slab_chunk {
    struct cn_list link;
    char *pages;
    uint32_t n_pages, n_cut, n_used;
    size_t bytes;
};

_Static_assert(sizeof(struct cn_slab_page) <= HEADER_BYTES, "blocks begin behind it");

static struct cn_slab_page *
page_of(void *block)
{
    return (struct cn_slab_page *)((uintptr_t)block & ~(uintptr_t)(CN_SLAB_PAGE_BYTES - 1));
}

static uint32_t
size_of(size_t bytes)
{
    return (uint32_t)((bytes - 1) / CN_SLAB_STEP);
}

static uint32_t
block_bytes(uint32_t size)
{
    return (size + 1) * CN_SLAB_STEP;
}

size_t
cn_slab_usual(void)
{
#ifdef CN_MALLOC_EACH
    return 0;
#else
    return cn_tuned(CN_TUNING_BLOCK_PAGES) ? CN_SLAB_BLOCK_MAX : 0;
#endif
}

void
cn_slab_init(struct cn_slab *pool, size_t block_max, size_t bytes_max)
{
    cn_assert(block_max <= CN_SLAB_BLOCK_MAX);
    *pool = (struct cn_slab){.block_max = block_max, .bytes_max = bytes_max};
    for (uint32_t i = 0; i < CN_SLAB_SIZES; i++)
        cn_list_init(&pool->sizes[i].more);
    cn_list_init(&pool->empty_pages);
    cn_list_init(&pool->chunks);
}

void
cn_slab_fini(struct cn_slab *pool)
{
    struct cn_list *link;

    while ((link = cn_list_pop_front(&pool->chunks)))
        cn_free(cn_container_of(link, struct cn_slab_chunk, link));
    cn_slab_init(pool, pool->block_max, pool->bytes_max);
}

/* --- chunks --- */

/* The size of the next chunk; 0 if the limit allows none. */
static size_t
chunk_bytes(const struct cn_slab *pool)
{
    size_t bytes = pool->bytes, left = pool->bytes_max - pool->bytes;

    if (bytes < CHUNK_BYTES_MIN)
        bytes = CHUNK_BYTES_MIN;
    if (bytes > CHUNK_BYTES_MAX)
        bytes = CHUNK_BYTES_MAX;
    if (pool->bytes_max && bytes > left)
        bytes = left < CHUNK_BYTES_MIN ? 0 : left;
    return bytes;
}

/* Gets a chunk from malloc. Its pages begin at the first multiple of their size, so a part of a
 * page is lost at its beginning. */
static struct cn_slab_chunk *
add_chunk(struct cn_slab *pool)
{
    const size_t bytes = chunk_bytes(pool);
    struct cn_slab_chunk *chunk = bytes ? cn_try_alloc(bytes) : NULL;
    uintptr_t first;

    if (!chunk)
        return NULL;
    first =
        ((uintptr_t)(chunk + 1) + CN_SLAB_PAGE_BYTES - 1) & ~(uintptr_t)(CN_SLAB_PAGE_BYTES - 1);
    *chunk = (struct cn_slab_chunk){
        .pages = (char *)first,
        .n_pages = (uint32_t)(((uintptr_t)chunk + bytes - first) / CN_SLAB_PAGE_BYTES),
        .bytes = bytes,
    };
    cn_list_push_front(&pool->chunks, &chunk->link);
    pool->bytes += bytes;
    return chunk;
}

static void
free_chunk(struct cn_slab *pool, struct cn_slab_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->n_cut; i++) {
        struct cn_slab_page *page = page_of(chunk->pages + (size_t)i * CN_SLAB_PAGE_BYTES);

        cn_list_remove(&page->link);
    }
    cn_list_remove(&chunk->link);
    pool->bytes -= chunk->bytes;
    cn_free(chunk);
}

/* --- pages --- */

/* A page that was never used before, of the newest chunk or of a new one. */
static struct cn_slab_page *
cut_page(struct cn_slab *pool)
{
    struct cn_slab_chunk *chunk = NULL;
    struct cn_slab_page *page;

    if (!cn_list_empty(&pool->chunks))
        chunk = cn_container_of(pool->chunks.next, struct cn_slab_chunk, link);
    if (!chunk || chunk->n_cut == chunk->n_pages)
        chunk = add_chunk(pool);
    if (!chunk)
        return NULL;
    page = page_of(chunk->pages + (size_t)chunk->n_cut++ * CN_SLAB_PAGE_BYTES);
    cn_list_init(&page->link);
    page->chunk = chunk;
    return page;
}

static struct cn_slab_page *
take_page(struct cn_slab *pool, uint32_t size)
{
    struct cn_list *link = cn_list_pop_front(&pool->empty_pages);
    struct cn_slab_page *page =
        link ? cn_container_of(link, struct cn_slab_page, link) : cut_page(pool);

    if (!page)
        return NULL;
    if (page->chunk == pool->spare)
        pool->spare = NULL;
    page->chunk->n_used++;
    page->freed = NULL;
    page->uncut = HEADER_BYTES;
    page->n_used = 0;
    page->size = (uint16_t)size;
    return page;
}

/* Called when a page has no block in use any more. */
static void
leave_page(struct cn_slab *pool, struct cn_slab_page *page)
{
    struct cn_slab_chunk *chunk = page->chunk;

    if (page == pool->sizes[page->size].now)
        pool->sizes[page->size].now = NULL;
    cn_list_remove(&page->link);
    cn_list_push_front(&pool->empty_pages, &page->link);
    if (--chunk->n_used > 0)
        return;
    if (pool->spare)
        free_chunk(pool, chunk);
    else
        pool->spare = chunk;
}

/* Replaces the page that blocks are taken from, which has no free block. */
static struct cn_slab_page *
change_page(struct cn_slab *pool, uint32_t size)
{
    struct cn_slab_sizes *sizes = &pool->sizes[size];
    struct cn_list *link = cn_list_pop_front(&sizes->more);
    struct cn_slab_page *page =
        link ? cn_container_of(link, struct cn_slab_page, link) : take_page(pool, size);

    if (!page)
        return NULL;
    if (sizes->now)
        sizes->now->listed = false; /* until one of its blocks is freed */
    page->listed = true;
    return sizes->now = page;
}

/* --- blocks --- */

/* Has the page no block to give? */
static bool
is_spent(const struct cn_slab_page *page)
{
    return !page->freed && page->uncut + block_bytes(page->size) > CN_SLAB_PAGE_BYTES;
}

static void *
take_block(struct cn_slab_page *page)
{
    void *block = page->freed;

    page->n_used++;
    if (!block) {
        block = (char *)page + page->uncut;
        page->uncut += block_bytes(page->size);
        return block;
    }
    memcpy(&page->freed, block, sizeof(page->freed));
    if (page->freed) /* the block after this one was freed long ago and is in no cache */
        cn_prefetch(page->freed, block_bytes(page->size));
    return block;
}

void *
cn_slab_alloc(struct cn_slab *pool, size_t bytes)
{
    struct cn_slab_page *page;

    if (bytes > pool->block_max)
        return cn_try_alloc(bytes);
    if (bytes == 0)
        return NULL;
    page = pool->sizes[size_of(bytes)].now;
    if ((!page || is_spent(page)) && !(page = change_page(pool, size_of(bytes))))
        return NULL;
    return take_block(page);
}

void
cn_slab_free(struct cn_slab *pool, void *ptr, size_t bytes)
{
    struct cn_slab_page *page;

    if (bytes > pool->block_max) {
        cn_free(ptr);
        return;
    }
    if (!ptr || bytes == 0)
        return;
    page = page_of(ptr);
    cn_assert(page->size == size_of(bytes) && page->n_used > 0);
    memcpy(ptr, &page->freed, sizeof(page->freed));
    page->freed = ptr;
    if (--page->n_used == 0) {
        leave_page(pool, page);
    } else if (!page->listed) {
        page->listed = true;
        cn_list_push_back(&pool->sizes[page->size].more, &page->link);
    }
}

void *
cn_slab_resize(struct cn_slab *pool, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *fresh;

    if (!ptr)
        return cn_slab_alloc(pool, new_bytes);
    if (old_bytes > pool->block_max && new_bytes > pool->block_max)
        return cn_try_realloc(ptr, new_bytes);
    if (old_bytes <= pool->block_max && new_bytes <= pool->block_max &&
        size_of(old_bytes) == size_of(new_bytes))
        return ptr;
    fresh = cn_slab_alloc(pool, new_bytes);
    if (!fresh)
        return NULL;
    memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    cn_slab_free(pool, ptr, old_bytes);
    return fresh;
}
