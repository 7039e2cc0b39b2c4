/* worker/process/heap.h - when a worker's freed memory goes back to the system.
 *
 * By itself the C library maps a large block from the system when it is asked for and gives it back
 * when it is freed. A worker whose batch handles many megabytes of states allocates and frees the
 * same blocks for each batch, and the system clears each page anew: with 16 sequences of 1 MiB
 * each, page faults took more time than the rest of the step (decision 0027). So a worker keeps
 * what it freed, and gives back once a minute what is not in use between two batches.
 *
 * One thread. The setting is inherited by forked workers.
 */
#ifndef CN_WORKER_PROCESS_HEAP_H
#define CN_WORKER_PROCESS_HEAP_H

/* From now on freed memory is kept for the next allocation, whatever its size. Does nothing with
 * the tuning `keep-heap` off. */
void cn_heap_keep(void);

/* Gives free memory back to the system if there is much of it. Takes time in proportion to what
 * goes back (some 50 ms for a GB), so call it rarely. */
void cn_heap_give_back(void);

#endif
