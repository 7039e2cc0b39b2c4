/* scheduler/queue/job_phases.c - the tables of phases of a job and of its messages. A job is moved
 * on the queue's loop, a message on the job's origin.
 */
#include "scheduler/queue/job_phases.h"

const struct cn_phase cn_job_phases[CN_JOB_N_PHASES] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_JOB_##name] = {#name, CN_PHASE_SET(CN_JOB_, followers)},
#include "scheduler/queue/job_phases.def"
#undef CN_PHASE
};

const struct cn_phase cn_job_message_phases[CN_JOB_MESSAGE_N_PHASES] = {
#define CN_PHASE(name, waits_for, followers, mover)                                                \
    [CN_JOB_MESSAGE_##name] = {#name, CN_PHASE_SET(CN_JOB_MESSAGE_, followers)},
#include "scheduler/queue/job_message_phases.def"
#undef CN_PHASE
};

void
cn_job_begin(struct cn_job *job)
{
    job->phase = CN_JOB_INCOMING;
    job->cancel_message = job->credit_message = CN_JOB_MESSAGE_HOME;
}

void
cn_job_to(struct cn_job *job, enum cn_job_phase phase)
{
    cn_phase_move(cn_job_phases, "a job", &job->phase, phase);
}

void
cn_job_message_to(uint8_t *message, enum cn_job_message_phase phase)
{
    cn_phase_move(cn_job_message_phases, "a job's message", message, phase);
}
