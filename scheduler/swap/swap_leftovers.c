/* scheduler/swap/swap_leftovers.c - see swap_leftovers.h. */
#include "scheduler/swap/swap_leftovers.h"

static bool
is_later(const struct cn_swap_trace *a, const struct cn_swap_trace *b)
{
    return a->opened_wall_ms != b->opened_wall_ms ? a->opened_wall_ms > b->opened_wall_ms
                                                  : a->step > b->step;
}

void
cn_swap_traces_note(struct cn_swap_traces *traces, uint32_t serial, const struct cn_answer *answer)
{
    const struct cn_swap_trace trace = {answer->opened_wall_ms, answer->step};

    if (answer->flags & CN_ANSWER_PENDING) {
        if (traces->pending_at && !is_later(&trace, &traces->pending))
            return;
        traces->pending = trace;
        traces->pending_at = serial;
    } else if ((answer->flags & CN_ANSWER_MOVED) && is_later(&trace, &traces->moved)) {
        traces->moved = trace;
    } else if ((answer->flags & CN_ANSWER_CLOSED_BEFORE) && is_later(&trace, &traces->closed)) {
        traces->closed = trace;
    }
}

/* Where it was moved from it is closed as moved, at the very step that the import has; unless that has
 * been forgotten, or the version is gone. Closed for another reason, or moved on later, it is past. */
bool
cn_swap_traces_pending_counts(const struct cn_swap_traces *traces)
{
    return traces->pending_at && !is_later(&traces->moved, &traces->pending) &&
           (traces->closed.opened_wall_ms == 0 || is_later(&traces->pending, &traces->closed));
}
