/* worker/sequence_state.h - the sequences of a worker: cached ones, stored ones, closed ones.
 *
 * A sequence object holds the decoded state and the numbers of its record. It is either in the LRU
 * or taken out by whoever works on it; memory is never ahead of the store. Owned by the worker's
 * one thread. No handler code runs inside a transaction.
 */
#ifndef CN_WORKER_SEQUENCE_STATE_H
#define CN_WORKER_SEQUENCE_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/memory/buf.h"
#include "core/memory/slab.h"
#include "handlers/runtime.h"
#include "proto/frame.h"
#include "store/memory/state_lru.h"
#include "store/record/record.h"
#include "store/store.h"

/* Sequences that one transaction closes at most: bounds what is decoded at once for on_close. */
#define CN_CLOSE_BATCH 64

struct cn_sequence_state {
    struct cn_lru_entry lru; /* key: the id below */
    uint64_t generation, step, last_job, opened_wall_ms, last_wall_ms;
    unsigned char *keys; /* as records have them: hashes, the newest first; NULL: none */
    uint32_t n_keys;
    void *state;               /* the runtime's; NULL before the first step */
    struct cn_store_hint hint; /* of the record that this is of */
    char id[];
};

struct cn_states {
    const struct cn_load *load;
    struct cn_runtime *rt;
    struct cn_store *store;
    struct cn_lru *lru;
    struct cn_slab sequences; /* the memory of those of the LRU, and of those that are worked on */
    struct cn_buf scratch;    /* bytes copied out of the store, or a tombstone being made */
    uint64_t next_sweep_ms;   /* cn_now_ms(), not before it */
    size_t sweep_at_len;      /* where it goes on */
    uint64_t clock_floor_ms;  /* no step is older than this wall time; 0: the clock never jumped */
    int64_t clock_offset_ms;  /* wall time less boot time, when it was looked at last */
    char sweep_at[CN_SEQUENCE_ID_MAX];
};

/* Opens the store that `load` names. `load` and `rt` must outlive `states`. */
int cn_states_open(struct cn_states *states, const struct cn_load *load, struct cn_runtime *rt,
                   struct cn_error *err);
void cn_states_close(struct cn_states *states);

/* Logs an error that we cope with. */
void cn_states_warn(const struct cn_states *states, const char *event, const struct cn_error *err);

/* A sequence without a state. Free it with cn_states_free. */
struct cn_sequence_state *cn_states_create(struct cn_states *states, struct cn_str id);
/* Of the last keyed steps, load->key_window of them at most; borrowed. */
struct cn_str cn_sequence_keys(const struct cn_sequence_state *seq);
/* So many bytes they have at most, room for one in any case. */
size_t cn_states_keys_room(const struct cn_states *states);
/* Copies them, the first load->key_window at most. */
void cn_sequence_set_keys(struct cn_states *states, struct cn_sequence_state *seq,
                          struct cn_str keys);
/* These, CN_PREFETCH_MAX at most, will be looked for in LRU and store: asks for their memory. */
void cn_states_prefetch(struct cn_states *states, const struct cn_str *ids, uint32_t n);
/* Out of the LRU, to be worked on; NULL: not cached. */
struct cn_sequence_state *cn_states_take(struct cn_states *states, struct cn_str id);
/* Into the LRU; `bytes` is what it counts for. */
void cn_states_put(struct cn_states *states, struct cn_sequence_state *seq, size_t state_bytes);
/* Frees the object and its state; NULL is allowed. */
void cn_states_free(struct cn_states *states, struct cn_sequence_state *seq);

/* Under the model's limits: CN_CLOSE_IDLE or CN_CLOSE_LIFETIME, whichever came first, or 0. */
/* Did the wall clock jump ahead since the last look? Idle clocks start anew then. Call with each
 * wall time before it decides about expiry. */
void cn_states_look_at_clock(struct cn_states *states, uint64_t now_wall_ms);
int cn_states_expired(const struct cn_states *states, uint64_t opened_wall_ms,
                      uint64_t last_wall_ms, uint64_t now_wall_ms);
/* When a live record expires; 0: never. */
uint64_t cn_states_expires_at(const struct cn_states *states, uint64_t opened_wall_ms,
                              uint64_t last_wall_ms);
bool cn_states_forgotten(const struct cn_states *states, const struct cn_record *tombstone,
                         uint64_t now_wall_ms);
/* Makes a tombstone of a record: no state; the answer goes unless `keep_answer`. */
void cn_states_bury(const struct cn_states *states, struct cn_record *record, int reason,
                    uint64_t now_wall_ms, bool keep_answer);
/* Decodes a state that was copied out of the store. With the handler's memory full, drops cached
 * states and tries again. */
int cn_states_decode(struct cn_states *states, struct cn_str bytes, uint32_t schema, void **out,
                     struct cn_error *err);

/* Closes live sequences (of these generations): tombstones in transactions of CN_CLOSE_BATCH, then
 * the handler hears of each. Returns how many closes are committed, those of unknown sequences
 * among them; fewer than `n` after an error, which is in `err`. */
uint32_t cn_states_close_some(struct cn_states *states, const struct cn_close *closes, uint32_t n,
                              struct cn_error *err);

/* The sequence is at work now: its idle clock starts anew in the store, so that the sweep of this
 * or another worker leaves it alone. Harmless for ids without a live record. Within a transaction.
 */
int cn_states_touch(struct cn_states *states, struct cn_str id, uint64_t now_wall_ms,
                    struct cn_error *err);

/* Looks at a few records, closing those that expired long ago without anybody knowing them and
 * removing old tombstones. Cheap to call often. */
void cn_states_sweep(struct cn_states *states);
/* For a worker without steps: when the round that was begun should go on (CN_NEVER: none was), and
 * more of it. */
uint64_t cn_states_sweep_on_ms(const struct cn_states *states);
void cn_states_sweep_on(struct cn_states *states);

#endif
