/* worker/memory.c - jemalloc, and where its memory comes from. In debug builds it is the C library's malloc. */
#include "worker/memory.h"

#ifdef CN_JEMALLOC
#include <jemalloc/jemalloc.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

/* jemalloc asks the system for 2 MiB, and each time for a little more: with this the first 12 are small pages. */
#define HUGE_FROM (4u << 20)

/* Read by jemalloc at its start. It would keep what is over 8 MiB, the tables of many sequences, in an arena of
 * its own, out of our sight; and after 10 s it would give back what Lua's collector has freed and will soon have
 * filled again: half of a large heap, each few seconds. */
extern const char *malloc_conf;
const char *malloc_conf = "oversize_threshold:0,dirty_decay_ms:30000";

static extent_hooks_t *below;

static void *
map(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero, bool *commit,
    unsigned arena)
{
    void *mapped = below->alloc(below, at, size, alignment, zero, commit, arena);

    (void)hooks;
    if (mapped && size >= HUGE_FROM)
        madvise(mapped, size, MADV_HUGEPAGE); /* or not: it is as well without */
    return mapped;
}

void
cn_memory_init(void)
{
    static extent_hooks_t hooks;
    extent_hooks_t *ours = &hooks;
    size_t len = sizeof(below);

    if (mallctl("arena.0.extent_hooks", &below, &len, NULL, 0) != 0)
        return;
    hooks = *below;
    hooks.alloc = map;
    mallctl("arena.0.extent_hooks", NULL, NULL, &ours, sizeof(ours));
}

#else

void
cn_memory_init(void)
{
}

#endif
