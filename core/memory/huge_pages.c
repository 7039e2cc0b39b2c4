/* core/memory/huge_pages.c - the call for what core/memory/huge_pages.h says. Any thread. */
#include "core/memory/huge_pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "core/tuning/tuning.h"

/* madvise accepts whole huge pages only, so the begin is rounded up and the end down. */
void
cn_prefer_huge(void *ptr, size_t bytes)
{
    uintptr_t begin = ((uintptr_t)ptr + CN_HUGE_BYTES - 1) & ~(uintptr_t)(CN_HUGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)ptr + bytes) & ~(uintptr_t)(CN_HUGE_BYTES - 1);

    if (ptr && begin < end && cn_tuned(CN_TUNING_HUGE_PAGES))
        madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}
