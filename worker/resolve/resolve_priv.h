/* worker/resolve/resolve_priv.h - what the files of this folder share: what a row meets in the
 * store. Owned by the worker's one thread.
 *
 * In all functions `cached` is the worker's own copy of the sequence, taken out of the cache, or
 * NULL. A function that "takes" it puts it into the entry, back into the cache, or frees it.
 */
#ifndef CN_WORKER_RESOLVE_RESOLVE_PRIV_H
#define CN_WORKER_RESOLVE_RESOLVE_PRIV_H

#include "worker/worker_priv.h"

/* One read transaction serves all rows of a batch. The first row that needs the store begins it. */
struct lookup {
    struct cn_worker *worker;
    uint64_t now_wall_ms;
    bool reading;
    struct cn_str stored; /* the bytes of the last record that was read; valid while reading */
};

/* resolve.c */

/* Does the cached state belong to the same generation and step as the record? */
bool cn_resolve_is_cached(const struct cn_sequence_state *cached, const struct cn_record *record);
/* Notes that this live sequence ends with the batch, so that on_close is called. Takes `cached`. */
void cn_resolve_close_old(struct lookup *at, struct cn_batch_entry *entry,
                          const struct cn_record *record, struct cn_sequence_state *cached,
                          int reason);
/* Did a swap close it? Then it may live in another version. */
bool cn_resolve_left_by_swap(unsigned reason);
/* May the row begin a new sequence where a clock closed the old one (sequence.onExpired)? `reason`:
 * what closed it. Rows that need a START do not. */
bool cn_resolve_restarts(const struct lookup *at, const struct cn_row *row, unsigned reason);
/* Does the row only look for a sequence (CN_MOVE_LOOK, CN_MOVE_EXPORT) and run nothing? */
bool cn_resolve_looks(const struct cn_row *row);
/* Must a plain row be refused when it meets a sequence that was closed for this reason? */
bool cn_resolve_refuses(const struct cn_row *row, unsigned reason);
/* The row meets a live sequence. Takes `cached`. */
void cn_resolve_live(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
                     struct cn_sequence_state *cached);

/* resolve_refuse.c */

/* Fails the row with the reason for which the sequence of `record` was closed. */
void cn_resolve_fail_gone(struct lookup *at, struct cn_batch_entry *entry,
                          const struct cn_record *record);
/* Fails the row because there is no such sequence. `found`: the generation that the store has under
 * the id; 0: none. */
void cn_resolve_fail_unknown(struct cn_batch_entry *entry, uint64_t found);

/* resolve_committed.c */

/* Is the row the next step of the cached sequence, as far as its key and its number show? */
bool cn_resolve_follows(const struct cn_batch_entry *entry, const struct cn_sequence_state *cached);
/* Returns true when the row is done: it has the stored answer, or the reason why it cannot be the
 * next step. */
bool cn_resolve_committed(struct lookup *at, struct cn_batch_entry *entry,
                          const struct cn_record *record);
/* A CN_ROW_RECALL found no sequence: answers it. */
void cn_resolve_recall_nothing(struct lookup *at, struct cn_batch_entry *entry);
/* May the row be the first step of its sequence? Returns false, and fails the entry, when it has a
 * number that is not 1. */
bool cn_resolve_is_first(struct cn_batch_entry *entry);

/* resolve_lost.c */

/* Has a shared store gone back behind what this worker knows of the sequence, from `cached` or from
 * a commit that was lost? Then the row fails with what was lost. */
bool cn_resolve_lost(const struct lookup *at, struct cn_batch_entry *entry,
                     const struct cn_record *record, const struct cn_sequence_state *cached);

/* resolve_move.c */

/* Does the record say anything about the sequence, or is it a leftover of a swap? A pending import
 * is a leftover to rows that ask (CN_ROW_ASK), LOOK and EXPORT. */
bool cn_resolve_counts(const struct cn_batch_entry *entry, const struct cn_record *record);

/* Returns the row's move; 0: it moves no sequence. */
enum cn_move_op cn_resolve_move_of(const struct cn_row *row);
/* Does the row only ask whether the sequence lives here (CN_ROW_ASK, LOOK, EXPORT)? */
bool cn_resolve_only_asks(const struct cn_row *row);
/* Does a node claim the id of this record? See resolve_move.c. */
bool cn_resolve_is_claim(const struct cn_record *record);
/* Has another node taken away what the row was to find here: its claim or its import, or the
 * sequence? Then the sequence must be looked for again. `record`: of `entry->had_generation`. */
bool cn_resolve_is_astray(const struct cn_batch_entry *entry, const struct cn_record *record);
/* Returns true when the row moves a sequence, or asks for one that is not here, and is done. Then
 * it has taken `cached`. */
bool cn_resolve_move(struct lookup *at, struct cn_batch_entry *entry, struct cn_record *record,
                     struct cn_sequence_state *cached);
/* Adds the header that tells the client that its sequence was moved or reset, also to an answer
 * that will be replayed. */
void cn_resolve_tell_moved(struct cn_batch_entry *entry);

#endif
