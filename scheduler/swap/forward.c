/* scheduler/swap/forward.c - a job leaves its queue for the versions of its model, one after the
 * other, and comes back: what is counted, which version is asked next, and when the step runs here.
 * On the queue's loop.
 *
 * What the versions answer, and what follows, is the business of version_swap.c. While a job is
 * away it is in flight in its group but has no worker, and diverted_jobs counts it. It comes back
 * in one of three ways: cn_forward_return() lets it wait here again, cn_forward_finish() gives the
 * client the other version's answer, and cn_forward_give_up() gives it an error.
 *
 * On one server the two queues that a sequence can be in keep its steps in order, so an answer that
 * it does not live in a version stays true. In a shared store another node may move it meanwhile,
 * from a version that was not asked yet to one that was. Therefore our own worker claims the id
 * before the other versions are asked, and an ask of another version takes the claims of other
 * nodes away (worker/resolve/resolve_move.c says why that is enough). `forward->own` is the
 * generation of the claim, or of the import that has replaced it. Whatever is found out about the
 * other versions counts as long as the own claim stands. Our worker checks that when the step comes
 * home, and if it is gone, all begins again.
 */
#include "scheduler/swap/forward.h"

#include <stdarg.h>
#include <stdio.h>

#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/queue/submit.h"
#include "scheduler/swap/peers.h"

/* A client that steps without pause in the old version should not hold up the others. */
#define ROUNDS_MAX 8

void
cn_forward_begin(struct cn_model_queue *queue, struct cn_job *job)
{
    cn_ready_unplace(queue, &job->sequence->group);
    cn_job_group_take(&job->sequence->group);
    cn_job_to(job, CN_JOB_AWAY);
    job->worker = NULL;
    job->sent_ms = cn_loop_now_ms(queue->loop);
    queue->stats.waiting_jobs--;
    cn_overload_count(queue, job, -1);
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_sequence_give_place(job->sequence);
}

void
cn_forward_return(struct cn_model_queue *queue, struct cn_job *job, enum cn_forward_stage stage)
{
    job->forward->stage = stage;
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    cn_job_group_put_back(&job->sequence->group, job);
    cn_queue_job_waits(queue, job);
    cn_queue_wake(queue);
}

void
cn_forward_finish(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_sequence *sequence = job->sequence;

    box->job = job;
    if (job->forward->forwarded.times.n_calls)
        job->times = job->forward->forwarded.times; /* the step ran there */
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    if (cn_job_is_detached(job))
        sequence->streams--;
    else
        cn_job_group_settle(&sequence->group);
    cn_queue_finish(queue, job, box);
    cn_sequence_update(sequence);
    cn_queue_wake(queue);
}

void
cn_forward_give_up(struct cn_model_queue *queue, struct cn_job *job, int code, const char *fmt, ...)
{
    struct cn_sequence *sequence = job->sequence;
    struct cn_error err;
    va_list args;

    va_start(args, fmt);
    vsnprintf(err.message, sizeof(err.message), fmt, args);
    va_end(args);
    queue->stats.in_flight_jobs--;
    queue->stats.diverted_jobs--;
    cn_job_group_settle(&sequence->group);
    cn_queue_fail(queue, job, code, "%s", err.message);
    cn_sequence_update(sequence);
    cn_queue_wake(queue);
}

void
cn_swap_visit(struct cn_model_queue *queue, struct cn_job *job, struct cn_model_queue *peer,
              enum cn_move_op op)
{
    struct cn_forward *forward = job->forward;
    struct cn_job *forwarded = &forward->forwarded;

    memset(forwarded, 0, sizeof(*forwarded));
    forwarded->ops = &cn_swap_forwarded_ops;
    forwarded->origin = queue->loop;
    forwarded->trace = job->trace;
    forwarded->owner = job->owner;
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
    else if (job->stopped)
        cn_queue_stop_forwarded(forwarded);
}

void
cn_forward_stop(struct cn_job *job)
{
    if (!cn_list_empty(&job->forward->link))
        cn_queue_stop_forwarded(&job->forward->forwarded);
}

enum cn_move_op
cn_swap_first_op(const struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    forward->move = (struct cn_move){0};
    if (forward->settled)
        return CN_MOVE_LOOK;
    if (job->row.flags & CN_ROW_START) {
        forward->move.reason = CN_CLOSE_ENDED;
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

/* No other version has the sequence, so the step runs here, if there is a place for the sequence.
 * A step without a claim, because there was no worker, asks again as soon as there is one. */
void
cn_swap_go_home(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_error err;

    if (!job->sequence->counted && cn_sequence_check_room(queue, &err) < 0) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    cn_sequence_take_place(job->sequence);
    if (queue->shares_store && !forward->own) {
        cn_forward_return(queue, job, CN_STAGE_ASK_HERE);
        return;
    }
    forward->move = (struct cn_move){
        .op = forward->told || forward->own ? CN_MOVE_TOLD : 0,
        .reason = forward->told,
        .generation = forward->own,
        .version = cn_str_from(forward->told ? forward->version : ""),
    };
    cn_forward_return(queue, job, CN_STAGE_HOME);
}

/* Another round begins, unless there were too many. False: the job is gone. */
static bool
may_repeat(struct cn_model_queue *queue, struct cn_job *job)
{
    if (++job->forward->rounds <= ROUNDS_MAX)
        return true;
    cn_forward_give_up(queue, job, CN_E_CONFLICT,
                       "sequence %.*s cannot come to version %s while other clients or nodes still "
                       "use it in another version; send the step again",
                       CN_STR_ARG(job->row.sequence_id), queue->version);
    return false;
}

void
cn_swap_new_round(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    if (!may_repeat(queue, job))
        return;
    forward->below = UINT32_MAX;
    forward->leftovers = forward->at_home;
    cn_swap_go_on(queue, job);
}

void
cn_swap_begin_again(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;

    if (!may_repeat(queue, job))
        return;
    cn_answer_box_free(forward->exported);
    forward->exported = NULL;
    forward->below = UINT32_MAX;
    forward->own = 0;
    forward->source = 0;
    forward->told = 0;
    forward->settled = forward->by_hint = forward->take_pending = false;
    forward->had_pending = forward->pass_pending = false;
    forward->at_home = forward->leftovers = (struct cn_swap_leftovers){0};
    forward->move = (struct cn_move){0};
    if (cn_queue_has_hope(queue))
        cn_forward_return(queue, job, CN_STAGE_ASK_HERE);
    else
        cn_swap_go_on(queue, job);
}

void
cn_swap_bury_source(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;

    if (cn_swap_find_peer(queue, UINT32_MAX, forward->source, &peer, &err)) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    forward->source = 0;
    if (!peer) { /* a version that is gone took its copy with it */
        cn_swap_go_home(queue, job);
        return;
    }
    forward->move = (struct cn_move){.reason = CN_CLOSE_MOVED,
                                     .generation = forward->source_generation,
                                     .step = forward->source_step,
                                     .version = cn_str_from(forward->version)};
    forward->stage = CN_STAGE_BURY;
    cn_swap_visit(queue, job, peer, CN_MOVE_BURY);
}

/* Finds the next version to ask; one from which the sequence was imported is left out. */
static int
next_peer(struct cn_model_queue *queue, struct cn_forward *forward, struct cn_model_queue **out,
          struct cn_error *err)
{
    int rc;

    do {
        rc = cn_swap_find_peer(queue, forward->below, 0, out, err);
        if (rc == 0 && *out)
            forward->below = (*out)->serial;
    } while (rc == 0 && *out && (*out)->serial == forward->source);
    return rc;
}

/* All versions were asked, and the sequence lives in none. Finds the version whose pending import
 * is the sequence, for a last visit; NULL: there is none, or the import is here. */
static int
find_pending(struct cn_model_queue *queue, struct cn_forward *forward, struct cn_model_queue **out,
             struct cn_error *err)
{
    const struct cn_swap_leftovers leftovers = forward->leftovers;
    const bool counts = !forward->settled && cn_swap_leftovers_pending_counts(&leftovers);
    int rc;

    *out = NULL;
    forward->leftovers = (struct cn_swap_leftovers){0};
    forward->pass_pending = false;
    if (counts && leftovers.pending_at == queue->serial)
        return 0;
    rc = counts ? cn_swap_find_peer(queue, UINT32_MAX, leftovers.pending_at, out, err) : 0;
    forward->take_pending = rc == 0 && *out;
    forward->pass_pending = forward->had_pending && !*out;
    return rc;
}

/* Every version was asked. The job is out of its group. */
static void
round_over(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;

    forward->below = 0;
    if (find_pending(queue, forward, &peer, &err)) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
    } else if (peer) {
        forward->stage = CN_STAGE_VISIT;
        cn_swap_visit(queue, job, peer, cn_swap_first_op(queue, job));
    } else if (forward->source) {
        cn_swap_bury_source(queue, job);
    } else if (!queue->closed) {
        cn_swap_go_home(queue, job);
    } else if (queue->close_code == CN_E_DRAINING) {
        /* The sequence would be opened only to end with this version. */
        cn_forward_give_up(queue, job, CN_E_DRAINING, "%s", queue->close_reason);
    } else {
        cn_forward_give_up(queue, job, CN_E_UNAVAILABLE,
                           "version %s of model %s, which was the default when the step arrived, "
                           "is being unregistered; send the step again",
                           queue->version, queue->name);
    }
}

void
cn_swap_go_on(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    struct cn_error err;

    forward->take_pending = false;
    if (next_peer(queue, forward, &peer, &err)) {
        cn_forward_give_up(queue, job, err.code, "%s", err.message);
    } else if (!peer) {
        round_over(queue, job);
    } else {
        forward->stage = CN_STAGE_VISIT;
        cn_swap_visit(queue, job, peer, cn_swap_first_op(queue, job));
    }
}
