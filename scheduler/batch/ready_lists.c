/* scheduler/batch/ready_lists.c - the lists in which groups wait whose next job can be sent. On the
 * model queue's loop.
 *
 * A group is in the list that `place` names, and n_ready, n_shared and `n` of the levels count the
 * lists, so dispatching never walks over groups that cannot go. cn_ready_place() is called whenever
 * the next job of a group may have changed; it does nothing if the group is in the right list. A
 * step whose sequence may live in another version leaves here (version_swap.h), before it waits for
 * one of our own workers.
 */
#include "scheduler/batch/ready_lists.h"

#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"

static void
delay_ended(struct cn_timer *timer)
{
    struct cn_aggregator *aggregator = cn_container_of(timer, struct cn_aggregator, delay);

    cn_queue_wake(cn_container_of(aggregator, struct cn_model_queue, aggregator));
}

void
cn_ready_init(struct cn_model_queue *queue)
{
    cn_list_init(&queue->aggregator.shared);
    cn_list_init(&queue->aggregator.suspects);
    cn_list_init(&queue->aggregator.unknown);
    queue->aggregator.n_shared = 0;
    cn_timer_init(&queue->aggregator.delay, delay_ended);
    if (!queue->policy.by_level)
        return;
    queue->aggregator.levels =
        cn_alloc((queue->policy.batching->priority_levels + 1) * sizeof(struct cn_level));
    for (uint32_t i = 0; i <= queue->policy.batching->priority_levels; i++) {
        cn_list_init(&queue->aggregator.levels[i].ready);
        cn_list_init(&queue->aggregator.levels[i].delayed);
    }
}

void
cn_ready_fini(struct cn_model_queue *queue)
{
    cn_timer_cancel(&queue->aggregator.delay);
    cn_free(queue->aggregator.levels);
}

static struct cn_sequence *
sequence_of(struct cn_job_group *group)
{
    return group->of_job ? NULL : cn_container_of(group, struct cn_sequence, group);
}

static struct cn_worker_link *
home_of(struct cn_job_group *group)
{
    struct cn_sequence *sequence = sequence_of(group);

    return sequence ? cn_sequence_home(sequence) : NULL;
}

/* The level of a group that waits by priority; NULL: it does not. */
static struct cn_level *
level_of(const struct cn_model_queue *queue, struct cn_job_group *group)
{
    if (!queue->aggregator.levels || !group->of_job)
        return NULL;
    return &queue->aggregator.levels[cn_container_of(group, struct cn_job, group)->level];
}

static bool
is_unknown(const struct cn_model_queue *queue, const struct cn_job *next)
{
    const uint32_t flags = next->row.flags;

    return next->sequence && !next->sequence->known && !next->forward &&
           !(flags & (CN_ROW_START | CN_ROW_ASK | CN_ROW_MOVE)) &&
           ((flags & CN_ROW_MUST_EXIST) || queue->config.sequence_strict);
}

bool
cn_ready_in_backlog(const struct cn_sequence *sequence)
{
    return sequence->queue->policy.slots > 0 && !sequence->known &&
           sequence->group.place == CN_PLACE_SHARED;
}

bool
cn_ready_is_homeless(const struct cn_model_queue *queue, struct cn_job_group *group)
{
    const struct cn_sequence *sequence = sequence_of(group);

    return sequence && queue->policy.slots > 0 && sequence->home_serial && !sequence->away;
}

void
cn_ready_unplace(struct cn_model_queue *queue, struct cn_job_group *group)
{
    if (group->place == CN_PLACE_SHARED && level_of(queue, group))
        level_of(queue, group)->n--;
    if (group->place == CN_PLACE_SHARED)
        queue->aggregator.n_shared--;
    else if (group->place == CN_PLACE_HOME)
        home_of(group)->n_ready--;
    cn_list_remove(&group->ready);
    group->place = CN_PLACE_NONE;
}

static enum cn_group_place
place_for(const struct cn_model_queue *queue, struct cn_job_group *group)
{
    const struct cn_job *next = cn_job_group_next(group);

    if (!next)
        return CN_PLACE_NONE;
    if (next->deaths > 0)
        return CN_PLACE_SUSPECT;
    if (queue->policy.slots > 0 && (group->of_job || is_unknown(queue, next)))
        return CN_PLACE_UNKNOWN;
    return home_of(group) ? CN_PLACE_HOME : CN_PLACE_SHARED;
}

static void
place_shared(struct cn_model_queue *queue, struct cn_job_group *group)
{
    struct cn_level *level = level_of(queue, group);
    struct cn_list *list = &queue->aggregator.shared;

    queue->aggregator.n_shared++;
    if (level) {
        level->n++;
        list =
            cn_container_of(group, struct cn_job, group)->delayed ? &level->delayed : &level->ready;
    }
    if (cn_ready_is_homeless(queue, group))
        cn_list_push_front(list, &group->ready);
    else
        cn_list_push_back(list, &group->ready);
}

void
cn_ready_place(struct cn_model_queue *queue, struct cn_job_group *group)
{
    enum cn_group_place place;
    struct cn_worker_link *home;

    if (group->place == CN_PLACE_CLOSING || group->place == CN_PLACE_HELD ||
        cn_swap_divert(queue, group))
        return;
    place = place_for(queue, group);
    if (group->place == place)
        return;
    cn_ready_unplace(queue, group);
    group->place = (uint8_t)place;
    if (place != CN_PLACE_NONE && cn_job_group_next(group)->ready_us == 0)
        cn_job_group_next(group)->ready_us = cn_loop_now_us(queue->loop);
    if (place == CN_PLACE_SUSPECT) {
        cn_list_push_back(&queue->aggregator.suspects, &group->ready);
    } else if (place == CN_PLACE_UNKNOWN) {
        cn_list_push_back(&queue->aggregator.unknown, &group->ready);
    } else if (place == CN_PLACE_SHARED) {
        place_shared(queue, group);
    } else if (place == CN_PLACE_HOME) {
        home = home_of(group);
        cn_list_push_back(&home->ready, &group->ready);
        home->n_ready++;
    }
}

/* Moves the link's ready groups to the shared list. Their sequences need no change: they name the
 * link by a number that no longer fits its place (struct cn_home). */
void
cn_ready_unhome(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_list *node;

    cn_list_for_each(node, &link->ready)
        cn_container_of(node, struct cn_job_group, ready)->place = CN_PLACE_SHARED;
    if (queue->policy.slots) /* before the backlog, as place_shared() does */
        cn_list_splice_back(&link->ready, &queue->aggregator.shared);
    cn_list_splice_back(&queue->aggregator.shared, &link->ready);
    queue->aggregator.n_shared += link->n_ready;
    link->n_ready = 0;
}
