/* worker/resolve/resolve_move.c - rows that move a sequence between versions of its model. Owned by
 * the worker's one thread.
 *
 * Each version has a store of its own, so a sequence cannot move in one transaction. The scheduler
 * (scheduler/swap/) sends a row for each part of the move: EXPORT reads the record in the old
 * version, IMPORT writes it into the new one, BURY closes the old one. A server or worker may die
 * between any two of them, and the steps may be sent again. Two rules keep it safe:
 * - An imported record is pending, and does not count, until the first plain row comes. That row is
 *   sent only after BURY was answered. So there are never two live copies: if the move stops
 *   half-way, the old copy is still the live one, and a later import replaces the pending record.
 * - BURY names the generation and the step that were exported. If the old copy has made a step
 *   since, it is not closed, and the move begins again.
 * Each row may come twice: an IMPORT that meets a live record and a BURY that meets its own
 * tombstone answer that all is done.
 *
 * In a shared store other nodes move and open sequences, too, perhaps in the opposite direction,
 * because the nodes may disagree about the default version for a while. No look at several versions
 * can tell by itself that a sequence lives in none of them. So a node that has not found the
 * sequence in its default version first writes there: it claims the id, or finds an import or
 * another claim and uses that. Then it asks each of the other versions. An ask takes away the claim
 * or import that it meets, by writing it with a new generation. At the end the step runs (TOLD)
 * only if what the node wrote, by its generation, is still there. Of two nodes that do this in
 * different versions, the one that writes later meets what the other has written, and takes it away
 * or finds the sequence. So at most one of them goes on, and the other one looks for the sequence
 * again. A state is never lost by that: only BURY removes one, at a generation whose record was
 * imported elsewhere before, and the youngest of all imports is removed by nobody.
 */
#include <stdio.h>

#include "proto/wire.h"
#include "worker/resolve/resolve_priv.h"

enum cn_move_op
cn_resolve_move_of(const struct cn_row *row)
{
    return row->flags & CN_ROW_MOVE ? (enum cn_move_op)row->move->op : 0;
}

bool
cn_resolve_looks(const struct cn_row *row)
{
    return cn_resolve_move_of(row) == CN_MOVE_LOOK || cn_resolve_move_of(row) == CN_MOVE_EXPORT;
}

bool
cn_resolve_only_asks(const struct cn_row *row)
{
    return (row->flags & CN_ROW_ASK) || cn_resolve_looks(row);
}

bool
cn_resolve_is_claim(const struct cn_record *record)
{
    const uint32_t both = CN_RECORD_TOMBSTONE | CN_RECORD_PENDING;

    return (record->flags & both) == both;
}

/* Is there the claim or the import of this generation? */
static bool
is_own(const struct cn_batch_entry *entry, const struct cn_record *record, uint64_t generation)
{
    return entry->had_generation == generation && (record->flags & CN_RECORD_PENDING);
}

bool
cn_resolve_is_astray(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    const struct cn_row *row = entry->row;
    const bool lives =
        entry->had_record && !entry->had_tombstone && !(record->flags & CN_RECORD_PENDING);

    return cn_resolve_move_of(row) == CN_MOVE_TOLD && row->move->generation && !lives &&
           !is_own(entry, record, row->move->generation);
}

/* Is the record live? A pending import is live only if the scheduler says that it is the only copy.
 */
static bool
counts(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    return entry->had_record && !entry->had_tombstone &&
           (!(record->flags & CN_RECORD_PENDING) || (entry->row->flags & CN_ROW_TAKE_PENDING));
}

bool
cn_resolve_counts(const struct cn_batch_entry *entry, const struct cn_record *record)
{
    if (entry->had_tombstone)
        return !cn_resolve_left_by_swap(record->close_reason);
    return !cn_resolve_only_asks(entry->row) || counts(entry, record);
}

/* Claims the id, or writes what is pending there with a new generation, so that nobody else can use
 * it. Everything else that the record says is kept. */
static void
write_claim(struct lookup *at, struct cn_batch_entry *entry)
{
    struct cn_record *claim = &entry->record;
    const uint64_t now = at->now_wall_ms;
    struct cn_error err;

    if (entry->had_generation) { /* its bytes end with the transaction */
        if (cn_record_decode(cn_arena_str(&at->worker->batch.arena, at->stored), claim, &err) != 0)
            return;
    } else {
        *claim = (struct cn_record){.opened_wall_ms = now, .last_wall_ms = now};
        cn_states_bury(&at->worker->states, claim, CN_CLOSE_RESET, now, false);
    }
    claim->flags |= CN_RECORD_PENDING;
    claim->generation = cn_next_generation(entry->had_generation, now);
    entry->generation = claim->generation;
    entry->write = CN_WRITE_CLAIM;
}

/* With a shared store the default version claims the id, unless there is a claim or an import that
 * it can use. An ask of another version takes away what is pending here. */
static void
meet_claim(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const bool pending =
        entry->had_claim || (entry->had_record && (record->flags & CN_RECORD_PENDING));

    if (!cn_store_is_shared(at->worker->states.store))
        return;
    if (pending && (entry->row->flags & CN_ROW_ANY_VERSION))
        entry->generation = entry->had_generation;
    else if (pending || (entry->row->flags & CN_ROW_ANY_VERSION))
        write_claim(at, entry);
}

static void
say_elsewhere(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    char shown[128];

    if (entry->had_record) {
        entry->opened_wall_ms = record->opened_wall_ms;
        entry->item.step = record->step;
        entry->answer_flags |= !entry->had_tombstone                    ? CN_ANSWER_PENDING
                               : record->close_reason == CN_CLOSE_MOVED ? CN_ANSWER_MOVED
                                                                        : CN_ANSWER_CLOSED_BEFORE;
    }
    cn_batch_entry_fail(entry, CN_E_SEQUENCE_UNKNOWN, "sequence %s does not live in version %s",
                        cn_id_shown(entry->row->sequence_id, shown),
                        at->worker->load.model_version);
    entry->answer_flags |= CN_ANSWER_ELSEWHERE;
}

/* The row asks for a sequence that does not live here. A tombstone whose reason the client must
 * learn answers it; otherwise the row is answered with CN_ANSWER_ELSEWHERE, and the scheduler asks
 * other versions. */
static void
meet_absent(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    bool same = entry->row->generation && entry->row->generation == entry->had_generation;

    if (entry->had_tombstone && !(entry->row->flags & CN_ROW_START) &&
        !cn_resolve_left_by_swap(record->close_reason) &&
        (same || (cn_resolve_refuses(entry->row, record->close_reason) &&
                  !cn_states_forgotten(&at->worker->states, record, at->now_wall_ms) &&
                  !cn_resolve_restarts(at, entry->row, record->close_reason)))) {
        cn_resolve_fail_gone(at, entry, record);
        return;
    }
    say_elsewhere(at, entry, record);
    meet_claim(at, entry, record);
}

/* Adds a header in the encoding of cn_reply.headers. */
static void
put_header(struct cn_batch_entry *entry, const char *name, const char *value)
{
    cn_write_str16(&entry->item.reply.headers, cn_str_from(name));
    cn_write_str32(&entry->item.reply.headers, cn_str_from(value));
    entry->item.reply.n_given = ++entry->item.reply.n_headers;
    entry->item.reply.given_bytes = entry->item.reply.headers.len;
}

/* LOOK or EXPORT of a sequence that lives here. It answers with the numbers of the last step, and
 * with the record if that is asked for. Nothing changes, unless the sequence has expired. Takes
 * `cached`. */
static void
meet_look(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
          struct cn_sequence_state *cached)
{
    struct cn_reply *reply = &entry->item.reply;
    char shown[128];

    if (!entry->row->generation && cn_states_expired(&at->worker->states, record->opened_wall_ms,
                                                     record->last_wall_ms, at->now_wall_ms)) {
        cn_resolve_live(at, entry, record, cached); /* closes it and says that it has expired */
        if (cn_resolve_restarts(at, entry->row,
                                (unsigned)entry->closed_reason)) { /* where the row came from */
            cn_batch_entry_fail(
                entry, CN_E_SEQUENCE_UNKNOWN, "sequence %s has expired in version %s",
                cn_id_shown(entry->row->sequence_id, shown), at->worker->load.model_version);
            entry->answer_flags |= CN_ANSWER_ELSEWHERE;
        }
        return;
    }
    if (cn_resolve_is_cached(cached, record))
        cn_states_put(&at->worker->states, cached, record->state.len);
    else
        cn_states_free(&at->worker->states, cached);
    entry->answer_flags |= CN_ANSWER_HERE;
    entry->generation = record->generation;
    entry->opened_wall_ms = record->opened_wall_ms;
    entry->item.step = record->step;
    if (cn_resolve_move_of(entry->row) != CN_MOVE_EXPORT)
        return;
    if (at->stored.len > at->worker->load.answer_max_bytes) {
        cn_batch_entry_fail(entry, CN_E_STATE_TOO_LARGE,
                            "the record of sequence %s has %zu bytes, which exceeds answerMaxBytes",
                            cn_id_shown(entry->row->sequence_id, shown), at->stored.len);
        return;
    }
    cn_buf_puts(&reply->content_type, at->worker->load.runtime);
    cn_buf_append_str(&reply->body, at->stored);
}

/* The row was sent again after a death, unless the sequence was closed in another way. In a shared
 * store another node may have moved the very same step. */
static bool
was_buried(const struct lookup *at, const struct cn_batch_entry *entry,
           const struct cn_record *record)
{
    return entry->had_tombstone && record->close_reason == entry->row->move->reason &&
           !cn_store_is_shared(at->worker->states.store);
}

/* BURY: closes the sequence if it is at the generation and step of the export. Takes `cached`. */
static void
meet_bury(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
          struct cn_sequence_state *cached)
{
    const struct cn_move *move = entry->row->move;
    bool live = entry->had_record && !entry->had_tombstone;

    if (!live || (move->generation &&
                  (move->generation != record->generation || move->step != record->step))) {
        cn_states_free(&at->worker->states, cached);
        if (live || (move->generation && !was_buried(at, entry, record)))
            say_elsewhere(at, entry, record);
        else
            entry->answer_flags |= CN_ANSWER_CLOSED_BEFORE | CN_ANSWER_HERE;
        meet_claim(at, entry, record);
        return;
    }
    if (record->flags & CN_RECORD_PENDING) /* this version has never run a step of it */
        cn_states_free(&at->worker->states, cached);
    else
        cn_resolve_close_old(at, entry, record, cached, move->reason);
    cn_states_bury(&at->worker->states, record, move->reason, at->now_wall_ms, false);
    entry->answer_flags |= CN_ANSWER_ENDED | CN_ANSWER_HERE;
    entry->generation = record->generation;
    /* The tombstone is written when the store's memory with the keys is gone. */
    entry->record = *record;
    entry->record.keys = cn_arena_str(&at->worker->batch.arena, record->keys);
    entry->write = CN_WRITE_TOMBSTONE;
}

/* IMPORT: notes the state to decode and to migrate, and the record to write. A pending import of
 * before, or our claim, is replaced. The record gets a new generation, so that late steps of the
 * old one do not meet it. */
static void
meet_import(struct lookup *at, struct cn_batch_entry *entry, const struct cn_record *record)
{
    const struct cn_move *move = entry->row->move;
    const struct cn_load *load = &at->worker->load;
    struct cn_record *moved = &entry->record;
    struct cn_error err;

    if (counts(entry, record) && !cn_store_is_shared(at->worker->states.store)) {
        entry->answer_flags |= CN_ANSWER_HERE;
        return;
    }
    /* Another node has begun the sequence here, or has taken our claim away. */
    if (counts(entry, record) || (move->generation && !is_own(entry, record, move->generation))) {
        say_elsewhere(at, entry, record);
        return;
    }
    if (!cn_str_eq(move->runtime, cn_str_from(load->runtime))) {
        cn_batch_entry_fail(entry, CN_E_CONFLICT,
                            "version %s has runtime %s, but version %.*s has runtime %.*s",
                            load->model_version, load->runtime, CN_STR_ARG(move->version),
                            CN_STR_ARG(move->runtime));
        return;
    }
    if (cn_record_decode(move->record, moved, &err) != 0) {
        cn_batch_entry_fail(entry, err.code, "its record: %s", err.message);
        return;
    }
    entry->import = true;
    entry->seq = cn_states_create(&at->worker->states, entry->row->sequence_id);
    entry->seq->generation = cn_next_generation(entry->had_generation, at->now_wall_ms);
    entry->generation = entry->seq->generation;
    entry->opened_wall_ms = moved->opened_wall_ms;
    entry->decode = moved->flags & CN_RECORD_HAS_STATE;
    entry->state_bytes = moved->state;
    entry->state_schema = moved->schema;
}

void
cn_resolve_tell_moved(struct cn_batch_entry *entry)
{
    const struct cn_move *move = entry->row->move;
    char text[300];

    if (!cn_batch_entry_is(entry, CN_ROW_IS_READY) ||
        cn_resolve_move_of(entry->row) != CN_MOVE_TOLD || !move->reason)
        return;
    snprintf(text, sizeof(text), "%s; from=%.*s",
             cn_close_reason_word((enum cn_close_reason)move->reason), CN_STR_ARG(move->version));
    put_header(entry, "Continuo-Sequence-Swapped", text);
}

bool
cn_resolve_move(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
                struct cn_sequence_state *cached)
{
    bool live = counts(entry, record);

    if (cn_resolve_is_astray(entry, record)) {
        cn_states_free(&at->worker->states, cached);
        say_elsewhere(at, entry, record);
        return true;
    }
    if (cn_resolve_move_of(entry->row) == CN_MOVE_BURY) {
        meet_bury(at, entry, record, cached);
        return true;
    }
    if (cn_resolve_move_of(entry->row) == CN_MOVE_IMPORT) {
        cn_states_free(&at->worker->states, cached);
        meet_import(at, entry, record);
        return true;
    }
    if (!cn_resolve_only_asks(entry->row) || (live && (entry->row->flags & CN_ROW_ASK)))
        return false;
    if (live) {
        meet_look(at, entry, record, cached);
    } else {
        cn_states_free(&at->worker->states, cached);
        meet_absent(at, entry, record);
    }
    return true;
}
