/* worker/resolve/resolve_committed.c - was this step committed already? By its job, its key or its
 * number. Owned by the worker's one thread.
 *
 * A step may come twice for two reasons. The server repeats a job whose worker died: it has the
 * same job id, and comes before any other step of the sequence. A client repeats a request whose
 * answer it did not get: it has the same idempotency key or step number, and may come late, behind
 * other steps, or after the sequence was closed.
 *
 * A record keeps the answer of the last step, and the hashes of the last few keys. So a repetition
 * of the last step is answered from the store; an older one is recognised by its key and refused,
 * because its answer is gone; and a key that comes with another request is refused, too, since
 * replaying would answer a question that was not asked. For a client that sends several steps
 * without waiting, the record has the answers of those steps, too (kept_answers.h): they are found
 * by their numbers. Nothing is run or written here.
 *
 * In a shared store another node may have written a record over that of a repeated job. Without a
 * key or a number nobody can tell then whether the job was done, so it is refused.
 */
#include <inttypes.h>
#include <string.h>

#include "worker/batch/kept_answers.h"
#include "worker/resolve/resolve_priv.h"

#define JOBS_OF_A_NODE (1ull << 40) /* more than a node ever numbers */

static bool
has_key(const struct cn_batch_entry *entry)
{
    return entry->row->idempotency_key.len != 0;
}

static bool
is_numbered(const struct cn_batch_entry *entry)
{
    return (entry->row->flags & CN_ROW_NUMBERED) != 0;
}

bool
cn_resolve_follows(const struct cn_batch_entry *entry, const struct cn_sequence_state *cached)
{
    if ((entry->row->flags & CN_ROW_RECALL) ||
        (has_key(entry) && cn_keys_find(cn_sequence_keys(cached), entry->key_hash) >= 0))
        return false;
    if (entry->row->keep > 1 && cached->step && !cached->kept)
        return false; /* the record has the answers that its next record must keep */
    return !is_numbered(entry) || entry->row->step == cached->step + 1;
}

/* --- by key */

static void
fail_key_reused(struct cn_batch_entry *entry, const struct cn_record *record)
{
    char shown[128], key[128];

    cn_batch_entry_fail(
        entry, CN_E_KEY_REUSED,
        "Idempotency-Key %s was used for another request, step %" PRIu64
        " of sequence %s; send that request again unchanged, or this one with a new key",
        cn_id_shown(entry->row->idempotency_key, key), record->step,
        cn_id_shown(entry->row->sequence_id, shown));
}

static void
fail_key_superseded(struct cn_batch_entry *entry, const struct cn_record *record)
{
    char shown[128], key[128];

    cn_batch_entry_fail(
        entry, CN_E_KEY_SUPERSEDED,
        "the step with Idempotency-Key %s was already done; sequence %s has since moved "
        "on to step %" PRIu64 ", and only the last step's answer is kept",
        cn_id_shown(entry->row->idempotency_key, key), cn_id_shown(entry->row->sequence_id, shown),
        record->step);
}

static bool
meet_key(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const int place = has_key(entry) ? cn_keys_find(record->keys, entry->key_hash) : -1;

    if (place < 0)
        return false;
    /* If a swap has moved the sequence away, what it left here still has the key but not the
     * answer. A row that only asks is therefore not answered here: the version in which the
     * sequence lives decides. A row that comes back because no version has the sequence does not
     * only ask. */
    if (cn_resolve_only_asks(entry->row) && !cn_resolve_counts(entry, record))
        return false;
    if (place > 0 || !cn_record_has_key(record))
        fail_key_superseded(entry, record);
    else if (record->request_hash == entry->request_hash)
        cn_batch_entry_replay(at->worker, entry, record);
    else
        fail_key_reused(entry, record);
    return true;
}

/* --- by number */

/* Fails the row because of its number. `expected` is the number that would be right. */
static void
fail_number(struct cn_batch_entry *entry, uint64_t expected, const char *why)
{
    const bool done = entry->row->step < expected;
    char shown[128];

    entry->expected_step = expected;
    cn_batch_entry_fail(entry, done ? CN_E_STEP_DONE : CN_E_STEP_MISMATCH,
                        "step %" PRIu64 " of sequence %s %s; the next step has number %" PRIu64,
                        entry->row->step, cn_id_shown(entry->row->sequence_id, shown), why,
                        expected);
}

/* `number`: that of the row, or the one that it would get. */
static void
fail_number_ended(struct cn_batch_entry *entry, uint64_t number, uint64_t last)
{
    char shown[128];

    entry->expected_step = 1;
    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE;
    cn_batch_entry_fail(entry, number <= last ? CN_E_STEP_DONE : CN_E_STEP_MISMATCH,
                        "step %" PRIu64
                        " of sequence %s: the sequence has ended after step %" PRIu64
                        "; start a new one with the start flag and number 1, or choose another id",
                        number, cn_id_shown(entry->row->sequence_id, shown), last);
}

/* Replays a step before the last one, if its answer is kept and it was the same request, or, for a
 * recall, whatever it was. */
static bool
replay_kept(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    struct cn_record kept;

    if (entry->row->step >= record->step || !cn_kept_find(record, entry->row->step, &kept))
        return false;
    if (!(entry->row->flags & CN_ROW_RECALL) &&
        (!(kept.flags & CN_RECORD_ASKED) || kept.request_hash != entry->request_hash))
        return false;
    entry->expected_step = record->step + 1; /* should that answer have been too large */
    cn_batch_entry_replay(at->worker, entry, &kept);
    return true;
}

/* The row would open its sequence, so its number, if it has one, must be 1. */
bool
cn_resolve_is_first(struct cn_batch_entry *entry)
{
    if (!is_numbered(entry) || entry->row->step == 1)
        return true;
    fail_number(entry, 1, "cannot follow any step: there is no state under this id");
    return false;
}

static bool
is_same_request(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    return record->step == entry->row->step && (record->flags & CN_RECORD_ASKED) &&
           record->request_hash == entry->request_hash;
}

static bool
meet_number_live(struct cn_batch_entry *entry, const struct cn_record *record)
{
    const uint64_t number = entry->row->step, next = record->step + 1;

    if (number == next)
        return false;
    if (number == record->step)
        fail_number(entry, next, "was already done by another request or by one without a number");
    else
        fail_number(entry, next,
                    number < next ? "was already done, and only the last step's answer is kept"
                                  : "is not the next step");
    return true;
}

static bool
meet_number(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const bool closed = record->flags & CN_RECORD_TOMBSTONE;

    if (!is_numbered(entry) || !cn_resolve_counts(entry, record))
        return false;
    if (is_same_request(entry, record)) {
        cn_batch_entry_replay(at->worker, entry, record);
        return true;
    }
    if (entry->row->flags & CN_ROW_START)
        return false;
    if (replay_kept(at, entry, record))
        return true;
    if (!closed)
        return meet_number_live(entry, record);
    if (entry->row->generation || cn_resolve_refuses(entry->row, record->close_reason) ||
        cn_states_forgotten(&at->worker->states, record, at->now_wall_ms))
        return false; /* refused for another reason, or as if nothing were there */
    fail_number_ended(entry, entry->row->step, record->step);
    return true;
}

/* --- recalls */

static bool
is_recall(const struct cn_batch_entry *entry)
{
    return (entry->row->flags & CN_ROW_RECALL) != 0;
}

/* The sequence is closed, and its last answer is not the one that is asked for. */
static void
fail_recall_closed(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    if (cn_resolve_refuses(entry->row, record->close_reason))
        cn_resolve_fail_gone(at, entry, record);
    else
        fail_number_ended(entry, entry->row->step == CN_RECALL_LAST ? 1 : entry->row->step,
                          record->step);
    entry->expected_step = record->step + 1;
}

/* A row that only asks for a stored answer meets a record. Returns false if the record does not
 * count, or has expired and must be closed first. */
static bool
meet_recall(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const bool closed = record->flags & CN_RECORD_TOMBSTONE;
    const struct cn_states *states = &at->worker->states;

    if (!cn_resolve_counts(entry, record) ||
        (closed && cn_states_forgotten(states, record, at->now_wall_ms)))
        return false;
    entry->generation = record->generation;
    entry->opened_wall_ms = record->opened_wall_ms;
    if (record->step == entry->row->step) {
        cn_batch_entry_replay(at->worker, entry, record);
    } else if (replay_kept(at, entry, record)) {
        return true;
    } else if (closed) {
        fail_recall_closed(at, entry, record);
    } else if (!entry->row->generation &&
               cn_states_expired(states, record->opened_wall_ms, record->last_wall_ms,
                                 at->now_wall_ms)) {
        return false;
    } else if (entry->row->step == CN_RECALL_LAST) {
        cn_batch_entry_tell_last(at->worker, entry, record->step);
    } else {
        fail_number(entry, record->step + 1,
                    entry->row->step > record->step
                        ? "is not committed"
                        : "was done, and only the last step's answer is kept");
    }
    return true;
}

void
cn_resolve_recall_nothing(struct lookup *at, struct cn_batch_entry *entry)
{
    entry->generation = entry->opened_wall_ms = 0;
    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE;
    if (entry->row->step == CN_RECALL_LAST)
        cn_batch_entry_tell_last(at->worker, entry, 0);
    else
        fail_number(entry, 1, "is not committed: there is no state under this id");
}

/* --- by nothing */

/* Was the record written by a job of this node, before that of the row? Nodes that share a store
 * number their jobs from random numbers on. */
static bool
is_of_this_node(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    return entry->row->job_id - record->last_job < JOBS_OF_A_NODE;
}

/* May the row's step have been done before the one of `record`, which another node has written? So
 * it is when the row's worker died, or when the store did not reply to its write. Only a key or a
 * number would tell, so a row without them fails, and is not done twice. */
static bool
is_undecided(const struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const struct cn_row *row = entry->row;
    char shown[128];

    if (!cn_store_is_shared(at->worker->states.store) ||
        !(entry->unsure || (row->flags & CN_ROW_REDELIVERED)) || has_key(entry) ||
        is_numbered(entry) || cn_resolve_looks(row) || !cn_resolve_counts(entry, record) ||
        record->last_job == 0 || is_of_this_node(entry, record))
        return false;
    cn_batch_entry_fail(
        entry, CN_E_STORE_UNREACHABLE,
        "the step of sequence %s is not confirmed: %s, and another node or server was the last to "
        "change the sequence, so it may have been done; a step with an Idempotency-Key or a step "
        "number can be "
        "sent again",
        cn_id_shown(row->sequence_id, shown),
        entry->unsure ? "the state store's reply did not come" : "its worker ended");
    return true;
}

bool
cn_resolve_committed(struct lookup *at, struct cn_batch_entry *entry,
                     const struct cn_record *record)
{
    if (is_recall(entry))
        return meet_recall(at, entry, record);
    if (record->last_job == entry->row->job_id) {
        cn_batch_entry_replay(at->worker, entry, record);
        return true;
    }
    if (cn_resolve_is_astray(entry, record)) /* where the sequence lives has the word */
        return false;
    return meet_key(at, entry, record) || meet_number(at, entry, record) ||
           is_undecided(at, entry, record);
}
