/* scheduler/sequence/sequence_close.c - closes sequences, from the decision to the worker's word
 * that the state is gone. On the model queue's loop.
 *
 * The way of a sequence that is to be closed:
 * - `close_after` holds the reason while a job is in flight or a write holds the sequence.
 * - cn_sequence_begin_close() sets `closing`, gives the place back and puts the sequence into the
 *   list `to_close` of a worker: its home, or another one, since any worker can reach the store.
 * - send_closes() writes a CLOSE frame and moves the sequence to `closing`.
 * - CLOSED frames come in the order of the CLOSE frames and only say how many are done. closed()
 *   then takes the sequences from the front of the list.
 *
 * Steps that come meanwhile wait in the sequence's group, whose place is CN_PLACE_CLOSING, so none
 * can reach a worker before the state is gone. If the worker dies, its sequences are handed to
 * another one; closing a sequence twice does no harm. Without any worker the sequence is taken for
 * closed here, and the times in its record close it in the store.
 *
 * A job that was sent before its worker died (CN_ROW_REDELIVERED) may be committed already. It
 * counts as in flight: the close waits for it.
 */
#include <stdio.h>

#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"

#define CLOSES_A_FRAME 256
#define CLOSES_UNDER_WAY                                                                           \
    4096 /* for each link; bounds its buffer when a million sequences are closed at once */

static struct cn_sequence *
sequence_at(struct cn_list *node)
{
    return cn_container_of(node, struct cn_sequence, group.ready);
}

void
cn_queue_tell_deleted(struct cn_sequence *sequence, int code, const char *why)
{
    struct cn_list *node, *next;

    cn_list_for_each_safe(node, next, &sequence->queue->deletes) {
        struct cn_sequence_delete *order = cn_container_of(node, struct cn_sequence_delete, link);

        if (!cn_str_eq(order->sequence_id, cn_sequence_id(sequence)))
            continue;
        cn_list_remove(node);
        if (code)
            cn_fail(&order->err, code, "sequence %.*s %s; try again",
                    CN_STR_ARG(order->sequence_id), why);
        order->on_done(order);
    }
}

/* The deletion is over, or it failed with `code`. Jobs that came meanwhile find what the store
 * says. */
static void
closed(struct cn_sequence *sequence, int code, const char *why)
{
    struct cn_job_group *group = &sequence->group;

    cn_queue_tell_deleted(sequence, code, why);
    if (code == 0)
        cn_owned_gone(sequence);
    cn_list_remove(&group->ready);
    group->place = CN_PLACE_NONE;
    sequence->closing = 0;
    sequence->close_after = 0;
    sequence->generation = 0;
    sequence->known = false;
    sequence->reload = true;
    sequence->lifetime_ms = CN_NEVER;
    if (!cn_job_group_idle(group))
        cn_sequence_take_place(sequence);
    cn_sequence_update(sequence);
}

static void
nobody_closes(struct cn_sequence *sequence)
{
    closed(sequence, CN_E_NO_WORKER, "is perhaps not deleted: no worker is left to do it");
}

/* Any worker can reach the store. One that stays is better than one that retires. */
struct cn_worker_link *
cn_queue_choose_worker(const struct cn_model_queue *queue, const struct cn_sequence *sequence)
{
    struct cn_worker_link *link = sequence ? cn_sequence_home(sequence) : NULL, *retiring = NULL;
    struct cn_list *node;

    if (link && cn_worker_link_usable(link))
        return link;
    cn_list_for_each(node, &queue->links) {
        link = cn_container_of(node, struct cn_worker_link, attached);
        if (!cn_worker_link_usable(link))
            continue;
        if (link->credit_phase != CN_CREDIT_RETIRING)
            return link;
        retiring = link;
    }
    return retiring;
}

static void
hand_over(struct cn_sequence *sequence, struct cn_worker_link *link)
{
    cn_list_push_back(&link->to_close, &sequence->group.ready);
    sequence->group.place = CN_PLACE_CLOSING;
    cn_queue_wake(sequence->queue);
}

void
cn_sequence_begin_close(struct cn_sequence *sequence, enum cn_close_reason reason)
{
    struct cn_worker_link *link = cn_queue_choose_worker(sequence->queue, sequence);

    cn_assert(!sequence->closing && !sequence->held && !sequence->group.in_flight);
    cn_timer_cancel(&sequence->timer);
    cn_ready_unplace(sequence->queue, &sequence->group);
    cn_sequence_leave_home(sequence);
    if (cn_job_group_idle(&sequence->group))
        cn_sequence_give_place(sequence);
    if (sequence->known)
        cn_metrics_count_reason(&sequence->queue->metrics, CN_M_SEQUENCES_CLOSED, reason);
    sequence->closing = (uint8_t)reason;
    if (link)
        hand_over(sequence, link);
    else
        nobody_closes(sequence);
}

int
cn_sequence_say_idle(const struct cn_sequence *sequence, struct cn_error *err)
{
    return cn_fail(err, CN_E_SEQUENCE_EXPIRED,
                   "sequence %.*s has expired: it had no step for %llu ms "
                   "(max_sequence_idle_microseconds); start a new one",
                   CN_STR_ARG(cn_sequence_id(sequence)),
                   (unsigned long long)sequence->queue->config.sequence_max_idle_ms);
}

void
cn_sequence_refuse_waiting(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;
    struct cn_list *node, *next;
    struct cn_error err;

    cn_list_for_each_safe(node, next, &sequence->group.jobs) {
        struct cn_job *job = cn_container_of(node, struct cn_job, link);

        if (job->row.flags & CN_ROW_START)
            break; /* this job and those behind it belong to a new generation */
        if (queue->config.on_expired == CN_EXPIRED_RESTART &&
            !(job->row.flags & CN_ROW_MUST_EXIST) && sequence->close_after == CN_CLOSE_LIFETIME)
            continue; /* it begins a new generation when this one is closed */
        if (job->row.idempotency_key.len)
            continue; /* it may repeat a step that was done in time: the store knows */
        cn_queue_take_waiting(queue, job);
        if (sequence->close_after == CN_CLOSE_IDLE)
            cn_sequence_say_idle(sequence, &err);
        else
            cn_fail(&err, CN_E_SEQUENCE_EXPIRED,
                    "sequence %.*s is closed: it was open for %llu ms (sequenceTimeoutMSec); "
                    "start a new one",
                    CN_STR_ARG(cn_sequence_id(sequence)),
                    (unsigned long long)queue->config.sequence_timeout_ms);
        cn_queue_fail(queue, job, err.code, "%s", err.message);
    }
}

void
cn_sequence_outlived(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;
    struct cn_job *next = cn_job_group_next(&sequence->group);

    if (sequence->close_after != CN_CLOSE_DELETED)
        sequence->close_after = CN_CLOSE_LIFETIME;
    cn_sequence_stop_stream(sequence);
    if (sequence->closing || sequence->held || sequence->group.in_flight)
        return;
    if (next && (next->row.flags & CN_ROW_REDELIVERED)) {
        cn_ready_place(queue, &sequence->group);
        return; /* it may have been done in time, so it counts as in flight */
    }
    queue->stats.expired_sequences++;
    cn_sequence_refuse_waiting(sequence);
    cn_sequence_begin_close(sequence, CN_CLOSE_LIFETIME);
}

void
cn_sequence_delete_soon(struct cn_sequence *sequence)
{
    struct cn_job *next = cn_job_group_next(&sequence->group);

    sequence->close_after = CN_CLOSE_DELETED;
    cn_sequence_stop_stream(sequence);
    if (sequence->closing || sequence->held || sequence->group.in_flight)
        return;
    if (next && (next->row.flags & CN_ROW_REDELIVERED))
        cn_ready_place(sequence->queue, &sequence->group); /* it counts as in flight */
    else
        cn_sequence_begin_close(sequence, CN_CLOSE_DELETED);
}

static void
send_closes(struct cn_worker_link *link)
{
    struct cn_close closes[CLOSES_A_FRAME];

    while (!cn_list_empty(&link->to_close) && link->n_closing < CLOSES_UNDER_WAY) {
        uint32_t n = 0;

        cn_worker_link_begins(link);
        while (n < CLOSES_A_FRAME && !cn_list_empty(&link->to_close)) {
            struct cn_list *node = cn_list_pop_front(&link->to_close);
            struct cn_sequence *sequence = sequence_at(node);

            cn_list_push_back(&link->closing, node);
            closes[n++] = (struct cn_close){cn_sequence_id(sequence), sequence->generation,
                                            (enum cn_close_reason)sequence->closing};
        }
        cn_frame_put_close(&link->out, closes, n);
        link->n_closing += n;
        cn_worker_link_watch_progress(link);
    }
}

void
cn_queue_send_closes(struct cn_model_queue *queue)
{
    struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (!cn_list_empty(&link->to_close) && cn_worker_link_usable(link))
            send_closes(link);
    }
}

int
cn_queue_on_closed(struct cn_worker_link *link, const struct cn_closed *said, struct cn_error *err)
{
    char why[CN_ERROR_MESSAGE_MAX];

    if (said->count > link->n_closing)
        return cn_fail(err, CN_E_PROTOCOL, "CLOSED for %u sequences, but %u were to be closed",
                       said->count, link->n_closing);
    link->progress_ms = cn_loop_now_ms(link->loop);
    link->n_closing -= said->count;
    snprintf(why, sizeof(why), "is not deleted: %.*s", CN_STR_ARG(said->message));
    for (uint32_t i = 0; i < said->count; i++)
        closed(sequence_at(link->closing.next), i < said->done ? 0 : said->error_code, why);
    cn_queue_wake(link->queue);
    return 0;
}

void
cn_queue_reroute_closes(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_list *node, lost;

    /* The link is no longer in queue->links. Closing what is closed already does no harm. */
    cn_list_init(&lost);
    cn_list_splice_back(&lost, &link->closing);
    cn_list_splice_back(&lost, &link->to_close);
    link->n_closing = 0;
    while ((node = cn_list_pop_front(&lost))) {
        struct cn_sequence *sequence = sequence_at(node);
        struct cn_worker_link *other = cn_queue_choose_worker(queue, sequence);

        if (other)
            hand_over(sequence, other);
        else
            nobody_closes(sequence);
    }
}

void
cn_model_queue_close_sequences(struct cn_model_queue *queue, enum cn_close_reason reason)
{
    struct cn_sequence *sequence;
    size_t cursor = 0;

    cn_assert_on_loop(queue->loop);
    if (!queue->stateful)
        return;
    while ((sequence = cn_table_next(queue->sequences, &cursor))) {
        if (sequence->closing || sequence->close_after == CN_CLOSE_DELETED)
            continue;
        sequence->close_after = (uint8_t)reason;
        cn_sequence_stop_stream(sequence);
        if (cn_job_group_idle(&sequence->group) && !sequence->held)
            cn_sequence_begin_close(sequence, reason);
    }
}

static bool
has_usable_link(const struct cn_model_queue *queue)
{
    const struct cn_list *node;

    cn_list_for_each(node, &queue->links) {
        if (cn_worker_link_usable(cn_container_of(node, struct cn_worker_link, attached)))
            return true;
    }
    return false;
}

static int
check_delete(struct cn_model_queue *queue, struct cn_str id, struct cn_error *err)
{
    if (!queue->stateful)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s has no sequences (sequenceBatching is false)", queue->name);
    if (id.len == 0 || id.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; it must have 1 to %d",
                       id.len, CN_SEQUENCE_ID_MAX);
    if (queue->closed)
        return cn_fail(err, queue->close_code, "%s", queue->close_reason);
    if (!has_usable_link(queue)) {
        cn_pressure_wanted(queue);
        return cn_fail(err, CN_E_NO_WORKER,
                       "model %s has no worker that could delete sequence %.*s; try again later",
                       queue->name, CN_STR_ARG(id));
    }
    return 0;
}

void
cn_model_queue_delete_sequence(struct cn_model_queue *queue, struct cn_sequence_delete *order)
{
    struct cn_sequence *sequence;

    cn_assert_on_loop(queue->loop);
    order->was_live = false;
    order->err.code = 0;
    cn_list_init(&order->link);
    if (check_delete(queue, order->sequence_id, &order->err)) {
        order->on_done(order);
        return;
    }
    sequence = cn_table_find(queue->sequences, order->sequence_id);
    if (!sequence) /* It is opened only to be closed, and gives its place back at once. */
        sequence = cn_sequence_open(queue, order->sequence_id, NULL);
    order->was_live = sequence->known && !sequence->closing;
    cn_list_push_back(&queue->deletes, &order->link);
    if (!sequence->closing)
        cn_sequence_delete_soon(sequence);
}
