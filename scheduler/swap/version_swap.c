/* scheduler/swap/version_swap.c - forwards a step whose sequence may live in another version of its
 * model. On the queue's loop.
 *
 * What is done to another version is done by forwarded steps: jobs in that queue's group of the
 * sequence. So between two of them nothing of the sequence runs there unnoticed, and if a worker
 * dies in the middle, that queue deals with it.
 *
 * The way of a step (enum cn_forward_stage in forward.h):
 * - ASK_HERE: our own worker looks first, if our store may know sequences that our table does not.
 *   In a shared store it is asked in any case, and leaves a claim.
 * - VISIT: the other versions are asked, from the youngest to the oldest. With `pin` the question
 *   is the step itself, which runs there if the sequence lives there. Otherwise it is a look, an
 *   export, or (for a START) the order to close the sequence there.
 * - IMPORT: with `migrate`, our own worker writes the exported record as pending.
 * - BURY: the other version closes its copy.
 * - HOME: the step runs here, like any other.
 *
 * A sequence that moves is kept here first, as pending, then closed there, and only then its step
 * runs. Whenever all of it stops, exactly one copy counts (swap_leftovers.h). If the sequence has
 * gone on in its version between the export and the close, the close is refused and the versions
 * are asked again, at most ROUNDS_MAX times. In a shared store other nodes move sequences, too, and
 * forward.c says how a step is kept from beginning anew what another node has just moved.
 *
 * What may surprise: while a step is away, the sequence has no place here (`counted`), but its
 * group has a job in flight, so the steps behind it wait. And two versions may look for the same
 * sequence in each other; forwarded_step.c answers at once where waiting would never end.
 */
#include "scheduler/swap/version_swap.h"

#include "core/log/log.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/swap/forward.h"
#include "scheduler/swap/peers.h"
#include "scheduler/swap/swap_leftovers.h"

static void on_forwarded_answer(struct cn_job *forwarded, struct cn_answer_box *box);

const struct cn_job_ops cn_swap_forwarded_ops = {.on_answer = on_forwarded_answer};

bool
cn_swap_is_forwarded(const struct cn_job *job)
{
    return job->ops == &cn_swap_forwarded_ops;
}

static struct cn_forward *
make_forward(struct cn_job *job)
{
    /* Not a member of the job: a hundred times as many jobs never need it. */
    struct cn_forward *forward = job->forward = cn_alloc(sizeof(*forward));

    forward->job = job;
    forward->below = UINT32_MAX;
    cn_list_init(&forward->link);
    return forward;
}

/* Must our own worker be asked first? A START need not know what is here, but in a shared store it
 * needs the claim that this leaves. */
static bool
asks_here(const struct cn_model_queue *queue, const struct cn_job *job)
{
    return queue->may_remember && cn_queue_has_hope(queue) &&
           (queue->shares_store || !(job->row.flags & CN_ROW_START));
}

bool
cn_swap_divert(struct cn_model_queue *queue, struct cn_job_group *group)
{
    struct cn_job *job = cn_job_group_next(group);
    struct cn_model_queue *peer;
    struct cn_sequence *sequence;
    struct cn_forward *forward;
    bool blind;

    if (!job || !job->any_version || job->forward || !job->sequence ||
        (job->row.flags & (CN_ROW_GENERATED_ID | CN_ROW_REDELIVERED)) || !queue->family.version_at)
        return false;
    sequence = job->sequence;
    if (sequence->known && !(queue->shares_store && (job->row.flags & CN_ROW_START)))
        return false;
    blind = cn_swap_find_peer(queue, UINT32_MAX, 0, &peer, NULL) != 0;
    if (!blind && !peer)
        return false;
    forward = make_forward(job);
    if (!blind && cn_sequence_away(sequence) && !(job->row.flags & CN_ROW_START) &&
        !cn_swap_find_peer(queue, UINT32_MAX, cn_sequence_away(sequence), &peer, NULL) && peer) {
        forward->by_hint = true;
        forward->stage = CN_STAGE_VISIT;
        cn_forward_begin(queue, job);
        cn_swap_visit(queue, job, peer, cn_swap_first_op(queue, job));
        return true;
    }
    if (blind || asks_here(queue, job)) {
        forward->stage = CN_STAGE_ASK_HERE;
        return false;
    }
    cn_forward_begin(queue, job);
    cn_swap_go_on(queue, job);
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
        box->credit_least = job->forward->forwarded.credit_least;
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
        cn_swap_go_on(queue, job);
        return;
    }
    forward->by_hint = false;
    if (queue->may_remember && cn_queue_has_hope(queue))
        cn_forward_return(queue, job, CN_STAGE_ASK_HERE);
    else
        cn_swap_go_on(queue, job);
}

/* The sequence lives there: does what the policy says. */
static void
found(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_forward *forward = job->forward;
    struct cn_model_queue *peer;
    const char *version;
    struct cn_error err;

    forward->by_hint = false;
    if (forward->settled) { /* another node was quicker, or a sequence with the same id stays */
        bool same = forward->exported &&
                    forward->exported->answer.opened_wall_ms == box->answer.opened_wall_ms;

        cn_answer_box_free(box);
        if (same)
            cn_swap_begin_again(queue, job);
        else
            cn_swap_go_on(queue, job);
        return;
    }
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
        forward->source = forward->peer;
        forward->source_generation = box->answer.generation;
        forward->source_step = box->answer.step;
        forward->move.op = CN_MOVE_IMPORT;
        forward->move.generation = forward->own;
        forward->move.runtime = box->answer.content_type;
        forward->move.record = box->answer.body;
        cn_forward_return(queue, job, CN_STAGE_IMPORT);
        return;
    }
    cn_answer_box_free(box);
    forward->move.reason = forward->closes ? CN_CLOSE_EVICTED : CN_CLOSE_RESET;
    forward->move.runtime = forward->move.record = (struct cn_str){NULL, 0};
    forward->stage = CN_STAGE_BURY;
    cn_swap_visit(queue, job, peer, CN_MOVE_BURY);
}

/* The sequence is closed there, or it has gone on since it was looked at: then the versions are
 * asked again, and what was imported must not be used. */
static void
buried(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;

    if (queue->shares_store &&
        ((answer->flags & CN_ANSWER_ELSEWHERE) || answer->error_code == CN_E_CONTENDED)) {
        cn_swap_begin_again(queue, job);
        return;
    }
    if (answer->flags & CN_ANSWER_ELSEWHERE) {
        forward->settled = false;
        forward->had_pending = forward->had_pending || forward->exported;
        cn_swap_new_round(queue, job);
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
    forward->told = forward->exported ? CN_CLOSE_MOVED : CN_CLOSE_RESET;
    cn_metrics_count_reason(&queue->metrics, CN_M_SEQUENCES_CLOSED, forward->told);
    cn_log(CN_LOG_DEBUG, "event=sequence_swapped model=%s from=%s to=%s how=%s", queue->name,
           forward->version, queue->version,
           cn_close_reason_word((enum cn_close_reason)forward->told));
    if (forward->settled || !queue->shares_store) {
        cn_swap_go_home(queue, job);
    } else { /* it was reset; the versions that were not asked yet may have claims */
        forward->settled = true;
        cn_swap_go_on(queue, job);
    }
}

/* What a version says to a BURY, also to the one by which a START looks for the sequence. */
static void
on_bury_answered(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    const bool repeats = answer->error_code == CN_E_CONTENDED;

    if (answer->error_code && !repeats && !(answer->flags & CN_ANSWER_ELSEWHERE)) {
        cn_forward_finish(queue, job, box);
        return;
    }
    if (job->forward->stage == CN_STAGE_BURY)
        buried(queue, job, answer);
    else if (repeats)
        cn_swap_new_round(queue, job);
    else
        cn_swap_go_on(queue, job);
    cn_answer_box_free(box);
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
        on_bury_answered(queue, job, box);
    } else if ((answer->flags & CN_ANSWER_ELSEWHERE) && answer->error_code == CN_E_CONTENDED) {
        cn_answer_box_free(box);
        cn_swap_new_round(queue, job);
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
        forward->source = 0;
        cn_swap_visit(queue, job, peer, 0);
    }
}

/* The record is kept here; now the copy there must be closed. In a shared store the import takes
 * the place of the claim, so the versions other than these two must be asked behind it. */
static void
imported(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;

    forward->settled = true;
    forward->had_pending = forward->pass_pending = false;
    forward->at_home = forward->leftovers = (struct cn_swap_leftovers){0};
    cn_owned_recount(queue);
    if (!queue->shares_store) {
        cn_swap_bury_source(queue, job);
        return;
    }
    forward->own = answer->generation;
    forward->below = UINT32_MAX;
    cn_swap_go_on(queue, job);
}

/* The sequence does not live here: the other versions are asked. */
static void
not_here(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;

    cn_sequence_left(job->sequence);
    if (forward->stage == CN_STAGE_HOME || answer->error_code == CN_E_CONTENDED) {
        cn_swap_begin_again(queue, job);
        return;
    }
    if (queue->shares_store)
        forward->own = answer->generation;
    cn_swap_leftovers_note(&forward->at_home, queue->serial, answer);
    forward->leftovers = forward->at_home;
    forward->had_pending = answer->flags & CN_ANSWER_PENDING;
    cn_swap_go_on(queue, job);
}

bool
cn_swap_on_answer(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_forward *forward = job->forward;
    const bool elsewhere = answer->flags & CN_ANSWER_ELSEWHERE;

    if (forward ? forward->stage != CN_STAGE_IMPORT && !elsewhere
                : !elsewhere || !job->any_version || job->phase == CN_JOB_PROBING)
        return false;
    if (!forward) { /* another node has moved a sequence that was here */
        forward = make_forward(job);
        forward->stage = CN_STAGE_ASK_HERE;
    }
    /* The worker lives, and the job is out of its lists, so other jobs may take its place. */
    cn_job_to(job, CN_JOB_AWAY);
    job->worker = NULL;
    job->unsent = job->deaths = job->alone_deaths = 0;
    job->row.flags &= ~(uint32_t)CN_ROW_REDELIVERED;
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_queue_wake(queue);
    cn_sequence_give_place(job->sequence);
    if (forward->stage != CN_STAGE_IMPORT) {
        not_here(queue, job, answer);
    } else if ((answer->flags & CN_ANSWER_HERE) && !answer->error_code) {
        imported(queue, job, answer);
    } else if (elsewhere || answer->error_code == CN_E_CONTENDED) {
        cn_swap_begin_again(queue, job);
    } else {
        stay_there(queue, job, answer);
    }
    return true;
}
