/* scheduler/swap/version_swap.c - forwards a step whose sequence may live in another version of its
 * model. On the queue's loop.
 *
 * What is done to another version is done by forwarded steps: jobs in that queue's group of the
 * sequence. So between two of them nothing of the sequence runs there unnoticed, and if a worker
 * dies in the middle, that queue deals with it.
 *
 * The way of a step (enum cn_forward_stage in forward.h):
 * - ASK_HERE: our own worker looks first, if our store may know sequences that our table does not.
 * - VISIT: the other versions are asked, from the youngest to the oldest. With `pin` the question
 *   is the step itself, which runs there if the sequence lives there. Otherwise it is a look, an
 *   export, or (for a START) the order to close the sequence there.
 * - IMPORT: with `migrate`, our own worker writes the exported record as pending.
 * - BURY: the other version closes its copy.
 * - HOME: the step runs here, like any other.
 *
 * A sequence that moves is kept here first, as pending, then closed there, and only then its step
 * runs. Whenever all of it stops, exactly one copy counts (swap_leftovers.h). If the sequence has
 * gone on in its version between the export and the close, the close is refused and the way begins
 * again, at most ROUNDS_MAX times.
 *
 * What may surprise: while a step is away, the sequence has no place here (`counted`), but its
 * group has a job in flight, so the steps behind it wait. And two versions may look for the same
 * sequence in each other; forwarded_step.c answers at once where waiting would never end.
 */
#include "scheduler/swap/version_swap.h"

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/queue/submit.h"
#include "scheduler/swap/forward.h"
#include "scheduler/swap/peers.h"
#include "scheduler/swap/swap_leftovers.h"

/* A client that steps without pause in the old version should not hold up the others. */
#define ROUNDS_MAX 8

static void on_forwarded_answer(struct cn_job *forwarded, struct cn_answer_box *box);

static const struct cn_job_ops forwarded_ops = {.on_answer = on_forwarded_answer};

/* Sends a forwarded step to `peer`. `op` 0: it is the step itself, to run if the sequence lives
 * there. */
static void
visit(struct cn_model_queue *queue, struct cn_job *job, struct cn_model_queue *peer,
      enum cn_move_op op)
{
    struct cn_forward *forward = job->forward;
    struct cn_job *forwarded = &forward->forwarded;

    memset(forwarded, 0, sizeof(*forwarded));
    forwarded->ops = &forwarded_ops;
    forwarded->origin = queue->loop;
    forwarded->row = job->row; /* its bytes stay in place while the job waits for us */
    forwarded->row.flags &= ~(uint32_t)CN_ROW_REDELIVERED;
    forwarded->deadline_ms = job->deadline_ms;
    /* A client that left may have asked behind the job and been answered there (departed.c). */
    if (forward->stage == CN_STAGE_VISIT) {
        forwarded->connection = job->connection;
        forwarded->left = job->left;
    }
    if (op) {
        forward->move.op = (uint8_t)op;
        forwarded->row.flags |= CN_ROW_MOVE;
        forwarded->row.move = &forward->move;
    } else {
        forwarded->row.flags |= CN_ROW_ASK;
    }
    if (forward->take_pending)
        forwarded->row.flags |= CN_ROW_TAKE_PENDING;
    forward->peer = peer->serial;
    forward->queue = peer;
    cn_list_push_back(&queue->away, &forward->link);
    cn_model_queue_submit(peer, forwarded);
    if (job->cancelled)
        cn_model_queue_cancel(peer, forwarded);
}

bool
cn_swap_is_forwarded(const struct cn_job *job)
{
    return job->ops == &forwarded_ops;
}

/* The operation for a version that may hold the sequence. */
static enum cn_move_op
first_op(const struct cn_model_queue *queue, struct cn_job *job)
{
    job->forward->move = (struct cn_move){0};
    if (job->row.flags & CN_ROW_START) {
        job->forward->move.reason = CN_CLOSE_ENDED;
        return CN_MOVE_BURY;
    }
    switch (queue->swap_policy) {
    case CN_SWAP_PIN:
        return 0;
    case CN_SWAP_MIGRATE: /* without a worker here, the sequence is better off there */
        return cn_queue_has_hope(queue) ? CN_MOVE_EXPORT : 0;
    case CN_SWAP_RESET:
    case CN_SWAP_REJECT:
        return CN_MOVE_LOOK;
    }
    cn_unreachable();
}

/* No other version has the sequence, so the step runs here, if there is a place for the
 * sequence. */
static void
go_home(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_error err;

    if (!job->sequence->counted && cn_sequence_check_room(queue, &err) < 0) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    cn_sequence_take_place(job->sequence);
    if (job->forward->stale)
        job->row.flags |= CN_ROW_START;
    cn_forward_return(queue, job, CN_STAGE_HOME);
}

/* All versions were asked, and the sequence lives in none. Finds the version whose pending import
 * is the sequence, for a last visit; NULL: there is none, or the import is here. */
static int
find_pending(struct cn_model_queue *queue, struct cn_forward *forward, struct cn_model_queue **out,
             struct cn_error *err)
{
    const struct cn_swap_leftovers leftovers = forward->leftovers;
    bool counts = cn_swap_leftovers_pending_counts(&leftovers);
    int rc;

    *out = NULL;
    forward->leftovers = (struct cn_swap_leftovers){0};
    if (counts && leftovers.pending_at == queue->serial)
        return 0;
    rc = counts ? cn_swap_find_peer(queue, UINT32_MAX, leftovers.pending_at, out, err) : 0;
    forward->take_pending = rc == 0 && *out;
    forward->pass_pending = forward->had_pending && !*out;
    return rc;
}

/* Sends the job to the next version that was not asked yet. The job is out of its group. */
static void
go_on(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;
    int rc;

    forward->take_pending = false;
    rc = cn_swap_find_peer(queue, forward->below, 0, &peer, &err);
    if (rc == 0 && !peer) {
        forward->below = 0;
        rc = find_pending(queue, forward, &peer, &err);
    }
    if (rc) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer && queue->closed) { /* the sequence would be opened only to end with this version */
        if (queue->close_code == CN_E_DRAINING)
            cn_forward_give_up(queue, job, CN_E_DRAINING, "%s", queue->close_reason);
        else
            cn_forward_give_up(queue, job, CN_E_UNAVAILABLE,
                               "version %s of model %s, which was the default when the step "
                               "arrived, is being unregistered; send the step again",
                               queue->version, queue->name);
        return;
    }
    if (!peer) {
        go_home(queue, job);
        return;
    }
    if (!forward->take_pending)
        forward->below = peer->serial;
    forward->stage = CN_STAGE_VISIT;
    visit(queue, job, peer, first_op(queue, job));
}

bool
cn_swap_divert(struct cn_model_queue *queue, struct cn_job_group *group)
{
    struct cn_job *job = cn_job_group_next(group);
    struct cn_model_queue *peer;
    struct cn_sequence *sequence;
    struct cn_forward *forward;
    bool blind;

    if (!job || !job->any_version || job->forward || !job->sequence || job->sequence->known ||
        (job->row.flags & (CN_ROW_GENERATED_ID | CN_ROW_REDELIVERED)) || !queue->family.version_at)
        return false;
    sequence = job->sequence;
    blind = cn_swap_find_peer(queue, UINT32_MAX, 0, &peer, NULL) != 0;
    if (!blind && !peer)
        return false;
    /* Not a member of the job: a hundred times as many jobs never need it. */
    forward = job->forward = cn_alloc(sizeof(*forward));
    forward->job = job;
    forward->below = UINT32_MAX;
    cn_list_init(&forward->link);
    if (!blind && cn_sequence_away(sequence) && !(job->row.flags & CN_ROW_START) &&
        !cn_swap_find_peer(queue, UINT32_MAX, cn_sequence_away(sequence), &peer, NULL) && peer) {
        forward->by_hint = true;
        forward->stage = CN_STAGE_VISIT;
        cn_forward_begin(queue, job);
        visit(queue, job, peer, first_op(queue, job));
        return true;
    }
    if (blind ||
        (queue->may_remember && cn_queue_has_hope(queue) && !(job->row.flags & CN_ROW_START))) {
        forward->stage = CN_STAGE_ASK_HERE;
        return false;
    }
    cn_forward_begin(queue, job);
    go_on(queue, job);
    return true;
}

/* --- what the other version said */

/* The other version ran the step, or refused it: its answer is for the client. */
static void
done_there(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    bool gone = (answer->flags & (CN_ANSWER_ENDED | CN_ANSWER_CLOSED_BEFORE)) ||
                answer->error_code == CN_E_SEQUENCE_UNKNOWN ||
                answer->error_code == CN_E_SEQUENCE_EXPIRED ||
                answer->error_code == CN_E_SEQUENCE_ENDED;

    if (!cn_job_is_detached(job))
        cn_sequence_set_away(job->sequence, gone ? 0 : job->forward->peer);
    cn_forward_finish(queue, job, box);
}

/* The step is committed there and still streams, so the next step of the sequence may go. */
static void
detach_job(struct cn_job *job)
{
    struct cn_sequence *sequence = job->sequence;

    if (cn_job_is_detached(job) || sequence->streams == UINT16_MAX)
        return;
    cn_job_to(job, CN_JOB_AWAY_DETACHED);
    sequence->streams++;
    cn_sequence_set_away(sequence, job->forward->peer);
    cn_job_group_settle(&sequence->group);
    cn_sequence_update(sequence);
}

static void
on_forwarded_piece(struct cn_job *job, struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    bool committed = (answer->flags & CN_ANSWER_LIVE) && (answer->flags & CN_ANSWER_COMMITTED);

    if (answer->body.len || answer->status || answer->n_headers || answer->content_type.len) {
        box->job = job;
        cn_answer_box_deliver(box);
    } else {
        cn_answer_box_free(box);
    }
    if (committed)
        detach_job(job);
}

/* The version that was asked does not have the sequence: the search goes on. */
static void
not_there(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    cn_sequence_set_away(job->sequence, 0);
    if (!forward->by_hint) {
        go_on(queue, job);
        return;
    }
    forward->by_hint = false;
    if (queue->may_remember && cn_queue_has_hope(queue))
        cn_forward_return(queue, job, CN_STAGE_ASK_HERE);
    else
        go_on(queue, job);
}

/* The sequence lives there: does what the policy says. */
static void
found(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    const char *version;
    struct cn_error err;

    if (cn_swap_find_peer(queue, UINT32_MAX, forward->peer, &peer, &err)) {
        cn_answer_box_free(box);
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer) { /* the version is gone meanwhile, and its sequences with it */
        cn_answer_box_free(box);
        not_there(queue, job);
        return;
    }
    version = peer->version;
    forward->closes = atomic_load_explicit(&peer->retired, memory_order_relaxed) &&
                      (forward->move.op == 0 || forward->stage == CN_STAGE_STAY ||
                       queue->swap_policy == CN_SWAP_REJECT);
    if (!forward->closes && forward->move.op == CN_MOVE_LOOK &&
        queue->swap_policy == CN_SWAP_REJECT) {
        cn_sequence_set_away(job->sequence, forward->peer);
        cn_forward_give_up(
            queue, job, CN_E_VERSION_SWAPPED,
            "sequence %.*s lives in version %s of model %s, and version %s, which is the default "
            "now, does not take it over (sequence.swapPolicy: reject); send its steps to version "
            "%s by name, or start it anew with ts-request-sequence-start: true",
            CN_STR_ARG(job->row.sequence_id), version, queue->name, queue->version, version);
        cn_answer_box_free(box);
        return;
    }
    cn_free(forward->version);
    forward->version = cn_strdup(version);
    forward->move.generation = box->answer.generation;
    forward->move.step = box->answer.step;
    forward->move.version = cn_str_from(forward->version);
    if (!forward->closes && forward->move.op == CN_MOVE_EXPORT) {
        cn_answer_box_free(forward->exported);
        forward->exported = box;
        forward->stale = false;
        forward->move.op = CN_MOVE_IMPORT;
        forward->move.runtime = box->answer.content_type;
        forward->move.record = box->answer.body;
        cn_forward_return(queue, job, CN_STAGE_IMPORT);
        return;
    }
    cn_answer_box_free(box);
    forward->move.reason = forward->closes ? CN_CLOSE_EVICTED : CN_CLOSE_RESET;
    forward->move.runtime = forward->move.record = (struct cn_str){NULL, 0};
    forward->stage = CN_STAGE_BURY;
    visit(queue, job, peer, CN_MOVE_BURY);
}

/* The sequence is closed there, or it has gone on since it was looked at; then all begins again. */
static void
buried(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;

    if (answer->flags & CN_ANSWER_ELSEWHERE) {
        if (++forward->rounds > ROUNDS_MAX) {
            cn_forward_give_up(queue, job, CN_E_CONFLICT,
                               "sequence %.*s cannot move to version %s while other clients still "
                               "use it in its own version; send the step again",
                               CN_STR_ARG(job->row.sequence_id), queue->version);
            return;
        }
        forward->stale = forward->exported != NULL;
        forward->below = forward->peer + 1;
        go_on(queue, job);
        return;
    }
    if (forward->closes) {
        cn_metrics_count_reason(&queue->metrics, CN_M_SEQUENCES_CLOSED, CN_CLOSE_EVICTED);
        cn_forward_give_up(
            queue, job, CN_E_SEQUENCE_ENDED,
            "sequence %.*s is closed (evicted): it lived in version %s of model %s, whose swap "
            "deadline has passed; start a new one with ts-request-sequence-start: true",
            CN_STR_ARG(job->row.sequence_id), forward->version, queue->name);
        return;
    }
    forward->move = (struct cn_move){
        .op = CN_MOVE_TOLD,
        .reason = forward->exported ? CN_CLOSE_MOVED : CN_CLOSE_RESET,
        .version = cn_str_from(forward->version),
    };
    cn_metrics_count_reason(&queue->metrics, CN_M_SEQUENCES_CLOSED, forward->move.reason);
    cn_log(CN_LOG_DEBUG, "event=sequence_swapped model=%s from=%s to=%s how=%s", queue->name,
           forward->version, queue->version,
           cn_close_reason_word((enum cn_close_reason)forward->move.reason));
    go_home(queue, job);
}

static void
on_forwarded_answer(struct cn_job *forwarded, struct cn_answer_box *box)
{
    struct cn_forward *forward = cn_container_of(forwarded, struct cn_forward, forwarded);
    struct cn_job *job = forward->job;
    struct cn_model_queue *queue = job->queue;
    const struct cn_answer *answer = &box->answer;

    if (!(answer->flags & CN_ANSWER_FINAL)) {
        on_forwarded_piece(job, box);
        return;
    }
    cn_list_remove(&forward->link);
    if (forward->stage == CN_STAGE_BURY || (forwarded->row.flags & CN_ROW_START)) {
        if (answer->error_code && !(answer->flags & CN_ANSWER_ELSEWHERE)) {
            cn_forward_finish(queue, job, box);
            return;
        }
        if (forward->stage == CN_STAGE_BURY)
            buried(queue, job, answer);
        else
            go_on(queue, job);
        cn_answer_box_free(box);
    } else if (answer->flags & CN_ANSWER_ELSEWHERE) {
        cn_swap_leftovers_note(&forward->leftovers, forward->peer, answer);
        cn_answer_box_free(box);
        not_there(queue, job);
    } else if (answer->flags & CN_ANSWER_HERE) {
        found(queue, job, box);
    } else {
        done_there(queue, job, box);
    }
}

/* --- what our own worker said */

/* Our worker could not take the sequence over: it stays in its version and works there. */
static void
stay_there(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;
    char id[4 * CN_SEQUENCE_ID_MAX + 3], why[CN_ERROR_MESSAGE_MAX];

    cn_log(CN_LOG_WARN,
           "event=sequence_not_migrated model=%s from=%s to=%s sequence=%s reason=%s "
           "note=\"it stays in its version\"",
           queue->name, forward->version, queue->version,
           cn_log_quote(job->row.sequence_id.ptr, job->row.sequence_id.len, id, sizeof(id)),
           cn_log_quote(answer->body.ptr, answer->body.len, why, sizeof(why)));
    if (cn_swap_find_peer(queue, UINT32_MAX, forward->peer, &peer, &err)) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
    } else if (!peer) {
        cn_forward_give_up(
            queue, job, CN_E_UNAVAILABLE,
            "version %s of model %s is gone, and its sequence %.*s could not be migrated; start it "
            "anew with ts-request-sequence-start: true",
            forward->version, queue->name, CN_STR_ARG(job->row.sequence_id));
    } else {
        forward->stage = CN_STAGE_STAY;
        visit(queue, job, peer, 0);
    }
}

/* The record is kept here; now the copy there must be closed. A version that is gone took its copy
 * with it. */
static void
imported(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;

    if (cn_swap_find_peer(queue, UINT32_MAX, forward->peer, &peer, &err)) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer) {
        buried(queue, job, &(struct cn_answer){0});
        return;
    }
    forward->move.reason = CN_CLOSE_MOVED;
    forward->move.runtime = forward->move.record = (struct cn_str){NULL, 0};
    forward->stage = CN_STAGE_BURY;
    visit(queue, job, peer, CN_MOVE_BURY);
}

bool
cn_swap_on_answer(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;

    if (forward->stage == CN_STAGE_HOME ||
        (forward->stage == CN_STAGE_ASK_HERE && !(answer->flags & CN_ANSWER_ELSEWHERE)))
        return false;
    /* The worker lives, and the job is out of its lists, so other jobs may take its place. */
    cn_job_to(job, CN_JOB_AWAY);
    job->worker = NULL;
    job->unsent = job->deaths = job->alone_deaths = 0;
    job->row.flags &= ~(uint32_t)CN_ROW_REDELIVERED;
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_queue_wake(queue);
    cn_sequence_give_place(job->sequence);
    if (forward->stage == CN_STAGE_ASK_HERE) {
        cn_swap_leftovers_note(&forward->leftovers, queue->serial, answer);
        forward->had_pending = answer->flags & CN_ANSWER_PENDING;
        go_on(queue, job);
    } else if ((answer->flags & CN_ANSWER_HERE) && !answer->error_code) {
        imported(queue, job);
    } else {
        stay_there(queue, job, answer);
    }
    return true;
}
