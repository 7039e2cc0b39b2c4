/* scheduler/swap/swap_leftovers.h - what the versions that a sequence does not live in still know
 * of it, and whether an import that no step has met is the only copy left.
 *
 * A sequence that moves is first written in its new version as a pending import, and then closed in
 * the old one. If the server dies in between, either both the living copy and the import are there,
 * and then the living copy counts; or the import alone is there, and then it is the sequence. But
 * an import may also be left over from a move that did not take place, and its sequence may have
 * gone on and ended since. Two values tell these cases apart: the time at which the generation was
 * opened, which a sequence takes along when it moves, and its step number.
 */
#ifndef CN_SCHEDULER_SWAP_SWAP_LEFTOVERS_H
#define CN_SCHEDULER_SWAP_SWAP_LEFTOVERS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/message.h"

struct cn_swap_leftovers {
    struct cn_swap_leftover {
        uint64_t opened_wall_ms, step;
    } pending, moved, closed; /* the latest of each kind */
    uint32_t pending_at;      /* serial of the version that has the pending import; 0: none has */
};

/* Notes an answer with CN_ANSWER_ELSEWHERE of the version with this serial. */
void cn_swap_leftovers_note(struct cn_swap_leftovers *leftovers, uint32_t serial,
                            const struct cn_answer *answer);
/* Once all versions were asked and the sequence lives in none: is the import the sequence? */
bool cn_swap_leftovers_pending_counts(const struct cn_swap_leftovers *leftovers);

#endif
