/* worker/batch/row_phase.c - moves a row from phase to phase. Owned by the worker's one thread. */
#include "worker/batch/row_phase.h"

#include "worker/worker_priv.h"

const struct cn_phase cn_row_phases[] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_ROW_IS_##name] = {#name, CN_PHASE_SET(CN_ROW_IS_, followers)},
#include "worker/batch/row_phases.def"
#undef CN_PHASE
};

void
cn_row_enter(struct cn_pending *row, enum cn_row_phase to)
{
    cn_phase_move(cn_row_phases, "a row", &row->phase, to);
}
