/* worker/worker_priv.h - what the worker's files share: the worker, its waiting rows, its batch. */
#ifndef CN_WORKER_WORKER_PRIV_H
#define CN_WORKER_WORKER_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/list.h"
#include "proto/query.h"
#include "worker/channel.h"
#include "worker/sequence_state.h"

/* A row, a CLOSE or a QUERY that was read and waits its turn, in order of arrival. */
struct cn_pending {
    struct cn_list link;
    struct cn_block *block;       /* holds what follows; referenced */
    const struct cn_row *row;     /* NULL: this is a CLOSE or a QUERY */
    const struct cn_query *query; /* NULL: no QUERY */
    const struct cn_close *closes;
    uint32_t n_closes;
    uint32_t id_hash;
    uint64_t deadline_ms;
    bool cancelled;
};

/* What a slot will write with the batch's commit. */
enum cn_slot_write { CN_WRITE_NOTHING, CN_WRITE_STEP, CN_WRITE_TOMBSTONE };

/* One row of the batch, from being chosen to being answered. Slots and their reply buffers are kept
 * from batch to batch. */
struct cn_slot {
    struct cn_pending *pending;
    const struct cn_row *row;
    struct cn_item item;
    bool run;      /* the handler gets it */
    bool answered; /* its answer is in the output already */
    bool ended;    /* the sequence ended with this step, and that is committed */
    uint32_t answer_flags;
    enum cn_slot_write write;

    /* Stateful rows. */
    struct cn_sequence *seq; /* taken; what the handler works on */
    uint64_t generation;     /* of the answer */
    uint64_t opened_wall_ms;
    unsigned char key_hash[CN_KEY_HASH_BYTES]; /* of the idempotency key; all zero: none */
    uint64_t request_hash;                     /* set with it */

    /* What the store held when the row was looked up; it must still do so at the commit. */
    bool had_record, had_tombstone;
    bool had_damaged; /* whatever it holds is overwritten */
    uint64_t had_generation, had_step;

    /* A state that must be decoded before the run, copied out of the store. */
    bool decode;
    struct cn_str state_bytes;
    uint32_t state_schema;

    /* The sequence whose end the handler hears of after the commit: an expired one, or the one that
     * a START replaces. */
    struct cn_sequence *closed_seq;
    bool close_decode; /* closed_seq's state is still in state_bytes */
    int closed_reason;

    struct cn_record record;      /* to be written */
    size_t record_at, record_len; /* encoded, in the batch's `records` */
    size_t state_bytes_len;
};

struct cn_batch {
    struct cn_slot *slots; /* load->batch_size of them */
    struct cn_item **items;
    uint32_t n;
    uint32_t n_ready;      /* slots whose reply was initialised */
    struct cn_arena arena; /* of one batch */
    struct cn_buf records; /* encoded, one after the other */
    struct cn_buf state;   /* one encoded state */
    struct cn_buf chunks;  /* one answer's */
    struct cn_error err;
    /* Sequences in the batch: open addressing, entries of older batches count as free. */
    struct {
        uint32_t stamp, slot;
    } * seen;
    uint32_t seen_mask, stamp;
};

struct cn_worker {
    struct cn_channel channel;
    struct cn_arena load_arena;
    struct cn_load load;
    struct cn_runtime *rt;
    bool stateful; /* `states` is open */
    struct cn_states states;
    struct cn_batch batch;
    struct cn_list pending, spare; /* struct cn_pending */
    bool stopping;
    uint64_t batches, rows;
    bool stats_due;
    uint64_t stats_sent_ms, maintained_ms;
    const char *hold_file; /* CONTINUO_TEST_HOLD */
};

/* execute.c */
void cn_batch_init(struct cn_batch *batch, const struct cn_load *load);
void cn_batch_fini(struct cn_batch *batch);
uint32_t cn_id_hash(struct cn_str id);
/* Runs one batch of what waits (nothing but rows before the first CLOSE or QUERY) and answers it. Returns 0, or
 * the reason to stop. */
int cn_worker_run_batch(struct cn_worker *worker, struct cn_error *err);
/* Gives the entry back. */
void cn_worker_release(struct cn_worker *worker, struct cn_pending *pending);

/* resolve.c */
/* Finds out what each row of the batch meets: a state, a stored answer, a tombstone. Afterwards a slot
 * is to be run, or has an error or an answer. */
void cn_batch_resolve(struct cn_worker *worker);
/* The same for one slot, again: what was done before failed and nothing of it is kept. */
void cn_batch_resolve_again(struct cn_worker *worker, struct cn_slot *slot);
/* Why nothing can be done with the closed sequence of `record`; returns the code. */
int cn_fail_gone(const struct cn_states *states, struct cn_str id, const struct cn_record *record,
                 struct cn_error *err);
/* Of a sequence whose id the store doesn't know: never one that it may have had before it was
 * forgotten. */
uint64_t cn_first_generation(uint64_t now_wall_ms);

/* idempotency.c */
/* Sets key_hash and request_hash from the row: its parts, whether it starts or ends its sequence. */
void cn_slot_hash(struct cn_slot *slot);

/* commit.c */
/* Encodes the records of what succeeded and writes them in one transaction. Slots that could not be
 * written have an error then. */
void cn_batch_commit(struct cn_worker *worker);

/* query.c */
/* Answers a QUERY: lists, reads or writes stored sequences. */
void cn_worker_answer_query(struct cn_worker *worker, const struct cn_query *query);

/* answer.c */
/* The row gets an error instead of what the handler said. */
void cn_slot_fail(struct cn_slot *slot, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends the frames of a slot's answer to the output. */
void cn_slot_answer(struct cn_worker *worker, struct cn_slot *slot);
/* The same for an answer that the store holds. */
void cn_slot_replay(struct cn_worker *worker, struct cn_slot *slot, const struct cn_record *record);
void cn_worker_refuse(struct cn_worker *worker, uint64_t job_id, int code, const char *message);
/* A sequence id for messages: as it is, or quoted; cut. */
const char *cn_id_shown(struct cn_str id, char out[128]);

#endif
