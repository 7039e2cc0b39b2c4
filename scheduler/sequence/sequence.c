/* scheduler/sequence/sequence.c - opens sequences, gives them homes, and runs their clocks. On the
 * model queue's loop.
 *
 * The life of a sequence: cn_sequence_open() when its first step comes; `known` once a worker said
 * that it lives; closed by sequence_close.c, or forgotten by cn_sequence_forget(). To forget is not
 * to close: the record stays in the store, and the next step of that id opens the sequence here
 * again.
 *
 * cn_sequence_update() is the only place that decides what happens next, and it is called after
 * every event: a job came, was answered or went. It does the first of these that waits: a close by
 * the total clock, a delete, a write, the next job, any other close. If none waits, it calls
 * rest(), which sets the clock. It may free the sequence, so callers use it last.
 *
 * There are two clocks, idle and total, but only one timer, set to the nearer one. A job that comes
 * does not move the timer. When it ends, clock_ended() looks at what is true then and may set it
 * again. So a step costs no work on the timer, except in models with slots, where the idle clock
 * counts from the arrival of a step.
 *
 * A home is a place in queue->homes with a serial. When a worker goes, only its place changes; a
 * sequence that still names the old serial is `homeless` until it gets another home.
 */
#include "scheduler/sequence/sequence.h"

#include <string.h>

#include "access/account.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"

/* How long the queue remembers where a sequence of another version lives. Asking again is cheap. */
#define AWAY_KEEP_MS 60000

static void clock_ended(struct cn_timer *timer);

struct cn_sequence *
cn_sequence_open(struct cn_model_queue *queue, struct cn_str id, struct cn_account *account)
{
    size_t bytes = offsetof(struct cn_sequence, id) + id.len;
    struct cn_sequence *sequence;

    if (!queue->owned.accounts)
        account = NULL;
    else if (!account)
        account = cn_accounts_of_sequence(queue->owned.accounts, cn_sequence_id_shown(id));
    if (account)
        bytes = cn_owned_room(bytes);
    if (bytes < sizeof(*sequence)) /* the compiler may read all of it */
        bytes = sizeof(*sequence);
    sequence = cn_alloc(bytes);
    cn_assert(id.len > 0 && id.len <= CN_SEQUENCE_ID_MAX);
    cn_timer_init(&sequence->timer, clock_ended);
    cn_job_group_init(&sequence->group);
    sequence->queue = queue;
    sequence->lifetime_ms = CN_NEVER;
    sequence->reload = true;
    sequence->id_len = (uint16_t)id.len;
    memcpy(sequence->id, id.ptr, id.len);
    if (account)
        cn_owned_begin(sequence, account);
    cn_table_insert(queue->sequences, sequence);
    cn_sequence_take_place(sequence);
    return sequence;
}

void
cn_sequence_forget(struct cn_sequence *sequence)
{
    cn_assert(cn_job_group_idle(&sequence->group) && sequence->streams == 0);
    cn_assert(!sequence->held && !sequence->wants_write);
    cn_queue_tell_deleted(sequence, CN_E_UNAVAILABLE, "was given up before it could be deleted");
    sequence->queue->may_remember = true;
    cn_timer_cancel(&sequence->timer);
    cn_ready_unplace(sequence->queue, &sequence->group);
    cn_sequence_leave_home(sequence);
    cn_sequence_give_place(sequence);
    cn_owned_forget(sequence);
    cn_table_remove(sequence->queue->sequences, cn_sequence_id(sequence));
    cn_free(sequence);
}

struct cn_str
cn_sequence_id(const struct cn_sequence *sequence)
{
    return (struct cn_str){sequence->id, sequence->id_len};
}

void
cn_sequence_take_place(struct cn_sequence *sequence)
{
    if (sequence->counted)
        return;
    sequence->counted = true;
    sequence->queue->stats.live_sequences++;
}

void
cn_sequence_give_place(struct cn_sequence *sequence)
{
    if (!sequence->counted)
        return;
    sequence->counted = false;
    sequence->queue->stats.live_sequences--;
}

int
cn_sequence_check_room(const struct cn_model_queue *queue, struct cn_error *err)
{
    if (queue->stats.live_sequences < queue->config.max_num_sequence)
        return 0;
    return cn_fail(err, CN_E_TOO_MANY_SEQUENCES,
                   "model %s has %llu sequences open (maxNumSequence %u); end one, or try again "
                   "later",
                   queue->name, (unsigned long long)queue->stats.live_sequences,
                   queue->config.max_num_sequence);
}

struct cn_worker_link *
cn_sequence_home(const struct cn_sequence *sequence)
{
    const struct cn_home *home;

    if (sequence->home_serial == 0 || sequence->away)
        return NULL;
    home = &sequence->queue->homes[sequence->home_slot];
    return home->serial == sequence->home_serial ? home->link : NULL;
}

/* The place of a sequence among the link's rows, for models with fixed rows. A sequence does not
 * keep the number of its row, because there may be millions of sequences without one. The row is
 * searched when the sequence comes and when it goes. */
static struct cn_sequence **
find_row(struct cn_worker_link *link, const struct cn_sequence *sequence)
{
    uint32_t slot = 0;

    while (link->slots[slot] !=
           sequence) /* there is one: no sequence gets a home here without a free row */
        slot++;
    return &link->slots[slot];
}

void
cn_sequence_set_home(struct cn_sequence *sequence, struct cn_worker_link *link)
{
    uint32_t slots = sequence->queue->policy.slots;

    cn_sequence_leave_home(sequence);
    if (slots && link->live_sequences >= slots)
        return; /* it was written by an order, not by a step: it waits for a slot like others */
    sequence->home_serial = link->home_serial;
    sequence->home_slot = link->home_slot;
    sequence->reload = true;
    if (link->slots)
        *find_row(link, NULL) = sequence; /* the lowest free one */
    link->live_sequences++;
}

void
cn_sequence_leave_home(struct cn_sequence *sequence)
{
    struct cn_worker_link *home = cn_sequence_home(sequence);

    if (home && home->slots)
        *find_row(home, sequence) = NULL;
    if (home)
        home->live_sequences--;
    else if (sequence->home_serial && !sequence->away)
        sequence->queue->homeless--;
    sequence->home_serial = 0;
    sequence->away = false;
}

uint32_t
cn_sequence_away(const struct cn_sequence *sequence)
{
    return sequence->away ? sequence->home_serial : 0;
}

void
cn_sequence_set_away(struct cn_sequence *sequence, uint32_t serial)
{
    if (!serial && !sequence->away)
        return;
    cn_sequence_leave_home(sequence);
    sequence->away = serial != 0;
    if (sequence->away) /* the other version counts it */
        cn_owned_forget(sequence);
    sequence->home_serial = serial;
}

/* The generation is over. The store decides what the next step with this id means. */
static void
generation_over(struct cn_sequence *sequence)
{
    sequence->generation = 0;
    sequence->known = false;
    sequence->reload = true;
    sequence->lifetime_ms = CN_NEVER;
    if (sequence->close_after != CN_CLOSE_DELETED) /* an order waits for the deletion */
        sequence->close_after = 0;
}

void
cn_sequence_left(struct cn_sequence *sequence)
{
    if (!sequence->known)
        return;
    cn_owned_gone(sequence);
    generation_over(sequence);
}

/* Does the answer say that the sequence does not live any more? */
static bool
says_gone(const struct cn_answer *answer, bool asked_end)
{
    return (answer->flags & (CN_ANSWER_ENDED | CN_ANSWER_CLOSED_BEFORE)) ||
           answer->error_code == CN_E_SEQUENCE_UNKNOWN ||
           answer->error_code == CN_E_SEQUENCE_EXPIRED ||
           answer->error_code == CN_E_SEQUENCE_ENDED || (asked_end && answer->error_code == 0);
}

/* Has the step ended it? */
static bool
has_ended(const struct cn_answer *answer, bool asked_end)
{
    return (answer->flags & CN_ANSWER_ENDED) || (asked_end && answer->error_code == 0);
}

/* Counts each end once. The repeated answer to an END, for a client that asks again, is not
 * counted. */
static void
count_ended(struct cn_sequence *sequence, const struct cn_answer *answer, bool asked_end)
{
    if (has_ended(answer, asked_end) && (sequence->known || (answer->flags & CN_ANSWER_OPENED)) &&
        !(answer->flags & (CN_ANSWER_CLOSED_BEFORE | CN_ANSWER_HERE)))
        cn_metrics_count_reason(&sequence->queue->metrics, CN_M_SEQUENCES_CLOSED, CN_CLOSE_ENDED);
    if (answer->flags & CN_ANSWER_WORKER_LOST)
        cn_metrics_count_reason(&sequence->queue->metrics, CN_M_SEQUENCES_CLOSED,
                                CN_CLOSE_WORKER_LOST);
}

/* Starts the total clock. It counts from the opening, which may have been long before this server's
 * start. */
static void
start_lifetime(struct cn_sequence *sequence, uint64_t opened_wall_ms)
{
    uint64_t limit = sequence->queue->config.sequence_timeout_ms;
    uint64_t now = cn_loop_now_ms(sequence->queue->loop), wall = cn_wall_ms();
    uint64_t age = opened_wall_ms && opened_wall_ms < wall ? wall - opened_wall_ms : 0;

    sequence->lifetime_ms = now + (age < limit ? limit - age : 0);
}

static void
count_opened(struct cn_model_queue *queue)
{
    queue->stats.opened_sequences++;
    cn_metrics_add(&queue->metrics, CN_M_SEQUENCES_OPENED, 1);
}

void
cn_sequence_begin_generation(struct cn_sequence *sequence, uint64_t generation,
                             uint64_t opened_wall_ms)
{
    count_opened(sequence->queue);
    sequence->generation = generation;
    sequence->known = true;
    sequence->reload = true;
    sequence->lifetime_ms = CN_NEVER;
    if (sequence->close_after == CN_CLOSE_LIFETIME)
        sequence->close_after = 0; /* the close was meant for the generation before */
    if (sequence->queue->config.sequence_timeout_ms)
        start_lifetime(sequence, opened_wall_ms);
}

void
cn_sequence_learn(struct cn_sequence *sequence, const struct cn_answer *answer, bool asked_end)
{
    struct cn_model_queue *queue = sequence->queue;

    cn_owned_learn(sequence, answer, says_gone(answer, asked_end), has_ended(answer, asked_end));
    /* A client that sends its first step again, with its key, opens nothing. */
    if ((answer->flags & CN_ANSWER_OPENED) && answer->error_code == 0 &&
        answer->generation != sequence->generation)
        count_opened(queue);
    if (says_gone(answer, asked_end)) {
        count_ended(sequence, answer, asked_end);
        generation_over(sequence);
        return;
    }
    if (answer->error_code != 0 && answer->generation == 0)
        return; /* the step failed: nothing new */
    if (answer->generation != 0 && answer->generation != sequence->generation) {
        sequence->generation = answer->generation;
        sequence->lifetime_ms = CN_NEVER;
        if (sequence->close_after == CN_CLOSE_LIFETIME)
            sequence->close_after = 0; /* the close was meant for the generation before */
    }
    sequence->known = true;
    if (answer->error_code == 0)
        sequence->reload = false;
    if (queue->config.sequence_timeout_ms && sequence->lifetime_ms == CN_NEVER)
        start_lifetime(sequence, answer->opened_wall_ms);
}

void
cn_sequence_stop_stream(struct cn_sequence *sequence)
{
    if (sequence->group.in_flight)
        cn_queue_stop_stream(sequence->group.in_flight);
}

/* No job waits or runs: sets the clock, or forgets a sequence that no worker knows. */
static void
rest(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;
    uint64_t deadline = sequence->lifetime_ms, idle = queue->config.sequence_max_idle_ms;

    if (!sequence->known && sequence->away) {
        cn_timer_set(cn_loop_wheel(queue->loop), &sequence->timer,
                     cn_loop_now_ms(queue->loop) + AWAY_KEEP_MS);
        return;
    }
    if (!sequence->known) {
        if (sequence->streams) /* streams keep the memory of the sequence */
            cn_sequence_give_place(sequence);
        else
            cn_sequence_forget(sequence);
        return;
    }
    if (sequence->streams)
        idle = 0; /* an open stream keeps its sequence from being idle */
    if (queue->policy.slots &&
        cn_timer_armed(&sequence->timer)) { /* it was set when the last step came */
        if (sequence->timer.deadline_ms > deadline)
            cn_timer_set(cn_loop_wheel(queue->loop), &sequence->timer, deadline);
        return;
    }
    if (idle && cn_loop_now_ms(queue->loop) + idle < deadline)
        deadline = cn_loop_now_ms(queue->loop) + idle;
    if (deadline != CN_NEVER || cn_timer_armed(&sequence->timer))
        cn_timer_set(cn_loop_wheel(queue->loop), &sequence->timer, deadline);
}

void
cn_sequence_arrived(struct cn_sequence *sequence, bool start)
{
    const struct cn_model_queue *queue = sequence->queue;
    uint64_t deadline = cn_loop_now_ms(queue->loop) + queue->config.sequence_max_idle_ms;

    if (queue->policy.slots == 0 || queue->config.sequence_max_idle_ms == 0)
        return;
    if (start && sequence->close_after == CN_CLOSE_IDLE)
        sequence->close_after = 0; /* the step begins it anew anyway */
    if (sequence->lifetime_ms < deadline)
        deadline = sequence->lifetime_ms;
    cn_timer_set(cn_loop_wheel(queue->loop), &sequence->timer, deadline);
}

/* With slots, a sequence is idle if no step came for too long, though steps may still wait or run.
 * Those are done, or refused if the model wants that. Then its slot is free. */
static void
expire_busy(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;
    char id[4 * CN_SEQUENCE_ID_MAX + 3];

    if (cn_ready_in_backlog(sequence) || sequence->group.place == CN_PLACE_UNKNOWN) {
        cn_sequence_arrived(sequence, false); /* it waits for a slot, so it is not idle */
        return;
    }
    if (sequence->close_after == 0)
        sequence->close_after = CN_CLOSE_IDLE;
    queue->stats.expired_sequences++;
    if (queue->policy.batching->describe_expired)
        cn_log(CN_LOG_INFO, "event=sequence_expired model=%s sequence=%s waiting=%u in_flight=%d",
               queue->name, cn_log_quote(sequence->id, sequence->id_len, id, sizeof(id)),
               sequence->group.waiting, sequence->group.in_flight != NULL);
    if (queue->policy.batching->reject_expired)
        cn_sequence_refuse_waiting(sequence);
    cn_sequence_update(sequence);
}

void
cn_sequence_update(struct cn_sequence *sequence)
{
    struct cn_job_group *group = &sequence->group;

    if (sequence->closing || sequence->held || group->in_flight)
        return;
    if (sequence->close_after == CN_CLOSE_LIFETIME) {
        cn_sequence_outlived(sequence);
        return;
    }
    if (sequence->close_after == CN_CLOSE_DELETED) {
        cn_sequence_delete_soon(sequence);
        return;
    }
    if (sequence->wants_write && cn_queue_begin_write(sequence))
        return;
    cn_ready_place(sequence->queue, group);
    if (!cn_job_group_idle(group))
        return;
    if (sequence->close_after)
        cn_sequence_begin_close(sequence, (enum cn_close_reason)sequence->close_after);
    else
        rest(sequence);
}

/* The timer ended. Jobs that came since it was set did not move it, so the times are compared
 * here. */
static void
clock_ended(struct cn_timer *timer)
{
    struct cn_sequence *sequence = cn_container_of(timer, struct cn_sequence, timer);
    struct cn_model_queue *queue = sequence->queue;

    if (cn_loop_now_ms(queue->loop) >= sequence->lifetime_ms) {
        cn_sequence_outlived(sequence);
        return;
    }
    if (sequence->closing || sequence->held)
        /* A step that came meanwhile has set the timer. The worker's answer then begins the
         * clock anew. */
        return;
    if (queue->policy.slots && (!cn_job_group_idle(&sequence->group) || sequence->streams)) {
        expire_busy(sequence);
        return;
    }
    if (!cn_job_group_idle(&sequence->group) || sequence->streams) {
        cn_timer_set(cn_loop_wheel(queue->loop), timer, sequence->lifetime_ms);
        return;
    }
    if (queue->config.state_ttl_ms || !sequence->known) {
        cn_sequence_forget(
            /* Its place is given back. The state stays in the store for a while, or lives in
             * another version. */
            sequence);
        return;
    }
    queue->stats.expired_sequences++;
    cn_sequence_begin_close(sequence, CN_CLOSE_IDLE);
}
