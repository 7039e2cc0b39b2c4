/* scheduler/workers/worker_phases.c - the two tables of phases of a worker link: its connection's
 * and its credit's. On the model queue's loop.
 */
#include "scheduler/workers/worker_link_priv.h"

const struct cn_phase cn_worker_link_phases[CN_LINK_N_PHASES] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_LINK_##name] = {#name, CN_PHASE_SET(CN_LINK_, followers)},
#include "scheduler/workers/worker_link_phases.def"
#undef CN_PHASE
};

const struct cn_phase cn_worker_credit_phases[CN_CREDIT_N_PHASES] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_CREDIT_##name] = {#name, CN_PHASE_SET(CN_CREDIT_, followers)},
#include "scheduler/workers/worker_credit_phases.def"
#undef CN_PHASE
};

void
cn_worker_link_to(struct cn_worker_link *link, enum cn_worker_link_phase phase)
{
    cn_phase_move(cn_worker_link_phases, "a worker link", &link->phase, phase);
}

void
cn_worker_link_credit_to(struct cn_worker_link *link, enum cn_worker_credit_phase phase)
{
    cn_phase_move(cn_worker_credit_phases, "the credit of a worker", &link->credit_phase, phase);
}
