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
#include "worker/batch/row_phase.h"
#include "worker/channel.h"
#include "worker/process/walls.h"
#include "worker/sequence_state.h"
#include "worker/worker.h"

/* A row, a CLOSE or a QUERY that was read and waits for its turn, in order of arrival. */
struct cn_pending {
    struct cn_list link;
    struct cn_block *block;       /* holds what the members below point to; referenced */
    const struct cn_row *row;     /* NULL: this is a CLOSE or a QUERY */
    const struct cn_query *query; /* NULL: this is a row or a CLOSE */
    const struct cn_close *closes;
    uint32_t n_closes;
    uint32_t id_hash;
    uint8_t phase; /* enum cn_row_phase, if it is a row; cn_row_enter writes it */
    uint64_t deadline_ms;
    enum cn_stop_reason stop;
    struct cn_stream *stream; /* NULL: it has not begun, or does not stream */
};

/* What an entry writes with the batch's commit. */
enum cn_entry_write {
    CN_WRITE_NOTHING,
    CN_WRITE_STEP,
    CN_WRITE_TOMBSTONE,
    CN_WRITE_IMPORT,
    CN_WRITE_CLAIM,
};

/* One row of the batch, from being chosen to being answered. Entries and their reply buffers are
 * kept from batch to batch. */
struct cn_batch_entry {
    struct cn_pending *pending;
    const struct cn_row *row;
    struct cn_item item;
    bool ended;     /* the sequence ended with this step, and that is committed */
    bool committed; /* committed at an earlier yield (load->continuous); it writes nothing more */
    struct cn_stream *stream;
    uint32_t answer_flags;
    enum cn_entry_write write;

    /* Stateful rows. */
    struct cn_sequence_state *seq; /* taken out of the cache; the handler works on its state */
    uint64_t generation;           /* for the answer */
    uint64_t opened_wall_ms;
    unsigned char key_hash[CN_KEY_HASH_BYTES]; /* of the idempotency key, if the row has one */
    uint64_t request_hash;                     /* if the row has a key or a number */
    uint64_t expected_step; /* if the row's number was wrong: the number that would be right */

    /* What the store held when the row was looked up. The commit checks that it still does. */
    bool had_record, had_tombstone;
    bool had_damaged;  /* a damaged record, which the commit overwrites */
    bool had_leftover; /* a pending import that is ignored (CN_ROW_PASS_PENDING) */
    bool had_claim;    /* a claim where nothing was before; had_record is false */
    uint64_t had_generation, had_step, had_last_job;

    /* These are for a shared store. */
    enum cn_store_outcome outcome; /* of the last commit */
    unsigned losses;               /* how often another node was quicker */
    bool lost;                     /* it was quicker in the last commit: the row is to run again */
    bool unsure;                   /* it was quicker, but the step may have been written before */
    bool passed;                   /* the commit is over for this entry */
    struct {                       /* the live record against which that commit was decided */
        uint64_t generation, step, last_job, last_wall_ms; /* generation 0: there was none */
    } known;

    /* A state that was copied out of the store and must be decoded before the run. */
    bool decode;
    struct cn_str state_bytes;
    uint32_t state_schema;

    /* A sequence that this row ends, and for which on_close is called after the commit: an expired
     * one, or the one that a START replaces. */
    struct cn_sequence_state *closed_seq;
    bool close_decode; /* closed_seq's state is still in state_bytes */
    int closed_reason;

    bool import; /* `seq` and `record` come from another version */

    struct cn_record record;      /* the record to write */
    size_t record_at, record_len; /* the encoded record in the batch's `records` */
    size_t state_bytes_len;
    struct cn_store_hint hint; /* where the record lies once it is committed */
};

/* Reply buffers of up to this size are kept from batch to batch. */
#define CN_REPLY_KEEP_BYTES 4096

/* A row whose handler yielded, from its first yield to its end. */
struct cn_stream {
    struct cn_worker *worker;
    struct cn_pending *pending;
    struct cn_list all;    /* worker->streams.all */
    struct cn_timer timer; /* fires when its rest or its time limit is over */
    /* while it is in no batch: the entry with which it left the last one */
    struct cn_batch_entry entry;
    struct cn_reply batch_reply; /* while it is in a batch: the reply that its entry had before */
    bool told;                   /* the server knows that it streams */
    bool woken;                  /* cn_stream_wake was called during its turn: it must not rest */
    uint64_t deadline_ms, rest_until_ms;
    uint64_t untaken;   /* bytes that were sent and not acknowledged by CREDIT */
    uint64_t bytes;     /* bytes of all its pieces */
    uint32_t n_pieces;  /* number of its pieces */
    struct cn_buf kept; /* the pieces, encoded for the record; empty when they are too large */
};

struct cn_streams {
    struct cn_list all; /* struct cn_stream */
    struct cn_table *by_job;
    struct cn_timer_wheel *wheel;
    uint64_t touched_ms; /* cn_now_ms() */
};

/* Is the entry's row in this phase? */
static inline bool
cn_batch_entry_is(const struct cn_batch_entry *entry, enum cn_row_phase phase)
{
    return entry->pending->phase == phase;
}

/* Does the entry hold padding, which fills a place in a batch that the server built? No client has
 * sent it: the handler does not get the row itself, and nobody waits for an answer. */
static inline bool
cn_batch_entry_is_padding(const struct cn_batch_entry *entry)
{
    return entry->row->flags & CN_ROW_PAD;
}

struct cn_batch {
    struct cn_batch_entry *entries; /* load->batch_size of them */
    struct cn_item **items;
    uint32_t n;
    bool formed;          /* the server built it, and its rows keep their places */
    bool incomplete;      /* some of its rows have not arrived, so it was not run */
    struct cn_item *pads; /* n_pads items in the arena, for places of this batch without a row */
    uint32_t n_pads;
    uint32_t n_ready;      /* entries whose reply was initialised */
    struct cn_arena arena; /* cleared after each batch */
    struct cn_buf records; /* the encoded records, one after the other */
    struct cn_buf chunks;  /* the encoded pieces of one answer */
    struct cn_error err;
    /* The sequences in the batch: a hash table with open addressing. `stamp` is the number of the
     * batch that wrote an entry; entries of older batches count as free, so that the table need not
     * be cleared. */
    struct {
        uint32_t stamp, entry, hash;
    } * seen;
    uint32_t seen_mask, stamp;
};

/* What a batch needs between its run and its answers. */
struct cn_batch_ran {
    struct cn_report report; /* report.rows is 0 if the handler got no row */
    uint64_t done_us;        /* when the handler was done */
    uint32_t writes;         /* how many records are to be written */
};

/* A batch whose commit is on its way to a shared store, or room for one (commits_away.c). */
struct cn_commit_away {
    bool away;
    struct cn_store *store; /* with a connection of its own; NULL: not opened yet */
    bool connected;         /* unless its last commit failed */
    struct cn_batch batch;
    struct cn_list rows; /* struct cn_pending of the batch */
    struct cn_batch_ran ran;
    uint64_t until_us; /* when the commit's time is over */
};

#define CN_COMMITS_AWAY_MAX 4

struct cn_commits_away {
    struct cn_commit_away *list; /* CN_COMMITS_AWAY_MAX of them; NULL: there was none yet */
    uint32_t n;                  /* how many are away */
    uint64_t next_us;            /* while some are: when the next batch may run */
    bool wanted;                 /* one more connection would have been of use */
    bool blocked;                /* all rows that wait are behind steps that are away */
    bool never;                  /* the server builds batches, which keep their places */
};

struct cn_worker {
    struct cn_channel channel;
    struct cn_arena load_arena;
    struct cn_load load;
    struct cn_walls walls;
    struct cn_model_io *io; /* NULL: the model is not typed */
    struct cn_runtime *rt;
    bool stateful; /* `states` is open */
    struct cn_states states;
    struct cn_batch batch;
    struct cn_list pending, spare; /* struct cn_pending: those that wait, with the streams that can
                                    * go on, and unused ones */
    struct cn_streams streams;
    struct cn_commits_away commits_away;
    bool stopping;
    bool told_why; /* the server knows why this worker could not start */
    /* an error of frames that were read while a handler ran; code 0: none */
    struct cn_error broken;
    uint64_t batches, rows;
    uint64_t busy_us;              /* CPU time without waiting, up to the last STATS */
    uint64_t reloads;              /* sequences read again, because another node had changed them */
    struct cn_store_activity told; /* the shared store's, as STATS last reported it */
    bool stats_due;
    uint64_t stats_sent_ms, maintained_ms;
    const char *hold_file; /* CONTINUO_TEST_HOLD */
};

/* worker.c */
/* Opens a worker on the server's socket `fd`: waits for LOAD, opens the model and the store, sends
 * LOADED. Returns 0, also when the server is gone (channel.eof), or an error. In all cases call
 * cn_worker_close afterwards. `find` and `title` are those of cn_worker_run. */
int cn_worker_open(struct cn_worker *worker, int fd, cn_runtime_find_fn find, char *title,
                   struct cn_error *err);
/* One turn of the worker's loop: takes frames, for which it waits up to max_wait_ms if there is
 * nothing to do, runs a batch, a CLOSE or a QUERY, and does what is due. Returns 1 if there is more
 * to come; 0 at the end, after STOP or when the server is gone; or an error. */
int cn_worker_turn(struct cn_worker *worker, int max_wait_ms, struct cn_error *err);
/* Frees all that the worker holds. Rows without an answer are dropped. */
void cn_worker_close(struct cn_worker *worker);

/* take_frames.c */
/* Reads all frames that the socket holds; waits up to `timeout_ms` for the first byte. */
int cn_worker_take_frames(struct cn_worker *worker, int timeout_ms, struct cn_error *err);
/* Sends the pieces of a row whose handler runs, and reads the frames that came meanwhile: one of
 * them may tell that the client is gone, or that it has taken earlier pieces. This is the function
 * `send` of struct cn_runtime. */
enum cn_stop_reason cn_worker_send_pieces(void *ctx, struct cn_item *item);

/* worker_stats.c */
/* Returns the CPU time since the worker began, without that of waiting. The latter is an estimate
 * that may be too large for a while, so the result never falls below the last one. */
uint64_t cn_worker_busy_us(const struct cn_worker *worker);
/* Sends STATS. Returns 0, or the error for which the worker must stop. */
int cn_worker_send_stats(struct cn_worker *worker, struct cn_error *err);

/* start.c */
/* Waits for LOAD and opens the model and the store. Returns 0, also when the server is gone
 * (channel.eof), or an error. The error has been sent to the server if the model or the store does
 * not open. In a zygote the call returns when the server is gone. It also returns in each worker
 * that the zygote forks, once that worker is ready. */
int cn_worker_start(struct cn_worker *worker, cn_runtime_find_fn find, char *title,
                    struct cn_error *err);
/* Sends LOADED at once. `code` 0: `message` is the runtime's description of itself. */
int cn_worker_send_loaded(struct cn_worker *worker, int code, const char *message,
                          struct cn_error *err);

/* zygote.c */
/* Forks workers until the server is gone, and then returns 0, or an error. It returns 1 in each
 * forked worker, which has a channel of its own. `title` is that of cn_worker_run. */
int cn_zygote_serve(struct cn_worker *worker, char *title, struct cn_error *err);

/* batch_memory.c */
void cn_batch_init(struct cn_batch *batch, const struct cn_load *load);
void cn_batch_fini(struct cn_batch *batch);
/* Frees the large buffers that a batch has left. Call it between batches, but not after each one: a
 * model with large states needs them again at once. */
void cn_batch_shed(struct cn_batch *batch);
uint32_t cn_id_hash(struct cn_str id);
/* Takes the entry out of its list and gives it back, with its reference to the block. A row must
 * be ANSWERED or DROPPED. */
void cn_worker_release(struct cn_worker *worker, struct cn_pending *pending);

/* execute.c */
/* Builds a batch of the waiting rows (up to the first CLOSE or QUERY), runs it, and prepares its
 * commit. If the batch is empty, there is nothing to commit or to answer. Returns 0, or the error
 * for which the worker must stop. */
int cn_worker_begin_batch(struct cn_worker *worker, struct cn_batch_ran *out, struct cn_error *err);
/* Answers the worker's present batch, after its commit, of which `lost` rows are to run again.
 * Returns like cn_worker_begin_batch. */
int cn_worker_end_batch(struct cn_worker *worker, uint32_t lost, struct cn_batch_ran *ran,
                        struct cn_error *err);

/* lockstep.c */
/* Returns how many rows the next batch should have at most: the model's batchSize, or half of the
 * waiting rows when clients and worker are in lockstep. */
uint32_t cn_lockstep_rows(const struct cn_worker *worker);

/* yielded_rows.c */
void cn_streams_init(struct cn_streams *streams, uint64_t now_ms);
/* Drops all streams. Call it before the runtime is closed. The timer wheel stays, because handlers
 * have timers in it. */
void cn_streams_fini(struct cn_worker *worker);
/* Ends the rest of a row, because its handler has more to send. This is the function `wake` of
 * struct cn_runtime. */
void cn_stream_wake(void *worker, uint64_t job_id);
/* Appends the pieces of a row whose handler runs to the output, and makes the row a stream. Returns
 * the row; NULL: it cannot stream, or has no piece. */
const struct cn_pending *cn_stream_send(struct cn_worker *worker, struct cn_item *item);
uint32_t cn_streams_count(const struct cn_streams *streams);
void cn_stream_credit(struct cn_worker *worker, const struct cn_credit *credit);
/* Notifies a stream that it must end. Returns false when no row of that job streams. */
bool cn_stream_cancel(struct cn_worker *worker, const struct cn_cancel *cancel);
/* A sequence with a running stream is not idle. This writes the present time into the records of
 * such sequences, once in CN_STREAM_TOUCH_MS. */
#define CN_STREAM_TOUCH_MS 20000 /* less than the minute by which the sweep is late */
void cn_streams_touch(struct cn_worker *worker);
/* Notifies the streams of this sequence, except for one, that they must end. It looks at all
 * streams, but is called rarely. */
void cn_streams_stop(struct cn_worker *worker, struct cn_str id, const struct cn_pending *except,
                     enum cn_stop_reason reason);
void cn_streams_stop_all(struct cn_worker *worker);
/* Puts the stream into the batch's entry for its turn. */
void cn_stream_join(struct cn_stream *stream, struct cn_batch_entry *entry);
/* Call it after the run: marks the entries whose handler yielded, and makes streams of new ones. */
void cn_batch_note_yields(struct cn_worker *worker);
/* Call it after the commit: ends streams that have failed, because their step could not be saved or
 * their piece is too large. */
void cn_batch_drop_failed(struct cn_worker *worker);
/* Counts a piece that was sent, and keeps it for the record. */
void cn_stream_sent(struct cn_batch_entry *entry, struct cn_str piece);
/* Takes an entry that yielded out of the batch; its row waits for its next turn. */
void cn_stream_park(struct cn_worker *worker, struct cn_batch_entry *entry);
/* Frees the stream of an entry whose row is answered. The entry is then like any other. */
void cn_stream_end(struct cn_worker *worker, struct cn_batch_entry *entry);

/* resolve/ */
/* Looks up what the store holds for each row of the batch: a state, a stored answer or a tombstone.
 * Afterwards each entry is ready to run, or has an error or an answer. */
void cn_batch_resolve(struct cn_worker *worker);
/* Looks up anew the entries that are `lost`, with one read for all of them; none is lost then. */
void cn_batch_resolve_lost(struct cn_worker *worker);
/* Looks up one entry anew, after its run has failed and nothing of it was kept. */
void cn_batch_resolve_again(struct cn_worker *worker, struct cn_batch_entry *entry);
/* Sets `err` to the reason for which a step cannot continue the closed sequence of `record`, and
 * returns its code. */
int cn_fail_gone(const struct cn_states *states, struct cn_str id, const struct cn_record *record,
                 struct cn_error *err);
/* Returns the generation of a new sequence whose id had this generation before; 0: the store does
 * not know the id. It must be greater than all earlier ones, including one whose tombstone was
 * removed. So it is the wall time in ms, or the next number if the clock is behind. */
uint64_t cn_next_generation(uint64_t generation, uint64_t now_wall_ms);

/* idempotency.c */
/* Sets key_hash from the row's key, and request_hash from its parts and its START, END and EXPLAIN
 * flags. Both are 0 when the row has neither key nor number. */
void cn_batch_entry_hash(struct cn_batch_entry *entry);

/* commit.c */
/* Encodes the records of the rows that succeeded, and writes them in one transaction. Entries whose
 * record could not be written have an error then. All rows that need an answer, but have not
 * yielded, are SETTLED after it. With a shared store, rows may stay RAN and be `lost`, because
 * another node has changed their sequence: they are to run again, and then this is called again.
 * Returns how many these are. */
uint32_t cn_batch_commit(struct cn_worker *worker);
/* These do the same in two parts, so that a batch can wait for a shared store while others run. The
 * first returns how many records are to be written, the second writes them. */
uint32_t cn_batch_commit_prepare(struct cn_worker *worker);
uint32_t cn_batch_commit_write(struct cn_worker *worker, uint32_t writes);
/* Call it in place of cn_batch_commit_write: gives all records to `store` and sends them. Returns
 * 0, or an error; then nothing has left, and cn_batch_commit_write can be called. */
int cn_batch_commit_send(struct cn_worker *worker, struct cn_store *store, struct cn_error *err);
/* Waits for what that store has not decided yet. Returns what cn_batch_commit returns, and sets
 * `good` if the store has decided about all. */
uint32_t cn_batch_commit_take(struct cn_worker *worker, struct cn_store *store, bool *good);

/* commits_away.c */
/* Call it between the first and the second part of a commit. If it returns true, the batch is put
 * aside, and will be answered when the store has decided about it. */
bool cn_commits_away_send(struct cn_worker *worker, const struct cn_batch_ran *ran);
/* Makes one more connection, if it is wanted. Call it when the store has just answered. */
void cn_commits_away_connect(struct cn_worker *worker);
/* Must no batch run now? */
bool cn_commits_away_hold(const struct cn_worker *worker);
/* While some are away: ends those about which the store has decided. If there are none, and no
 * batch may run, waits up to max_wait_ms for a reply or for bytes from the server. Returns 0, or
 * the error for which the worker must stop. */
int cn_commits_away_wait(struct cn_worker *worker, int max_wait_ms, struct cn_error *err);
/* Waits for all of them. */
int cn_commits_away_end(struct cn_worker *worker, struct cn_error *err);
/* Ends what is away, and frees everything. Call it before the store is closed. */
void cn_commits_away_fini(struct cn_worker *worker);

/* sequence_queries.c */
/* Answers a QUERY: lists, reads or writes stored sequences. */
void cn_worker_answer_query(struct cn_worker *worker, const struct cn_query *query);

/* answer_frames.c */
/* Makes the row DECIDED if it is not yet. */
void cn_batch_entry_decide(struct cn_batch_entry *entry);
/* Decides the row: an error replaces what the handler answered. */
void cn_batch_entry_fail(struct cn_batch_entry *entry, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends the frames of an entry's answer to the output: all of it, or what a stream has so far.
 * Then the row is ANSWERED, or still YIELDED. */
void cn_batch_entry_answer(struct cn_worker *worker, struct cn_batch_entry *entry);
/* Appends the frames of the pieces that a stream has so far. */
void cn_batch_entry_put_pieces(struct cn_worker *worker, struct cn_batch_entry *entry);
/* Appends the answer that the store holds, or the reason why it was not kept. Then the row is
 * ANSWERED. */
void cn_batch_entry_replay(struct cn_worker *worker, struct cn_batch_entry *entry,
                           const struct cn_record *record);
/* Answers a CN_RECALL_LAST: `step` is the last committed one. Then the row is ANSWERED. */
void cn_batch_entry_tell_last(struct cn_worker *worker, struct cn_batch_entry *entry,
                              uint64_t step);
/* Answers a job with an error without running it. */
void cn_worker_refuse(struct cn_worker *worker, uint64_t job_id, int code, const char *message);
/* Returns a sequence id for messages: unchanged or quoted, and cut if it is long. An integer id is
 * shown as its digits. */
const char *cn_id_shown(struct cn_str id, char out[128]);

#endif
