/* worker/batch/resolve_priv.h - between resolve.c and resolve_move.c: what a row meets in the
 * store. Owned by the worker's one thread.
 *
 * A `cached` sequence is the worker's own copy, taken out of the LRU, or NULL.
 */
#ifndef CN_WORKER_BATCH_RESOLVE_PRIV_H
#define CN_WORKER_BATCH_RESOLVE_PRIV_H

#include "worker/worker_priv.h"

/* The store is read in one transaction for all rows of the batch, begun by the first that
 * needs it. */
struct lookup {
    struct cn_worker *worker;
    uint64_t now_wall_ms;
    bool reading;
    struct cn_str stored; /* what the last record was read from; valid while reading */
};

/* resolve.c */

bool cn_resolve_is_cached(const struct cn_sequence_state *cached, const struct cn_record *record);
/* The live sequence ends with this batch: the handler will hear of it. Takes `cached`. */
void cn_resolve_close_old(struct lookup *at, struct cn_slot *slot, const struct cn_record *record,
                          struct cn_sequence_state *cached, int reason);
/* Did a swap close it? Then it may live in another version. */
bool cn_resolve_left_by_swap(unsigned reason);
/* May the row begin a new sequence where a clock closed the old one (sequence.onExpired)? `reason`:
 * what closed it. Rows that need a START do not. */
bool cn_resolve_restarts(const struct lookup *at, const struct cn_row *row, unsigned reason);
/* Does another version look after its sequence here by the row, which runs nothing? */
bool cn_resolve_looks(const struct cn_row *row);
/* Must the row hear what became of a sequence closed for that reason? */
bool cn_resolve_refuses(const struct cn_row *row, unsigned reason);
void cn_resolve_fail_gone(struct lookup *at, struct cn_slot *slot, const struct cn_record *record);
/* The row meets a live sequence. Takes `cached`. */
void cn_resolve_live(struct lookup *at, struct cn_slot *slot, struct cn_record *record,
                     struct cn_sequence_state *cached);

/* resolve_committed.c */

/* Neither the key nor the number of the row says that it isn't the next step of this sequence. */
bool cn_resolve_follows(const struct cn_slot *slot, const struct cn_sequence_state *cached);
/* True: the row is dealt with. It has the stored answer, or the reason why it does not follow. */
bool cn_resolve_committed(struct lookup *at, struct cn_slot *slot, const struct cn_record *record);
/* False, and the slot has failed: the row's number is not that of a sequence's first step. */
bool cn_resolve_is_first(struct cn_slot *slot);

/* resolve_move.c */

/* Is the record more than another version's leftover? To rows that ask, an import that no step has
 * met is. */
bool cn_resolve_counts(const struct cn_slot *slot, const struct cn_record *record);

/* 0: the row swaps nothing. */
enum cn_move_op cn_resolve_move_of(const struct cn_row *row);
/* True: the row swaps or asks, and is dealt with; `cached` is taken then. */
bool cn_resolve_move(struct lookup *at, struct cn_slot *slot, struct cn_record *record,
                     struct cn_sequence_state *cached);
/* The client learns what became of its sequence, also when the answer is told again. */
void cn_resolve_tell_moved(struct cn_slot *slot);

#endif
