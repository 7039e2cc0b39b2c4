/* worker/batch/resolve_committed.c - was this step committed already? By its job, its key or its
 * number. Owned by the worker's one thread.
 *
 * A step may come twice for two reasons. The server repeats a job whose worker died: it has the
 * same job id, and comes before any other step of the sequence. A client repeats a request whose
 * answer it did not get: it has the same idempotency key or step number, and may come late, behind
 * other steps, or after the sequence was closed.
 *
 * A record keeps one answer, that of the last step, and the hashes of the last few keys. So a
 * repetition of the last step is answered from the store; an older one is recognised by its key and
 * refused, because its answer is gone; and a key that comes with another request is refused, too,
 * since replaying would answer a question that was not asked. Nothing is run or written here.
 */
#include <inttypes.h>
#include <string.h>

#include "worker/batch/resolve_priv.h"

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
    if (has_key(entry) && cn_keys_find(cn_sequence_keys(cached), entry->key_hash) >= 0)
        return false;
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
    /* What a swap has left behind knows the key, too, but no longer the answer: where the sequence
     * lives has the word. A row that comes home, since it lives nowhere, does not ask. */
    if ((entry->row->flags & CN_ROW_ASK) && !cn_resolve_counts(entry, record))
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

static void
fail_number_ended(struct cn_batch_entry *entry, uint64_t last)
{
    char shown[128];

    entry->expected_step = 1;
    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE;
    cn_batch_entry_fail(entry, entry->row->step <= last ? CN_E_STEP_DONE : CN_E_STEP_MISMATCH,
                        "step %" PRIu64
                        " of sequence %s: the sequence has ended after step %" PRIu64
                        "; start a new one with the start flag and number 1, or choose another id",
                        entry->row->step, cn_id_shown(entry->row->sequence_id, shown), last);
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
    if (!closed)
        return meet_number_live(entry, record);
    if (entry->row->generation || cn_resolve_refuses(entry->row, record->close_reason) ||
        cn_states_forgotten(&at->worker->states, record, at->now_wall_ms))
        return false; /* refused for another reason, or as if nothing were there */
    fail_number_ended(entry, record->step);
    return true;
}

bool
cn_resolve_committed(struct lookup *at, struct cn_batch_entry *entry,
                     const struct cn_record *record)
{
    if (record->last_job == entry->row->job_id) {
        cn_batch_entry_replay(at->worker, entry, record);
        return true;
    }
    return meet_key(at, entry, record) || meet_number(at, entry, record);
}
