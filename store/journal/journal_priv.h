/* store/journal/journal_priv.h - what the files of the journal's store share: its files, its drain,
 * its lock. */
#ifndef CN_STORE_JOURNAL_JOURNAL_PRIV_H
#define CN_STORE_JOURNAL_JOURNAL_PRIV_H

#include "core/containers/list.h"
#include "store/journal/journal.h"
#include "store/journal/journal_index.h"
#include "store/journal/journal_ledger.h"
#include "store/lmdb/lmdb_store.h"

/* One of the two files. `first` 0: nothing of it is in force. */
struct cn_journal_file {
    int fd;
    const char *map; /* PROT_READ: what a handler writes by a stray pointer never gets here */
    uint64_t map_bytes, size;
    uint64_t known_first;             /* what its header said when it was looked at */
    uint64_t first, next, seed, tail; /* transactions `first` to `next` - 1 stand before `tail` */
    struct cn_journal_index index;
    uint64_t live_bytes; /* of the newest entries of each key */
    int64_t owed;        /* what LMDB will hold more of them than it does, */
    int64_t freed;       /* and less, of others */
    uint64_t last_at;    /* offset of the last transaction that another one wrote */
    uint64_t first_key;  /* offset of some entry: all keys begin with `common` bytes of its key */
    uint64_t common;
    bool bad_header; /* there is one, and it is damaged */
    int ledger_fd;
    uint64_t ledger_size, ledger_tail, ledger_seed; /* of the file; where its next entry goes */
    bool ledger_behind; /* somebody else appended last, and may have died before its entry */
};

/* An entry to be written to LMDB. Compared by 16 bytes of its key behind what all have in
 * common. */
struct cn_drain_item {
    uint64_t high, low;
    uint64_t at;
};

/* What a process knows of draining the older file; begun anew for each. */
struct cn_drain {
    uint64_t of;         /* `first` of the file */
    uint64_t collect_at; /* offset up to which its entries are in `items` */
    struct cn_drain_item *items;
    uint32_t n, cap, at, sorted; /* `items` are in order before `sorted`; `at` is the next one */
    uint32_t pivots[64], n_pivots;
};

/* Where the last writes of others are noted, by the key's hash. */
#define CN_HINT_PLACES 4096u

/* Where the newest of a key is. */
enum cn_journal_place {
    CN_JOURNAL_IN_LMDB, /* or nowhere */
    CN_JOURNAL_IN_TXN,  /* the open one */
    CN_JOURNAL_IN_CUR,
    CN_JOURNAL_IN_OLD, /* and not in LMDB yet, when a trace says so */
};

/* An entry of the open transaction. */
struct cn_journal_put {
    uint64_t at;              /* in its bytes */
    struct cn_store_hint was; /* of the value that it replaces; txn 0: not known */
    uint32_t hash;
};

struct cn_journal_store {
    struct cn_store base;
    struct cn_store *lmdb;
    char *dir;
    uint64_t limit;
    uint64_t boot; /* cn_ledger_boot */
    bool sync, read_only;
    void (*passing)(enum cn_store_point point);
    struct cn_journal_file files[2];
    unsigned cur;           /* the one that is appended to */
    uint64_t version;       /* of LMDB when its note was read */
    uint64_t drained_below; /* transactions before this one are in LMDB */
    char drained_key[CN_STORE_KEY_MAX];
    size_t drained_key_len; /* and those of the older file up to this key */
    struct cn_drain drain;
    uint64_t drain_pause; /* after a failure: the tail at which it is tried again */
    int64_t room;         /* for owed bytes */
    uint64_t room_version;
    bool open, writing, dirty; /* dirty: LMDB has to commit, too */
    bool opened;               /* all that there was has been read once */
    bool behind;        /* of what others appended, the lock was let go in the middle of it */
    bool unsettled;     /* somebody else appended last */
    bool crowded;       /* the file system had no room for the last append */
    struct cn_buf told; /* what is wrong with data.mdb, which was mended; a sentence a line */
    int lock_fd;        /* of the folder: cn_journal_guard */
    bool has_loss_note; /* LMDB's note of losses is there: the store is not new */
    bool suspect;  /* LMDB is not the one that the journal belongs to: no answer comes from it */
    uint64_t lost; /* sequences that are known to be lost and not accepted */
    uint64_t salvaged_below; /* what the journal held before this transaction was moved to LMDB */
    bool unlisted;           /* LMDB doesn't know a key of the journal's */
    /* The open transaction's own writes. */
    struct cn_buf txn, ledger;
    struct cn_journal_put *puts;
    uint32_t n_puts, cap_puts;
    int64_t growth;
    uint64_t largest; /* value that was put since the store was opened */
    struct cn_journal_index pending;
    /* What traces (cn_store_hint) hold: those of transactions from this one on, and of keys that
     * were last written otherwise before them. */
    uint64_t hints_from;
    uint64_t changed[CN_HINT_PLACES];
};

static inline struct cn_journal_store *
cn_journal_of(struct cn_store *store)
{
    return cn_container_of(store, struct cn_journal_store, base);
}

/* What LMDB will hold more, and less, than it does. */
static inline int64_t
cn_journal_owed(const struct cn_journal_store *js)
{
    return js->files[0].owed + js->files[1].owed;
}

static inline int64_t
cn_journal_freed(const struct cn_journal_store *js)
{
    return js->files[0].freed + js->files[1].freed;
}

static inline void
cn_journal_pass(const struct cn_journal_store *js, enum cn_store_point point)
{
    if (js->passing)
        js->passing(point);
}

static inline struct cn_journal_file *
cn_journal_cur(struct cn_journal_store *js)
{
    return &js->files[js->cur];
}

static inline struct cn_journal_file *
cn_journal_old(struct cn_journal_store *js)
{
    return &js->files[1 - js->cur];
}

/* --- journal_file.c --- */

int cn_journal_file_open(struct cn_journal_store *js, unsigned i, struct cn_error *err);
void cn_journal_file_close(struct cn_journal_file *file);
/* Takes what others appended, drained and began. In a transaction of LMDB. Sets `more` when that is
 * so much that the lock should be let go before the rest, and js->unsettled when somebody else
 * appended last, who may have died before LMDB heard of its keys. */
int cn_journal_catch_up(struct cn_journal_store *js, bool *more, struct cn_error *err);
/* When `unsettled`: tells LMDB of the last transaction's keys. */
int cn_journal_settle(struct cn_journal_store *js, struct cn_error *err);
/* Empties file `i`, which must be drained, and makes it the one that is appended to. */
int cn_journal_start(struct cn_journal_store *js, unsigned i, struct cn_error *err);
/* Writes the open transaction; the commit point. Nothing of it is there after a failure. */
int cn_journal_append(struct cn_journal_store *js, struct cn_error *err);
/* Adds what an entry counts for in `owed` or `freed`, or takes it away with -1. */
void cn_journal_count_owed(struct cn_journal_file *file, const struct cn_journal_entry *entry,
                           int sign);
/* Is what the older file has of this key in LMDB already? */
bool cn_journal_is_drained(struct cn_journal_store *js, struct cn_str key);

/* What its header says is forgotten: the file is `first`, or with 0 not in force. */
void cn_journal_file_reset(struct cn_journal_file *file, uint64_t first, uint64_t seed);
int cn_journal_write_at(int fd, const char *bytes, size_t len, uint64_t at);
/* Reads notes and headers of a store that changed. */
int cn_journal_identify(struct cn_journal_store *js, struct cn_error *err);

/* --- journal_guard.c --- */

/* Takes a lock on the folder, which is held until *lock_fd is closed. Who has the store first
 * checks its data.mdb and mends it; what was wrong is then in `told`. Before LMDB opens the store.
 */
int cn_journal_guard(const struct cn_journal_options *options, int *lock_fd, struct cn_buf *told,
                     struct cn_error *err);

/* --- journal_salvage.c --- */

/* LMDB's note of losses. */
struct cn_journal_loss {
    uint64_t salvaged_below; /* what the journal held before this transaction was moved to LMDB */
    uint64_t lost;           /* sequences that are known to be lost */
    bool suspect;
    bool is_there; /* the note */
};
/* In a transaction of LMDB. */
int cn_journal_get_loss(struct cn_store *lmdb, struct cn_journal_loss *out, struct cn_error *err);
int cn_journal_put_loss(struct cn_store *lmdb, const struct cn_journal_loss *loss,
                        struct cn_error *err);
/* Writes the file DAMAGED. `text`: a sentence a line. */
int cn_journal_report(const char *dir, const struct cn_journal_loss *loss, struct cn_str text,
                      struct cn_error *err);
/* What LMDB's note of losses says, with the other note. */
int cn_journal_read_loss(struct cn_journal_store *js, struct cn_error *err);
/* Once, in the lock, when all that the files hold was read: is that what the ledgers say was
 * written? If not, what is whole goes to LMDB, what is lost is marked there and told in the file
 * DAMAGED, and the journal begins anew. Sets `changed` when the lock's transaction was committed.
 */
int cn_journal_verify(struct cn_journal_store *js, bool *changed, struct cn_error *err);

/* --- journal_drain.c --- */

int cn_journal_write_note(struct cn_journal_store *js, uint64_t below, struct cn_str key,
                          struct cn_error *err);

#define CN_SLICE_RECORDS 128
/* Writes up to `records` of the older file to LMDB, in a transaction of its own. */
int cn_journal_drain_some(struct cn_journal_store *js, uint32_t records, struct cn_error *err);
int cn_journal_drain_all(struct cn_journal_store *js, struct cn_error *err);
/* Of the older file, in parts of CN_DRAIN_ALL: so fine that the slices of a large one are done one
 * by one. */
#define CN_DRAIN_ALL 1000000u
uint32_t cn_journal_drain_progress(const struct cn_journal_store *js);
int cn_journal_read_note(struct cn_journal_store *js, struct cn_error *err);

int cn_journal_key_compare(struct cn_str a, struct cn_str b);

/* --- journal_hint.c --- */

/* Transaction `txn` wrote a key of this hash, and nobody's trace says so. */
void cn_journal_hint_stale(struct cn_journal_store *js, uint32_t hash, uint64_t txn);
/* Not all that was before `txn` was seen. */
void cn_journal_hints_begin(struct cn_journal_store *js, uint64_t txn);
/* In a transaction: is the value still the one that the trace is of? */
bool cn_journal_hint_holds(struct cn_journal_store *js, const struct cn_store_hint *hint);
/* Where the value is, of a trace that holds. */
enum cn_journal_place cn_journal_hint_place(struct cn_journal_store *js, struct cn_str key,
                                            const struct cn_store_hint *hint);

/* --- journal_values.c: of struct cn_store_ops --- */

void cn_journal_prefetch(struct cn_store *store, const struct cn_str *keys,
                         const struct cn_store_hint *const *hints, uint32_t n);
/* In the lock: does the journal know the key? */
bool cn_journal_has(struct cn_journal_store *js, struct cn_str key);
int cn_journal_get(struct cn_store *store, struct cn_str key, struct cn_str *out,
                   struct cn_error *err);
int cn_journal_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out,
                      struct cn_error *err);
int cn_journal_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
                    struct cn_str *prefix, struct cn_error *err);
int cn_journal_put(struct cn_store *store, struct cn_str key, struct cn_str value,
                   struct cn_error *err);
int cn_journal_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
                       struct cn_store_hint *hint, struct cn_error *err);
bool cn_journal_holds(struct cn_store *store, const struct cn_store_hint *hint);
int cn_journal_remove(struct cn_store *store, struct cn_str key, struct cn_error *err);

/* --- journal_store.c --- */

/* A transaction of LMDB, caught up with. */
int cn_journal_lock(struct cn_journal_store *js, struct cn_error *err);

#endif
