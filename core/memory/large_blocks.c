/* core/memory/large_blocks.c - asks jemalloc for what core/memory/large_blocks.h says. */
#include "core/memory/large_blocks.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/tuning/tuning.h"

#define DECAY_ALL "arena.4096.decay" /* 4096 stands for all arenas (MALLCTL_ARENAS_ALL) */

/* jemalloc's function for all its settings. NULL in a program that is linked without jemalloc. */
int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes)
    __attribute__((weak));

void
cn_large_blocks_keep(void)
{
    size_t never = (size_t)1 << 62, bytes = sizeof(unsigned);
    char limit[64];
    unsigned arena;

    if (!cn_tuned(CN_TUNING_KEEP_BLOCKS) || !mallctl ||
        mallctl("arenas.create", &arena, &bytes, NULL, 0) != 0)
        return;
    snprintf(limit, sizeof(limit), "arena.%u.oversize_threshold", arena);
    if (mallctl(limit, NULL, NULL, &never, sizeof(never)) == 0)
        mallctl("thread.arena", NULL, NULL, &arena, sizeof(arena));
}

void
cn_large_blocks_give_back(void)
{
    if (mallctl && cn_tuned(CN_TUNING_KEEP_BLOCKS))
        mallctl(DECAY_ALL, NULL, NULL, NULL, 0);
}
