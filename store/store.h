/* store/store.h - where records of sequences live: get, put, delete and scan under transactions.
 *
 * Two kinds: a table in memory (durability none), and a journal above LMDB (process, power). Keys
 * are sequence ids. One thread per store object; several processes may share one LMDB folder. At
 * most one transaction is open at a time, and no handler code runs while one is.
 */
#ifndef CN_STORE_STORE_H
#define CN_STORE_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_STORE_KEY_MAX 256 /* bytes; at least 1 */
/* The version of what stands in a store's folder; a store of another one is refused. */
#define CN_STORE_FORMAT 6
#define CN_STORE_PREFIX_BYTES 2048 /* of a value, that cn_store_prefix shows at least */
/* Of an entry that is looked for: its head, its key, the numbers of its record. */
#define CN_STORE_PREFETCH_BYTES 128

/* What a store knows of a key's value without looking for it. Kept beside what was decoded of that
 * value, by the one who puts its next ones; of use to the store object alone that filled it.
 * Zeroed: nothing. */
struct cn_store_hint {
    uint64_t txn; /* that put the value; 0: nothing is known */
    uint32_t hash, at, bytes, stored;
};

struct cn_store;

enum cn_store_txn {
    CN_STORE_READ,
    CN_STORE_WRITE,
};

/* What a kind of store is made of; callers use the functions below. */
struct cn_store_ops {
    const char *name;
    void (*close)(struct cn_store *store);
    int (*begin)(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err);
    int (*get)(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err);
    int (*prefix)(struct cn_store *store, struct cn_str key, struct cn_str *out,
                  struct cn_error *err); /* NULL: as get */
    int (*next)(struct cn_store *store, struct cn_str after, struct cn_str *key,
                struct cn_str *prefix, struct cn_error *err);
    int (*put)(struct cn_store *store, struct cn_str key, struct cn_str value,
               struct cn_error *err);
    int (*replace)(struct cn_store *store, struct cn_str key, struct cn_str value,
                   struct cn_store_hint *hint, struct cn_error *err);        /* NULL: as put */
    bool (*holds)(struct cn_store *store, const struct cn_store_hint *hint); /* NULL: never */
    int (*remove)(struct cn_store *store, struct cn_str key, struct cn_error *err);
    int (*commit)(struct cn_store *store, struct cn_error *err);
    void (*abort)(struct cn_store *store);
    uint64_t (*count)(struct cn_store *store);
    uint64_t (*bytes)(struct cn_store *store);
    unsigned (*maintain)(struct cn_store *store);
    void (*drain_some)(struct cn_store *store); /* may be NULL */
    void (*prefetch)(struct cn_store *store, const struct cn_str *keys,
                     const struct cn_store_hint *const *hints, uint32_t n); /* may be NULL */
};

struct cn_store {
    const struct cn_store_ops *ops;
};

/* A store in this process's memory, gone with it. `max_bytes` of keys and values. Never fails. */
struct cn_store *cn_mem_store_open(uint64_t max_bytes);

/* Where a test may want to know that the journal is. */
enum cn_store_point {
    CN_STORE_APPENDED, /* a transaction stands in the journal, LMDB was told nothing yet */
    CN_STORE_SWITCHED, /* the other file is the journal from now on */
    CN_STORE_DRAINING, /* values of the journal are written to LMDB, nothing is committed */
    CN_STORE_DRAINED,  /* they are committed */
};

struct cn_journal_options {
    const char *dir;    /* exists; one per model version */
    uint64_t max_bytes; /* of LMDB's file; limits writes that grow it, once the journal is in it */
    uint64_t
        journal_max_bytes; /* of each of the journal's two files, and what one commit is over */
    bool sync; /* fdatasync on each commit: survives the machine, not only the process */
    bool
        read_only; /* no write transaction; the folder must hold a store already, of nobody at work */
    uint64_t check_max_bytes; /* data.mdb up to this size is checked before it is used */
    bool recheck;             /* although it was checked before; read_only does so, too */
    void (*passing)(enum cn_store_point point); /* or NULL */
};
/* CN_E_STATE_STORE: folder not writable, not a store, damaged, or from a newer version.
 * Removes readers that died. Never open one folder twice in a process, nor fork with it open. */
int cn_journal_store_open(const struct cn_journal_options *options, struct cn_store **out,
                          struct cn_error *err);

/* In the folder of a store that was found damaged, until an operator accepts it: a text. Its first
 * lines are "lost N", the sequences whose newest state is lost, and "suspect 0|1": 1 when nobody
 * can know which ones. The others say what is wrong. */
#define CN_STORE_DAMAGED "DAMAGED"

/* In the folder of a store whose data.mdb was checked since the server began to use it. */
#define CN_STORE_CHECKED "CHECKED"

/* Outside a transaction, of a store that is open for writing: sequences that were lost are
 * forgotten, and the store is no longer damaged. `dropped`: how many. */
int cn_store_accept_loss(struct cn_store *store, uint64_t *dropped, struct cn_error *err);

/* NULL is allowed; an open transaction is aborted. */
void cn_store_close(struct cn_store *store);

/* On failure no transaction is open. */
int cn_store_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err);
/* In a transaction of any kind: `out` borrows the value until the next put, remove, commit or
 * abort; out->ptr is NULL when there is no such key. */
int cn_store_get(struct cn_store *store, struct cn_str key, struct cn_str *out,
                 struct cn_error *err);
/* As get, but of a value over CN_STORE_PREFIX_BYTES `out` may have its beginning only, of that
 * length at least: for those who need no more, where a large value would have to be put together
 * first. */
int cn_store_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out,
                    struct cn_error *err);
/* These keys, CN_PREFETCH_MAX at most, will be looked for or replaced soon, in a transaction or
 * not: asks for the memory that this would wait for, all at once. Changes nothing. `traces`: those
 * that there are of their values, NULL where there is none. */
void cn_store_prefetch(struct cn_store *store, const struct cn_str *keys,
                       const struct cn_store_hint *const *hints, uint32_t n);
/* In a transaction: the entry after `after` (empty: the first) in the store's own order; key->ptr
 * is NULL past the last. The value as cn_store_prefix has it. Borrowed as with get. Visits what
 * stays in the store exactly once; an `after` that was removed may start over. */
int cn_store_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
                  struct cn_str *prefix, struct cn_error *err);
/* In a write transaction. 1 (and `err` names the limit) when the value is larger than the old one
 * and the store is full: nothing was changed and the transaction may go on without it. After
 * CN_E_STATE_STORE only abort is allowed. */
int cn_store_put(struct cn_store *store, struct cn_str key, struct cn_str value,
                 struct cn_error *err);
/* As put, with what is known of the value that is replaced: spares looking for it. On success
 * `trace` is of the new value, once the transaction is committed; if it is not, it is worth
 * nothing. A key's values have one trace at a time. */
int cn_store_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
                     struct cn_store_hint *hint, struct cn_error *err);
/* In a transaction: is it certain, without looking, that the value is still the one of `trace`? */
bool cn_store_holds(struct cn_store *store, const struct cn_store_hint *hint);
/* As put; a key that isn't there is fine. */
int cn_store_remove(struct cn_store *store, struct cn_str key, struct cn_error *err);
/* All or nothing; the transaction is over either way. CN_E_STATE_STORE: full or disk error,
 * named. */
int cn_store_commit(struct cn_store *store, struct cn_error *err);
/* Ends a read transaction, or drops what was written. Harmless when none is open. */
void cn_store_abort(struct cn_store *store);

/* Entries, tombstones included. Outside a transaction. */
uint64_t cn_store_count(struct cn_store *store);
/* What they take: on disk the pages that hold them, without those that are free again, and the
 * journal. */
uint64_t cn_store_bytes(struct cn_store *store);
/* Call at times, and when a commit found the store full: lets go of readers whose process died
 * (they keep old pages from being used again) and makes room in the journal. How much of either was
 * done: over 0, a commit may be tried again. */
unsigned cn_store_maintain(struct cn_store *store);
/* Call between transactions, often: does a little of what commits put off, when it is due. */
void cn_store_drain_some(struct cn_store *store);

#endif
