/* scheduler/swap/version_swap.c - the detour of a step whose sequence may live in another version of its model.
 *
 * On the queue's loop. What is done to the other version goes by visitors, jobs
 * in its group: so nothing of the sequence runs there between two of them that
 * isn't noticed, and a death of a worker in the middle is that queue's business.
 * A sequence that moves is kept here first, as pending, then closed there, and
 * only then the step runs: whenever all of it stops, one copy counts.
 */
#include "scheduler/swap/version_swap.h"

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "scheduler/queue/model_queue_priv.h"
#include "scheduler/swap/forward.h"
#include "scheduler/swap/swap_leftovers.h"

#define ROUNDS_MAX                                                                                 \
    8 /* a client that steps without pause in the old version should not hold up all */

/* --- who is there */

/* The version with the highest serial below `below`, or exactly `exactly` if that isn't 0; NULL: there
 * is none. Good until the end of the turn. An error: nobody can say. */
static int
find_peer(const struct cn_model_queue *queue, uint32_t below, uint32_t exactly,
          struct cn_model_queue **out, struct cn_error *err)
{
    struct cn_model_queue *other;
    unsigned i;
    int rc;

    *out = NULL;
    for (i = 0;; i++) {
        rc = queue->family.version_at(queue->family.ctx, cn_str_from(queue->name), i, &other, err);
        if (rc || !other)
            return rc;
        if (other == queue || !other->stateful || other->serial >= below ||
            (exactly && other->serial != exactly) || (*out && other->serial < (*out)->serial))
            continue;
        *out = other;
    }
}

bool
cn_swap_may_leave(const struct cn_model_queue *queue, const struct cn_job *job)
{
    struct cn_model_queue *peer;

    if (!job->any_version || !queue->stateful || !queue->family.version_at ||
        (job->row.flags & CN_ROW_GENERATED_ID))
        return false;
    return find_peer(queue, UINT32_MAX, 0, &peer, NULL) || peer;
}

static void on_visitor_answer(struct cn_job *visitor, struct cn_answer_box *box);

static const struct cn_job_ops visitor_ops = {.on_answer = on_visitor_answer};

/* `op` 0: the step itself, if the sequence lives there. */
static void
visit(struct cn_model_queue *queue, struct cn_job *job, struct cn_model_queue *peer,
      enum cn_move_op op)
{
    struct cn_detour *detour = job->detour;
    struct cn_job *visitor = &detour->visitor;

    memset(visitor, 0, sizeof(*visitor));
    visitor->ops = &visitor_ops;
    visitor->origin = queue->loop;
    visitor->row = job->row; /* its bytes stay in place as long as the job, which waits for us */
    visitor->row.flags &= ~(uint32_t)CN_ROW_REDELIVERED;
    visitor->deadline_ms = job->deadline_ms;
    /* A client that left may have asked behind the job, and been answered there (departed.c). */
    if (detour->stage == CN_STAGE_VISIT) {
        visitor->connection = job->connection;
        visitor->left = job->left;
    }
    if (op) {
        detour->move.op = (uint8_t)op;
        visitor->row.flags |= CN_ROW_MOVE;
        visitor->row.move = &detour->move;
    } else {
        visitor->row.flags |= CN_ROW_ASK;
    }
    if (detour->take_pending)
        visitor->row.flags |= CN_ROW_TAKE_PENDING;
    detour->peer = peer->serial;
    detour->queue = peer;
    cn_list_push_back(&queue->away, &detour->link);
    cn_model_queue_submit(peer, visitor);
    if (job->cancelled)
        cn_model_queue_cancel(peer, visitor);
}

bool
cn_swap_is_visitor(const struct cn_job *job)
{
    return job->ops == &visitor_ops;
}

/* What is asked of a version that may hold the sequence. */
static enum cn_move_op
first_op(const struct cn_model_queue *queue, struct cn_job *job)
{
    job->detour->move = (struct cn_move){0};
    if (job->row.flags & CN_ROW_START) {
        job->detour->move.reason = CN_CLOSE_ENDED;
        return CN_MOVE_BURY;
    }
    switch (queue->swap_policy) {
    case CN_SWAP_PIN:
        return 0;
    case CN_SWAP_MIGRATE: /* without a worker here, it is better off there */
        return cn_queue_has_hope(queue) ? CN_MOVE_EXPORT : 0;
    case CN_SWAP_RESET:
    case CN_SWAP_REJECT:
        return CN_MOVE_LOOK;
    }
    cn_unreachable();
}

/* No other version has it. */
static void
go_home(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_error err;

    if (!job->sequence->counted && cn_queue_check_slot(queue, &err) < 0) {
        cn_detour_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    cn_sequence_take_slot(job->sequence);
    if (job->detour->stale)
        job->row.flags |= CN_ROW_START;
    cn_detour_come_back(queue, job, CN_STAGE_HOME);
}

/* All were asked, and it lives nowhere. The version whose import that nobody met is the sequence, for a
 * last visit; NULL: there is none, or it is here. */
static int
find_pending(struct cn_model_queue *queue, struct cn_detour *detour, struct cn_model_queue **out,
             struct cn_error *err)
{
    const struct cn_swap_traces traces = detour->traces;
    bool counts = cn_swap_traces_pending_counts(&traces);
    int rc;

    *out = NULL;
    detour->traces = (struct cn_swap_traces){0};
    if (counts && traces.pending_at == queue->serial)
        return 0;
    rc = counts ? find_peer(queue, UINT32_MAX, traces.pending_at, out, err) : 0;
    detour->take_pending = rc == 0 && *out;
    detour->pass_pending = detour->had_pending && !*out;
    return rc;
}

/* To the next version that was not asked. The job is out. */
static void
go_on(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_detour *detour = job->detour;
    struct cn_model_queue *peer;
    struct cn_error err;
    int rc;

    detour->take_pending = false;
    rc = find_peer(queue, detour->below, 0, &peer, &err);
    if (rc == 0 && !peer) {
        detour->below = 0;
        rc = find_pending(queue, detour, &peer, &err);
    }
    if (rc) {
        cn_detour_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer && queue->closed) { /* it would be opened here only to end with this version */
        if (queue->close_code == CN_E_DRAINING)
            cn_detour_give_up(queue, job, CN_E_DRAINING, "%s", queue->close_reason);
        else
            cn_detour_give_up(queue, job, CN_E_UNAVAILABLE,
                              "version %s of model %s, which was the default when the step "
                              "arrived, is being unregistered; send the step again",
                              queue->version, queue->name);
        return;
    }
    if (!peer) {
        go_home(queue, job);
        return;
    }
    if (!detour->take_pending)
        detour->below = peer->serial;
    detour->stage = CN_STAGE_VISIT;
    visit(queue, job, peer, first_op(queue, job));
}

bool
cn_swap_divert(struct cn_model_queue *queue, struct cn_job_group *group)
{
    struct cn_job *job = cn_job_group_next(group);
    struct cn_model_queue *peer;
    struct cn_sequence *sequence;
    struct cn_detour *detour;
    bool blind;

    if (!job || !job->any_version || job->detour || !job->sequence || job->sequence->known ||
        (job->row.flags & (CN_ROW_GENERATED_ID | CN_ROW_REDELIVERED)) || !queue->family.version_at)
        return false;
    sequence = job->sequence;
    blind = find_peer(queue, UINT32_MAX, 0, &peer, NULL) != 0;
    if (!blind && !peer)
        return false;
    /* Not in the job: a hundred times as many never need one, and few do twice. */
    detour = job->detour = cn_alloc(sizeof(*detour));
    detour->job = job;
    detour->below = UINT32_MAX;
    cn_list_init(&detour->link);
    if (!blind && cn_sequence_away(sequence) && !(job->row.flags & CN_ROW_START) &&
        !find_peer(queue, UINT32_MAX, cn_sequence_away(sequence), &peer, NULL) && peer) {
        detour->by_hint = true;
        detour->stage = CN_STAGE_VISIT;
        cn_detour_set_out(queue, job);
        visit(queue, job, peer, first_op(queue, job));
        return true;
    }
    if (blind ||
        (queue->may_remember && cn_queue_has_hope(queue) && !(job->row.flags & CN_ROW_START))) {
        detour->stage = CN_STAGE_ASK_HERE;
        return false;
    }
    cn_detour_set_out(queue, job);
    go_on(queue, job);
    return true;
}

/* --- what the other version said */

static void
done_there(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    const struct cn_answer *answer = &box->answer;
    bool gone = (answer->flags & (CN_ANSWER_ENDED | CN_ANSWER_CLOSED_BEFORE)) ||
                answer->error_code == CN_E_SEQUENCE_UNKNOWN ||
                answer->error_code == CN_E_SEQUENCE_EXPIRED ||
                answer->error_code == CN_E_SEQUENCE_ENDED;

    if (!job->loose)
        cn_sequence_set_away(job->sequence, gone ? 0 : job->detour->peer);
    cn_detour_finish(queue, job, box);
}

/* The step is committed there and streams on: the next one may go. */
static void
let_loose(struct cn_job *job)
{
    struct cn_sequence *sequence = job->sequence;

    if (job->loose || sequence->streams == UINT16_MAX)
        return;
    job->loose = true;
    sequence->streams++;
    cn_sequence_set_away(sequence, job->detour->peer);
    cn_job_group_settle(&sequence->group);
    cn_sequence_update(sequence);
}

static void
on_visitor_piece(struct cn_job *job, struct cn_answer_box *box)
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
        let_loose(job);
}

static void
not_there(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_detour *detour = job->detour;

    cn_sequence_set_away(job->sequence, 0);
    if (!detour->by_hint) {
        go_on(queue, job);
        return;
    }
    detour->by_hint = false;
    if (queue->may_remember && cn_queue_has_hope(queue))
        cn_detour_come_back(queue, job, CN_STAGE_ASK_HERE);
    else
        go_on(queue, job);
}

/* It lives there: what the policy is. */
static void
found(struct cn_model_queue *queue, struct cn_job *job, struct cn_answer_box *box)
{
    struct cn_detour *detour = job->detour;
    struct cn_model_queue *peer;
    const char *version;
    struct cn_error err;

    if (find_peer(queue, UINT32_MAX, detour->peer, &peer, &err)) {
        cn_answer_box_free(box);
        cn_detour_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer) { /* the version has gone meanwhile, and its sequences with it */
        cn_answer_box_free(box);
        not_there(queue, job);
        return;
    }
    version = cn_model_queue_version(peer);
    detour->closes = atomic_load_explicit(&peer->retired, memory_order_relaxed) &&
                     (detour->move.op == 0 || detour->stage == CN_STAGE_STAY ||
                      queue->swap_policy == CN_SWAP_REJECT);
    if (!detour->closes && detour->move.op == CN_MOVE_LOOK &&
        queue->swap_policy == CN_SWAP_REJECT) {
        cn_sequence_set_away(job->sequence, detour->peer);
        cn_detour_give_up(
            queue, job, CN_E_VERSION_SWAPPED,
            "sequence %.*s lives in version %s of model %s, and version %s, which is the default "
            "now, does not take it over (sequence.swapPolicy: reject); send its steps to version "
            "%s by name, or start it anew with ts-request-sequence-start: true",
            CN_STR_ARG(job->row.sequence_id), version, queue->name, queue->version, version);
        cn_answer_box_free(box);
        return;
    }
    cn_free(detour->version);
    detour->version = cn_strdup(version);
    detour->move.generation = box->answer.generation;
    detour->move.step = box->answer.step;
    detour->move.version = cn_str_from(detour->version);
    if (!detour->closes && detour->move.op == CN_MOVE_EXPORT) {
        cn_answer_box_free(detour->exported);
        detour->exported = box;
        detour->stale = false;
        detour->move.op = CN_MOVE_IMPORT;
        detour->move.runtime = box->answer.content_type;
        detour->move.record = box->answer.body;
        cn_detour_come_back(queue, job, CN_STAGE_IMPORT);
        return;
    }
    cn_answer_box_free(box);
    detour->move.reason = detour->closes ? CN_CLOSE_EVICTED : CN_CLOSE_RESET;
    detour->move.runtime = detour->move.record = (struct cn_str){NULL, 0};
    detour->stage = CN_STAGE_BURY;
    visit(queue, job, peer, CN_MOVE_BURY);
}

/* The sequence is closed there, or has gone on since it was looked at: then all begins again. */
static void
buried(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_detour *detour = job->detour;

    if (answer->flags & CN_ANSWER_ELSEWHERE) {
        if (++detour->rounds > ROUNDS_MAX) {
            cn_detour_give_up(queue, job, CN_E_CONFLICT,
                              "sequence %.*s cannot move to version %s while other clients still "
                              "use it in its own version; send the step again",
                              CN_STR_ARG(job->row.sequence_id), queue->version);
            return;
        }
        detour->stale = detour->exported != NULL;
        detour->below = detour->peer + 1;
        go_on(queue, job);
        return;
    }
    if (detour->closes) {
        cn_metrics_count_reason(&queue->metrics, CN_M_SEQUENCES_CLOSED, CN_CLOSE_EVICTED);
        cn_detour_give_up(
            queue, job, CN_E_SEQUENCE_ENDED,
            "sequence %.*s is closed (evicted): it lived in version %s of model %s, whose swap "
            "deadline has passed; start a new one with ts-request-sequence-start: true",
            CN_STR_ARG(job->row.sequence_id), detour->version, queue->name);
        return;
    }
    detour->move = (struct cn_move){
        .op = CN_MOVE_TOLD,
        .reason = detour->exported ? CN_CLOSE_MOVED : CN_CLOSE_RESET,
        .version = cn_str_from(detour->version),
    };
    cn_metrics_count_reason(&queue->metrics, CN_M_SEQUENCES_CLOSED, detour->move.reason);
    cn_log(CN_LOG_DEBUG, "event=sequence_swapped model=%s from=%s to=%s how=%s", queue->name,
           detour->version, queue->version,
           cn_close_reason_word((enum cn_close_reason)detour->move.reason));
    go_home(queue, job);
}

static void
on_visitor_answer(struct cn_job *visitor, struct cn_answer_box *box)
{
    struct cn_detour *detour = cn_container_of(visitor, struct cn_detour, visitor);
    struct cn_job *job = detour->job;
    struct cn_model_queue *queue = job->queue;
    const struct cn_answer *answer = &box->answer;

    if (!(answer->flags & CN_ANSWER_FINAL)) {
        on_visitor_piece(job, box);
        return;
    }
    cn_list_remove(&detour->link);
    if (detour->stage == CN_STAGE_BURY || (visitor->row.flags & CN_ROW_START)) {
        if (answer->error_code && !(answer->flags & CN_ANSWER_ELSEWHERE)) {
            cn_detour_finish(queue, job, box);
            return;
        }
        if (detour->stage == CN_STAGE_BURY)
            buried(queue, job, answer);
        else
            go_on(queue, job);
        cn_answer_box_free(box);
    } else if (answer->flags & CN_ANSWER_ELSEWHERE) {
        cn_swap_traces_note(&detour->traces, detour->peer, answer);
        cn_answer_box_free(box);
        not_there(queue, job);
    } else if (answer->flags & CN_ANSWER_HERE) {
        found(queue, job, box);
    } else {
        done_there(queue, job, box);
    }
}

/* --- what our own worker said */

/* It can't be taken over: it stays where it is, and works there. */
static void
stay_there(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_detour *detour = job->detour;
    struct cn_model_queue *peer;
    struct cn_error err;
    char id[4 * CN_SEQUENCE_ID_MAX + 3], why[CN_ERROR_MESSAGE_MAX];

    cn_log(CN_LOG_WARN,
           "event=sequence_not_migrated model=%s from=%s to=%s sequence=%s reason=%s "
           "note=\"it stays in its version\"",
           queue->name, detour->version, queue->version,
           cn_log_quote(job->row.sequence_id.ptr, job->row.sequence_id.len, id, sizeof(id)),
           cn_log_quote(answer->body.ptr, answer->body.len, why, sizeof(why)));
    if (find_peer(queue, UINT32_MAX, detour->peer, &peer, &err)) {
        cn_detour_give_up(queue, job, err.code, "%s", err.message);
    } else if (!peer) {
        cn_detour_give_up(
            queue, job, CN_E_UNAVAILABLE,
            "version %s of model %s is gone, and its sequence %.*s could not be migrated",
            detour->version, queue->name, CN_STR_ARG(job->row.sequence_id));
    } else {
        detour->stage = CN_STAGE_STAY;
        visit(queue, job, peer, 0);
    }
}

/* Kept here; now it must go there. A version that is gone took its copy with it. */
static void
imported(struct cn_model_queue *queue, struct cn_job *job)
{
    struct cn_detour *detour = job->detour;
    struct cn_model_queue *peer;
    struct cn_error err;

    if (find_peer(queue, UINT32_MAX, detour->peer, &peer, &err)) {
        cn_detour_give_up(queue, job, err.code, "%s", err.message);
        return;
    }
    if (!peer) {
        buried(queue, job, &(struct cn_answer){0});
        return;
    }
    detour->move.reason = CN_CLOSE_MOVED;
    detour->move.runtime = detour->move.record = (struct cn_str){NULL, 0};
    detour->stage = CN_STAGE_BURY;
    visit(queue, job, peer, CN_MOVE_BURY);
}

bool
cn_swap_on_answer(struct cn_model_queue *queue, struct cn_job *job, const struct cn_answer *answer)
{
    struct cn_detour *detour = job->detour;

    if (detour->stage == CN_STAGE_HOME ||
        (detour->stage == CN_STAGE_ASK_HERE && !(answer->flags & CN_ANSWER_ELSEWHERE)))
        return false;
    /* The worker lives; the job is out, and others may fill its place. */
    job->worker = NULL;
    job->unsent = job->deaths = job->alone_deaths = 0;
    job->row.flags &= ~(uint32_t)CN_ROW_REDELIVERED;
    queue->stats.in_flight_jobs++;
    queue->stats.diverted_jobs++;
    cn_queue_wake(queue);
    cn_sequence_give_slot(job->sequence);
    if (detour->stage == CN_STAGE_ASK_HERE) {
        cn_swap_traces_note(&detour->traces, queue->serial, answer);
        detour->had_pending = answer->flags & CN_ANSWER_PENDING;
        go_on(queue, job);
    } else if ((answer->flags & CN_ANSWER_HERE) && !answer->error_code) {
        imported(queue, job);
    } else {
        stay_there(queue, job, answer);
    }
    return true;
}

/* --- the visited side */

/* Is the sequence of these jobs about to come here? Then it is here for nobody yet. */
static bool
on_its_way(const struct cn_detour *detour)
{
    return detour && (detour->stage == CN_STAGE_IMPORT || detour->stage == CN_STAGE_BURY);
}

/* Does a job of ours look for it in other versions? Then it is not known to be here, and a visitor that
 * waited for that job while the job waits for the visitor's would wait for ever. A job that still asks our
 * own worker waits for nobody: the sequence may well be here, so a visitor waits for the answer. */
static bool
is_looked_for(const struct cn_detour *detour)
{
    return detour && detour->stage != CN_STAGE_HOME && detour->stage != CN_STAGE_ASK_HERE;
}

bool
cn_swap_send_back(struct cn_model_queue *queue, struct cn_job *visitor)
{
    static const struct cn_move look = {.op = CN_MOVE_LOOK};
    struct cn_sequence *sequence = cn_table_find(queue->sequences, visitor->row.sequence_id);
    const struct cn_job *first = NULL;
    struct cn_answer_box *box;

    if (queue->closed && queue->close_code == CN_E_DRAINING)
        return false;
    if (atomic_load_explicit(&queue->retired, memory_order_relaxed) &&
        (visitor->row.flags & CN_ROW_ASK)) { /* no step is done here */
        visitor->row.flags &= ~(uint32_t)CN_ROW_ASK;
        visitor->row.flags |= CN_ROW_MOVE;
        visitor->row.move = &look;
    }
    if (sequence && sequence->group.in_flight)
        first = sequence->group.in_flight;
    else if (sequence)
        first = cn_job_group_next(&sequence->group);
    if (first && on_its_way(first->detour)) {
        cn_queue_fail(queue, visitor, CN_E_CONFLICT,
                      "sequence %.*s is being moved to version %s; send the step again",
                      CN_STR_ARG(visitor->row.sequence_id), queue->version);
        return true;
    }
    if (!queue->closed && !(first && is_looked_for(first->detour))) {
        if (sequence && (sequence->known || sequence->closing || first))
            return false;
        if (!(sequence && cn_sequence_away(sequence)) && queue->may_remember &&
            cn_queue_has_hope(queue))
            return false;
    }
    box = cn_answer_box_error(visitor, CN_E_SEQUENCE_UNKNOWN,
                              "the sequence does not live in this version", 0);
    box->answer.flags |= CN_ANSWER_ELSEWHERE;
    cn_queue_finish(queue, visitor, box);
    return true;
}
