/* core/time/timer_wheel.c - hierarchical, lazy timers. Owned by one loop.
 *
 * A time in ms is read as digits of six bits; a level is a digit. A timer lies
 * on the level of the highest digit in which its deadline differs from the
 * wheel's time, in the slot of its deadline's digit there. So all that lies on
 * a level comes before all that lies above it, and in a level in the order of
 * slots: the next slot to sweep is the first one of the lowest level in use,
 * whatever distance lies between. A swept slot's timers are called when they
 * are due, and otherwise put back, which lands them further down or, if their
 * deadline was moved meanwhile, wherever it is now.
 */
#include "core/time/timer_wheel.h"

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"

#define DIGIT_BITS 6
#define SLOTS (1u << DIGIT_BITS)
#define LEVELS 11 /* digits of 64 bits */

struct cn_timer_wheel {
    uint64_t now_ms;         /* all slots up to here are swept */
    struct cn_list due;      /* armed for a time not after now_ms */
    uint64_t in_use[LEVELS]; /* a bit a slot: may hold timers (a cancelled one leaves it set) */
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

/* `timer` is in no list. */
static void
put(struct cn_timer_wheel *wheel, struct cn_timer *timer)
{
    uint64_t deadline = timer->deadline_ms;
    unsigned level, digit;

    if (deadline <= wheel->now_ms) {
        timer->slot_ms = 0; /* moving it later must take it out of `due` */
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
            return; /* looked at in time where it is */
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

/* Calls or puts back each timer of `list`. A callback may set, cancel or free any timer, those
 * that still wait here included: so always take the first. */
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

/* When the first slot that holds a timer is to be swept, and which one that is. */
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

    /* What callbacks arm for the past goes to wheel->due and waits for the next call, so a timer
     * that re-arms itself at once cannot keep us here. */
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
