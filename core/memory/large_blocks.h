/* core/memory/large_blocks.h - when the server's large blocks of freed memory go back to the
 * system.
 *
 * By itself jemalloc gives a block of 8 MiB or more back as soon as it is freed. So each request
 * with a large body pays for new pages, which the system clears: for a body of 10 MB that was half
 * of its CPU time. A thread that has called this function keeps such blocks as long as it keeps
 * small ones: jemalloc gives back what was not used for about ten seconds (`dirty_decay_ms`). It
 * looks for such blocks only when the thread allocates, so an idle server asks it to, too.
 *
 * Does nothing in a program without jemalloc, and with the tuning `keep-blocks` off. */
#ifndef CN_CORE_MEMORY_LARGE_BLOCKS_H
#define CN_CORE_MEMORY_LARGE_BLOCKS_H

/* For the calling thread. It gets an arena of its own, because the other arenas have their limit
 * since before the program began. */
void cn_large_blocks_keep(void);

/* Gives back what no thread has used for about ten seconds. Any thread; call it every few seconds.
 */
void cn_large_blocks_give_back(void);

#endif
