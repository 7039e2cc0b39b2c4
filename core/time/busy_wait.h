/* core/time/busy_wait.h - looking again for a moment before going to sleep.
 *
 * To sleep and be woken costs a thread some microseconds, and many times that on a virtual machine
 * whose host takes a halted core away: at 16 connections a step then takes twice as long as its
 * work. A thread that has something to do every few hundred microseconds therefore looks again, and
 * lets others run in between, until its limit is over; one that is woken seldom sleeps at once. One
 * thread.
 */
#ifndef CN_CORE_TIME_BUSY_WAIT_H
#define CN_CORE_TIME_BUSY_WAIT_H

#include <stdbool.h>
#include <stdint.h>

struct cn_busy_wait {
    uint32_t limit_us; /* 0: it never looks again; set by the owner */
    bool worth_it;     /* the last wait was short */
    uint64_t began_us; /* this wait */
};

/* There was nothing to do. */
void cn_busy_wait_begin(struct cn_busy_wait *wait);
/* Lets others run; true: look again; false: go to sleep. */
bool cn_busy_wait_again(struct cn_busy_wait *wait);
/* The wait is over, asleep or not. */
void cn_busy_wait_end(struct cn_busy_wait *wait);

#endif
