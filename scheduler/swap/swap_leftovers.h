/* scheduler/swap/swap_leftovers.h - what versions that a sequence does not live in still know of
 * it, and whether an import that no step has met is the only copy left.
 *
 * A sequence that moves is kept in its new version as a pending import, then closed in the old one.
 * A server that dies in between leaves either both the living copy and the import, and then the
 * living copy counts, or the import alone, and then it is the sequence. But an import may also be
 * left over from a move that did not take place, and its sequence may have gone on and ended since.
 * What is told apart by here: when the generation was opened, a time that a sequence takes along,
 * and its step.
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
    uint32_t pending_at;      /* serial of the version that has it; 0: none has */
};

/* Takes note of an answer CN_ANSWER_ELSEWHERE of the version with that serial. */
void cn_swap_leftovers_note(struct cn_swap_leftovers *leftovers, uint32_t serial,
                            const struct cn_answer *answer);
/* Once all versions were asked and the sequence lives in none: is the import the sequence? */
bool cn_swap_leftovers_pending_counts(const struct cn_swap_leftovers *leftovers);

#endif
