/* proto/frame.h - the frames between server and worker, version 1.
 *
 * A stream socket carries frames back to back. Header, 12 bytes, little-endian:
 *   u32 length of the payload   u8 type   u8 version (1)   u16 zero   u32 count
 * `count`: rows of a BATCH, entries of a CLOSE, CLOSED, CANCEL or CREDIT, sequences of a RESULT,
 * samples of a REPORT; 0 otherwise. Both ends validate everything; a bad frame ends the connection.
 * The layout of each payload stands in frame_*.c above its encoder.
 *
 * server -> worker   LOAD once, then BATCH, CLOSE, CANCEL, CREDIT, QUERY in any order, STOP last
 * worker -> server   PROGRESS, LOADED once, then ANSWER, CLOSED, STATS, RESULT, REPORT A zygote
 * (LOAD says so) gets FORK instead, answered by one FORKED each, in order. BATCH, CLOSE and QUERY
 * are worked on in the order of sending. QUERY and RESULT stand in proto/query.h.
 */
#ifndef CN_PROTO_FRAME_H
#define CN_PROTO_FRAME_H

#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/borrowed_output.h"
#include "core/memory/buf.h"
#include "proto/message.h"
#include "proto/wire.h"

#define CN_FRAME_VERSION 1
#define CN_FRAME_HEADER_BYTES 12
#define CN_WORKER_FD 3 /* the worker's end of the socket pair */
/* Exit statuses of continuo-worker --check-store, --mend-store and --accept-store: the disk is too
 * full to look; the store can be read, but for some records. */
#define CN_CHECK_NO_ROOM 3
#define CN_CHECK_DAMAGED 4

enum cn_frame_type {
    CN_FRAME_LOAD = 1,
    CN_FRAME_BATCH = 2,
    CN_FRAME_CLOSE = 3,  /* sequences that the server closed: delete, tell the handler */
    CN_FRAME_CANCEL = 4, /* jobs that are to end, and why */
    CN_FRAME_STOP = 5,   /* finish what was received, then exit 0 */
    CN_FRAME_CREDIT = 6, /* bytes of streamed answers that their clients took */
    CN_FRAME_QUERY = 7,  /* look at stored sequences, or write one; answered by one RESULT */
    CN_FRAME_FORK = 8, /* become two: with it come the new worker's socket and what it prints to */
    CN_FRAME_LOADED = 65,
    CN_FRAME_ANSWER = 66,
    CN_FRAME_STATS = 67,
    CN_FRAME_CLOSED = 68, /* answers a CLOSE: how many of its sequences are closed and committed */
    CN_FRAME_RESULT = 69, /* answers a QUERY */
    CN_FRAME_REPORT = 70, /* a call of the handler and what it measured; before its rows' answers */
    CN_FRAME_FORKED = 71, /* answers a FORK */
    CN_FRAME_PROGRESS = 72 /* how far loading is */
};

struct cn_frame {
    enum cn_frame_type type;
    uint32_t count;
    struct cn_str payload; /* borrowed from the bytes given to cn_frame_next */
};

/* Takes one frame off the front of `len` bytes. Returns its size in bytes, 0 when more bytes are
 * needed, or CN_E_PROTOCOL (bad version or type, payload over max_payload_bytes). */
long cn_frame_next(const void *bytes, size_t len, size_t max_payload_bytes, struct cn_frame *out,
                   struct cn_error *err);

struct cn_state_specs; /* state_tensors.h */

/* What a worker needs to know to load its model: LOAD. Strings are NUL-terminated by the
 * decoder. */
#define CN_LOAD_FIELDS(STR, NUM)                                                                         \
    STR(model_name)                                                                                      \
    STR(model_version)                                                                                   \
    STR(model_dir)         /* unpacked archive, absolute */                                              \
    STR(handler)           /* file in model_dir, or ""; torch: the model */                              \
    STR(config_file)       /* the model's YAML in model_dir, or "" */                                    \
    STR(runtime)           /* "lua", "c" or "torch" */                                                   \
    STR(store_dir)         /* absolute; exists; "" with durability none */                               \
    STR(torch_library)     /* absolute; "": the one beside the worker */                                 \
    NUM(worker_index)      /* 1, 2, ... within the model version */                                      \
    NUM(batch_size)        /* rows a handler call gets at most */                                        \
    NUM(stateful)          /* 1: rows belong to sequences */                                             \
    NUM(durability)        /* enum cn_durability of config/model/model_config.h */                       \
    NUM(cache_entries)     /* LRU: sequences */                                                          \
    NUM(cache_bytes)       /* LRU: encoded bytes */                                                      \
    NUM(state_max_bytes)   /* of one sequence, encoded */                                                \
    NUM(answer_keep_bytes) /* stored answers up to this size can be replayed */                          \
    NUM(answer_max_bytes)  /* an answer over this is an error */                                         \
    NUM(store_max_bytes)   /* size limit of the model's store */                                         \
    NUM(journal_max_bytes) /* of each of its journal's two files */                                      \
    NUM(check_max_bytes)   /* its data.mdb up to this size is checked before it is used */               \
    NUM(idle_ms)           /* sequenceMaxIdleMSec + stateTtlMSec; 0: none */                             \
    NUM(clock_floor_ms) /* no step is older than this wall time: the clock jumped then; 0: it did not */ \
    NUM(clock_jump_ms)    /* how far the wall clock must run off to have jumped; 0: never */             \
    NUM(lifetime_ms)      /* sequenceTimeoutMSec; 0: none */                                             \
    NUM(tombstone_ms)     /* how long a closed sequence is remembered */                                 \
    NUM(restart_expired)  /* 1: a late step of an expired sequence begins a new one */                   \
    NUM(key_window)       /* idempotency keys that are kept of a sequence, 1 to 255 */                   \
    NUM(memory_max_bytes) /* of a Lua VM; 0: none */                                                     \
    NUM(step_time_ms)     /* a Lua call may run so long; 0: until the batch's deadline */                \
    NUM(continuous)       /* 1: a step is committed at its first yield */                                \
    NUM(stream_bytes)     /* of one streamed answer that wait for CREDIT at most, and a piece */         \
    NUM(stream_ms)        /* a row may stream so long; 0: no limit */                                    \
    NUM(report_jobs)      /* 1: a REPORT names the jobs of its call */                                   \
    NUM(max_batch_size)   /* of a typed model: tensors begin with a batch dimension; 0: none */          \
    NUM(samples_max)      /* a REPORT has at most so many samples */                                     \
    NUM(busy_wait_us)     /* it looks for work so long before it sleeps; 0: not at all */                \
    NUM(zygote)           /* 1: load the model, then fork workers instead of being one */

struct cn_load {
#define CN_LOAD_STR(name) const char *name;
#define CN_LOAD_NUM(name) uint64_t name;
    CN_LOAD_FIELDS(CN_LOAD_STR, CN_LOAD_NUM)
#undef CN_LOAD_STR
#undef CN_LOAD_NUM
    /* Not in the frame: the worker finds them in the model's YAML. NULL: it declares none. Where
     * they are, a handler has no state of its own. */
    const struct cn_state_specs *state;
    /* The worker's too: the runtime may say what it does while it loads. NULL: nobody asks. */
    void (*progress)(void *ctx, const char *what, uint32_t done, uint32_t total);
    void *progress_ctx;
};

/* LOADED: error_code 0 and the runtime's words, or why the model can't run. A zygote that says
 * CN_E_UNIMPLEMENTED can't fork this model; its workers load it themselves. */
struct cn_loaded {
    int32_t error_code;
    struct cn_str message; /* "Lua 5.4.4", or the error */
    struct cn_str device;  /* that the model runs on: "cuda:1"; "": the CPU */
    struct cn_str warning; /* what whoever runs the model should know; "": nothing */
};

/* PROGRESS: "warming up", 2 of 6. */
struct cn_progress {
    uint32_t done, total; /* total 0: one step without parts */
    struct cn_str what;
};

/* FORKED: the new process, a child of the server as its zygote is; or why there is none. */
struct cn_forked {
    uint32_t pid; /* 0: none */
    struct cn_str message;
};

/* STATS: sent after LOADED and then at most once a second, when something changed. */
struct cn_worker_stats {
    uint64_t rss_bytes, cached_sequences, cached_bytes, stored_sequences, stored_bytes, batches,
        rows;
    uint64_t streams; /* rows that stream. Sent each second while there are some: they may have
                       * nothing to say for long, and the worker gets on all the same */
    uint64_t busy_us; /* CPU time since the last STATS, without that of waiting for frames */
};

/* A number that a handler measured under a name of its own. */
enum cn_sample_type { CN_SAMPLE_COUNTER, CN_SAMPLE_GAUGE, CN_SAMPLE_HISTOGRAM };
struct cn_sample {
    enum cn_sample_type type;
    struct cn_str name, unit; /* "tokens", "Count" */
    double value;             /* finite */
    uint32_t n_dims;
    struct cn_header *dims; /* label names and values */
};

struct cn_report {
    uint32_t rows;       /* that the handler got in the call; 0: no call, only samples */
    uint32_t batch;      /* the same, where a row counts as often as its batch dimension says */
    uint64_t before_us;  /* looking up states, before the call */
    uint64_t handler_us; /* what the call took */
    uint64_t after_us;   /* the commit, and what else comes before the answers */
    uint32_t n_jobs;     /* the call's jobs, if LOAD asked for them */
    uint64_t *job_ids;
    uint32_t n_samples;
    struct cn_sample *samples;
};

/* Why a sequence was closed: CLOSE carries it, tombstones keep it, handlers hear it. */
enum cn_close_reason {
    CN_CLOSE_ENDED = 1,
    CN_CLOSE_IDLE = 2,
    CN_CLOSE_LIFETIME = 3,
    CN_CLOSE_EVICTED = 4,
    CN_CLOSE_CANCELLED = 5,
    CN_CLOSE_DELETED = 6,
    CN_CLOSE_UNLOADED = 7,
    CN_CLOSE_MOVED = 8, /* it lives on in another version */
    CN_CLOSE_RESET = 9  /* another version began it anew */
};
/* "ended", "idle", ...; "unknown" for other numbers. */
const char *cn_close_reason_word(enum cn_close_reason reason);

struct cn_close {
    struct cn_str sequence_id;
    uint64_t generation; /* 0: whichever lives */
    enum cn_close_reason reason;
};

/* CN_STOP_GONE also refuses a row that has not begun; the others only tell one that streams. */
struct cn_cancel {
    uint64_t job_id;
    enum cn_stop_reason reason;
};
/* "gone", "deadline", ...; "unknown" for other numbers. */
const char *cn_stop_reason_word(enum cn_stop_reason reason);

/* So many bytes of the job's streamed pieces were taken since the last CREDIT. */
struct cn_credit {
    uint64_t job_id, bytes;
};

/* CLOSED: the first `done` of the CLOSE's `count` sequences are closed; why not the others. Those
 * stay in the store. */
struct cn_closed {
    uint32_t count, done;
    int32_t error_code; /* 0: done is count */
    struct cn_str message;
};

/* Encoders append a whole frame; buf->failed when it did not fit. */
void cn_frame_put_load(struct cn_buf *buf, const struct cn_load *load);
void cn_frame_put_loaded(struct cn_buf *buf, const struct cn_loaded *loaded);
void cn_frame_put_progress(struct cn_buf *buf, const struct cn_progress *progress);
/* `label`: what ps shows of the new worker. */
void cn_frame_put_fork(struct cn_buf *buf, struct cn_str label);
void cn_frame_put_forked(struct cn_buf *buf, const struct cn_forked *forked);
void cn_frame_put_stats(struct cn_buf *buf, const struct cn_worker_stats *stats);
void cn_frame_put_close(struct cn_buf *buf, const struct cn_close *closes, uint32_t count);
void cn_frame_put_cancel(struct cn_buf *buf, const struct cn_cancel *cancels, uint32_t count);
void cn_frame_put_credit(struct cn_buf *buf, const struct cn_credit *credits, uint32_t count);
void cn_frame_put_stop(struct cn_buf *buf);
void cn_frame_put_closed(struct cn_buf *buf, const struct cn_closed *closed);
void cn_frame_put_report(struct cn_buf *buf, const struct cn_report *report);
void cn_frame_put_answer(struct cn_buf *buf, const struct cn_answer *answer);
/* As cn_frame_put_answer, but a large body is lent. */
void cn_frame_lend_answer(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                          const struct cn_answer *answer);
/* A batch is begun, gets its rows one by one, and is ended: returns the offset for _end. */
size_t cn_frame_begin_batch(struct cn_buf *buf);
void cn_frame_put_row(struct cn_buf *buf, const struct cn_row *row);
void cn_frame_end_batch(struct cn_buf *buf, size_t begun, uint32_t rows);
/* The same, but large parts of the row are lent, with *unsent as their count. `lent`: bytes of all
 * rows of the batch that are. */
void cn_frame_lend_row(struct cn_buf *buf, struct cn_borrowed_output *borrowed, uint32_t *unsent,
                       const struct cn_row *row);
void cn_frame_end_borrowed_batch(struct cn_buf *buf, size_t begun, uint32_t rows,
                                 uint64_t borrowed);

/* Where the first large part of a BATCH frame's rows has its data, in bytes from the frame's
 * beginning, of which `len` bytes are there; 0: it has none, or what comes before it is not all
 * there. */
size_t cn_frame_find_large(const void *bytes, size_t len);

/* Decoders: 0 or CN_E_PROTOCOL. Arrays come from the arena, bytes stay borrowed from the frame
 * (strings of LOAD are copied to the arena). */
int cn_frame_get_load(const struct cn_frame *frame, struct cn_arena *arena, struct cn_load *out,
                      struct cn_error *err);
int cn_frame_get_loaded(const struct cn_frame *frame, struct cn_loaded *out, struct cn_error *err);
int cn_frame_get_progress(const struct cn_frame *frame, struct cn_progress *out,
                          struct cn_error *err);
int cn_frame_get_fork(const struct cn_frame *frame, struct cn_str *label, struct cn_error *err);
int cn_frame_get_forked(const struct cn_frame *frame, struct cn_forked *out, struct cn_error *err);
int cn_frame_get_stats(const struct cn_frame *frame, struct cn_worker_stats *out,
                       struct cn_error *err);
/* `out`: frame->count rows / closes / cancels / credits. */
int cn_frame_get_batch(const struct cn_frame *frame, struct cn_arena *arena, struct cn_row **out,
                       struct cn_error *err);
int cn_frame_get_closes(const struct cn_frame *frame, struct cn_arena *arena, struct cn_close **out,
                        struct cn_error *err);
int cn_frame_get_cancels(const struct cn_frame *frame, struct cn_arena *arena,
                         struct cn_cancel **out, struct cn_error *err);
int cn_frame_get_credits(const struct cn_frame *frame, struct cn_arena *arena,
                         struct cn_credit **out, struct cn_error *err);
int cn_frame_get_closed(const struct cn_frame *frame, struct cn_closed *out, struct cn_error *err);
int cn_frame_get_answer(const struct cn_frame *frame, struct cn_arena *arena, struct cn_answer *out,
                        struct cn_error *err);
int cn_frame_get_report(const struct cn_frame *frame, struct cn_arena *arena, struct cn_report *out,
                        struct cn_error *err);

#endif
