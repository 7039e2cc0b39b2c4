/* scheduler/swap/swap_leftovers.c - see swap_leftovers.h. */
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

/* Where it was moved from it is closed as moved, at the very step that the import has; unless that
 * has been forgotten, or the version is gone. Closed for another reason, or moved on later, it is
 * past. */
bool
cn_swap_leftovers_pending_counts(const struct cn_swap_leftovers *leftovers)
{
    return leftovers->pending_at && !is_later(&leftovers->moved, &leftovers->pending) &&
           (leftovers->closed.opened_wall_ms == 0 ||
            is_later(&leftovers->pending, &leftovers->closed));
}
