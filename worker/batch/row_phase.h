/* worker/batch/row_phase.h - the phase of a row. The table row_phases.def explains the phases;
 * docs/architecture.md shows it. Owned by the worker's one thread.
 *
 * The phase lies in the row's cn_pending, which lives from the frame to the answer, and not in its
 * entry, which belongs to one batch. Other facts about the row (its sequence has ended, its step
 * was committed at an earlier yield) hold in several phases, so they are flags of the entry.
 */
#ifndef CN_WORKER_BATCH_ROW_PHASE_H
#define CN_WORKER_BATCH_ROW_PHASE_H

#include "core/containers/phase.h"

struct cn_pending;

enum cn_row_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_ROW_IS_##name,
#include "worker/batch/row_phases.def"
#undef CN_PHASE
    CN_ROW_IS_ = CN_PHASE_NONE,
};

/* The table; its index is an enum cn_row_phase. */
extern const struct cn_phase cn_row_phases[];

/* Moves the row to `to`. This is the only place that writes a row's phase; a move that the table
 * does not allow aborts. */
void cn_row_enter(struct cn_pending *row, enum cn_row_phase to);

#endif
