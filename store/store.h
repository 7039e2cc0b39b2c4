/* store/store.h - the records of sequences on disk, in memory or in a shared store: get, put,
 * remove and scan, each inside a transaction.
 *
 * There are three kinds of store: a table in the worker's memory (durability `none`), files in a
 * folder (`process` and `power`), which store/disk_store.h opens, and a Valkey or Redis server that
 * several nodes share, which store/shared_store.h opens. Keys are sequence ids, values are encoded
 * records (store/record/record.h). One store object belongs to one thread; several
 * processes may have one store folder open at the same time. An object has at most one open
 * transaction, and no handler code runs while it is open, because other processes wait for it.
 *
 * In a shared store a transaction locks nothing. Its writes are conditional: each key is written
 * only if the store still holds what the caller saw, and the store decides this for each key alone.
 * So a commit may write some keys and lose others; cn_store_expect says how the caller learns
 * which.
 *
 * A worker uses a store like this: begin a read, get the records of a batch, abort (a read has
 * nothing to commit); call the handler; begin a write, replace the records, commit; send the
 * answers. */
#ifndef CN_STORE_STORE_H
#define CN_STORE_STORE_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/containers/buckets.h"
#include "core/errors/error.h"
#include "core/text/str.h"

#define CN_STORE_KEY_MAX 256 /* the longest key in bytes; the shortest has 1 */
/* The version of the files in a store's folder. A store with another version is refused. */
#define CN_STORE_FORMAT 6
/* cn_store_prefix returns at least this much of a value, or all of a shorter one */
#define CN_STORE_PREFIX_BYTES 2048
/* A look-up touches this many bytes of an entry: its head, its key and the numbers of its record.
 * They are prefetched. */
#define CN_STORE_PREFETCH_BYTES 128

/* A store location hint: what the store remembers about where a value lies, so that the next write
 * of the key need not look for it. The owner of the decoded state keeps the hint beside that state
 * and passes it to cn_store_replace. A hint is valid only for the store object that filled it. A
 * zeroed hint says nothing and is always allowed. */
struct cn_store_hint {
    uint64_t txn; /* the transaction that put the value; 0: the hint is empty */
    uint32_t hash, at, bytes, stored;
};

struct cn_store;

enum cn_store_txn {
    CN_STORE_READ,
    CN_STORE_WRITE,
};

/* What a caller saw under a key. */
struct cn_store_seen {
    enum {
        CN_SEEN_NOTHING,  /* there was no such key */
        CN_SEEN_RECORD,   /* a record with the numbers below */
        CN_SEEN_ANYTHING, /* the caller replaces whatever is there, such as a damaged record */
    } what;
    bool tombstone; /* such a record may have been removed meanwhile */
    uint64_t generation, step, last_job;
};

/* What the commit of a shared store did with a key. */
enum cn_store_outcome {
    CN_STORE_WRITTEN, /* it was written, and is as durable as the model asks for */
    CN_STORE_LOST,    /* it was not written, because the store holds something newer */
    CN_STORE_UNSURE,  /* the same, but an attempt without a reply may have written it before */
    CN_STORE_FAILED,  /* it may or may not be written; the commit's error says why */
};

/* What a shared store has done since it was opened, and how it is now. */
struct cn_store_activity {
    uint64_t trips[CN_DURATION_VALUES]; /* a histogram: how long each answer took, in us */
    uint64_t commits[CN_ROWS_VALUES];   /* a histogram: how many records each commit wrote */
    uint64_t conflicts;                 /* writes that were LOST */
    bool connected;
    uint64_t since_wall_ms; /* when the connection was made, or lost */
    char last_error[256];   /* the error of the last call that failed; "": none has */
    uint64_t trip_us;       /* how long the last answers took, in the mean */
};

/* The most entries that cn_store_due gives. */
#define CN_STORE_DUE_MAX 64

/* An entry whose time has come: its key, and what cn_store_prefix would give. */
struct cn_store_due {
    struct cn_str key, prefix;
};

/* The functions of one kind of store. Callers use the cn_store_ functions below, which check keys
 * and handle the members that may be NULL. */
struct cn_store_ops {
    const char *name;
    void (*close)(struct cn_store *store);
    int (*begin)(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err);
    int (*get)(struct cn_store *store, struct cn_str key, struct cn_str *out, struct cn_error *err);
    int (*prefix)(struct cn_store *store, struct cn_str key, struct cn_str *out,
                  struct cn_error *err); /* NULL: get is used */
    int (*next)(struct cn_store *store, struct cn_str after, struct cn_str *key,
                struct cn_str *prefix, struct cn_error *err);
    int (*put)(struct cn_store *store, struct cn_str key, struct cn_str value,
               struct cn_error *err);
    int (*replace)(struct cn_store *store, struct cn_str key, struct cn_str value,
                   struct cn_store_hint *hint, struct cn_error *err); /* NULL: put is used */
    /* NULL: no hint is ever valid */
    bool (*holds)(struct cn_store *store, const struct cn_store_hint *hint);
    int (*remove)(struct cn_store *store, struct cn_str key, struct cn_error *err);
    int (*commit)(struct cn_store *store, struct cn_error *err);
    void (*abort)(struct cn_store *store);
    uint64_t (*count)(struct cn_store *store);
    uint64_t (*bytes)(struct cn_store *store);
    unsigned (*maintain)(struct cn_store *store);
    void (*work_off)(struct cn_store *store); /* may be NULL */
    void (*prefetch)(struct cn_store *store, const struct cn_str *keys,
                     const struct cn_store_hint *const *hints, uint32_t n); /* may be NULL */
    void (*expect)(struct cn_store *store, const struct cn_store_seen *seen,
                   enum cn_store_outcome *outcome); /* NULL: the store is not shared */
    /* These are NULL, too, if the store is not shared. */
    void (*send)(struct cn_store *store);
    bool (*decided)(struct cn_store *store);
    uint32_t (*watch)(struct cn_store *store, struct pollfd *watched, uint32_t max);
    const struct cn_store_activity *(*activity)(struct cn_store *store);
    int (*due)(struct cn_store *store, uint64_t now_ms, struct cn_store_due *out, uint32_t max,
               uint32_t *n, struct cn_error *err);
    void (*later)(struct cn_store *store, struct cn_str key, uint64_t at_ms);
};

struct cn_store {
    const struct cn_store_ops *ops;
};

/* Creates a store in this process's memory; its content ends with the process. `max_bytes` limits
 * keys and values together. Never fails. Free it with cn_store_close. */
struct cn_store *cn_mem_store_open(uint64_t max_bytes);

/* Closes the store and frees it. NULL is allowed. An open transaction is aborted. */
void cn_store_close(struct cn_store *store);

/* Begins a transaction and waits until no other process has one open. CN_E_STATE_STORE: the files
 * cannot be read or written; then no transaction is open. */
int cn_store_begin(struct cn_store *store, enum cn_store_txn kind, struct cn_error *err);
/* Reads a value, in a read or write transaction. `out` borrows the value until the next put,
 * remove, commit or abort. out->ptr is NULL if there is no such key. CN_E_STATE_DAMAGED: the key's
 * newest value was lost by damage to the store. CN_E_STATE_STORE: it cannot be read. */
int cn_store_get(struct cn_store *store, struct cn_str key, struct cn_str *out,
                 struct cn_error *err);
/* Reads the beginning of a value, like cn_store_get but cheaper for a large one, whose parts need
 * not be put together. Of a value longer than CN_STORE_PREFIX_BYTES, `out` may hold only the
 * beginning, at least that many bytes. */
int cn_store_prefix(struct cn_store *store, struct cn_str key, struct cn_str *out,
                    struct cn_error *err);
/* Prefetches the memory that look-ups or writes of these keys will touch, at most CN_PREFETCH_MAX
 * of them, so that the processor waits for all of it once. It may be called inside or outside a
 * transaction and changes nothing. `hints` has an element for each key, NULL where there is no
 * hint. */
void cn_store_prefetch(struct cn_store *store, const struct cn_str *keys,
                       const struct cn_store_hint *const *hints, uint32_t n);
/* Scans the store inside a transaction: gives the entry after the key `after` (empty: the first
 * entry) in the store's own order. key->ptr is NULL behind the last one. `prefix` is what
 * cn_store_prefix would give; both are borrowed as in cn_store_get. A scan visits each entry that
 * stays in the store exactly once. If the key `after` was removed meanwhile, the scan may begin
 * again at the first entry. */
int cn_store_next(struct cn_store *store, struct cn_str after, struct cn_str *key,
                  struct cn_str *prefix, struct cn_error *err);
/* Writes a value, in a write transaction. Returns 1, with an `err` that names the limit, if the
 * value is larger than the old one and the store is full: then nothing was changed, and the
 * transaction may go on without this key. After CN_E_STATE_STORE the transaction can only be
 * aborted. */
int cn_store_put(struct cn_store *store, struct cn_str key, struct cn_str value,
                 struct cn_error *err);
/* Writes a value like cn_store_put, but uses `hint` about the old value, so that the old value need
 * not be looked for. On success the hint describes the new value; it counts only if the transaction
 * is committed. There must be only one hint for a key at a time. */
int cn_store_replace(struct cn_store *store, struct cn_str key, struct cn_str value,
                     struct cn_store_hint *hint, struct cn_error *err);
/* True if it is certain, without a look-up, that the value is still the one that `hint` describes.
 * False also when that is not known. Call it inside a transaction. */
bool cn_store_holds(struct cn_store *store, const struct cn_store_hint *hint);
/* Removes a key and its value, in a write transaction. A key that is not there is not an error.
 * After CN_E_STATE_STORE the transaction can only be aborted. */
int cn_store_remove(struct cn_store *store, struct cn_str key, struct cn_error *err);
/* Do other nodes use this store, too? Then each write is conditional. */
bool cn_store_is_shared(const struct cn_store *store);
/* Call it before a put, replace or remove, for that call only; stores that are not shared ignore
 * it. The key is written only if the store still holds what `seen` says. `seen` NULL stands for
 * what this transaction has read under the key; if it has read nothing there, whatever the store
 * holds is replaced. The commit sets `outcome`, which must live until then and may be NULL. */
void cn_store_expect(struct cn_store *store, const struct cn_store_seen *seen,
                     enum cn_store_outcome *outcome);
/* For a shared store, in a read transaction: gives up to `max` (at least CN_STORE_DUE_MAX) entries
 * that have expired by their records, and others that somebody should look at, because they may
 * have expired. Only one worker of all nodes gets any. The caller closes or removes each entry, or
 * says with cn_store_later when it can expire; otherwise it comes again after a minute. `out` is
 * borrowed until the transaction ends. */
int cn_store_due(struct cn_store *store, uint64_t now_wall_ms, struct cn_store_due *out,
                 uint32_t max, uint32_t *n, struct cn_error *err);
/* Puts an entry off that cn_store_due gave. `at_wall_ms` 0: it never expires. */
void cn_store_later(struct cn_store *store, struct cn_str key, uint64_t at_wall_ms);
/* What the store has done, for metrics and descriptions; valid until the next call. NULL: it is not
 * shared. */
const struct cn_store_activity *cn_store_activity(struct cn_store *store);
/* Makes all changes of the transaction durable at once, or none of them. The transaction is over in
 * both cases. CN_E_STATE_STORE: the store or the disk is full, or a write failed; the message says
 * which.
 *
 * A shared store writes each key for itself, and sets the outcomes. It returns an error if a key
 * has FAILED: CN_E_STORE_UNREACHABLE if the store did not confirm it in time. CN_E_CONFLICT: a key
 * without an outcome was LOST. */
int cn_store_commit(struct cn_store *store, struct cn_error *err);
/* These are for a shared store. They let the caller do something else while the store decides.
 *
 * Sends the transaction's writes, and waits at most for a connection. Only the two calls below and
 * cn_store_commit, which waits for what is not decided then, may follow. */
void cn_store_send(struct cn_store *store);
/* Returns true when cn_store_commit would not wait for a reply: the store has decided, or its time
 * is over, or the connection is lost. */
bool cn_store_decided(struct cn_store *store);
/* Sets `watched` to the sockets for which a caller must wait before it asks cn_store_decided again,
 * at most `max`, and returns their number. */
uint32_t cn_store_watch(struct cn_store *store, struct pollfd *watched, uint32_t max);
/* Ends a read transaction, or drops the changes of a write transaction. Does nothing when none is
 * open. */
void cn_store_abort(struct cn_store *store);

/* The number of entries, tombstones included. Call it outside a transaction. */
uint64_t cn_store_count(struct cn_store *store);
/* The bytes that the entries take. On disk free pages of the files do not count. Call it outside a
 * transaction. */
uint64_t cn_store_bytes(struct cn_store *store);
/* Call it from time to time, and when a commit found the store full. It gives back what
 * processes that died have held, and makes room. Returns how much was done; if that is over 0, a
 * failed commit may be tried again. */
unsigned cn_store_maintain(struct cn_store *store);
/* Call it often, between transactions. It does a small part of the work that commits have put off,
 * when it is due. */
void cn_store_work_off(struct cn_store *store);

#endif
