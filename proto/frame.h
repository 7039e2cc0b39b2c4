/* proto/frame.h - the frames between server and worker, version 1.
 *
 * A stream socket carries frames back to back. Header, 12 bytes, little-endian:
 *   u32 length of the payload   u8 type   u8 version (1)   u16 zero   u32 count
 * `count`: rows of a BATCH, entries of a CLOSE, CLOSED, CANCEL or CREDIT, sequences of a RESULT,
 * samples of a REPORT; 0 otherwise. Both ends validate everything, and a malformed frame ends the
 * connection: the worker is then restarted. The payload's layout is described above each encoder in
 * frame_*.c. QUERY and RESULT are declared in proto/query.h.
 *
 * server -> worker   LOAD once; then BATCH, CLOSE, CANCEL, CREDIT, QUERY in any order, among them
 *                    at most one MEMORY; STOP last
 * worker -> server   PROGRESS, LOADED once; then ANSWER, CLOSED, STATS, RESULT, REPORT
 *
 * A worker handles BATCH, CLOSE and QUERY in the order in which they were sent; CANCEL and CREDIT
 * take effect at once. After LOAD a zygote gets only FORK, and answers each FORK with one FORKED,
 * in order.
 */
#ifndef CN_PROTO_FRAME_H
#define CN_PROTO_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/containers/buckets.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/memory/borrowed_output.h"
#include "core/memory/buf.h"
#include "proto/body_memory.h"
#include "proto/message.h"
#include "proto/wire.h"

#define CN_FRAME_VERSION 1
#define CN_FRAME_HEADER_BYTES 12
#define CN_WORKER_FD 3 /* the worker's end of the socket pair */
/* Exit status of a worker whose handler has exceeded its time limit and cannot be interrupted. */
#define CN_WORKER_OVERDUE 75
/* Exit status of a worker that ended in this way during a call for none of its rows, which are not
 * to blame. */
#define CN_WORKER_OVERDUE_APART 76
/* Exit statuses of continuo-worker --check-store, --mend-store and --accept-store, beside 0 and 1.
 */
#define CN_CHECK_NOT_DONE 3 /* nothing is known: no room on the disk, no memory and so on */
#define CN_CHECK_DAMAGED 4  /* the store can be read, except for some records */

enum cn_frame_type {
    CN_FRAME_LOAD = 1,
    CN_FRAME_BATCH = 2,
    CN_FRAME_CLOSE = 3,  /* sequences that the server closed: write tombstones, call on_close */
    CN_FRAME_CANCEL = 4, /* jobs that must end, and why */
    CN_FRAME_STOP = 5,   /* finish what was received, then exit 0 */
    CN_FRAME_CREDIT = 6, /* bytes of streamed answers that their clients took */
    CN_FRAME_QUERY = 7,  /* read stored sequences, or write one; answered by one RESULT */
    CN_FRAME_FORK = 8,   /* fork one worker. The message carries two file descriptors: the new
                          * worker's socket, and where its standard output goes */
    CN_FRAME_MEMORY = 9, /* large bodies may pass through the body memory from now on. The message
                          * carries its file descriptor */
    CN_FRAME_LOADED = 65,
    CN_FRAME_ANSWER = 66,
    CN_FRAME_STATS = 67,
    CN_FRAME_CLOSED = 68, /* answers a CLOSE: how many of its sequences are closed and committed */
    CN_FRAME_RESULT = 69, /* answers a QUERY */
    CN_FRAME_REPORT = 70, /* one handler call and what it measured; sent before its rows' answers */
    CN_FRAME_FORKED = 71, /* answers a FORK */
    CN_FRAME_PROGRESS = 72 /* how far loading is */
};

struct cn_frame {
    enum cn_frame_type type;
    uint32_t count;
    struct cn_str payload; /* borrowed from the bytes given to cn_frame_next */
    /* Where large bodies of the frame may lie. cn_frame_next sets NULL: there is no such memory */
    struct cn_body_memory *body_memory;
};

/* Reads the frame that begins at `bytes`, of which `len` bytes have arrived. Returns the frame's
 * size in bytes, 0 when more bytes are needed, or CN_E_PROTOCOL (unknown version or type, or a
 * payload of more than max_payload_bytes). */
long cn_frame_next(const void *bytes, size_t len, size_t max_payload_bytes, struct cn_frame *out,
                   struct cn_error *err);

struct cn_state_specs; /* state_tensors.h */

/* The values of LOAD's field `walls`, and the words of --worker-walls in their order. */
enum cn_walls_mode {
    CN_WALLS_OFF,    /* none */
    CN_WALLS_ON,     /* those that this system can build */
    CN_WALLS_REQUIRE /* all, or the model is not loaded */
};

/* LOAD: what a worker must know to load its model. The decoder NUL-terminates the strings. */
#define CN_LOAD_FIELDS(STR, NUM)                                                                   \
    STR(model_name)                                                                                \
    STR(model_version)                                                                             \
    STR(model_dir)         /* absolute path of the unpacked archive */                             \
    STR(handler)           /* file in model_dir, or ""; torch, onnx: the model */                  \
    STR(config_file)       /* the model's YAML in model_dir, or "" */                              \
    STR(runtime)           /* "lua", "c", "torch", "onnx" or "python" */                           \
    STR(store_dir)         /* absolute, exists; "" with durability none */                         \
    STR(temp_dir)          /* absolute, for the handler's temporary files; "": none */             \
    STR(worker_files)      /* what the operator lets it read besides, with ':' between */          \
    STR(state_store)       /* URL of a shared store; "": the store in store_dir */                 \
    STR(torch_library)     /* absolute; "": beside the worker's program */                         \
    STR(onnxruntime)       /* absolute; "": the package of python3 */                              \
    STR(service_envelope)  /* TorchServe's word for what is around rows, "kservev2"; or "" */      \
    STR(metrics)           /* JSON: the handlers' metrics of metrics.yaml; or "" */                \
    NUM(worker_index)      /* 1, 2, ... within the model version */                                \
    NUM(batch_size)        /* most rows of a handler call */                                       \
    NUM(stateful)          /* 1: rows belong to sequences */                                       \
    NUM(durability)        /* enum cn_durability, config/model/model_config.h */                   \
    NUM(cache_entries)     /* state cache: sequences */                                            \
    NUM(cache_bytes)       /* state cache: encoded bytes */                                        \
    NUM(state_max_bytes)   /* limit of one encoded state */                                        \
    NUM(answer_keep_bytes) /* larger answers are not stored for replay */                          \
    NUM(answer_max_bytes)  /* a larger answer is an error */                                       \
    NUM(store_max_bytes)   /* size limit of the model's store */                                   \
    NUM(store_timeout_ms)  /* longest wait for a shared store */                                   \
    NUM(store_wait_ms)     /* how long it may be away while the model loads */                     \
    NUM(store_replicas)    /* replicas that must have a step; or CN_REPLICAS_ALL */                \
    NUM(journal_max_bytes) /* size of each of the journal's two files */                           \
    NUM(journal)           /* 1: commits go to a journal above LMDB; 0: to LMDB */                 \
    NUM(check_max_bytes)   /* a larger data.mdb is not checked at the start */                     \
    NUM(idle_ms)           /* sequenceMaxIdleMSec + stateTtlMSec; 0: none */                       \
    NUM(clock_floor_ms)    /* wall time of the clock's last jump; 0: none */                       \
    NUM(clock_jump_ms)     /* a larger step of the clock is a jump; 0: none is */                  \
    NUM(lifetime_ms)       /* sequenceTimeoutMSec; 0: none */                                      \
    NUM(tombstone_ms)      /* how long a closed sequence is remembered */                          \
    NUM(restart_expired)   /* 1: a late step of an expired one starts anew */                      \
    NUM(key_window)        /* idempotency keys kept per sequence, 1 to 255 */                      \
    NUM(memory_max_bytes)  /* limit of a handler's memory; 0: none */                              \
    NUM(step_time_ms)      /* limit of a handler's call; 0: the batch's deadline */                \
    NUM(traceback_bytes)   /* limit of a traceback in the log */                                   \
    NUM(strict_globals)    /* 1: no globals are assigned after a Lua handler is loaded */          \
    NUM(continuous)        /* 1: a step is committed at its first yield */                         \
    NUM(stream_bytes)      /* limit of a stream's untaken bytes, and of a piece */                 \
    NUM(stream_ms)         /* limit of a row's streaming time; 0: none */                          \
    NUM(report_jobs)       /* 1: a REPORT names the jobs of its call */                            \
    NUM(max_batch_size)    /* typed: limit of the batch dimension; 0: none */                      \
    NUM(samples_max)       /* most samples in a REPORT */                                          \
    NUM(busy_wait_us)      /* polling time before it sleeps; 0: none */                            \
    NUM(tuning)            /* performance mechanisms that are on (core/tuning/tuning.h) */         \
    NUM(walls)             /* enum cn_walls_mode */                                                \
    NUM(network)           /* 1: the model's code may open connections */                          \
    NUM(zygote)            /* 1: load the model, then fork workers */

struct cn_load {
#define CN_LOAD_STR(name) const char *name;
#define CN_LOAD_NUM(name) uint64_t name;
    CN_LOAD_FIELDS(CN_LOAD_STR, CN_LOAD_NUM)
#undef CN_LOAD_STR
#undef CN_LOAD_NUM
    /* The declared state tensors. They are not in the frame: the worker reads them from the model's
     * YAML. NULL: the model declares none, and the handler makes its own state. */
    const struct cn_state_specs *state;
    /* Not in the frame: files and folders that the runtime itself must read, each with a NUL. */
    struct cn_str runtime_files;
    /* Not in the frame either, and read from the same YAML: the model declares inputs and outputs.
     */
    bool typed;
    /* Not in the frame either: while it loads, the runtime may call this to say what it does. May
     * be NULL. */
    void (*progress)(void *ctx, const char *what, uint32_t done, uint32_t total);
    void *progress_ctx;
};

/* LOADED: the model is ready, or why it cannot run. A zygote that answers CN_E_UNIMPLEMENTED cannot
 * fork this model; each of its workers then loads the model itself. */
struct cn_loaded {
    int32_t error_code;    /* 0: ready */
    struct cn_str message; /* the runtime's description, "Lua 5.4.4"; or the error */
    struct cn_str device;  /* where the model runs: "cuda:1"; "": on the CPU */
    struct cn_str warning; /* what the operator should know; "": nothing */
    struct cn_str walls;   /* what stands around the process, words; "": nothing */
    struct cn_str lacking; /* walls that could not be built, and why; "": none */
};

/* PROGRESS: what the worker does while it loads, for example "warming up", 2 of 6. */
struct cn_progress {
    uint32_t done, total; /* total 0: this part of loading cannot be counted */
    struct cn_str what;
};

/* MEMORY: the body memory behind the message's descriptor. */
struct cn_memory_order {
    uint64_t half_bytes; /* size of each of its two halves */
};

/* FORKED: the new worker, whose parent is the server and not the zygote; or why there is none. */
struct cn_forked {
    uint32_t pid;          /* 0: the fork failed */
    struct cn_str message; /* the error */
};

#define CN_STORE_ERROR_MAX 256

/* What a worker's shared store has done since the last STATS, and how it is now. */
struct cn_store_stats {
    bool shared; /* false: nothing else is set */
    bool connected;
    uint64_t since_wall_ms;      /* when the connection was made, or lost */
    uint64_t conflicts, reloads; /* refused writes; states read again */
    uint64_t trips[CN_DURATION_VALUES], commits[CN_ROWS_VALUES]; /* histograms: us, records */
    char last_error[CN_STORE_ERROR_MAX];
};

/* STATS: sent after LOADED and then at most once a second, when something changed. */
struct cn_worker_stats {
    uint64_t rss_bytes, cached_sequences, cached_bytes, stored_sequences, stored_bytes, batches,
        rows;
    /* rows that stream. While there are some, STATS is sent once a second: a stream may be silent
     * for long, and the server must see that the worker lives */
    uint64_t streams;
    uint64_t busy_us; /* CPU time since the last STATS, without the time spent polling for frames */
    struct cn_store_stats store;
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
    uint32_t rows;       /* rows that the handler got in the call; 0: no call, only samples */
    uint32_t batch;      /* sum of the rows' batch dimensions, 1 for each row that has none */
    uint64_t before_us;  /* looking up states, before the call */
    uint64_t handler_us; /* what the call took */
    uint64_t after_us;   /* the commit, and what else comes before the answers */
    uint32_t n_jobs;     /* the call's jobs, if LOAD asked for them */
    uint64_t *job_ids;
    uint32_t n_samples;
    struct cn_sample *samples;
};

/* Why a sequence was closed: CLOSE carries it, tombstones store it, on_close gets it. */
enum cn_close_reason {
    CN_CLOSE_ENDED = 1,
    CN_CLOSE_IDLE = 2,
    CN_CLOSE_LIFETIME = 3,
    CN_CLOSE_EVICTED = 4,
    CN_CLOSE_CANCELLED = 5,
    CN_CLOSE_DELETED = 6,
    CN_CLOSE_UNLOADED = 7,
    CN_CLOSE_MOVED = 8, /* it lives on in another version */
    CN_CLOSE_RESET = 9, /* another version began it anew */
    /* its handler kept the state in the memory of a worker that is gone */
    CN_CLOSE_WORKER_LOST = 10
};
/* "ended", "idle", ...; "unknown" for other numbers. */
const char *cn_close_reason_word(enum cn_close_reason reason);

struct cn_close {
    struct cn_str sequence_id;
    uint64_t generation; /* 0: any */
    enum cn_close_reason reason;
};

/* CN_STOP_GONE also refuses a row that has not begun. The other reasons only notify the handler of
 * a row that streams. */
struct cn_cancel {
    uint64_t job_id;
    enum cn_stop_reason reason;
};
/* "gone", "deadline", ...; "unknown" for other numbers. */
const char *cn_stop_reason_word(enum cn_stop_reason reason);

/* CREDIT: the job's client has taken `bytes` bytes of streamed pieces since the last CREDIT. */
struct cn_credit {
    uint64_t job_id, bytes;
};

/* CLOSED: the first `done` of the CLOSE's `count` sequences are closed. The others stay in the
 * store; `error_code` and `message` say why. */
struct cn_closed {
    uint32_t count, done;
    int32_t error_code; /* 0: all are closed */
    struct cn_str message;
};

/* Encoders. Each appends a complete frame to `buf`. They report no error: when memory or the
 * buffer's limit does not suffice, buf->failed is set, and the caller checks it once at the end. */
void cn_frame_put_load(struct cn_buf *buf, const struct cn_load *load);
void cn_frame_put_loaded(struct cn_buf *buf, const struct cn_loaded *loaded);
void cn_frame_put_progress(struct cn_buf *buf, const struct cn_progress *progress);
/* `label`: what ps shows as the new worker's command line. */
void cn_frame_put_fork(struct cn_buf *buf, struct cn_str label);
void cn_frame_put_memory(struct cn_buf *buf, const struct cn_memory_order *order);
void cn_frame_put_forked(struct cn_buf *buf, const struct cn_forked *forked);
void cn_frame_put_stats(struct cn_buf *buf, const struct cn_worker_stats *stats);
void cn_frame_put_close(struct cn_buf *buf, const struct cn_close *closes, uint32_t count);
void cn_frame_put_cancel(struct cn_buf *buf, const struct cn_cancel *cancels, uint32_t count);
void cn_frame_put_credit(struct cn_buf *buf, const struct cn_credit *credits, uint32_t count);
void cn_frame_put_stop(struct cn_buf *buf);
void cn_frame_put_closed(struct cn_buf *buf, const struct cn_closed *closed);
void cn_frame_put_report(struct cn_buf *buf, const struct cn_report *report);
void cn_frame_put_answer(struct cn_buf *buf, const struct cn_answer *answer);
/* Like cn_frame_put_answer, but a large body is not copied into `buf`: it goes to `body_memory`,
 * which may be NULL, or `borrowed` notes where it lies (core/memory/borrowed_output.h), and the
 * body must stay there until the frame is sent. */
void cn_frame_lend_answer(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                          struct cn_body_memory *body_memory, const struct cn_answer *answer);
/* A BATCH is written in three calls: _begin_batch returns an offset, _put_row appends one row each,
 * and _end_batch, which gets that offset, fills in the length and the number of rows. */
size_t cn_frame_begin_batch(struct cn_buf *buf);
void cn_frame_put_row(struct cn_buf *buf, const struct cn_row *row);
void cn_frame_end_batch(struct cn_buf *buf, size_t begun, uint32_t rows);
/* These two do not copy the large parts of a row into `buf`: they go to `body_memory`, which may be
 * NULL, or `borrowed` notes where they lie. *unsent counts the row's borrowed parts that are not
 * sent yet; the row's memory must stay until it is 0 again. _end_borrowed_batch gets the borrowed
 * bytes of all rows together. */
void cn_frame_lend_row(struct cn_buf *buf, struct cn_borrowed_output *borrowed,
                       struct cn_body_memory *body_memory, uint32_t *unsent,
                       const struct cn_row *row);
void cn_frame_end_borrowed_batch(struct cn_buf *buf, size_t begun, uint32_t rows,
                                 uint64_t borrowed);

/* Returns the offset, from the frame's beginning, of the data of the first large part in a BATCH
 * frame, so that a reader can align it. `len` bytes of the frame have arrived. Returns 0 when there
 * is no large part among them, or when the bytes before it are not complete. */
size_t cn_frame_find_large(const void *bytes, size_t len);

/* Decoders return 0, CN_E_PROTOCOL for a malformed payload, or CN_E_OUT_OF_MEMORY. Arrays are
 * allocated from the arena; strings stay borrowed from the frame, except that those of LOAD are
 * copied to the arena. A part's data or an answer's body may be borrowed from frame->body_memory
 * instead, and must then be released there (cn_body_memory_release). */
int cn_frame_get_load(const struct cn_frame *frame, struct cn_arena *arena, struct cn_load *out,
                      struct cn_error *err);
int cn_frame_get_loaded(const struct cn_frame *frame, struct cn_loaded *out, struct cn_error *err);
int cn_frame_get_progress(const struct cn_frame *frame, struct cn_progress *out,
                          struct cn_error *err);
int cn_frame_get_fork(const struct cn_frame *frame, struct cn_str *label, struct cn_error *err);
int cn_frame_get_memory(const struct cn_frame *frame, struct cn_memory_order *out,
                        struct cn_error *err);
int cn_frame_get_forked(const struct cn_frame *frame, struct cn_forked *out, struct cn_error *err);
int cn_frame_get_stats(const struct cn_frame *frame, struct cn_worker_stats *out,
                       struct cn_error *err);
/* These set *out to an array of frame->count rows, closes, cancels or credits. */
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
