/* scheduler/queue/admission.c - decides which jobs may wait. On the model queue's loop, at the end
 * of a turn.
 *
 * cn_queue_admit() sees each job once. It gives the job its id and its time, checks it, and either
 * refuses it or puts it into a group, where it waits. Nothing is kept of a refused job. The order
 * of the checks matters to clients: what is wrong with the request itself (id, step number) comes
 * before the limits of its key, and these before what is wrong with the server at the moment
 * (closed, no worker, full), because only the latter is worth trying again. */
#include <string.h>

#include "access/account.h"
#include "metrics/counters/metrics.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/sequence/generated_id.h"

#define ROW_TEXT_MAX UINT16_MAX           /* the most that a str16 of a frame can carry */
#define ROW_BYTES_MAX (UINT64_C(2) << 30) /* well below what a frame can carry */

static void
refuse(struct cn_model_queue *queue, struct cn_job *job, const struct cn_error *err,
       uint32_t retry_after_s)
{
    cn_metrics_add(&queue->metrics, CN_M_JOBS_REFUSED, 1);
    cn_metrics_add(cn_loop_metrics(queue->loop), CN_M_ALL_JOBS_REFUSED, 1);
    if (err->code == CN_E_KEY_LIMIT)
        cn_queue_fail_key(queue, job, err->message, retry_after_s);
    else
        cn_queue_fail(queue, job, err->code, "%s", err->message);
}

/* Takes a place among the requests of the job's key. */
static int
check_key(struct cn_job *job, uint32_t *retry_after_s, struct cn_error *err)
{
    int rc = 0;

    if (!job->account)
        return 0;
    rc = cn_account_begin(job->account, job->arrived_us, retry_after_s, err);
    job->on_account = rc == 0;
    return rc;
}

static bool
is_full(const struct cn_model_queue *queue)
{
    return queue->stats.waiting_jobs >= queue->config.job_queue_size;
}

/* Does the job's sequence have a slot already? Then the job is admitted even into a full queue,
 * because the sequence must be able to end: otherwise the jobs that fill the queue would wait for
 * its slot until the sequence's idle clock runs out. Slots and maxSequenceJobQueueSize bound the
 * number of such jobs. */
static bool
holds_slot(const struct cn_model_queue *queue, const struct cn_job *job)
{
    const struct cn_sequence *sequence = queue->policy.slots && (job->row.flags & CN_ROW_STATEFUL)
                                             ? cn_table_find(queue->sequences, job->row.sequence_id)
                                             : NULL;

    return sequence && sequence->home_serial && !sequence->away;
}

/* Is there a ticket (useJobTicket)? Each worker has as many tickets as rows in its batch, and a job
 * holds one until it is answered. */
static bool
has_ticket(const struct cn_model_queue *queue)
{
    uint64_t tickets = (uint64_t)queue->n_links * queue->config.batch_size;

    return !queue->config.use_job_ticket ||
           queue->stats.waiting_jobs + queue->stats.in_flight_jobs < tickets;
}

static int
check_queue(struct cn_model_queue *queue, const struct cn_job *job, struct cn_error *err)
{
    if (queue->closed)
        return cn_fail(err, queue->close_code, "%s", queue->close_reason);
    if (atomic_load_explicit(&queue->retired, memory_order_relaxed) && !cn_swap_is_forwarded(job) &&
        (job->row.flags & CN_ROW_STATEFUL))
        return cn_fail(err, CN_E_VERSION_SWAPPED,
                       "version %s of model %s takes no more steps, because its swap deadline has "
                       "passed; send the steps without a version",
                       queue->version, queue->name);
    if (!cn_queue_has_hope(queue) && !cn_swap_may_leave(queue, job))
        return cn_fail(err, CN_E_NO_WORKER, "%s", cn_queue_no_worker_reason(queue));
    if (!has_ticket(queue))
        return cn_fail(err, CN_E_UNAVAILABLE,
                       "none of the %u workers of model %s has room in its batch (useJobTicket); "
                       "try again later",
                       queue->n_links, queue->name);
    if (is_full(queue))
        cn_aggregator_dispatch(
            queue); /* a burst came in one turn: workers may have room for some of it */
    if (is_full(queue) && !holds_slot(queue, job))
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "model %s has %llu jobs waiting (jobQueueSize %u); try again later",
                       queue->name, (unsigned long long)queue->stats.waiting_jobs,
                       queue->config.job_queue_size);
    return cn_overload_check(queue, job, err);
}

/* Can a frame carry the row? */
static int
check_row(const struct cn_row *row, struct cn_error *err)
{
    uint64_t bytes = 0;
    uint32_t i;

    if (row->request_id.len > ROW_TEXT_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the request id has %zu bytes; the limit is %u",
                       row->request_id.len, ROW_TEXT_MAX);
    if (row->idempotency_key.len > CN_IDEMPOTENCY_KEY_MAX)
        return cn_fail(err, CN_E_BAD_REQUEST, "the idempotency key has %zu bytes; the limit is %u",
                       row->idempotency_key.len, CN_IDEMPOTENCY_KEY_MAX);
    for (i = 0; i < row->n_headers; i++) {
        if (row->headers[i].name.len > ROW_TEXT_MAX)
            return cn_fail(err, CN_E_BAD_REQUEST, "a header name has %zu bytes; the limit is %u",
                           row->headers[i].name.len, ROW_TEXT_MAX);
        bytes += row->headers[i].name.len + row->headers[i].value.len;
    }
    for (i = 0; i < row->n_parts; i++) {
        if (row->parts[i].name.len > ROW_TEXT_MAX || row->parts[i].content_type.len > ROW_TEXT_MAX)
            return cn_fail(err, CN_E_BAD_REQUEST,
                           "the name or content type of part %u is longer than %u bytes", i + 1,
                           ROW_TEXT_MAX);
        bytes += row->parts[i].data.len;
    }
    if (bytes > ROW_BYTES_MAX)
        return cn_fail(err, CN_E_TOO_LARGE, "the request has %llu bytes; the limit is %llu",
                       (unsigned long long)bytes, (unsigned long long)ROW_BYTES_MAX);
    return 0;
}

static int
check_number(const struct cn_row *row, struct cn_error *err)
{
    if (!(row->flags & CN_ROW_NUMBERED) || !(row->flags & CN_ROW_START) || row->step == 1)
        return 0;
    return cn_fail(err, CN_E_BAD_REQUEST,
                   "step number %llu was sent with a start flag or without a sequence id, but the "
                   "first step of a sequence has number 1",
                   (unsigned long long)row->step);
}

/* Checks the sequence id. A request without one opens a sequence with a new id, if the model allows
 * it. */
static int
check_sequence_id(struct cn_model_queue *queue, struct cn_job *job, struct cn_error *err)
{
    struct cn_row *row = &job->row;

    row->flags |= CN_ROW_STATEFUL;
    if (row->sequence_id.len > CN_SEQUENCE_ID_MAX) {
        size_t len = row->sequence_id.len;

        row->sequence_id.len = 0; /* the answer need not repeat all of it */
        return cn_fail(err, CN_E_BAD_REQUEST, "the sequence id has %zu bytes; the limit is %u", len,
                       CN_SEQUENCE_ID_MAX);
    }
    if (!(row->flags & (CN_ROW_GENERATED_ID |
                        CN_ROW_REDELIVERED))) /* these have the id of a session, or are not new */
        cn_missing_ids_note(queue, row);
    if (row->sequence_id.len > 0)
        return 0;
    if (!queue->config.sequence_implicit_start)
        return cn_fail(err, CN_E_BAD_REQUEST,
                       "model %s needs a sequence id in each request "
                       "(sequence.implicitStart is false); send one in the header "
                       "Continuo-Sequence, or in sequence_id of a v2 request",
                       queue->name);
    if (job->owner.len)
        memcpy(job->generated_id, job->owner.ptr, job->owner.len);
    row->sequence_id = cn_generated_id_make(job->generated_id + job->owner.len);
    row->sequence_id.ptr -= job->owner.len;
    row->sequence_id.len += job->owner.len;
    row->flags |= CN_ROW_START | CN_ROW_GENERATED_ID;
    return 0;
}

/* A sequence that sends many steps ahead must not fill the whole queue, because the others would
 * get no step in: it may have as many steps waiting as there are free places left. */
static bool
has_share(const struct cn_model_queue *queue, const struct cn_sequence *sequence)
{
    uint64_t waiting = queue->stats.waiting_jobs, size = queue->config.job_queue_size;

    return queue->policy.slots > 0 || sequence->group.waiting == 0 ||
           sequence->group.waiting >= queue->config.max_sequence_job_queue_size ||
           (waiting < size && sequence->group.waiting <= size - waiting);
}

/* Finds or opens the job's sequence and puts it into its group. */
static int
join_sequence(struct cn_model_queue *queue, struct cn_job *job, struct cn_error *err)
{
    struct cn_sequence *sequence = cn_table_find(queue->sequences, job->row.sequence_id);
    bool reserved;
    int rc;

    if ((!sequence || !sequence->counted) && !cn_swap_is_forwarded(job) &&
        !cn_swap_may_leave(queue, job)) {
        rc = cn_sequence_check_room(queue, err);
        if (rc < 0)
            return rc;
    }
    if (sequence && sequence->close_after == CN_CLOSE_IDLE && !(job->row.flags & CN_ROW_START))
        return cn_sequence_say_idle(sequence, err);
    rc = cn_owned_admit(sequence, job, &reserved, err);
    if (rc < 0)
        return rc;
    if (!sequence)
        sequence =
            cn_sequence_open(queue, job->row.sequence_id, job->owner.len ? job->account : NULL);
    if (reserved)
        cn_owned_set_reserved(sequence);
    cn_sequence_take_place(sequence);
    if (!has_share(queue, sequence))
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "sequence %.*s has %u jobs waiting, which is more than the model has room "
                       "for besides (jobQueueSize %u); send the next step after an answer",
                       CN_STR_ARG(job->row.sequence_id), sequence->group.waiting,
                       queue->config.job_queue_size);
    if (!cn_job_group_push(&sequence->group, job, queue->config.max_sequence_job_queue_size))
        return cn_fail(err, CN_E_QUEUE_FULL,
                       "sequence %.*s has %u jobs waiting (maxSequenceJobQueueSize %u); send the "
                       "next step after an answer",
                       CN_STR_ARG(job->row.sequence_id), sequence->group.waiting,
                       queue->config.max_sequence_job_queue_size);
    job->sequence = sequence;
    cn_sequence_arrived(sequence, job->row.flags & CN_ROW_START);
    if (job->row.flags &
        (CN_ROW_START | CN_ROW_END)) /* these need not wait until a stream ends by itself */
        cn_sequence_stop_stream(sequence);
    return 0;
}

/* For models with priorities: finds the level at which the job waits, and checks that it has
 * room. */
static int
check_level(struct cn_model_queue *queue, struct cn_job *job, struct cn_error *err)
{
    const struct cn_policy *policy = &queue->policy;
    const struct cn_level *level;
    uint32_t max;

    if (!policy->by_level)
        return 0;
    job->level = (uint8_t)cn_policy_level(policy, job->priority);
    job->rows = cn_policy_rows(policy, queue->config.io, &job->row);
    level = &queue->aggregator.levels[job->level];
    max = policy->batching->policies[job->level].max_queued;
    if (max && level->n >= max)
        cn_aggregator_dispatch(queue); /* as in check_queue() */
    if (max && level->n >= max)
        return cn_fail(err, CN_E_UNAVAILABLE, "[request id: %.*s] Exceeds maximum queue size",
                       CN_STR_ARG(job->row.request_id));
    return 0;
}

void
cn_queue_admit(struct cn_model_queue *queue, struct cn_job *job)
{
    bool stateful = queue->stateful && !(job->row.flags & CN_ROW_DESCRIBE);
    uint32_t retry_after_s = CN_ACCOUNT_RETRY_S; /* if a key has used up a limit */
    struct cn_error err;

    queue->stats.jobs++;
    if (!cn_swap_is_forwarded(job)) { /* a forwarded step was counted where it came from */
        cn_metrics_add(&queue->metrics, CN_M_JOBS, 1);
        cn_metrics_add(cn_loop_metrics(queue->loop), CN_M_ALL_JOBS, 1);
        cn_ts_job_came(queue, job);
    }
    job->row.job_id = queue->next_job_id++;
    job->arrived_ms = cn_loop_now_ms(queue->loop);
    job->arrived_us = cn_loop_now_us(queue->loop);
    job->times.taken_us = queue->taken_us;
    if (queue->config.client_timeout_ms &&
        job->arrived_ms + queue->config.client_timeout_ms < job->deadline_ms)
        job->deadline_ms = job->arrived_ms + queue->config.client_timeout_ms;
    cn_job_group_init(&job->group);
    job->group.of_job = true;
    err.code = 0;
    if (stateful &&
        (check_sequence_id(queue, job, &err) < 0 || check_number(&job->row, &err) < 0)) {
        refuse(queue, job, &err, retry_after_s);
        return;
    }
    if (!stateful)
        job->row.flags &= ~(uint32_t)(CN_ROW_STATEFUL | CN_ROW_START | CN_ROW_END |
                                      CN_ROW_NUMBERED | CN_ROW_KEEPS);
    if (cn_swap_is_forwarded(job) && cn_swap_send_back(queue, job))
        return;
    if (check_key(job, &retry_after_s, &err) < 0 || check_queue(queue, job, &err) < 0 ||
        check_row(&job->row, &err) < 0 || (stateful && join_sequence(queue, job, &err) < 0)) {
        refuse(queue, job, &err, retry_after_s);
        return;
    }
    if (!stateful && check_level(queue, job, &err) < 0) {
        refuse(queue, job, &err, retry_after_s);
        return;
    }
    if (!stateful)
        cn_job_group_push(&job->group, job, 1);
    cn_queue_job_waits(queue, job);
}
