/* core/memory/huge_pages.h - asks the system for pages of 2 MiB under large blocks (decision 0019).
 * Switched by the tuning `huge-pages`. Any thread. */
#ifndef CN_CORE_MEMORY_HUGE_PAGES_H
#define CN_CORE_MEMORY_HUGE_PAGES_H

#include <stddef.h>

#define CN_HUGE_BYTES ((size_t)2 << 20)
/* Asks the system for huge pages wherever whole ones lie within the block; Linux gives them by
 * default to those who ask. It is meant for large blocks that stay and are accessed at random, such
 * as the tables of a million sequences: with small pages nearly every access also misses the
 * processor's table of pages (TLB). It is only a hint. NULL is allowed. */
void cn_prefer_huge(void *ptr, size_t bytes);

#endif
