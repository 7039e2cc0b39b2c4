/* scheduler/queue/job_group.c - a FIFO with at most one job in flight. On the model queue's loop.
 *
 * `waiting` counts the list without the job in flight. A job is taken (in flight), then either
 * settled (answered) or put back at the front (its worker died), so the order of the jobs never
 * changes.
 */
#include "scheduler/queue/job_group.h"

#include "core/errors/panic.h"
#include "scheduler/queue/job.h"

void
cn_job_group_init(struct cn_job_group *group)
{
    cn_list_init(&group->jobs);
    cn_list_init(&group->ready);
    group->in_flight = NULL;
    group->waiting = 0;
    group->place = 0;
}

bool
cn_job_group_push(struct cn_job_group *group, struct cn_job *job, uint32_t max_waiting)
{
    if (group->waiting >= max_waiting)
        return false;
    cn_list_push_back(&group->jobs, &job->link);
    group->waiting++;
    return true;
}

void
cn_job_group_put_back(struct cn_job_group *group, struct cn_job *job)
{
    cn_assert(group->in_flight == job);
    group->in_flight = NULL;
    cn_list_push_front(&group->jobs, &job->link);
    group->waiting++;
}

struct cn_job *
cn_job_group_next(const struct cn_job_group *group)
{
    if (group->in_flight || cn_list_empty(&group->jobs))
        return NULL;
    return cn_container_of(group->jobs.next, struct cn_job, link);
}

struct cn_job *
cn_job_group_take(struct cn_job_group *group)
{
    struct cn_job *job = cn_job_group_next(group);

    if (!job)
        return NULL;
    cn_list_remove(&job->link);
    group->waiting--;
    group->in_flight = job;
    return job;
}

void
cn_job_group_settle(struct cn_job_group *group)
{
    cn_assert(group->in_flight);
    group->in_flight = NULL;
}

void
cn_job_group_remove(struct cn_job_group *group, struct cn_job *job)
{
    cn_assert(group->waiting > 0 && group->in_flight != job);
    cn_list_remove(&job->link);
    group->waiting--;
}

bool
cn_job_group_idle(const struct cn_job_group *group)
{
    return !group->in_flight && group->waiting == 0;
}
