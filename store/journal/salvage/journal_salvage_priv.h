/* store/journal/salvage/journal_salvage_priv.h - what is known of a journal's damage while it is
 * repaired.
 */
#ifndef CN_STORE_JOURNAL_SALVAGE_JOURNAL_SALVAGE_PRIV_H
#define CN_STORE_JOURNAL_SALVAGE_JOURNAL_SALVAGE_PRIV_H

#include "store/journal/journal_priv.h"

/* A ledger that was read to the end of its whole entries. */
struct view {
    struct cn_str bytes; /* mapped */
    bool valid;
    uint64_t first, journal_seed, boot, seed;
    uint64_t next; /* entries `first` to `next` - 1 are whole */
    struct cn_ledger_entry last;
};

/* One use of a journal file that should count, and what is there of it. */
struct unit {
    uint64_t first, next;
    const struct cn_journal_file *file;
    const struct view *view; /* its ledger, or NULL if that is missing */
};

/* A key, by its hash, that is in a transaction: lost with it or written by it. */
struct mention {
    uint64_t hash, number;
};

struct mentions {
    struct mention *list;
    size_t n, cap;
};

struct salvage {
    struct cn_journal_store *js;
    struct view views[2];
    struct unit units[4];
    unsigned n_units;
    struct cn_buf text; /* what is wrong, one sentence a line; empty: nothing */
    bool suspect;
    /* a ledger lacks entries of its journal after a power failure, which is not damage */
    bool behind;
    struct mentions lost, whole;
    uint64_t n_damaged; /* the number of damaged transactions */
    uint64_t next;      /* the number behind the last transaction that was written */
};

/* Compares the journal with its ledgers and with LMDB. Sets the units and the views of `salvage`,
 * and describes in its text what does not match. `era`: the store was used before, so it must have
 * something to show. */
void cn_journal_examine(struct salvage *salvage, bool era);
void cn_journal_view_close(struct view *view);

#endif
