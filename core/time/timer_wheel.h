/* core/time/timer_wheel.h - timers by the million, lazily.
 *
 * A hierarchical wheel with 1 ms ticks. Moving a deadline later costs one store:
 * the entry stays in its slot and is put back when the slot is swept.
 * Intrusive: arming costs no allocation. Owned by one loop.
 */
#ifndef CN_CORE_TIME_TIMER_WHEEL_H
#define CN_CORE_TIME_TIMER_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"

struct cn_timer;
typedef void (*cn_timer_fn)(struct cn_timer *timer);

struct cn_timer {
    struct cn_list link;
    uint64_t deadline_ms; /* cn_now_ms(); CN_NEVER when not armed */
    uint64_t slot_ms;     /* wheel's own: when its slot is swept, never after deadline_ms */
    cn_timer_fn fn;       /* called once, timer no longer armed; may arm or free it */
};

struct cn_timer_wheel;

struct cn_timer_wheel *cn_timer_wheel_create(uint64_t now_ms);
/* Armed timers are forgotten, not called. */
void cn_timer_wheel_destroy(struct cn_timer_wheel *wheel);

void cn_timer_init(struct cn_timer *timer, cn_timer_fn fn);
/* Arms or moves; a deadline in the past fires at the next advance, CN_NEVER cancels. Moving later
 * only stores the deadline; moving before slot_ms takes the timer to another slot. */
void cn_timer_set(struct cn_timer_wheel *wheel, struct cn_timer *timer, uint64_t deadline_ms);
/* Harmless when not armed. */
void cn_timer_cancel(struct cn_timer *timer);
bool cn_timer_armed(const struct cn_timer *timer);

/* Calls what is due. Jumps of hours cost no more than the slots passed. */
void cn_timer_wheel_advance(struct cn_timer_wheel *wheel, uint64_t now_ms);
/* When advance should be called next at the latest; CN_NEVER when empty. May be early, never
 * late. */
uint64_t cn_timer_wheel_next_ms(const struct cn_timer_wheel *wheel);

#endif
