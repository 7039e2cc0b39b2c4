/* scheduler/swap/swap_leftovers.c - the comparison that swap_leftovers.h explains. */
#include "scheduler/swap/swap_leftovers.h"

static bool
is_later(const struct cn_swap_leftover *a, const struct cn_swap_leftover *b)
{
    return a->opened_wall_ms != b->opened_wall_ms ? a->opened_wall_ms > b->opened_wall_ms
                                                  : a->step > b->step;
}

void
cn_swap_leftovers_note(struct cn_swap_leftovers *leftovers, uint32_t serial,
                       const struct cn_answer *answer)
{
    const struct cn_swap_leftover leftover = {answer->opened_wall_ms, answer->step};

    if (answer->flags & CN_ANSWER_PENDING) {
        if (leftovers->pending_at && !is_later(&leftover, &leftovers->pending))
            return;
        leftovers->pending = leftover;
        leftovers->pending_at = serial;
    } else if ((answer->flags & CN_ANSWER_MOVED) && is_later(&leftover, &leftovers->moved)) {
        leftovers->moved = leftover;
    } else if ((answer->flags & CN_ANSWER_CLOSED_BEFORE) &&
               is_later(&leftover, &leftovers->closed)) {
        leftovers->closed = leftover;
    }
}

/* A pending import is the sequence if no version knows anything later. The version that it was
 * moved from has closed it as moved at the very step that the import has, unless that record is
 * forgotten or the version is gone. If the sequence was closed for another reason at that step or
 * later, or was moved on later, the import is out of date. */
bool
cn_swap_leftovers_pending_counts(const struct cn_swap_leftovers *leftovers)
{
    return leftovers->pending_at && !is_later(&leftovers->moved, &leftovers->pending) &&
           (leftovers->closed.opened_wall_ms == 0 ||
            is_later(&leftovers->pending, &leftovers->closed));
}
