/* core/time/busy_wait.c - decides from the last wait whether polling is worth it now. One thread.
 *
 * There is no clock or counter but the length of the last wait. Example with a limit of 50 us: if
 * the last wait took 300 us, work comes often, so this wait polls for up to 50 us before the thread
 * sleeps. If it took 2 ms, the thread sleeps at once. sched_yield between two polls gives the core
 * to any other thread that can run, so polling does not slow down a worker on the same core. */
#include "core/time/busy_wait.h"

#include <sched.h>

#include "core/time/clock.h"
#include "core/tuning/tuning.h"

/* A wait that was not longer than this many limits makes the next one busy. On a core that nobody
 * else wants, polling then takes a tenth of the time at most. */
#define SHORT_WAIT 10

void
cn_busy_wait_limit(struct cn_busy_wait *wait, uint32_t limit_us)
{
    wait->limit_us = cn_tuned(CN_TUNING_BUSY_WAIT) ? limit_us : 0;
}

void
cn_busy_wait_begin(struct cn_busy_wait *wait)
{
    wait->began_us = wait->limit_us ? cn_now_us() : 0;
}

bool
cn_busy_wait_again(struct cn_busy_wait *wait)
{
    if (!wait->limit_us || !wait->worth_it)
        return false;
    sched_yield();
    return cn_now_us() - wait->began_us < wait->limit_us;
}

void
cn_busy_wait_end(struct cn_busy_wait *wait)
{
    if (wait->limit_us)
        wait->worth_it = cn_now_us() - wait->began_us < (uint64_t)SHORT_WAIT * wait->limit_us;
}
