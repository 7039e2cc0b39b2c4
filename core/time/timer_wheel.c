/* core/time/timer_wheel.c - a hierarchical timing wheel that does most of its work late. Owned by
 * one loop.
 *
 * A time in ms is read as digits of six bits, and each digit has a level of 64 slots. A timer is on
 * the level of the highest digit in which its deadline differs from the wheel's time, in the slot
 * of its deadline's digit there. Example with decimal digits: at time 1234 a deadline of 1239 is on
 * level 0 in slot 9, 1290 on level 1 in slot 9, and 5000 on level 3 in slot 5.
 *
 * So all timers of a level come before all timers of the levels above, and within a level the order
 * is that of the slots. The next slot to sweep is therefore the first one in use on the lowest
 * level in use, however far away it is: a jump of hours costs no more than a jump of a millisecond.
 *
 * When a slot is swept, a timer that is due is called. Any other is put back, which takes it to a
 * lower level, or, if its deadline was moved later meanwhile, to wherever it belongs now. That is
 * why moving a deadline later, which a busy connection does with each request, is only a store.
 *
 * A cancelled timer leaves the bit of its slot set; next_slot skips slots that turn out empty. */
#include "core/time/timer_wheel.h"

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"

#define DIGIT_BITS 6
#define SLOTS (1u << DIGIT_BITS)
#define LEVELS 11 /* digits of 64 bits */

struct cn_timer_wheel {
    uint64_t now_ms;    /* all slots up to this time have been swept */
    struct cn_list due; /* timers whose deadline is not after now_ms */
    /* a bit for each slot that may hold timers; a cancelled one leaves it set */
    uint64_t in_use[LEVELS];
    struct cn_list slots[LEVELS][SLOTS];
};

struct cn_timer_wheel *
cn_timer_wheel_create(uint64_t now_ms)
{
    struct cn_timer_wheel *wheel = cn_alloc(sizeof(*wheel));
    unsigned level, i;

    wheel->now_ms = now_ms;
    cn_list_init(&wheel->due);
    for (level = 0; level < LEVELS; level++)
        for (i = 0; i < SLOTS; i++)
            cn_list_init(&wheel->slots[level][i]);
    return wheel;
}

static void
forget_all(struct cn_list *list)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(list)))
        cn_container_of(node, struct cn_timer, link)->deadline_ms = CN_NEVER;
}

void
cn_timer_wheel_destroy(struct cn_timer_wheel *wheel)
{
    unsigned level, i;

    if (!wheel)
        return;
    forget_all(&wheel->due);
    for (level = 0; level < LEVELS; level++)
        for (i = 0; i < SLOTS; i++)
            forget_all(&wheel->slots[level][i]);
    cn_free(wheel);
}

void
cn_timer_init(struct cn_timer *timer, cn_timer_fn fn)
{
    cn_list_init(&timer->link);
    timer->deadline_ms = CN_NEVER;
    timer->slot_ms = CN_NEVER;
    timer->fn = fn;
}

/* Puts a timer, which is not in a list, where its deadline belongs. */
static void
put(struct cn_timer_wheel *wheel, struct cn_timer *timer)
{
    uint64_t deadline = timer->deadline_ms;
    unsigned level, digit;

    if (deadline <= wheel->now_ms) {
        timer->slot_ms = 0; /* so that moving it later takes it out of `due` */
        cn_list_push_back(&wheel->due, &timer->link);
        return;
    }
    level = (63u - (unsigned)__builtin_clzll(deadline ^ wheel->now_ms)) / DIGIT_BITS;
    digit = (unsigned)(deadline >> (level * DIGIT_BITS)) % SLOTS;
    timer->slot_ms = deadline >> (level * DIGIT_BITS) << (level * DIGIT_BITS);
    wheel->in_use[level] |= UINT64_C(1) << digit;
    cn_list_push_back(&wheel->slots[level][digit], &timer->link);
}

void
cn_timer_set(struct cn_timer_wheel *wheel, struct cn_timer *timer, uint64_t deadline_ms)
{
    if (deadline_ms == CN_NEVER) {
        cn_timer_cancel(timer);
        return;
    }
    timer->deadline_ms = deadline_ms;
    if (cn_list_linked(&timer->link)) {
        if (deadline_ms >= timer->slot_ms)
            return; /* its slot is swept in time */
        cn_list_remove(&timer->link);
    }
    put(wheel, timer);
}

void
cn_timer_cancel(struct cn_timer *timer)
{
    cn_list_remove(&timer->link);
    timer->deadline_ms = CN_NEVER;
}

bool
cn_timer_armed(const struct cn_timer *timer)
{
    return timer->deadline_ms != CN_NEVER;
}

/* Calls each timer of `list`, or puts it back. A callback may set, cancel or free any timer, also
 * those that still wait here, so the first one is taken again each time. */
static void
sweep(struct cn_timer_wheel *wheel, struct cn_list *list)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(list))) {
        struct cn_timer *timer = cn_container_of(node, struct cn_timer, link);

        if (timer->deadline_ms > wheel->now_ms) {
            put(wheel, timer);
            continue;
        }
        timer->deadline_ms = CN_NEVER;
        timer->fn(timer);
    }
}

/* When the first slot that holds a timer must be swept, and which slot that is. */
static uint64_t
next_slot(const struct cn_timer_wheel *wheel, unsigned *level_out, unsigned *digit_out)
{
    unsigned level;

    for (level = 0; level < LEVELS; level++) {
        uint64_t bits = wheel->in_use[level];

        while (bits) {
            unsigned digit = (unsigned)__builtin_ctzll(bits);
            unsigned shift = level * DIGIT_BITS;
            uint64_t above = level + 1 < LEVELS ? ~UINT64_C(0) << (shift + DIGIT_BITS) : 0;

            bits &= bits - 1;
            if (cn_list_empty(&wheel->slots[level][digit]))
                continue;
            *level_out = level;
            *digit_out = digit;
            return (wheel->now_ms & above) | (uint64_t)digit << shift;
        }
    }
    return CN_NEVER;
}

void
cn_timer_wheel_advance(struct cn_timer_wheel *wheel, uint64_t now_ms)
{
    unsigned level = 0, digit = 0;
    struct cn_list due;
    uint64_t next;

    if (now_ms <= wheel->now_ms && cn_list_empty(&wheel->due))
        return; /* most turns of a busy loop begin in the millisecond of the one before */
    /* A timer that a callback arms for the past goes to wheel->due and waits for the next call, so
     * a timer that arms itself again at once cannot keep us here. */
    cn_list_init(&due);
    cn_list_splice_back(&due, &wheel->due);
    if (now_ms < wheel->now_ms)
        now_ms = wheel->now_ms;
    while ((next = next_slot(wheel, &level, &digit)) <= now_ms) {
        struct cn_list swept;

        if (next == CN_NEVER)
            break;
        cn_list_init(&swept);
        cn_list_splice_back(&swept, &wheel->slots[level][digit]);
        wheel->in_use[level] &= ~(UINT64_C(1) << digit);
        wheel->now_ms = next;
        sweep(wheel, &swept);
    }
    wheel->now_ms = now_ms;
    sweep(wheel, &due);
}

uint64_t
cn_timer_wheel_next_ms(const struct cn_timer_wheel *wheel)
{
    unsigned level = 0, digit = 0;

    if (!cn_list_empty(&wheel->due))
        return wheel->now_ms;
    return next_slot(wheel, &level, &digit);
}
