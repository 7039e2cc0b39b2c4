/* worker/resolve/resolve_lost.c - a shared store that has lost steps which this worker knows.
 * Owned by the worker's one thread.
 *
 * A shared store can go back: a replica that lacks the last writes becomes the primary. The records
 * of a sequence only move on, to a later step or a later generation. So a worker that has seen a
 * newer record than the store's can tell that steps were lost. It refuses the row, which would
 * silently continue an older state, and the error says what was lost and what the store has. Then
 * the worker forgets the newer record, so the client's next step goes on from what the store has.
 *
 * The newer record is in the worker's cache, or is the one against which a commit was decided. */
#include <inttypes.h>

#include "worker/resolve/resolve_priv.h"

/* Steps after `has` are gone, up to `known` at least. */
static void
fail_steps(struct cn_batch_entry *entry, uint64_t known, uint64_t has)
{
    char shown[128];

    entry->expected_step = has + 1;
    cn_batch_entry_fail(
        entry, CN_E_STEPS_LOST,
        "the state store has lost steps of sequence %s, up to step %" PRIu64
        ": it has step %" PRIu64 ", perhaps because a replica without them has become its "
        "primary; this request is not done. The next one goes on behind step %" PRIu64
        ": send the lost steps again, or start the sequence anew",
        cn_id_shown(entry->row->sequence_id, shown), known, has, has);
}

/* The store has another step under the number of the one that the worker knows. */
static void
fail_replaced(struct cn_batch_entry *entry, uint64_t step)
{
    char shown[128];

    entry->expected_step = step + 1;
    cn_batch_entry_fail(
        entry, CN_E_STEPS_LOST,
        "the state store has lost step %" PRIu64 " of sequence %s and has another step %" PRIu64
        " in its place, perhaps because a replica without it has become its "
        "primary; this request is not done. The next one goes on behind the step that the "
        "store has: compare the state, or start the sequence anew",
        step, cn_id_shown(entry->row->sequence_id, shown), step);
}

static void
fail_sequence(struct cn_batch_entry *entry, uint64_t known)
{
    char shown[128];

    entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE;
    cn_batch_entry_fail(
        entry, CN_E_SEQUENCE_LOST,
        "the state store has lost sequence %s, which was at step %" PRIu64
        ", perhaps because a replica without it has become its primary; this request is "
        "not done. Start the sequence anew: the next request under this id meets what the "
        "store has",
        cn_id_shown(entry->row->sequence_id, shown), known);
}

bool
cn_resolve_lost(const struct lookup *at, struct cn_batch_entry *entry,
                const struct cn_record *record, const struct cn_sequence_state *cached)
{
    const struct cn_states *states = &at->worker->states;
    uint64_t generation = entry->known.generation, step = entry->known.step,
             last_job = entry->known.last_job, last_wall_ms = entry->known.last_wall_ms;

    entry->known.generation = 0;
    if (cached) {
        generation = cached->generation;
        step = cached->step;
        last_job = cached->last_job;
        last_wall_ms = cached->last_wall_ms;
    }
    if (!generation || !cn_store_is_shared(states->store) || (entry->row->flags & CN_ROW_START) ||
        cn_resolve_move_of(entry->row) != 0 || entry->had_leftover || entry->had_tombstone)
        return false;
    if (!entry->had_record) {
        /* A tombstone may have been there, which was removed when its time was over. */
        if (at->now_wall_ms >= last_wall_ms + states->load->tombstone_ms)
            return false;
        fail_sequence(entry, step);
    } else if (record->generation < generation) {
        fail_sequence(entry, step);
    } else if (record->generation == generation && record->step < step) {
        fail_steps(entry, step, record->step);
    } else if (record->generation == generation && record->step == step &&
               record->last_job != last_job) {
        fail_replaced(entry, step);
    } else {
        return false;
    }
    return true;
}
