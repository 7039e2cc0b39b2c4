/* worker/batch/commit_outcome.c - memory follows the store after a commit: the rows that were
 * written, not written, or lost against another node. Owned by the worker's one thread.
 *
 * The sequence objects of rows that were written get the new step numbers and go back into the
 * cache. A row that was not written fails. A row that lost against another node in a shared store
 * is not failed at once: the handler runs it again on the new state (run.c), up to LOSSES_MAX times
 * in a row. */
#include <stdio.h>

#include "worker/batch/commit_outcome.h"
#include "worker/batch/commit_record.h"

#define LOSSES_MAX 3

void
cn_commit_drop(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    cn_states_free(&worker->states, entry->seq);
    cn_states_free(&worker->states, entry->closed_seq);
    entry->seq = entry->closed_seq = NULL;
    entry->write = CN_WRITE_NOTHING;
    if (entry->answer_flags & CN_ANSWER_OPENED) { /* nothing was opened */
        entry->generation = entry->had_record && !entry->had_tombstone ? entry->had_generation : 0;
        entry->opened_wall_ms = 0;
    }
    entry->answer_flags &= ~(uint32_t)(CN_ANSWER_OPENED | CN_ANSWER_ENDED);
    if (entry->import) /* nothing was imported */
        entry->answer_flags &= ~(uint32_t)CN_ANSWER_HERE;
}

/* Keeps the answers that the record has, if the row's client may need them after its next step. The
 * record is read again, because the buffers of the reply may have been used for other rows. */
static void
settle_kept(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_record record;
    const bool keeps = entry->row->keep > 1 &&
                       cn_record_decode(cn_commit_record_bytes(worker, entry), &record, NULL) == 0;

    if (keeps || entry->seq->kept)
        cn_sequence_keep(entry->seq, keeps ? &record : NULL);
}

void
cn_commit_settle(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_sequence_state *seq = entry->seq;

    if (entry->write != CN_WRITE_STEP)
        return;
    seq->step = entry->record.step;
    seq->last_job = entry->record.last_job;
    seq->last_wall_ms = entry->record.last_wall_ms;
    seq->hint = entry->hint;
    if (cn_record_has_key(&entry->record))
        cn_sequence_set_keys(&worker->states, seq, entry->record.keys);
    settle_kept(worker, entry);
    entry->committed = cn_batch_entry_is(entry, CN_ROW_IS_YIELDED);
    if (entry->answer_flags & CN_ANSWER_ENDED) {
        entry->ended = true; /* on_close is called once the answers have left */
        return;
    }
    if (entry->committed)
        return; /* the handler still works on this object, so other steps read the stored state */
    entry->seq = NULL;
    cn_states_put(&worker->states, seq, entry->state_bytes_len);
}

void
cn_commit_not_saved(struct cn_worker *worker, struct cn_batch_entry *entry,
                    const struct cn_error *err)
{
    const int code = err->code == CN_E_STORE_UNREACHABLE ? err->code : CN_E_STATE_STORE;
    char shown[128], why[CN_ERROR_MESSAGE_MAX];

    snprintf(why, sizeof(why), "%s", err->message);
    cn_id_shown(entry->row->sequence_id, shown);
    if (code == CN_E_STORE_UNREACHABLE)
        cn_batch_entry_fail(
            entry, code,
            "the step of sequence %s is not confirmed: %s; send it again with the same "
            "Idempotency-Key or step number, because it may have been saved",
            shown, why);
    else
        cn_batch_entry_fail(entry, code, "the step of sequence %s is not saved: %s", shown, why);
    entry->answer_flags &=
        ~(uint32_t)(CN_ANSWER_CLOSED_BEFORE | CN_ANSWER_WORKER_LOST | CN_ANSWER_ELSEWHERE);
    cn_commit_drop(worker, entry);
}

/* Keeps what the worker has seen: the store must hold something newer now (resolve_lost.c). */
static void
note_known(struct cn_batch_entry *entry)
{
    entry->known.generation = 0;
    if (!entry->had_record || entry->had_tombstone || !entry->seq)
        return;
    entry->known.generation = entry->had_generation;
    entry->known.step = entry->had_step;
    entry->known.last_job = entry->had_last_job;
    entry->known.last_wall_ms = entry->seq->last_wall_ms;
}

/* Another node has changed the sequence. A row that ran and has sent nothing runs again; others
 * fail, because what they answer was decided by the record that is gone. */
static void
slot_lost(struct cn_worker *worker, struct cn_batch_entry *entry)
{
    struct cn_error unsure;
    char shown[128];

    entry->losses++;
    entry->unsure = entry->outcome == CN_STORE_UNSURE;
    cn_id_shown(entry->row->sequence_id, shown);
    if (entry->losses < LOSSES_MAX && cn_batch_entry_is(entry, CN_ROW_IS_RAN) && !entry->stream &&
        entry->write == CN_WRITE_STEP) {
        note_known(entry);
        entry->lost = true;
        return;
    }
    if (entry->unsure) {
        cn_fail(&unsure, CN_E_STORE_UNREACHABLE,
                "the state store's reply did not come, and another node has changed the sequence "
                "since");
        cn_commit_not_saved(worker, entry, &unsure);
        return;
    }
    cn_batch_entry_fail(
        entry, CN_E_CONTENDED,
        "other nodes changed sequence %s during this step (%u times in a row), so the "
        "step is not saved; send it again",
        shown, entry->losses);
    entry->answer_flags &= ~(uint32_t)(CN_ANSWER_CLOSED_BEFORE | CN_ANSWER_WORKER_LOST);
    cn_commit_drop(worker, entry);
}

void
cn_commit_take_outcomes(struct cn_worker *worker)
{
    struct cn_batch *batch = &worker->batch;

    for (uint32_t i = 0; i < batch->n; i++) {
        struct cn_batch_entry *entry = &batch->entries[i];

        if (entry->passed || entry->write == CN_WRITE_NOTHING)
            continue;
        if (entry->outcome == CN_STORE_WRITTEN)
            cn_commit_settle(worker, entry);
        else if (entry->outcome == CN_STORE_LOST || entry->outcome == CN_STORE_UNSURE)
            slot_lost(worker, entry);
        else
            cn_commit_not_saved(worker, entry, &batch->err);
    }
}
