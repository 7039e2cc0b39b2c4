/* core/memory/slab.h - small blocks of memory for one owner, which gives each block's size again
 * when it frees it. There is no lock and no header before a block, and blocks that were freed one
 * after the other are given out again one after the other, which is good for the processor's
 * caches.
 *
 * A page has blocks of one size. Pages are cut from chunks that malloc gives, and an empty page
 * serves any size again. Empty chunks go back to malloc, except one. Larger blocks come from malloc
 * directly. One thread. */
#ifndef CN_CORE_MEMORY_SLAB_H
#define CN_CORE_MEMORY_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "core/containers/list.h"

#define CN_SLAB_BLOCK_MAX 256 /* bytes of the largest block that comes from a page */
#define CN_SLAB_STEP 8        /* block sizes are multiples of this */
#define CN_SLAB_SIZES (CN_SLAB_BLOCK_MAX / CN_SLAB_STEP)
#define CN_SLAB_PAGE_BYTES 16384

struct cn_slab_page;
struct cn_slab_chunk;

struct cn_slab {
    size_t block_max;             /* blocks larger than this come from malloc */
    struct cn_slab_sizes {        /* one element for each block size */
        struct cn_slab_page *now; /* blocks are taken from this page; NULL: there is none yet */
        struct cn_list more;      /* then from these, which have some free blocks again */
    } sizes[CN_SLAB_SIZES];
    /* pages of all chunks without a block in use, which may get any size */
    struct cn_list empty_pages;
    /* the newest one first, which may have pages that were never used */
    struct cn_list chunks;
    /* a chunk without a page in use; kept, because otherwise it might come and go */
    struct cn_slab_chunk *spare;
    size_t bytes, bytes_max; /* the size of all chunks and its limit; bytes_max 0: no limit */
};

/* The usual value for `block_max` below: CN_SLAB_BLOCK_MAX, or 0 with the tuning `block-pages` off.
 * It is 0 in sanitizer builds, too: there each block is malloc's own, so that a use after free is
 * seen. */
size_t cn_slab_usual(void);

/* Initialises the allocator. `block_max` is the largest block from pages, up to CN_SLAB_BLOCK_MAX
 * and mostly cn_slab_usual(); with 0 all blocks come from malloc. `bytes_max` limits all chunks
 * together, 0: no limit. A block in use keeps its whole page for its size, so blocks of another
 * size may find no memory before that limit is really in use. */
void cn_slab_init(struct cn_slab *pool, size_t block_max, size_t bytes_max);
/* Frees all blocks that came from pages, whoever has them. Larger ones must have been freed before.
 */
void cn_slab_fini(struct cn_slab *pool);

/* Returns a block of `bytes`, not zeroed; NULL if there is no memory, and for 0 bytes. It is
 * aligned to 16 bytes if `bytes` is a multiple of 16, otherwise to 8. */
void *cn_slab_alloc(struct cn_slab *pool, size_t bytes);
/* Frees a block; `bytes` is the size that was asked for. NULL is allowed. */
void cn_slab_free(struct cn_slab *pool, void *ptr, size_t bytes);
/* Changes a block's size from `old_bytes` like realloc. If it returns NULL, there is no memory and
 * `ptr` stays valid. */
void *cn_slab_resize(struct cn_slab *pool, void *ptr, size_t old_bytes, size_t new_bytes);

#endif
