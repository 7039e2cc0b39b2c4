/* handlers/runtime.h - what a worker asks of a handler runtime: Lua, C, TorchScript.
 *
 * One runtime instance per worker process, one thread. A runtime never sees the
 * store: state comes in as its own decoded object and goes out encoded.
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

/* A piece of an answer, before its final one. */
struct cn_chunk {
    struct cn_buf body;
};

/* What a handler answered for one item; filled by the runtime, freed by the worker. */
struct cn_reply {
    int error_code;  /* CN_E_...; then `body` is the message and the state is not saved */
    uint16_t status; /* the handler's choice, with an error_code too; 0: 200, or the error's own */
    bool end_sequence; /* the handler ends the sequence with this step */
    bool stop_streams; /* streams of the sequence's earlier steps are to end */
    /* The handler is not done: what `chunks` holds leaves now, `body` is empty, and run() gets the
     * item again, not before rest_ms have passed; CN_NEVER: not before rt->wake(). */
    bool more;
    uint64_t rest_ms;
    bool head_out; /* the worker's: status, content type and headers have left with a piece */
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
    size_t chunk_bytes; /* of them all */
};

/* One row as a runtime sees it. */
struct cn_item {
    const struct cn_row *row;
    uint64_t deadline_ms; /* cn_now_ms(); CN_NEVER: none */
    void *state;          /* the runtime's object. In: NULL when the sequence is new. Out: the
                           * object to encode and cache; after an error the worker frees it */
    uint64_t step;        /* steps committed before this one; 0: the first */
    /* Not CN_STOP_NONE: the row is to end its stream with this call; another `more` is an error. */
    enum cn_stop_reason stop;
    /* The runtime's, while reply.more: where the handler goes on. NULL before the first call and
     * after the last. `state` is what the handler has made of it so far then. */
    void *resume;
    struct cn_reply reply;
};

struct cn_runtime; /* each runtime's own struct begins with it */

struct cn_runtime_ops {
    const char *name; /* "lua", "c", "torch" */
    /* Loads the model that `load` describes. `config_json`: the model's whole YAML as one JSON
     * object ("" or "{}" without one), made by the worker, since handlers may not include config/;
     * read during the call only. `load` must outlive the runtime. Errors name file and line. */
    int (*open)(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
                struct cn_error *err);
    void (*close)(struct cn_runtime *rt);
    /* What LOADED says: "Lua 5.4.4". Borrowed. */
    const char *(*describe)(struct cn_runtime *rt);
    /* The version of the state's shape that the handler declares; stored with each state. */
    uint32_t (*state_schema)(struct cn_runtime *rt);
    /* Runs one batch: item->reply is initialised by the caller, and `items` may come back in
     * another order. Never fails as a whole: every item gets a reply or an error.
     * CN_E_OUT_OF_MEMORY: the memory that the handler and all cached states share is used up;
     * dropping cached states helps. An item that said `more` is in a later batch again, at another
     * address, with what it had in `state`, `resume` and its reply's head. */
    void (*run)(struct cn_runtime *rt, struct cn_item **items, uint32_t n);
    /* An item that said `more` will not be run again. */
    void (*drop)(struct cn_runtime *rt, void *resume);
    /* State to bytes and back. Encode appends to `out`; errors name the key that cannot be stored;
     * CN_E_STATE_TOO_LARGE over load->state_max_bytes. `from_schema` differs from the handler's: it
     * is asked to migrate. */
    int (*state_encode)(struct cn_runtime *rt, void *state, struct cn_buf *out,
                        struct cn_error *err);
    int (*state_decode)(struct cn_runtime *rt, struct cn_str bytes, uint32_t from_schema,
                        void **state, struct cn_error *err);
    void (*state_free)(struct cn_runtime *rt, void *state);
    /* The handler tells of itself: item->reply gets a JSON object, {} where it has nothing to tell.
     * No state, no sequence. */
    void (*metadata)(struct cn_runtime *rt, struct cn_item *item);
    /* The sequence is over; `state` stays the worker's, NULL where it could not be read. Errors are
     * logged by the runtime. */
    void (*on_close)(struct cn_runtime *rt, struct cn_str sequence_id, void *state,
                     enum cn_close_reason reason);
    /* Before open() in a zygote: will an open model live on in the children of its process? 0, or
     * CN_E_UNIMPLEMENTED with the reason; other errors are open()'s to tell. NULL: it will not. */
    int (*check_zygote)(const struct cn_load *load, struct cn_error *err);
    /* After open(), and in a forked worker: this is the process that serves. NULL: nothing is to
     * do. */
    void (*serve)(struct cn_runtime *rt);
    /* Once a second after batches: puts what was counted since into rt->samples. NULL: nothing
     * is. */
    void (*report)(struct cn_runtime *rt);
};

struct cn_runtime {
    const struct cn_runtime_ops *ops;
    /* While a state is decoded that a swap brings from another version: that version, for the
     * handler's migrate. Else NULL. */
    const char *from_version;
    /* Set by open(): what the model declares as state (load->state) is the runtime's own business.
     * Else it is laid over the runtime (tensor_state.h). */
    bool keeps_state_tensors;
    /* Set by open(): rows are run one after the other, so that two small batches cost no more than
     * a large one. */
    bool runs_rows_apart;
    /* Set by open(): the device that the model runs on, such as "cuda:1"; empty: the CPU. */
    char device[16];
    /* Set by open(): what whoever runs the model should know of it, in a sentence; empty:
     * nothing. */
    char warning[CN_WARNING_MAX];
    struct cn_tensor_state *tensor_state; /* NULL but for tensor_state.c, which lies over `ops` */
    struct cn_samples samples; /* what the handler measured; the worker sends and clears it */
    /* Set by the worker once the model is open; NULL before. An item that rests with CN_NEVER has
     * something to say: run() gets it soon. Timers of handlers are in the wheel; they are called
     * between batches. */
    void (*wake)(void *worker, uint64_t job_id);
    void *worker;
    struct cn_timer_wheel *wheel;
};

extern const struct cn_runtime_ops cn_lua_runtime_ops;
extern const struct cn_runtime_ops cn_c_runtime_ops;

/* "lua" or "c" -> its ops; NULL otherwise. */
const struct cn_runtime_ops *cn_runtime_find(const char *name);

void cn_reply_init(struct cn_reply *reply, size_t answer_max_bytes);
void cn_reply_fini(struct cn_reply *reply);
/* The pieces have left, or count for nothing: the reply is as before the call, but for its head. */
void cn_reply_next(struct cn_reply *reply);
/* Turns the reply into an error, dropping what it held. */
void cn_reply_fail(struct cn_reply *reply, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
