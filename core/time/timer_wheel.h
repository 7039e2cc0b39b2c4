/* core/time/timer_wheel.h - timers, by the million.
 *
 * A hierarchical timing wheel with ticks of 1 ms. Moving a deadline later costs a single store: the
 * timer stays in its slot and is put into another one when the slot is swept. The timer is a member
 * of the owner's object, so arming needs no allocation. Owned by one loop. */
#ifndef CN_CORE_TIME_TIMER_WHEEL_H
#define CN_CORE_TIME_TIMER_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"

struct cn_timer;
typedef void (*cn_timer_fn)(struct cn_timer *timer);

struct cn_timer {
    struct cn_list link;
    uint64_t deadline_ms; /* by cn_now_ms(); CN_NEVER while it is not armed */
    uint64_t slot_ms;     /* the wheel's: when its slot is swept, never after deadline_ms */
    cn_timer_fn fn;       /* called once, when the timer is no longer armed; may arm or free it */
};

struct cn_timer_wheel;

/* Makes an empty wheel whose time is `now_ms`. */
struct cn_timer_wheel *cn_timer_wheel_create(uint64_t now_ms);
/* Frees the wheel. Armed timers are forgotten and not called. NULL is allowed. */
void cn_timer_wheel_destroy(struct cn_timer_wheel *wheel);

void cn_timer_init(struct cn_timer *timer, cn_timer_fn fn);
/* Arms a timer or moves its deadline. A deadline in the past fires at the next advance; CN_NEVER
 * cancels. Moving it later only stores the deadline; moving it before slot_ms puts the timer into
 * another slot. */
void cn_timer_set(struct cn_timer_wheel *wheel, struct cn_timer *timer, uint64_t deadline_ms);
/* Cancels a timer. Does nothing if it is not armed. */
void cn_timer_cancel(struct cn_timer *timer);
bool cn_timer_armed(const struct cn_timer *timer);

/* Calls all timers that are due. The cost depends on the slots in use that were passed, not on the
 * time that has passed. */
void cn_timer_wheel_advance(struct cn_timer_wheel *wheel, uint64_t now_ms);
/* When cn_timer_wheel_advance should be called next at the latest; CN_NEVER if no timer is armed.
 * It may be too early, never too late. */
uint64_t cn_timer_wheel_next_ms(const struct cn_timer_wheel *wheel);

#endif
