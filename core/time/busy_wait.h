/* core/time/busy_wait.h - busy waiting: polling for new work for a short time before a thread
 * sleeps.
 *
 * Sleeping and being woken costs a thread some microseconds, and much more on a virtual machine
 * whose host takes a halted core away: with 16 connections a step then takes twice as long as its
 * work. So a thread that has something to do every few hundred microseconds polls again, and lets
 * others run in between, until a limit is over; a thread that is seldom woken sleeps at once.
 * Decision 0016 has the measurements. One thread. */
#ifndef CN_CORE_TIME_BUSY_WAIT_H
#define CN_CORE_TIME_BUSY_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct cn_busy_wait {
    uint32_t limit_us; /* 0: never wait busily; set with cn_busy_wait_limit */
    bool worth_it;     /* the last wait was short */
    uint64_t began_us; /* when this wait began */
};

/* Sets the limit; the tuning `busy-wait` makes it 0. */
void cn_busy_wait_limit(struct cn_busy_wait *wait, uint32_t limit_us);
/* Begins a wait, because there was nothing to do. */
void cn_busy_wait_begin(struct cn_busy_wait *wait);
/* Lets other threads run. True: poll again; false: sleep. */
bool cn_busy_wait_again(struct cn_busy_wait *wait);
/* Ends the wait, however it ended, and remembers whether it was short. */
void cn_busy_wait_end(struct cn_busy_wait *wait);

#endif
