/* store/journal/journal_priv.h - what the source files of the journal store share: the two files,
 * the drain, the open transaction and the lock. journal_store.c explains the whole. */
#ifndef CN_STORE_JOURNAL_JOURNAL_PRIV_H
#define CN_STORE_JOURNAL_JOURNAL_PRIV_H

#include "core/containers/list.h"
#include "store/disk_store.h"
#include "store/journal/journal.h"
#include "store/journal/journal_index.h"
#include "store/journal/journal_ledger.h"
#include "store/lmdb/lmdb_store.h"

/* One of the two journal files with its ledger, as this process knows them. `first` is 0 while
 * nothing in the file counts: it is new, or LMDB has all of it. */
struct cn_journal_file {
    int fd;
    const char *map; /* mapped with PROT_READ, so a handler's stray pointer cannot change it */
    uint64_t map_bytes, size;
    /* the first transaction's number in the header when it was read last */
    uint64_t known_first;
    /* transactions `first` to `next` - 1 end at offset `tail`; `seed` is the checksum of the last
     * one */
    uint64_t first, next, seed, tail;
    struct cn_journal_index index;
    uint64_t live_bytes; /* the size of the newest entry of each key, together */
    int64_t owed;        /* bytes by which LMDB's new and larger values grow when it is drained */
    int64_t freed;       /* bytes by which LMDB's other values shrink when it is drained */
    uint64_t last_at;    /* the offset of the last transaction that another process wrote */
    /* the offset of an entry; all keys share the first `common` bytes of its key */
    uint64_t first_key;
    uint64_t common;
    bool bad_header; /* the header is there but damaged */
    int ledger_fd;
    /* the file's size, where its next entry goes, the seed of its checksums */
    uint64_t ledger_size, ledger_tail, ledger_seed;
    /* another process appended last; it may have died before it wrote its ledger entry */
    bool ledger_behind;
};

/* An entry that will be written to LMDB. `high` and `low` are 16 bytes of its key, behind the bytes
 * that all keys share; comparing two items usually needs no more than these. */
struct cn_drain_item {
    uint64_t high, low;
    uint64_t at;
};

/* How far this process is with draining the older file. It begins anew with each file. */
struct cn_drain {
    uint64_t of;         /* `first` of the file that is drained */
    uint64_t collect_at; /* entries before this offset of the file are in `items` */
    struct cn_drain_item *items;
    uint32_t n, cap, at, sorted; /* items before `sorted` are in order; `at` is the next to write */
    uint32_t pivots[64], n_pivots;
};

/* The size of the table that notes, by the key's hash, the last write that no hint knows of. */
#define CN_HINT_PLACES 4096u

/* Where the newest value of a key is. */
enum cn_journal_place {
    CN_JOURNAL_IN_LMDB, /* in LMDB, or there is no such key */
    CN_JOURNAL_IN_TXN,  /* in the open transaction */
    CN_JOURNAL_IN_CUR,
    CN_JOURNAL_IN_OLD, /* in the older file; when a hint says so, also not in LMDB yet */
};

/* An entry that the open transaction has written. */
struct cn_journal_put {
    uint64_t at;              /* its offset in js->txn */
    struct cn_store_hint was; /* the hint about the value that it replaces; txn 0: not known */
    uint32_t hash;
};

struct cn_journal_store {
    struct cn_store base;
    struct cn_store *lmdb;
    char *dir;
    uint64_t limit;
    uint64_t boot; /* the number of this boot: cn_ledger_boot */
    bool sync, read_only;
    void (*passing)(enum cn_store_point point);
    struct cn_journal_file files[2];
    unsigned cur;           /* the index of the newer file, to which commits are appended */
    uint64_t version;       /* LMDB's version when its note was read */
    uint64_t drained_below; /* transactions before this one are in LMDB */
    char drained_key[CN_STORE_KEY_MAX];
    size_t drained_key_len; /* in the older file, keys up to this one are in LMDB, too */
    struct cn_drain drain;
    /* after a failed drain: how full the newer file must be before draining is tried again */
    uint64_t drain_pause;
    int64_t room; /* bytes by which LMDB may still grow */
    uint64_t room_version;
    bool open, writing, dirty; /* dirty: LMDB has changes to commit, too */
    bool opened;               /* the files have been read to their end once */
    /* the lock was released in the middle of reading what other processes appended */
    bool behind;
    /* another process appended last and may have died before it listed its keys in LMDB */
    bool unsettled;
    bool crowded; /* the file system had no room for the last append */
    /* what was wrong with data.mdb before it was repaired; one sentence a line */
    struct cn_buf told;
    int lock_fd;             /* the descriptor of the locked folder: cn_journal_guard */
    bool has_loss_note;      /* LMDB has the note of losses, so the store is not new */
    bool suspect;            /* LMDB does not belong to this journal; nothing is answered from it */
    uint64_t lost;           /* the number of lost sequences that no operator has accepted */
    uint64_t salvaged_below; /* a repair moved all earlier transactions to LMDB */
    bool unlisted;           /* LMDB lacks a key that the journal has */
    /* The writes of the open transaction: its bytes, their ledger entry, and where the newest entry
     * of each key is in them. */
    struct cn_buf txn, ledger;
    struct cn_journal_put *puts;
    uint32_t n_puts, cap_puts;
    int64_t growth;
    uint64_t largest; /* the largest value written since the store was opened */
    struct cn_journal_index pending;
    /* Which hints (cn_store_hint) are valid: those of transaction `hints_from` or a later one, if
     * their key was not written without a hint since; `changed` has the last such write by the
     * key's hash. */
    uint64_t hints_from;
    uint64_t changed[CN_HINT_PLACES];
};

static inline struct cn_journal_store *
cn_journal_of(struct cn_store *store)
{
    return cn_container_of(store, struct cn_journal_store, base);
}

/* When both files are drained, some of LMDB's values grow and others shrink. These two return by
 * how many bytes in all. */
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

static inline struct cn_str
cn_journal_bytes(const struct cn_journal_file *file)
{
    return (struct cn_str){file->map, file->size};
}

/* --- journal_space.c --- */

/* A journal file gets its room in steps of this size, the first when it is created. */
#define CN_JOURNAL_GROW_BYTES (1u << 20)
/* A ledger gets its room in steps of this size. */
#define CN_LEDGER_GROW_BYTES (64u << 10)

/* Opens journal file `i` and its ledger, maps the journal, and reserves their first room on the
 * disk. CN_E_STATE_STORE. */
int cn_journal_file_open(struct cn_journal_store *js, unsigned i, struct cn_error *err);
/* Closes and unmaps a file. It may be half open. */
void cn_journal_file_close(struct cn_journal_file *file);
/* Looks how large the file is now, since others may have extended it, and maps all of it. */
int cn_journal_file_look(struct cn_journal_store *js, struct cn_journal_file *file,
                         struct cn_error *err);
/* Provides room for `bytes`, in the file system and in the mapping. If there is no room for a whole
 * step, it tries exactly `bytes`. */
int cn_journal_file_provide(struct cn_journal_store *js, struct cn_journal_file *file,
                            uint64_t bytes, struct cn_error *err);
/* Provides room for `bytes` of the ledger, which is then written without growing. */
int cn_journal_ledger_provide(struct cn_journal_store *js, struct cn_journal_file *file,
                              uint64_t bytes, struct cn_error *err);

/* --- journal_file.c --- */

/* Reads what other processes appended, drained and began since the last call. Called inside LMDB's
 * transaction. Sets `more` if that is so much that the lock should be released before the rest is
 * read, and js->unsettled if another process appended last, because that one may have died before
 * it listed its new keys in LMDB. */
int cn_journal_catch_up(struct cn_journal_store *js, bool *more, struct cn_error *err);
/* When js->unsettled: lists the keys of the last transaction in LMDB. */
int cn_journal_settle(struct cn_journal_store *js, struct cn_error *err);
/* When js->unsettled and with `power`: syncs the last transaction if its writer may not have done
 * so. */
int cn_journal_sync_last(struct cn_journal_store *js, struct cn_error *err);
/* Begins file `i` anew, which must be drained, and makes it the newer file. */
int cn_journal_start(struct cn_journal_store *js, unsigned i, struct cn_error *err);
/* Appends the open transaction to the newer file; this is the commit point. After a failure nothing
 * of the transaction is in the file. */
int cn_journal_append(struct cn_journal_store *js, struct cn_error *err);
/* Adds an entry's part of `owed` or `freed`, or with `sign` -1 takes it away. */
void cn_journal_count_owed(struct cn_journal_file *file, const struct cn_journal_entry *entry,
                           int sign);
/* Is the older file's entry of this key in LMDB already? */
bool cn_journal_is_drained(struct cn_journal_store *js, struct cn_str key);

/* Forgets all that is known of the file's content: from now on the file begins with transaction
 * `first`, or counts for nothing if that is 0. */
void cn_journal_file_reset(struct cn_journal_file *file, uint64_t first, uint64_t seed);
/* Writes all bytes at this offset. 0 or an errno. */
int cn_journal_write_at(int fd, const char *bytes, size_t len, uint64_t at);
/* Reads LMDB's notes and the headers of both files again, after another process changed them. */
int cn_journal_identify(struct cn_journal_store *js, struct cn_error *err);

/* --- journal_guard.c --- */

/* Locks the folder until *lock_fd is closed. The first process that has the store open checks its
 * data.mdb and repairs it; `told` then gets what was wrong, one sentence a line. Called before LMDB
 * opens the store. CN_E_STATE_STORE: the file cannot be read or repaired. */
int cn_journal_guard(const struct cn_disk_options *options, int *lock_fd, struct cn_buf *told,
                     struct cn_error *err);

/* Decides whether this process uses a journal, together with all processes that have the store open
 * now, and notes its decision until it closes the store. `direct` says what it would like, and gets
 * what it is. CN_E_STATE_STORE: the others could not agree for a second. */
int cn_journal_choose(struct cn_journal_store *js, bool *direct, struct cn_error *err);

/* --- journal_loss.c --- */

/* The note in LMDB about losses that no operator has accepted yet. */
struct cn_journal_loss {
    uint64_t salvaged_below; /* a repair moved all earlier transactions to LMDB */
    uint64_t lost;           /* the number of lost sequences */
    bool suspect;
    bool is_there; /* false: LMDB has no such note */
};
/* Reads the note of losses, and writes it, inside LMDB's transaction. */
int cn_journal_get_loss(struct cn_store *lmdb, struct cn_journal_loss *out, struct cn_error *err);
int cn_journal_put_loss(struct cn_store *lmdb, const struct cn_journal_loss *loss,
                        struct cn_error *err);
/* Writes the file DAMAGED. `text` has one sentence a line. */
int cn_journal_report(const char *dir, const struct cn_journal_loss *loss, struct cn_str text,
                      struct cn_error *err);
/* Reads the note of losses into `js`; cn_journal_read_note calls it. */
int cn_journal_read_loss(struct cn_journal_store *js, struct cn_error *err);

/* --- journal_salvage.c --- */

/* Compares what the files hold with what the ledgers say was written. Called once, inside the lock,
 * when both files have been read to their end. After damage, whole transactions are moved to LMDB,
 * lost values are marked there, the loss is written to the file DAMAGED, and the journal begins
 * anew. Sets `changed` if the lock's transaction was committed, which ends the lock. */
int cn_journal_verify(struct cn_journal_store *js, bool *changed, struct cn_error *err);

/* --- journal_drain.c --- */

/* Notes in LMDB's transaction how far the drain is: transactions before `below`, and in the older
 * file the keys up to `key`. */
int cn_journal_write_note(struct cn_journal_store *js, uint64_t below, struct cn_str key,
                          struct cn_error *err);

#define CN_SLICE_RECORDS 128
/* Writes up to `records` values of the older file to LMDB, in a transaction of its own. */
int cn_journal_drain_some(struct cn_journal_store *js, uint32_t records, struct cn_error *err);
/* Drains the older file completely. */
int cn_journal_drain_all(struct cn_journal_store *js, struct cn_error *err);
/* How much of the older file is drained, in parts of CN_DRAIN_ALL. The unit is small, so that
 * single slices of a large file show. */
#define CN_DRAIN_ALL 1000000u
uint32_t cn_journal_drain_progress(const struct cn_journal_store *js);
/* Reads how far the drain is, and the losses, from LMDB's notes. */
int cn_journal_read_note(struct cn_journal_store *js, struct cn_error *err);

/* The order of keys in LMDB: bytewise, and the shorter one first where one begins with the other.
 */
int cn_journal_key_compare(struct cn_str a, struct cn_str b);

/* --- journal_hint.c --- */

/* Transaction `txn` wrote a key with this hash without its hint: older hints of such a key are not
 * valid any more. */
void cn_journal_hint_stale(struct cn_journal_store *js, uint32_t hash, uint64_t txn);
/* Not all transactions before `txn` were read, so hints of older ones are not valid any more. */
void cn_journal_hints_begin(struct cn_journal_store *js, uint64_t txn);
/* Inside a transaction: is the value still the one that the hint describes? */
bool cn_journal_hint_holds(struct cn_journal_store *js, const struct cn_store_hint *hint);
/* Where the value is, for a hint that is valid. */
enum cn_journal_place cn_journal_hint_place(struct cn_journal_store *js, struct cn_str key,
                                            const struct cn_store_hint *hint);

/* --- journal_values.c: members of struct cn_store_ops --- */

void cn_journal_prefetch(struct cn_store *store, const struct cn_str *keys,
                         const struct cn_store_hint *const *hints, uint32_t n);
/* Checks a value that LMDB gave: CN_E_STATE_DAMAGED if it stands for a lost one, or if nothing of
 * LMDB can be trusted. */
int cn_journal_check_lost(const struct cn_journal_store *js, struct cn_str value,
                          struct cn_error *err);
/* Does the journal have an entry of this key? Called inside the lock. */
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

/* --- direct_store.c --- */

/* The functions of a store without a journal. The object is a struct cn_journal_store whose journal
 * is empty. */
extern const struct cn_store_ops cn_direct_store_ops;

/* --- journal_store.c --- */

/* Moves everything that is in the journal to LMDB, where sequences that ended leave room for
 * others. */
int cn_journal_empty(struct cn_journal_store *js, struct cn_error *err);
/* Opens a store with its journal. `direct` says whether the caller would like to do without it, and
 * gets what all processes that have the store open do (cn_journal_choose). */
int cn_journal_open(const struct cn_disk_options *options, bool *direct,
                    struct cn_journal_store **out, struct cn_error *err);
void cn_journal_close(struct cn_store *store);

/* Takes the lock: begins LMDB's transaction and reads what other processes have appended. On
 * failure the lock is not held. */
int cn_journal_lock(struct cn_journal_store *js, struct cn_error *err);

#endif
