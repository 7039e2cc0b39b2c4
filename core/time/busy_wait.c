#include "core/time/busy_wait.h"

#include <sched.h>

#include "core/time/clock.h"

/* Whoever waits no longer than this many limits looks again next time: of a core that nobody else
 * wants, looking takes a tenth at most. */
#define SHORT_WAIT 10

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
