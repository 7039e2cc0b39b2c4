/* core/memory/slab.h - small blocks of one owner, who knows each block's size when he frees it: no
 * lock, no header before a block, and blocks that were freed one after the other come again one
 * after the other.
 *
 * A page has blocks of one size; pages are cut from chunks of malloc's, and a page that has become
 * empty serves any size. Chunks that have become empty go back to malloc, but for one. Larger
 * blocks are malloc's own; those that grow ask for huge pages. One thread.
 */
#ifndef CN_CORE_MEMORY_SLAB_H
#define CN_CORE_MEMORY_SLAB_H

#include <stddef.h>
#include <stdint.h>

#include "core/containers/list.h"

#define CN_SLAB_BLOCK_MAX 256 /* bytes of the largest block that comes from a page */
/* In sanitizer builds each block is malloc's own, so that what is used after its end is seen. */
#ifdef CN_MALLOC_EACH
#define CN_SLAB_USUAL 0
#else
#define CN_SLAB_USUAL CN_SLAB_BLOCK_MAX
#endif
#define CN_SLAB_STEP 8 /* blocks are multiples of it */
#define CN_SLAB_SIZES (CN_SLAB_BLOCK_MAX / CN_SLAB_STEP)
#define CN_SLAB_PAGE_BYTES 16384

struct cn_slab_page;
struct cn_slab_chunk;

struct cn_slab {
    size_t block_max;             /* larger blocks are malloc's */
    struct cn_slab_sizes {        /* for each size of block */
        struct cn_slab_page *now; /* blocks are taken from this one; NULL: none yet */
        struct cn_list more;      /* and then from these, where some are free again */
    } sizes[CN_SLAB_SIZES];
    struct cn_list empty_pages;  /* of chunks: without a block in use, of no size */
    struct cn_list chunks;       /* newest first: what is still uncut is the first one's */
    struct cn_slab_chunk *spare; /* no page of it is in use: kept, or it would come and go */
    size_t bytes, bytes_max;     /* of all chunks; max 0: none */
};

/* block_max: up to CN_SLAB_BLOCK_MAX; 0: all blocks are malloc's. Mostly CN_SLAB_USUAL. bytes_max:
 * of all pages together, 0: no bound. A block in use keeps its whole page for its size, so blocks
 * of other sizes can find no memory before as much is in use. */
void cn_slab_init(struct cn_slab *pool, size_t block_max, size_t bytes_max);
/* Frees all blocks of pages, whoever has them. Larger ones must have been freed before. */
void cn_slab_fini(struct cn_slab *pool);

/* A block of `bytes`, not zeroed; NULL where there is no memory. Aligned to 16 bytes where `bytes`
 * is a multiple of 16, else to 8. Of 0 bytes: NULL. */
void *cn_slab_alloc(struct cn_slab *pool, size_t bytes);
/* `bytes` as it was asked for. NULL is nobody's block. */
void cn_slab_free(struct cn_slab *pool, void *ptr, size_t bytes);
/* As realloc, for a block that has `old_bytes`: NULL where there is no memory, `ptr` then stays
 * valid. */
void *cn_slab_resize(struct cn_slab *pool, void *ptr, size_t old_bytes, size_t new_bytes);

#endif
