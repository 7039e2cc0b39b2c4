/* worker/sequence_state.h - the sequences of a worker: cached ones, stored ones, closed ones.
 *
 * A struct cn_sequence_state holds a sequence's decoded state and the numbers of its record. It is
 * either in the state cache (the LRU) or taken out by the code that works on it, which puts it back
 * or frees it. The store is the truth: an object is changed only after the commit of the record
 * that says the same, so memory is never ahead of the store. No handler code runs inside a
 * transaction. Everything belongs to the worker's one thread.
 */
#ifndef CN_WORKER_SEQUENCE_STATE_H
#define CN_WORKER_SEQUENCE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/memory/slab.h"
#include "core/time/clock.h"
#include "handlers/runtime.h"
#include "proto/frame.h"
#include "store/memory/state_lru.h"
#include "store/record/record.h"
#include "store/store.h"

/* The most sequences that one transaction closes. It bounds the memory for the states that on_close
 * gets, because those are decoded after the commit. */
#define CN_CLOSE_BATCH 64

struct cn_sequence_state {
    struct cn_lru_entry lru; /* its key is the id below */
    uint64_t generation, step, last_job, opened_wall_ms, last_wall_ms;
    unsigned char *keys; /* hashes of idempotency keys, the newest first, as in a record; or NULL */
    uint32_t n_keys;
    /* The answers of the last steps, that of the last one first (kept_answers.h); NULL: the last
     * step was not of a client that needs them. */
    char *kept;
    size_t kept_len;
    void *state;               /* the runtime's; NULL before the first step */
    struct cn_store_hint hint; /* where the record lies in the store */
    char id[];
};

struct cn_states {
    const struct cn_load *load;
    struct cn_runtime *rt;
    struct cn_store *store;
    struct cn_lru *lru;
    struct cn_slab sequences; /* memory of all sequence objects, cached or taken out */
    struct cn_buf scratch;    /* bytes copied out of the store, or a tombstone being made */
    uint64_t next_sweep_ms;   /* cn_now_ms(); the sweep does not go on before it */
    size_t sweep_at_len;      /* length of sweep_at; 0: the sweep begins at the first record */
    uint64_t clock_floor_ms;  /* idle times count from here at the earliest: the wall time of the
                               * clock's last jump; 0: it never jumped */
    int64_t clock_offset_ms;  /* wall time minus boot time at the last look */
    char sweep_at[CN_SEQUENCE_ID_MAX]; /* the id behind which the sweep goes on */
};

/* Opens the store that `load` names, or one in memory with durability none. `load` and `rt` must
 * outlive `states`. Returns 0 or the store's error. */
int cn_states_open(struct cn_states *states, const struct cn_load *load, struct cn_runtime *rt,
                   struct cn_error *err);
void cn_states_close(struct cn_states *states);
/* Opens a further connection to the shared store, as another store. It connects when it is used
 * first; close it before `states`. */
int cn_states_open_further(struct cn_states *states, struct cn_store **out, struct cn_error *err);

/* Logs an error that does not stop the worker. */
void cn_states_warn(const struct cn_states *states, const char *event, const struct cn_error *err);

/* Returns a new sequence object without a state. Free it with cn_states_free or put it into the
 * cache. It does not touch the store. */
struct cn_sequence_state *cn_states_create(struct cn_states *states, struct cn_str id);
/* Returns the key hashes of the last steps that had an idempotency key, the newest first, at most
 * load->key_window of them; borrowed from `seq`. */
struct cn_str cn_sequence_keys(const struct cn_sequence_state *seq);
/* Returns the most bytes that these hashes can take, at least those of one hash. */
size_t cn_states_keys_room(const struct cn_states *states);
/* Copies the first load->key_window of these hashes into `seq`. */
void cn_sequence_set_keys(struct cn_states *states, struct cn_sequence_state *seq,
                          struct cn_str keys);
/* Keeps the answers of the record's step and of those before it; the record is that of the
 * sequence's last step. NULL, or too little memory: nothing is kept any more. */
void cn_sequence_keep(struct cn_sequence_state *seq, const struct cn_record *record);
/* Prefetches the memory that looking up these ids in the cache and in the store will need; `n` is
 * at most CN_PREFETCH_MAX. */
void cn_states_prefetch(struct cn_states *states, const struct cn_str *ids, uint32_t n);
/* Takes the sequence out of the cache; the caller owns it then. NULL: it is not cached. */
struct cn_sequence_state *cn_states_take(struct cn_states *states, struct cn_str id);
/* Gives the sequence to the cache, which may free it at once to keep its limits. `state_bytes`: the
 * size of the encoded state. */
void cn_states_put(struct cn_states *states, struct cn_sequence_state *seq, size_t state_bytes);
/* Frees the object and its state; NULL is allowed. */
void cn_states_free(struct cn_states *states, struct cn_sequence_state *seq);

/* Finds out whether the wall clock has jumped ahead since the last call; then all idle times start
 * anew. Call it with each wall time that will decide about expiry. */
void cn_states_look_at_clock(struct cn_states *states, uint64_t now_wall_ms);
/* Returns why a sequence with these times has expired under the model's limits: CN_CLOSE_IDLE or
 * CN_CLOSE_LIFETIME, the one that came first; 0: it has not expired. */
int cn_states_expired(const struct cn_states *states, uint64_t opened_wall_ms,
                      uint64_t last_wall_ms, uint64_t now_wall_ms);
/* Returns the wall time at which a sequence with these times expires; 0: never. */
uint64_t cn_states_expires_at(const struct cn_states *states, uint64_t opened_wall_ms,
                              uint64_t last_wall_ms);
/* Returns when a limit of `limit_ms` that counts from `from` is reached; CN_NEVER without limit. */
static inline uint64_t
cn_states_runs_out(uint64_t from, uint64_t limit_ms)
{
    return limit_ms && from <= UINT64_MAX - limit_ms ? from + limit_ms : CN_NEVER;
}

/* Has the tombstone been kept for load->tombstone_ms? Then it counts as absent. */
bool cn_states_forgotten(const struct cn_states *states, const struct cn_record *tombstone,
                         uint64_t now_wall_ms);
/* Turns a decoded record into a tombstone: it loses its state, and its answer unless `keep_answer`.
 */
void cn_states_bury(const struct cn_states *states, struct cn_record *record, int reason,
                    uint64_t now_wall_ms, bool keep_answer);
/* Decodes a state that was copied out of the store into *out, which the runtime's state_free frees.
 * When the handler's memory is full, it empties the cache and tries once more. Not inside a
 * transaction, because a handler may be asked to migrate the state. Returns 0 or the runtime's
 * error. */
int cn_states_decode(struct cn_states *states, struct cn_str bytes, uint32_t schema, void **out,
                     struct cn_error *err);

/* Tells a shared store that the next reads need this record. All that are announced before the
 * first read cost one round trip together. */
void cn_states_announce(struct cn_states *states, struct cn_str id);
/* Closes sequences: writes tombstones in transactions of CN_CLOSE_BATCH, and calls the handler's
 * on_close after each transaction. A sequence that is unknown, closed or of another generation is
 * left alone. Returns how many closes are committed, including those; after an error, which is in
 * `err`, these are fewer than `n`. */
uint32_t cn_states_close_some(struct cn_states *states, const struct cn_close *closes, uint32_t n,
                              struct cn_error *err);

/* Sets the record's time of the last step to now, because the sequence is being worked on: so the
 * sweep of this or another worker leaves it alone. Does nothing for an id without a live record.
 * Call it within a write transaction. Returns 0 or the store's error. */
int cn_states_touch(struct cn_states *states, struct cn_str id, uint64_t now_wall_ms,
                    struct cn_error *err);

/* Goes on with the sweep if it is time: looks at a few records, closes those that expired a while
 * ago and that the server does not know, and removes old tombstones. Cheap to call often. In a
 * shared store, one worker of all nodes does this at a time, and asks the store which records these
 * are. */
void cn_states_sweep(struct cn_states *states);
/* These two are for a worker without steps: the first returns when a round that was begun should go
 * on (CN_NEVER: none was begun), and the second looks at more records at a time. */
uint64_t cn_states_sweep_on_ms(const struct cn_states *states);
void cn_states_sweep_on(struct cn_states *states);

#endif
