/* worker/memory.h - how a worker's malloc gets its memory from the system. Once, before other threads. */
#ifndef CN_WORKER_MEMORY_H
#define CN_WORKER_MEMORY_H

/* The heap of a worker that has grown is mapped in huge pages, where the system gives them to who asks
 * (madvise): the states of a million sequences lie anywhere in it, and with small pages a step first waits for
 * the page tables. A small worker's stays in small ones, of which it has fewer bytes. */
void cn_memory_init(void);

#endif
