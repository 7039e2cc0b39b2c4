/* worker/worker_priv.h - what the worker's files share: the worker, its waiting rows, its batch. */
#ifndef CN_WORKER_WORKER_PRIV_H
#define CN_WORKER_WORKER_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/list.h"
#include "core/containers/table.h"
#include "core/memory/arena.h"
#include "core/time/timer_wheel.h"
#include "proto/query.h"
#include "worker/channel.h"
#include "worker/sequence_state.h"
#include "worker/worker.h"

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
    enum cn_stop_reason stop;
    struct cn_stream *stream; /* NULL: it has not begun, or does not stream */
};

/* What a slot will write with the batch's commit. */
enum cn_slot_write { CN_WRITE_NOTHING, CN_WRITE_STEP, CN_WRITE_TOMBSTONE, CN_WRITE_IMPORT };

/* One row of the batch, from being chosen to being answered. Slots and their reply buffers are kept
 * from batch to batch. */
struct cn_slot {
    struct cn_pending *pending;
    const struct cn_row *row;
    struct cn_item item;
    bool run;       /* the handler gets it */
    bool again;     /* ... once more, since its memory was used up */
    bool pad;       /* nobody's row: it fills a place of a formed batch */
    bool answered;  /* its answer is in the output already */
    bool ended;     /* the sequence ended with this step, and that is committed */
    bool yields;    /* the handler goes on in a later batch */
    bool committed; /* by an earlier yield (load->continuous): nothing more is written */
    struct cn_stream *stream;
    uint32_t answer_flags;
    enum cn_slot_write write;

    /* Stateful rows. */
    struct cn_sequence_state *seq; /* taken; what the handler works on */
    uint64_t generation;           /* of the answer */
    uint64_t opened_wall_ms;
    unsigned char key_hash[CN_KEY_HASH_BYTES]; /* of the idempotency key, if the row has one */
    uint64_t request_hash;                     /* if the row has a key or a number */
    uint64_t expected_step; /* of a row that failed for its number: what would have been right */

    /* What the store held when the row was looked up; it must still do so at the commit. */
    bool had_record, had_tombstone;
    bool had_damaged;  /* whatever it holds is overwritten */
    bool had_leftover; /* an import that counts for nothing (CN_ROW_PASS_PENDING) */
    uint64_t had_generation, had_step;

    /* A state that must be decoded before the run, copied out of the store. */
    bool decode;
    struct cn_str state_bytes;
    uint32_t state_schema;

    /* The sequence whose end the handler hears of after the commit: an expired one, or the one that
     * a START replaces. */
    struct cn_sequence_state *closed_seq;
    bool close_decode; /* closed_seq's state is still in state_bytes */
    int closed_reason;

    bool import; /* `seq` and `record` come from another version */

    struct cn_record record;      /* to be written */
    size_t record_at, record_len; /* encoded, in the batch's `records` */
    size_t state_bytes_len;
    struct cn_store_hint hint; /* of it, once it is committed */
};

/* What reply buffers keep from batch to batch. */
#define CN_REPLY_KEEP_BYTES 4096

/* A row whose handler yielded, until it comes to its end. */
struct cn_stream {
    struct cn_worker *worker;
    struct cn_pending *pending;
    struct cn_list all;    /* worker->streams.all */
    struct cn_timer timer; /* its rest or its time is over */
    struct cn_slot slot;   /* while it is in no batch: as it left the last one */
    bool joined;           /* it is in the batch, in a slot whose own reply is below */
    struct cn_reply batch_reply;
    bool told;  /* the server knows that it streams */
    bool woken; /* since it was last looked at: its rest is over */
    uint64_t deadline_ms, rest_until_ms;
    uint64_t untaken;  /* bytes that left and that no CREDIT told of */
    uint64_t bytes;    /* of all its pieces, and the pieces as records have them; empty */
    uint32_t n_pieces; /* once they are more than is kept */
    struct cn_buf kept;
};

struct cn_streams {
    struct cn_list all; /* struct cn_stream */
    struct cn_table *by_job;
    struct cn_timer_wheel *wheel;
    uint64_t touched_ms; /* cn_now_ms() */
};

struct cn_batch {
    struct cn_slot *slots; /* load->batch_size of them */
    struct cn_item **items;
    uint32_t n;
    bool formed;          /* by the server: its rows keep their places */
    bool incomplete;      /* not all of its rows have come: it was not run */
    struct cn_item *pads; /* n_pads of them, in the arena: places of this batch without a row */
    uint32_t n_pads;
    uint32_t n_ready;      /* slots whose reply was initialised */
    struct cn_arena arena; /* of one batch */
    struct cn_buf records; /* encoded, one after the other */
    struct cn_buf chunks;  /* one answer's */
    struct cn_error err;
    /* Sequences in the batch: open addressing, entries of older batches count as free. */
    struct {
        uint32_t stamp, slot, hash;
    } * seen;
    uint32_t seen_mask, stamp;
};

struct cn_worker {
    struct cn_channel channel;
    struct cn_arena load_arena;
    struct cn_load load;
    struct cn_model_io *io; /* NULL: the model is not typed */
    struct cn_runtime *rt;
    bool stateful; /* `states` is open */
    struct cn_states states;
    struct cn_batch batch;
    struct cn_list pending, spare; /* struct cn_pending; streams that can go on among the first */
    struct cn_streams streams;
    bool stopping;
    uint64_t batches, rows;
    uint64_t busy_us; /* as told last: CPU time without that of waiting */
    bool stats_due;
    uint64_t stats_sent_ms, maintained_ms;
    const char *hold_file; /* CONTINUO_TEST_HOLD */
};

/* start.c */
/* The model is open, and the store where there is one. 0 also when the server is gone
 * (channel.eof). In a zygote the call ends with the server, and in each of its workers when that is
 * ready. Of a model or a store that does not open the server is told already. */
int cn_worker_start(struct cn_worker *worker, cn_runtime_find_fn find, char *title,
                    struct cn_error *err);
/* LOADED, sent at once. `code` 0: `message` is the runtime's words. */
int cn_worker_send_loaded(struct cn_worker *worker, int code, const char *message,
                          struct cn_error *err);

/* zygote.c */
/* Forks workers until the server is gone. 0 then, or an error; 1 in each of the workers, whose
 * channel is its own. `title`: as of cn_worker_run. */
int cn_zygote_serve(struct cn_worker *worker, char *title, struct cn_error *err);

/* execute.c */
void cn_batch_init(struct cn_batch *batch, const struct cn_load *load);
void cn_batch_fini(struct cn_batch *batch);
/* Frees the buffers that a large batch has left. Call it between batches, and not after each one: a
 * model with large states needs them again at once. */
void cn_batch_shed(struct cn_batch *batch);
uint32_t cn_id_hash(struct cn_str id);
/* Runs one batch of what waits (nothing but rows before the first CLOSE or QUERY) and answers it.
 * Returns 0, or the reason to stop. */
int cn_worker_run_batch(struct cn_worker *worker, struct cn_error *err);
/* Gives the entry back. */
void cn_worker_release(struct cn_worker *worker, struct cn_pending *pending);

/* yielded_rows.c */
void cn_streams_init(struct cn_streams *streams, uint64_t now_ms);
/* Gives up all that stream; before the runtime is closed. The wheel stays: handlers' timers are in
 * it. */
void cn_streams_fini(struct cn_worker *worker);
/* The handler has something to say for a row that rests; struct cn_runtime's `wake`. */
void cn_stream_wake(void *worker, uint64_t job_id);
uint32_t cn_streams_count(const struct cn_streams *streams);
void cn_stream_credit(struct cn_worker *worker, const struct cn_credit *credit);
/* False: no such row streams. */
bool cn_stream_cancel(struct cn_worker *worker, const struct cn_cancel *cancel);
/* A sequence with a running stream is not idle: says so in the store, every CN_STREAM_TOUCH_MS. */
#define CN_STREAM_TOUCH_MS 20000 /* the sweep is a minute late */
void cn_streams_touch(struct cn_worker *worker);
/* Tells the streams of this sequence, but for one. O(streams), and rare. */
void cn_streams_stop(struct cn_worker *worker, struct cn_str id, const struct cn_pending *except,
                     enum cn_stop_reason reason);
void cn_streams_stop_all(struct cn_worker *worker);
/* The stream takes its turn in this batch. */
void cn_stream_join(struct cn_stream *stream, struct cn_slot *slot);
/* After the run: which slots yield. */
void cn_batch_note_yields(struct cn_worker *worker);
/* After the commit: streams whose step could not be saved, or whose piece is too large, have
 * failed. */
void cn_batch_drop_failed(struct cn_worker *worker);
/* A piece has left. */
void cn_stream_sent(struct cn_slot *slot, struct cn_str piece);
/* A slot that yields leaves the batch: its row waits for its next turn. */
void cn_stream_park(struct cn_worker *worker, struct cn_slot *slot);
/* The row is answered: the slot is as any other. */
void cn_stream_end(struct cn_worker *worker, struct cn_slot *slot);

/* resolve.c */
/* Finds out what each row of the batch meets: a state, a stored answer, a tombstone. Afterwards a
 * slot is to be run, or has an error or an answer. */
void cn_batch_resolve(struct cn_worker *worker);
/* The same for one slot, again: what was done before failed and nothing of it is kept. */
void cn_batch_resolve_again(struct cn_worker *worker, struct cn_slot *slot);
/* Why nothing can be done with the closed sequence of `record`; returns the code. */
int cn_fail_gone(const struct cn_states *states, struct cn_str id, const struct cn_record *record,
                 struct cn_error *err);
/* Of a sequence that follows this generation under its id, or 0, which the store doesn't know. It
 * is later, also than one that was forgotten: the time, which a record has in a byte, or else the
 * next number. */
uint64_t cn_next_generation(uint64_t generation, uint64_t now_wall_ms);

/* idempotency.c */
/* Sets key_hash and request_hash from the row: its parts, whether it starts or ends its sequence; 0
 * where the row has neither key nor number. */
void cn_slot_hash(struct cn_slot *slot);

/* commit.c */
/* Encodes the records of what succeeded and writes them in one transaction. Slots that could not be
 * written have an error then. */
void cn_batch_commit(struct cn_worker *worker);

/* sequence_queries.c */
/* Answers a QUERY: lists, reads or writes stored sequences. */
void cn_worker_answer_query(struct cn_worker *worker, const struct cn_query *query);

/* answer_frames.c */
/* The row gets an error instead of what the handler said. */
void cn_slot_fail(struct cn_slot *slot, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends the frames of a slot's answer to the output: all of it, or what a stream has so far. */
void cn_slot_answer(struct cn_worker *worker, struct cn_slot *slot);
/* The same for an answer that the store holds. */
void cn_slot_replay(struct cn_worker *worker, struct cn_slot *slot, const struct cn_record *record);
void cn_worker_refuse(struct cn_worker *worker, uint64_t job_id, int code, const char *message);
/* A sequence id for messages: as it is, or quoted; cut. An integer is its digits. */
const char *cn_id_shown(struct cn_str id, char out[128]);

#endif
