/* scheduler/sequence/stored_sequences.c - lists, reads and writes stored sequences. On the model
 * queue's loop.
 *
 * A query goes to a worker as a row does, and workers answer queries in the order of sending. So
 * the oldest order in link->queries is the one that a RESULT belongs to.
 *
 * A write must not meet a step of its sequence. It waits in queue->queries until no job of the
 * sequence is in flight. Then the sequence is held: its group lies in queue->held, and no job of it
 * is sent until the worker has answered. If that worker dies, nobody knows whether it wrote, and
 * the order fails with CN_E_UNAVAILABLE; the next step reads the store.
 */
#include "core/errors/panic.h"
#include "core/time/clock.h"
#include "scheduler/queue/model_queue_priv.h"

#define ANSWER_SLACK_BYTES 1024 /* bytes of a RESULT frame besides those that max_bytes bounds */

static struct cn_sequence_query *
order_at(struct cn_list *node)
{
    return cn_container_of(node, struct cn_sequence_query, link);
}

static void
tell(struct cn_model_queue *queue, struct cn_sequence_query *order,
     const struct cn_query_result *result)
{
    queue->n_queries--;
    order->on_done(order, result);
}

static void
refuse(struct cn_model_queue *queue, struct cn_sequence_query *order)
{
    cn_pressure_wanted(queue);
    cn_fail(&order->err, CN_E_NO_WORKER,
            "model %s has no worker that could read its sequences; try again later", queue->name);
    tell(queue, order, NULL);
}

static void
send_query(struct cn_model_queue *queue, struct cn_worker_link *link,
           struct cn_sequence_query *order)
{
    struct cn_query *query = &order->query;
    uint64_t most = link->max_frame_bytes - ANSWER_SLACK_BYTES;

    cn_assert(link->frame_rows == 0); /* a frame must not be written into a BATCH that was begun */
    query->query_id = ++queue->last_query_id;
    if (query->max_bytes == 0 || query->max_bytes > most)
        query->max_bytes = most;
    cn_worker_link_begins(link);
    cn_frame_put_query(&link->out, query);
    cn_list_push_back(&link->queries, &order->link);
    link->n_queries++;
    cn_worker_link_watch_progress(link);
    cn_worker_link_flush_later(link);
}

/* --- writes */

static struct cn_sequence_query *
find_waiting(const struct cn_sequence *sequence)
{
    struct cn_list *node;

    cn_list_for_each(node, &sequence->queue->queries)
        if (cn_str_eq(order_at(node)->query.sequence_id, cn_sequence_id(sequence)))
            return order_at(node);
    return NULL;
}

static void
hold(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;

    cn_timer_cancel(&sequence->timer);
    cn_sequence_take_place(sequence); /* a CLOSE before it may have given it back */
    cn_ready_unplace(queue, &sequence->group);
    cn_list_push_back(&queue->held, &sequence->group.ready);
    sequence->group.place = CN_PLACE_HELD;
    sequence->held = true;
}

static void
let_go(struct cn_sequence *sequence)
{
    cn_ready_unplace(sequence->queue, &sequence->group);
    sequence->held = false;
    cn_sequence_update(sequence);
}

bool
cn_queue_begin_write(struct cn_sequence *sequence)
{
    struct cn_model_queue *queue = sequence->queue;
    struct cn_job *next = cn_job_group_next(&sequence->group);
    struct cn_sequence_query *order;
    struct cn_worker_link *link;

    cn_assert(!sequence->held && !sequence->closing && !sequence->group.in_flight);
    if (next && (next->row.flags & CN_ROW_REDELIVERED))
        return false; /* its step may be committed already, so it counts as in flight */
    while ((order = find_waiting(sequence))) {
        cn_list_remove(&order->link);
        sequence->wants_write = find_waiting(sequence) != NULL;
        link = cn_queue_choose_worker(queue, sequence);
        if (link) {
            hold(sequence);
            order->sequence = sequence;
            send_query(queue, link, order);
            return true;
        }
        refuse(queue, order);
    }
    return false;
}

/* The write is done. The worker that did it becomes the home worker; with durability none it is the
 * only one that has the sequence. */
static void
learn_written(struct cn_sequence *sequence, struct cn_worker_link *link,
              const struct cn_query_result *result)
{
    if (result->error_code != 0 || result->n_sequences != 1)
        return;
    cn_sequence_begin_generation(sequence, result->sequences[0].generation,
                                 result->sequences[0].opened_wall_ms);
    cn_owned_written(sequence, result->sequences[0].state_bytes);
    if (link->home_serial)
        cn_sequence_set_home(sequence, link);
    else
        cn_sequence_leave_home(sequence);
}

static int
begin_write(struct cn_model_queue *queue, struct cn_sequence_query *order)
{
    struct cn_sequence *sequence = cn_table_find(queue->sequences, order->query.sequence_id);
    int rc;

    if (!sequence || !sequence->counted) {
        rc = cn_sequence_check_room(queue, &order->err);
        if (rc < 0)
            return rc;
    }
    if (!sequence)
        sequence = cn_sequence_open(queue, order->query.sequence_id, NULL);
    cn_sequence_take_place(sequence);
    sequence->wants_write = true;
    cn_list_push_back(&queue->queries, &order->link);
    cn_sequence_update(sequence);
    return 0;
}

/* --- reads */

/* The worker that lists sequences: with durability none the one with the lowest index from `index`
 * on, because each has its own store; else any worker. */
static struct cn_worker_link *
choose_lister(const struct cn_model_queue *queue, uint32_t index)
{
    struct cn_worker_link *best = NULL;
    struct cn_list *node;

    if (queue->config.durability != CN_DURABILITY_NONE)
        return cn_queue_choose_worker(queue, NULL);
    cn_list_for_each(node, &queue->links) {
        struct cn_worker_link *link = cn_container_of(node, struct cn_worker_link, attached);

        if (link->index >= index && cn_worker_link_usable(link) &&
            (!best || link->index < best->index))
            best = link;
    }
    return best;
}

static void
begin_read(struct cn_model_queue *queue, struct cn_sequence_query *order)
{
    struct cn_worker_link *link;

    if (order->query.op == CN_QUERY_LIST)
        link = choose_lister(queue, order->worker);
    else
        link = cn_queue_choose_worker(queue,
                                      cn_table_find(queue->sequences, order->query.sequence_id));
    if (link)
        send_query(queue, link, order);
    else
        refuse(queue, order);
}

/* Says at which worker a list goes on, if each worker has its own store. */
static void
set_next_worker(const struct cn_model_queue *queue, const struct cn_worker_link *link,
                struct cn_sequence_query *order, const struct cn_query_result *result)
{
    const struct cn_worker_link *next;

    order->worker = 0;
    if (order->query.op != CN_QUERY_LIST || queue->config.durability != CN_DURABILITY_NONE)
        return;
    next = result->next.len ? link : choose_lister(queue, link->index + 1);
    order->worker = next ? next->index : 0;
}

/* --- answers */

int
cn_queue_on_result(struct cn_worker_link *link, const struct cn_query_result *result,
                   struct cn_error *err)
{
    struct cn_model_queue *queue = link->queue;
    struct cn_sequence_query *order;
    struct cn_sequence *sequence;

    if (cn_list_empty(&link->queries) ||
        order_at(link->queries.next)->query.query_id != result->query_id)
        return cn_fail(err, CN_E_PROTOCOL, "RESULT of query %llu arrived out of order",
                       (unsigned long long)result->query_id);
    order = order_at(cn_list_pop_front(&link->queries));
    sequence = order->sequence;
    link->n_queries--;
    link->progress_ms = cn_loop_now_ms(link->loop);
    if (result->error_code != 0)
        cn_fail(&order->err, result->error_code, "%.*s", CN_STR_ARG(result->message));
    set_next_worker(queue, link, order, result);
    if (sequence)
        learn_written(sequence, link, result);
    tell(queue, order, result->error_code ? NULL : result);
    if (sequence)
        let_go(sequence);
    cn_queue_wake(queue);
    return 0;
}

void
cn_queue_fail_queries(struct cn_model_queue *queue, struct cn_worker_link *link)
{
    struct cn_list *node;

    while ((node = cn_list_pop_front(&link->queries))) {
        struct cn_sequence_query *order = order_at(node);
        struct cn_sequence *sequence = order->sequence;

        link->n_queries--;
        cn_fail(&order->err, CN_E_UNAVAILABLE, "worker %u ended before it answered%s; try again",
                link->index,
                sequence
                    ? ", so the sequence may or may not have been written: check whether it exists"
                    : "");
        tell(queue, order, NULL);
        if (!sequence)
            continue;
        sequence->generation = 0; /* not known now; the store decides */
        sequence->reload = true;
        let_go(sequence);
    }
}

static int
check_query(const struct cn_model_queue *queue, const struct cn_query *query, struct cn_error *err)
{
    bool lists = query->op == CN_QUERY_LIST;

    if (!queue->stateful)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s has no sequences (sequenceBatching is false)", queue->name);
    if (query->sequence_id.len > CN_SEQUENCE_ID_MAX || (!lists && query->sequence_id.len == 0))
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; it must have 1 to %d",
                       query->sequence_id.len, CN_SEQUENCE_ID_MAX);
    if (query->prefix.len > CN_SEQUENCE_ID_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the prefix has %zu bytes; ids have at most %d",
                       query->prefix.len, CN_SEQUENCE_ID_MAX);
    if (queue->closed)
        return cn_fail(err, queue->close_code, "%s", queue->close_reason);
    if (queue->n_queries >= CN_QUERIES_MAX)
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "%u requests for sequences of model %s are already running; try again later",
                       queue->n_queries, queue->name);
    return 0;
}

void
cn_model_queue_query(struct cn_model_queue *queue, struct cn_sequence_query *order)
{
    cn_assert_on_loop(queue->loop);
    order->err.code = 0;
    order->sequence = NULL;
    cn_list_init(&order->link);
    if (check_query(queue, &order->query, &order->err)) {
        order->on_done(order, NULL);
        return;
    }
    queue->n_queries++;
    if (order->query.op != CN_QUERY_WRITE)
        begin_read(queue, order);
    else if (begin_write(queue, order))
        tell(queue, order, NULL);
}

bool
cn_model_queue_look(const struct cn_model_queue *queue, struct cn_str id,
                    struct cn_sequence_live *out)
{
    const struct cn_sequence *sequence = cn_table_find(queue->sequences, id);
    const struct cn_worker_link *home;
    uint64_t now = cn_loop_now_ms(queue->loop);

    if (!sequence || sequence->closing || !sequence->known)
        return false;
    home = cn_sequence_home(sequence);
    out->waiting = sequence->group.waiting;
    out->in_flight = sequence->group.in_flight != NULL;
    out->worker = home ? home->index : 0;
    out->lifetime_left_ms = sequence->lifetime_ms;
    if (sequence->lifetime_ms != CN_NEVER)
        out->lifetime_left_ms = sequence->lifetime_ms > now ? sequence->lifetime_ms - now : 0;
    return true;
}
