/* scheduler/queue/job_phases.h - moves a job, and its messages, through the phases of their tables.
 *
 * A move that is not in the table aborts, in every build.
 */
#ifndef CN_SCHEDULER_QUEUE_JOB_PHASES_H
#define CN_SCHEDULER_QUEUE_JOB_PHASES_H

#include <stdbool.h>

#include "core/containers/phase.h"
#include "scheduler/queue/job.h"

enum cn_job_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_JOB_##name,
#include "scheduler/queue/job_phases.def"
#undef CN_PHASE
    CN_JOB_N_PHASES,
    CN_JOB_ = CN_PHASE_NONE,
};

enum cn_job_message_phase {
#define CN_PHASE(name, waits_for, followers, mover) CN_JOB_MESSAGE_##name,
#include "scheduler/queue/job_message_phases.def"
#undef CN_PHASE
    CN_JOB_MESSAGE_N_PHASES,
    CN_JOB_MESSAGE_ = CN_PHASE_NONE,
};

extern const struct cn_phase cn_job_phases[CN_JOB_N_PHASES];
extern const struct cn_phase cn_job_message_phases[CN_JOB_MESSAGE_N_PHASES];

/* Begins a life; called by submit, on the job's origin. */
void cn_job_begin(struct cn_job *job);
/* Moves the job; called on the queue's loop. */
void cn_job_to(struct cn_job *job, enum cn_job_phase phase);
/* Moves one of the job's two messages, to which `message` points; called on the job's origin. */
void cn_job_message_to(uint8_t *message, enum cn_job_message_phase phase);

/* Does its handler stream at one of this version's workers? Then what was passed on cannot be made
 * again. */
static inline bool
cn_job_streams(const struct cn_job *job)
{
    return job->phase == CN_JOB_STREAMING || job->phase == CN_JOB_DETACHED;
}

/* Does it stream a step that is committed, so that its sequence went on without it? */
static inline bool
cn_job_is_detached(const struct cn_job *job)
{
    return job->phase == CN_JOB_DETACHED || job->phase == CN_JOB_AWAY_DETACHED;
}

/* Is it at another version of the model? */
static inline bool
cn_job_is_away(const struct cn_job *job)
{
    return job->phase == CN_JOB_AWAY || job->phase == CN_JOB_AWAY_DETACHED;
}

#endif
