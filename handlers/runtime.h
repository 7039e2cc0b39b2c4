/* handlers/runtime.h - the interface between a worker and a handler runtime: Lua, C, Python,
 * TorchScript, ONNX.
 *
 * There is one runtime instance in a worker process, and one thread. A runtime never sees the
 * store: it gets a sequence's state as an object of its own, and turns objects to bytes and back
 * when it is asked to. The worker decides when a step is committed, what is cached and what is run
 * again.
 */
#ifndef CN_HANDLERS_RUNTIME_H
#define CN_HANDLERS_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/buf.h"
#include "core/time/timer_wheel.h"
#include "handlers/samples.h"
#include "proto/frame.h"
#include "proto/message.h"

#define CN_WARNING_MAX 512

/* A piece of an answer that precedes the final one. */
struct cn_chunk {
    struct cn_buf body;
};

/* A handler's answer for one item. The runtime fills it; the worker initialises and frees it. */
struct cn_reply {
    int error_code;  /* CN_E_...; then `body` is the message and the state is not saved */
    uint16_t status; /* the handler's choice, with an error_code too; 0: 200, or the error's own */
    bool end_sequence; /* the handler ends the sequence with this step */
    bool stop_streams; /* streams of the sequence's earlier steps must end */
    /* With an error_code: the handler has lost the state, so the sequence is closed, and the client
     * is told why. CN_CLOSE_WORKER_LOST; 0: the sequence stays as it was. */
    uint8_t close_reason;
    /* The handler is not done. The pieces in `chunks` leave now, `body` is empty, and run() gets
     * the item again when rest_ms have passed; with CN_NEVER after rt->wake(). */
    bool more;
    uint64_t rest_ms;
    bool head_out; /* set by the worker: status, content type and headers left with a piece */
    struct cn_buf content_type;
    struct cn_buf headers; /* encoded: u32 count is n_headers; each str16 name, str32 value */
    uint32_t n_headers;
    /* How many of the headers are the worker's own, from before the run. They are the first ones,
     * in the first given_bytes. */
    uint32_t n_given;
    size_t given_bytes;
    struct cn_buf body;
    struct cn_chunk *chunks; /* n_chunks pieces that precede body; cn_alloc'ed array */
    uint32_t n_chunks;
    size_t chunk_bytes; /* bytes of all pieces */
};

/* One row as a runtime sees it. */
struct cn_item {
    const struct cn_row *row;
    uint64_t deadline_ms; /* cn_now_ms(); CN_NEVER: none */
    void *state;          /* the runtime's object. In: NULL when the sequence is new. Out: the
                           * object to encode and cache; after an error the worker frees it */
    uint64_t step;        /* steps committed before this one; 0: the first */
    /* If it is not CN_STOP_NONE, the row must end its stream with this call; another `more` is an
     * error. */
    enum cn_stop_reason stop;
    /* The runtime's own object while reply.more is set: where the handler goes on. NULL before the
     * first call and after the last. Between them, `state` is what the handler has made of it. */
    void *resume;
    struct cn_reply reply;
};

enum cn_fork_moment { CN_FORK_BEFORE, CN_FORK_IN_PARENT, CN_FORK_IN_CHILD };

struct cn_runtime; /* the first member of each runtime's own struct */

struct cn_runtime_ops {
    const char *name; /* "lua", "c", "python", "torch", "onnx" */
    /* Called before the walls around the process are raised, and before open(): opens libraries
     * that are not of the system, and calls `add` for each file and folder that the runtime must
     * read. May be NULL. */
    void (*prepare)(const struct cn_load *load, void (*add)(void *ctx, const char *path),
                    void *ctx);
    /* Loads the model that `load` describes; `load` must outlive the runtime. `config_json` is the
     * model's whole YAML as one JSON object ("" or "{}" without one). The worker makes it, because
     * handlers/ may not include config/; it is valid during the call only. Errors name the file and
     * the line. */
    int (*open)(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
                struct cn_error *err);
    void (*close)(struct cn_runtime *rt);
    /* Returns the text for LOADED, "Lua 5.4.4"; it stays valid as long as the runtime. */
    const char *(*describe)(struct cn_runtime *rt);
    /* Returns the version of the state's shape that the handler declares. It is stored with each
     * state. */
    uint32_t (*state_schema)(struct cn_runtime *rt);
    /* Runs one batch. The caller has initialised each item->reply; `items` may come back in another
     * order. The call never fails as a whole: each item gets an answer or an error. The error
     * CN_E_OUT_OF_MEMORY means that the memory which the handler shares with all cached states is
     * used up, so that dropping cached states helps. An item with reply.more comes again in a later
     * batch, at another address, with its `state`, its `resume` and its reply's head. */
    void (*run)(struct cn_runtime *rt, struct cn_item **items, uint32_t n);
    /* Frees `resume` of an item that will not be run again. */
    void (*drop)(struct cn_runtime *rt, void *resume);
    /* Turn a state into bytes and back. Encode appends to `out`; its errors name the key that
     * cannot be stored, and CN_E_STATE_TOO_LARGE means more than load->state_max_bytes. If
     * `from_schema` differs from the handler's schema, decode asks the handler to migrate. */
    int (*state_encode)(struct cn_runtime *rt, void *state, struct cn_buf *out,
                        struct cn_error *err);
    int (*state_decode)(struct cn_runtime *rt, struct cn_str bytes, uint32_t from_schema,
                        void **state, struct cn_error *err);
    void (*state_free)(struct cn_runtime *rt, void *state);
    /* Asks the handler to describe itself: item->reply gets a JSON object, which is {} by default.
     * The item has no state and no sequence. */
    void (*metadata)(struct cn_runtime *rt, struct cn_item *item);
    /* The sequence has ended. `state` stays the worker's; it is NULL if it could not be read. The
     * runtime logs the handler's errors. */
    void (*on_close)(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
                     enum cn_close_reason reason);
    /* Called in a zygote before open(): can an open model be used in children that are forked?
     * Returns 0, or CN_E_UNIMPLEMENTED with the reason; other errors are left to open(). NULL: this
     * runtime cannot be forked. */
    int (*check_zygote)(const struct cn_load *load, struct cn_error *err);
    /* Called in a zygote with an open model: right before a fork, and right after it in both
     * processes. May be NULL. */
    void (*fork)(struct cn_runtime *rt, enum cn_fork_moment moment);
    /* Called after open() in the process that will run requests, after the fork if it is forked:
     * then `load` has what the server told this worker. Returns 0 or an error. May be NULL. */
    int (*serve)(struct cn_runtime *rt, const struct cn_load *load, struct cn_error *err);
    /* Called about once a second after batches: puts what the runtime has counted into rt->samples.
     * May be NULL. */
    void (*report)(struct cn_runtime *rt);
    /* Called between batches: does at once what is ready apart from requests, and waits for
     * nothing. The worker calls it soon after event_fd has become readable, and after a timer of
     * the runtime in the wheel. May be NULL. */
    void (*poll)(struct cn_runtime *rt);
};

struct cn_runtime {
    const struct cn_runtime_ops *ops;
    /* The version from which a sequence comes, while the state of a moved sequence is decoded; the
     * handler's migrate may ask for it. NULL at all other times. */
    const char *from_version;
    /* True while the state of a row that runs next is decoded: a migrate that takes too long is the
     * row's fault then. False while a sequence is closed or imported. */
    bool decodes_for_row;
    /* Set by open(): the runtime itself handles the declared state tensors (load->state). Otherwise
     * tensor_state.h is laid over the runtime. */
    bool keeps_state_tensors;
    /* Set by open(): rows are run one after the other, so that two small batches cost no more than
     * a large one. */
    bool runs_rows_apart;
    /* Set by open(): the device that the model runs on, such as "cuda:1"; empty: the CPU. */
    char device[16];
    /* Set by open(): a sentence with what the operator should know of the model; may be empty. */
    char warning[CN_WARNING_MAX];
    /* Set by run(): the memory that the handler may have stays in use, so that it would fail in
     * each step. The worker answers the batch and ends, and the server starts another one. */
    bool worn_out;
    struct cn_tensor_state *tensor_state; /* set if tensor_state.c lies over `ops`; else NULL */
    struct cn_stream_layer *stream_layer; /* set if worker/stream_input/ lies over all; else NULL */
    struct cn_samples samples; /* what the handler measured; the worker sends and clears it */
    /* A descriptor for which the worker waits besides its socket, once the runtime has set it; 0:
     * none. When it is readable, ops->poll is called. */
    int event_fd;
    /* Set by the worker once the model is open; NULL before. wake() makes run() get an item soon
     * that rests with CN_NEVER. Handlers' timers are in the wheel, and are called between batches.
     */
    void (*wake)(void *worker, uint64_t job_id);
    /* Set together with wake(). Called during run() by a handler that has a piece for the client
     * and goes on working: sends what reply.chunks holds, and empties it. The row is a stream from
     * then on. Pieces stay in the reply while the client has stream.bufferBytes to take. Returns
     * why the stream should end; CN_STOP_NONE: it may go on. */
    enum cn_stop_reason (*send)(void *worker, struct cn_item *item);
    void *worker;
    struct cn_timer_wheel *wheel;
};

extern const struct cn_runtime_ops cn_lua_runtime_ops;
extern const struct cn_runtime_ops cn_c_runtime_ops;

/* Returns the runtime "lua" or "c"; NULL for other names. */
const struct cn_runtime_ops *cn_runtime_find(const char *name);

/* Makes an empty reply whose body may have answer_max_bytes; free it with _fini. */
void cn_reply_init(struct cn_reply *reply, size_t answer_max_bytes);
void cn_reply_fini(struct cn_reply *reply);
/* Removes the pieces and the body, after they were sent or dropped, and keeps the head. */
void cn_reply_next(struct cn_reply *reply);
/* Turns the reply into an error, and drops what it held. */
void cn_reply_fail(struct cn_reply *reply, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
