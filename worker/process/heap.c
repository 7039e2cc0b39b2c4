/* worker/process/heap.c - the C library's settings and calls for what worker/process/heap.h
 * says. */
#include "worker/process/heap.h"

#include <malloc.h>

#include "core/tuning/tuning.h"

/* The largest int that the C library takes: blocks above it are mapped and unmapped one by one. */
#define MAP_FROM_BYTES (1 << 30)
/* Less free memory than this is not worth the system calls: it is used again soon. Nor is less than
 * a quarter of what is in use: that is scattered between blocks that stay. */
#define KEEP_BYTES ((size_t)32 << 20)
#define KEEP_SHARE 4

void
cn_heap_keep(void)
{
    if (!cn_tuned(CN_TUNING_KEEP_HEAP))
        return;
    mallopt(M_MMAP_THRESHOLD, MAP_FROM_BYTES);
    mallopt(M_TRIM_THRESHOLD, -1);
}

void
cn_heap_give_back(void)
{
    struct mallinfo2 info = mallinfo2();

    if (info.fordblks > KEEP_BYTES && info.fordblks > info.uordblks / KEEP_SHARE)
        malloc_trim(0);
}
