/* scheduler/batch/aggregator.c - gives ready jobs to workers: ready lists, credit and frames. On
 * the model queue's loop.
 *
 * The life of a group here: cn_aggregator_place() puts it into one list as soon as its next job can
 * run, at the end of each turn cn_aggregator_dispatch() sends what workers have credit for, and
 * with that the group leaves its list. When its job is answered, the group is placed again.
 *
 * A worker has credit for 2 x batchSize rows. Rows that stream do not count; stream.max bounds
 * those. Rows leave as soon as there is credit, and the worker builds its batch from the rows that
 * have arrived when its handler is free (docs/decisions/0003-the-worker-forms-the-batch.md). So a
 * frame is not a batch: its end only says where a read of the worker may stop. Models whose policy
 * says `forms` are different: batch_builder.c sends them whole batches to idle workers.
 *
 * Invariants:
 * - A group is in the list that `place` names, and n_ready, n_shared and `n` of the levels count
 *   the lists, so dispatching never walks over groups that cannot go.
 * - A sequence has at most one job in flight, so a batch cannot have two rows of one sequence.
 * - While suspects wait, nothing else is sent: see send_suspects().
 * - Each BATCH frame that is begun in a turn is ended in the same turn.
 */
#include "scheduler/batch/aggregator.h"

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "metrics/counters/metrics.h"
#include "scheduler/batch/batch_builder.h"
#include "scheduler/batch/slots.h"
#include "scheduler/queue/model_queue_priv.h"

static void
delay_ended(struct cn_timer *timer)
{
    struct cn_aggregator *aggregator = cn_container_of(timer, struct cn_aggregator, delay);

    cn_queue_wake(cn_container_of(aggregator, struct cn_model_queue, aggregator));
}

void
cn_aggregator_init(struct cn_model_queue *queue)
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
cn_aggregator_fini(struct cn_model_queue *queue)
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

void
cn_aggregator_unplace(struct cn_model_queue *queue, struct cn_job_group *group)
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
    if (queue->policy.slots > 0 && (group->of_job || cn_slots_is_unknown(queue, next)))
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
    if (cn_slots_is_homeless(queue, group))
        cn_list_push_front(list, &group->ready);
    else
        cn_list_push_back(list, &group->ready);
}

void
cn_aggregator_place(struct cn_model_queue *queue, struct cn_job_group *group)
{
    enum cn_group_place place;
    struct cn_worker_link *home;

    if (group->place == CN_PLACE_CLOSING || group->place == CN_PLACE_HELD ||
        cn_swap_divert(queue, group))
        return;
    place = place_for(queue, group);
    if (group->place == place)
        return;
    cn_aggregator_unplace(queue, group);
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
cn_aggregator_unhome(struct cn_model_queue *queue, struct cn_worker_link *link)
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

static struct cn_job_group *
front(struct cn_list *list)
{
    return cn_list_empty(list) ? NULL : cn_container_of(list->next, struct cn_job_group, ready);
}

/* Writes the row as the worker must see it at this moment. The job keeps what its client sent; what
 * changes between two sendings is computed here: the generation of the sequence, whether the
 * worker's cached state may be stale, and how much of the deadline is left. */
static void
put_row(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
        uint32_t more_flags)
{
    const struct cn_sequence *sequence = job->sequence;
    struct cn_row row = job->row;
    uint64_t now = cn_loop_now_ms(queue->loop), left;

    row.flags |= more_flags;
    if (sequence) {
        row.generation = sequence->generation;
        if (sequence->reload)
            row.flags |= CN_ROW_RELOAD;
        if (queue->config.sequence_strict && !(row.flags & CN_ROW_START))
            row.flags |= CN_ROW_MUST_EXIST;
        cn_swap_dress(job, &row);
    } else {
        row.generation = 0;
        row.sequence_id = (struct cn_str){NULL, 0};
    }
    row.deadline_ms = 0;
    if (job->deadline_ms != CN_NEVER) {
        left = job->deadline_ms > now ? job->deadline_ms - now : 1;
        row.deadline_ms = left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
    }
    cn_worker_link_put_row(link, &row, &job->unsent);
}

/* Counts the job as in flight, after its row was written into the link's buffer. */
static void
sent(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job *job,
     enum cn_job_phase phase)
{
    cn_job_to(job, phase);
    job->worker = link;
    job->sent_ms = cn_loop_now_ms(queue->loop);
    cn_worker_link_took(link, job);
    queue->stats.waiting_jobs--;
    queue->stats.in_flight_jobs++;
}

/* May the link be the home of one more sequence? With slots, only a sequence whose worker died with
 * its step may find no free slot. Its step is sent all the same, alone, and the sequence waits for
 * a slot with its next step. */
static bool
has_slot(const struct cn_model_queue *queue, const struct cn_worker_link *link)
{
    return queue->policy.slots == 0 || link->live_sequences < queue->policy.slots;
}

static void
send_job(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group,
         uint32_t more_flags)
{
    struct cn_sequence *sequence = sequence_of(group);
    struct cn_job *job;

    cn_aggregator_unplace(queue, group);
    job = cn_job_group_take(group);
    cn_pressure_sent(queue, job->ready_us);
    if (sequence && cn_sequence_home(sequence) != link && has_slot(queue, link))
        cn_sequence_set_home(sequence, link);
    if (job->row.flags & CN_ROW_REDELIVERED) {
        queue->stats.redispatched++;
        cn_metrics_add(&queue->metrics, CN_M_JOBS_REDISPATCHED, 1);
    } else {
        cn_metrics_observe(&queue->metrics, CN_M_QUEUE_TIME,
                           cn_loop_now_us(queue->loop) - job->arrived_us);
        cn_ts_job_sent(queue, job);
    }
    put_row(queue, link, job, more_flags);
    sent(queue, link, job, CN_JOB_RUNNING);
}

static void
send_next(struct cn_model_queue *queue, struct cn_worker_link *link, struct cn_job_group *group)
{
    send_job(queue, link, group, 0);
}

void
cn_aggregator_send(struct cn_model_queue *queue, struct cn_worker_link *link,
                   struct cn_job_group *group, bool joined)
{
    send_job(queue, link, group, joined ? CN_ROW_JOINED : 0u);
}

void
cn_aggregator_send_alone(struct cn_model_queue *queue, struct cn_worker_link *link,
                         struct cn_job_group *group)
{
    send_next(queue, link, group);
    cn_worker_link_end_frame(link);
}

void
cn_aggregator_send_probe(struct cn_model_queue *queue, struct cn_worker_link *link,
                         struct cn_job_group *group)
{
    static const struct cn_move look = {.op = CN_MOVE_LOOK};
    struct cn_job *job;
    struct cn_row row;

    cn_aggregator_unplace(queue, group);
    job = cn_job_group_take(group);
    row = (struct cn_row){.job_id = job->row.job_id,
                          .flags = CN_ROW_STATEFUL | CN_ROW_MOVE,
                          .sequence_id = job->row.sequence_id,
                          .move = &look};
    cn_worker_link_put_alone(link, &row);
    sent(queue, link, job, CN_JOB_PROBING);
}

/* Sends suspects: jobs that were in flight in a worker that died. Each of them goes alone to an
 * idle worker, so that one more death shows which of them did it. While a suspect waits, no worker
 * gets anything else, so that each worker becomes idle soon. Rows that stream do not count: they
 * are never sent again, so the next death cannot be theirs a second time. Returns true while
 * suspects wait. */
static bool
send_suspects(struct cn_model_queue *queue)
{
    struct cn_list *suspects = &queue->aggregator.suspects, *node;

    if (cn_list_empty(suspects))
        return false;
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_list_empty(suspects))
            break;
        if (cn_worker_link_rows(link) > 0 || cn_worker_link_credit(link) == 0)
            continue;
        cn_aggregator_send_alone(queue, link, front(suspects));
        cn_worker_link_credit_to(link, CN_CREDIT_ALONE);
    }
    return !cn_list_empty(suspects);
}

/* An idle worker waits for a full batch if the model asks for that (maxBatchDelay). Returns the
 * time at which the waiting ends; 0: it does not wait. */
static uint64_t
held_until(const struct cn_model_queue *queue, struct cn_worker_link *link)
{
    uint32_t ready = link->n_ready + queue->aggregator.n_shared;
    struct cn_job_group *home = front(&link->ready);
    struct cn_job_group *shared = front((struct cn_list *)&queue->aggregator.shared);
    uint64_t oldest = CN_NEVER;

    if (queue->config.max_batch_delay_ms == 0 || link->n_in_flight > 0 || ready == 0 ||
        ready >= queue->config.batch_size)
        return 0;
    if (home)
        oldest = cn_job_group_next(home)->arrived_ms;
    if (shared && cn_job_group_next(shared)->arrived_ms < oldest)
        oldest = cn_job_group_next(shared)->arrived_ms;
    return oldest + queue->config.max_batch_delay_ms;
}

/* Marks the links that wait for a full batch, and sets the timer that ends the waiting. Returns
 * true if one of them waits. */
static bool
hold_links(struct cn_model_queue *queue)
{
    uint64_t now = cn_loop_now_ms(queue->loop), wake = CN_NEVER, until;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        link->taken = 0;
        link->was_idle = link->n_in_flight == 0;
        until = cn_worker_link_credit(link) > 0 ? held_until(queue, link) : 0;
        link->held = until > now;
        if (link->held && until < wake)
            wake = until;
    }
    if (wake != CN_NEVER || cn_timer_armed(&queue->aggregator.delay))
        cn_timer_set(cn_loop_wheel(queue->loop), &queue->aggregator.delay, wake);
    return wake != CN_NEVER;
}

/* Chooses the worker for a shared group; NULL: none can take it now. If one worker is held back
 * until its batch is full, the workers that were busy when this dispatch began get nothing:
 * otherwise they would take the rows that the waiting one waits for. */
static struct cn_worker_link *
choose(struct cn_model_queue *queue, bool any_held)
{
    bool fill = !queue->stateful && queue->config.max_batch_delay_ms > 0;
    struct cn_worker_link *best = NULL;
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_worker_link_credit(link) == 0 || link->held || (any_held && !link->was_idle))
            continue;
        if (fill && link->taken > 0 && link->taken < queue->config.batch_size)
            return link; /* it waited for a full batch, so let it be full */
        if (!best || cn_worker_link_better(link, best))
            best = link;
    }
    /* Among equals the first in the list is taken. Moving it to the back lets them take turns. */
    if (best) {
        cn_list_remove(&best->attached);
        cn_list_push_back(&queue->links, &best->attached);
    }
    return best;
}

/* Sends groups without a home. Each is compared with the first group at home where it would go, and
 * the older of the two goes first, so that neither kind can starve the other. */
static void
send_shared(struct cn_model_queue *queue, bool any_held)
{
    struct cn_job_group *group, *home;

    while ((group = front(&queue->aggregator.shared))) {
        struct cn_worker_link *link = choose(queue, any_held);

        if (!link)
            return;
        home = front(&link->ready);
        if (home && cn_job_group_next(home)->row.job_id < cn_job_group_next(group)->row.job_id)
            group = home;
        send_next(queue, link, group);
    }
}

static void
send_ready(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_job_group *group;

    while (!link->held && (group = front(&link->ready)) && cn_worker_link_credit(link) > 0)
        send_next(queue, link, group);
}

/* Once a turn, in this order: questions and slots, suspects, then shared groups and batches, then
 * what waits at each home. Frames end at last, and the clock of each worker with rows in flight is
 * set. */
void
cn_aggregator_dispatch(struct cn_model_queue *queue)
{
    struct cn_list *node;

    if (queue->policy.slots) {
        cn_slots_send_probes(queue);
        cn_slots_give(queue);
    }
    if (cn_slots_held_back(queue))
        return;
    if (queue->policy.forms) {
        if (!send_suspects(queue))
            cn_batch_builder_dispatch(queue);
    } else if (!send_suspects(queue)) {
        bool any_held = hold_links(queue);

        if (!queue->policy.slots)
            send_shared(queue, any_held);
        if (!any_held)
            cn_pressure_spread(queue);
    }
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (cn_list_empty(&queue->aggregator.suspects) && !queue->policy.forms)
            send_ready(queue, link);
        cn_worker_link_end_frame(link);
        if (link->n_in_flight > 0)
            cn_worker_link_watch_progress(link);
    }
}
