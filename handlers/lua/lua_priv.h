/* handlers/lua/lua_priv.h - what the files of the Lua runtime share.
 *
 * The Lua headers are included here and nowhere else; everything that knows
 * Lua is in handlers/lua and its subfolder. One VM per worker process, one thread.
 *
 * Functions marked "raises" leave by a Lua error and run under lua_pcall only:
 * outside of it nothing may allocate in the VM, since its memory is limited.
 */
#ifndef CN_HANDLERS_LUA_LUA_PRIV_H
#define CN_HANDLERS_LUA_LUA_PRIV_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <time.h>

#include "core/memory/buf.h"
#include "core/memory/slab.h"
#include "handlers/open_item.h"
#include "handlers/runtime.h"
#include "proto/tensor.h"

#define LUA_RT_MAGIC 0x4c525431u
#define LUA_STATE_DEPTH_MAX 16 /* tables within tables in a state */

/* How the handler wants its rows. */
enum lua_mode { LUA_MODE_STEP, LUA_MODE_BATCH, LUA_MODE_HANDLE };

/* An item of a batch that is with the handler. */
struct lua_entry {
    struct cn_item *item;
    bool answered;
};

/* lua_watch.c: what ends a call that no hook can stop. A signal's function reads and writes it. */
struct lua_watch {
    bool works;                /* the timers exist */
    timer_t alarm, grace;      /* by the clock, and by the processor's time that this thread uses */
    volatile uint64_t ends_ms; /* the model's limit for the present call; CN_NEVER: none */
    volatile bool apart;       /* the present call is for no row */
    volatile uint64_t alarm_at_ms;        /* when the alarm goes off; CN_NEVER: it is not set */
    volatile uint64_t call, overdue_call; /* the present call, and the one whose time was over */
};

struct lua_rt {
    struct cn_runtime base; /* first: cn_runtime is what the worker holds */
    uint32_t magic;
    lua_State *L;
    char *model, *version, *dir, *file; /* file: the handler's name in messages */
    char *torch_library;                /* as in cn_load */
    struct lua_torch *torch;            /* lua_torch.c: NULL before the first torch.load */
    uint64_t worker_index;
    bool stateful;     /* the handler keeps a state */
    bool tensor_state; /* the model declares one; the handler has none of its own */
    bool batched;      /* tensors of the model have a batch dimension */
    bool strict;       /* assigning a global after loading is an error */
    enum lua_mode mode;
    uint32_t schema;
    size_t state_max_bytes;

    /* Limits. The hook looks at deadline_ms; once expired, it fires at every instruction. */
    size_t memory_used, memory_max; /* bytes; max 0: none */
    struct cn_slab blocks;          /* all that the VM has allocated */
    uint64_t step_time_ms, deadline_ms, started_ms;
    bool expired;
    lua_State *volatile running; /* the step's coroutine while it runs; NULL: none does */
    struct lua_watch watch;

    /* Registry references; LUA_NOREF where the handler has no such function. */
    int fn_run, fn_init, fn_migrate, fn_close, fn_describe;
    int states;             /* table: the live state of each sequence, by reference */
    int newest;             /* weak table: [1] is the state of the newest sequence */
    int stop_words;         /* table: why a stream is to end, by enum cn_stop_reason */
    const void *array_mt;   /* identity of the metatable that marks JSON arrays */
    const void *tensor_mt;  /* identity of the metatable of tensors */
    const void *request_mt; /* identity of the metatable of requests; its key in the registry */

    struct lua_entry *entries; /* the batch that runs; its requests are a table in the registry */
    uint32_t n_entries, cap_entries;

    /* A coroutine that runs one step after another as long as none of them yields. A step that
     * yields keeps the coroutine as its stream's own, and the next step gets a new one. NULL: there
     * is none. */
    lua_State *idle;
    int idle_ref;
    struct lua_open *opened; /* the request that the running step has left open; or NULL */

    struct cn_list timers; /* those that continuo.after has set */
    uint32_t n_timers;     /* the length of that list */

    uint64_t call_serial;          /* requests of an earlier call are over */
    const struct cn_item *current; /* for the log; NULL between items */
    struct cn_reply stacked; /* continuo.reply_stack: outputs of all items, before they are split */
    struct cn_buf scratch;   /* continuo.json.encode: one buffer, kept between calls */
    char describe[64];
};

/* The runtime that a VM belongs to, from any of its coroutines. */
static inline struct lua_rt *
lua_rt_of(lua_State *L)
{
    return *(struct lua_rt **)lua_getextraspace(L);
}

/* True if `mt` is the identity of the metatable of the value at `index`. Unlike luaL_testudata it
 * looks up no name. */
static inline bool
lua_has_metatable(lua_State *L, int index, const void *mt)
{
    const void *of_value;

    if (!lua_getmetatable(L, index))
        return false;
    of_value = lua_topointer(L, -1);
    lua_pop(L, 1);
    return of_value == mt;
}

/* A state as the worker holds it: its reference in rt->states, which is at least 1. */
static inline void *
lua_state_of_ref(int ref)
{
    return (void *)(intptr_t)ref;
}

static inline int
lua_ref_of_state(const void *state)
{
    return (int)(intptr_t)state;
}

/* lua_protect.c: calls `fn` with `arg` as its light userdata. An error in it is logged, and the
 * result is then LUA_ERRRUN or LUA_ERRMEM with the error value on the top of the stack. Empties the
 * stack before. Never raises. */
int cn_lua_protect(struct lua_rt *rt, lua_CFunction fn, void *arg);
/* Logs the error value at index 1 of L with the traceback of the coroutine `of`, and leaves it
 * there as a string. A table is a refusal by the handler and is not logged. Raises. */
void cn_lua_log_error(lua_State *L, lua_State *of);
/* Raises a Lua error that the client gets with `status`. */
_Noreturn void cn_lua_client_error(lua_State *L, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Begins a time limit for the calls that follow: they must end by `deadline_ms` (CN_NEVER: no
 * deadline) and within the model's limit for a step. Later calls raise once it is over, and
 * rt->expired is true. */
void cn_lua_arm(struct lua_rt *rt, uint64_t now_ms, uint64_t deadline_ms);
/* Begins the time limit of a stream's timer, which belongs to none of the rows that wait for the
 * worker. */
void cn_lua_arm_timer(struct lua_rt *rt);
/* Begins a time limit of `limit_ms`, without the model's limit. `apart`: the calls are for no row.
 */
void cn_lua_arm_for(struct lua_rt *rt, uint64_t limit_ms, bool apart);
/* Ends the time limit: calls may take any time until one begins again. */
void cn_lua_disarm(struct lua_rt *rt);
/* Lets the hook fire at the next instruction. For a signal's function. */
void cn_lua_hook_next(struct lua_rt *rt);
/* lua_watch.c: begins to watch the calls of this process's runtime. 0 or CN_E_LOAD_FAILED. */
int cn_lua_watch_open(struct lua_rt *rt, struct cn_error *err);
void cn_lua_watch_close(struct lua_rt *rt);
/* A call begins, and must be over at `ends_ms`; CN_NEVER: none runs that has a limit. `apart`: it
 * is for no row. */
void cn_lua_watch_call(struct lua_rt *rt, uint64_t ends_ms, bool apart);
/* Puts a new coroutine (NULL: nothing) under the time limit of its creator L. Lua copies the hook
 * to it, but not the fact that the time may be up. */
void cn_lua_hook_coroutine(lua_State *L, lua_State *coroutine);

/* lua_item.c: gives the request at `request` its sequence's state, a new one from init(req) where
 * the sequence has none. Does nothing where the handler keeps no state. Raises. */
void cn_lua_attach_state(lua_State *L, int request, struct cn_item *item);
/* Takes the state that the request has, which the handler may have replaced, as the state of its
 * sequence. Raises. */
void cn_lua_keep_state(lua_State *L, int request, struct cn_item *item);
/* True if the call failed (`rc` is what Lua returned) or ran out of time: the item then has its
 * error. Never raises. */
bool cn_lua_settle_failure(struct lua_rt *rt, int rc, struct cn_item *item);
/* True if the deadline was over before the call began: the item then has its error. */
bool cn_lua_fail_when_late(struct cn_item *item, uint64_t now_ms);

/* lua_load.c: runs the handler's file and takes its functions into the runtime; index 1 is a light
 * userdata to the configuration as a struct cn_str of JSON. For cn_lua_protect. Raises. */
int cn_lua_load_handler(lua_State *L);

/* lua_call.c: runs one batch; each item gets its reply. */
void cn_lua_run(struct lua_rt *rt, struct cn_item **items, uint32_t n);
/* Answers with what describe() returns, as JSON. */
void cn_lua_metadata(struct lua_rt *rt, struct cn_item *item);

/* lua_prefetch.c: prefetches the states of a batch's items. */
void cn_lua_prefetch_states(struct lua_rt *rt, struct cn_item **items, uint32_t n);

/* lua_collector.c: makes the garbage collector of a new VM work in small steps. */
void cn_lua_collect_in_steps(lua_State *L);

/* lua_open.c: requests that stay open when their handler has returned (req:defer). A `resume` of
 * the runtime is one of these, or a coroutine's. */
bool cn_lua_is_open(const void *resume);
/* Leaves the request at `request` open; end it with cn_lua_drop_open. Raises. */
struct lua_open *cn_lua_leave_open(lua_State *L, int request, struct cn_item *item);
/* At the beginning of a run: tells the handler why the item is to end, if it is. */
void cn_lua_run_open(struct lua_rt *rt, struct cn_item *item);
/* At the end of a run: moves what the handler has answered into the item. If the answer is over or
 * has failed, the request is no longer open. */
void cn_lua_settle_open(struct lua_rt *rt, struct cn_item *item);
/* Ends the open request `resume`; the handler can no longer use it. */
void cn_lua_drop_open(struct lua_rt *rt, void *resume);

/* lua_timer.c: pushes the function continuo.after. Raises. */
void cn_lua_open_timers(lua_State *L);
/* Cancels all timers that are set. */
void cn_lua_drop_timers(struct lua_rt *rt);

/* lua_step.c: runs one step or goes on with it; the item has its reply, which may be `more`. */
void cn_lua_run_step(struct lua_rt *rt, struct cn_item *item);
/* Ends the coroutine of the stream `resume`, which closes its pending variables. */
void cn_lua_drop_step(struct lua_rt *rt, void *resume);

/* lua_sandbox.c: opens the libraries that a handler may use and the `continuo` table. Raises. */
void cn_lua_open_sandbox(lua_State *L);

/* lua_strict.c: remembers the globals that the sandbox has. Raises. */
void cn_lua_note_globals(lua_State *L);
/* From now on, assigning a global is an error. Globals that the handler made while it was loaded
 * can be read. Raises. */
void cn_lua_lock_globals(lua_State *L);
/* lua_names.c: warns of functions of the module at `module` that the server never calls, because
 * their names are misspelt. Raises if a name is certainly a mistake. */
void cn_lua_check_names(lua_State *L, int module);
/* lua_names.c: appends to the message at index 1, in its first line, what a beginner should know of
 * it. Raises. */
void cn_lua_add_hint(lua_State *L);

/* lua_module.c: pushes the function `require`. Raises. */
void cn_lua_open_require(lua_State *L);
/* Reads and compiles the model's file `name` as text and leaves the chunk on the stack. Raises. */
void cn_lua_load_file(lua_State *L, const char *name);
/* Pushes the path of the model's file `name`. Raises where the name leads out of the model's folder
 * or to no file. */
void cn_lua_push_model_path(lua_State *L, const char *name);

/* request/: makes the request metatable. Raises. */
void cn_lua_open_request(lua_State *L);
/* Pushes the request object of an item. Raises. */
void cn_lua_push_request(lua_State *L, struct cn_item *item);
/* Sets or pushes (nil when there is none) the state that a request carries. */
void cn_lua_set_request_state(lua_State *L, int request, int state);
void cn_lua_get_request_state(lua_State *L, int request);
bool cn_lua_request_answered(lua_State *L, int request);
/* True if the handler has called req:defer(): the request is to stay open. */
bool cn_lua_request_deferred(lua_State *L, int request);
/* Leaves the request open. From now on its item is that of `open`, which must outlive the request.
 * NULL for `open` ends the request. Never raises. */
void cn_lua_open_request_as(lua_State *L, int request, struct cn_open_item *open);
/* Pushes what req:defer() was given: a function, or nil. */
void cn_lua_get_request_stop(lua_State *L, int request);
/* Makes the request on the top valid again for this call, in which its item runs again. */
void cn_lua_renew_request(lua_State *L, struct cn_item *item);
/* The item of a valid request. Raises. */
struct cn_item *cn_lua_request_item(lua_State *L, int request);

/* lua_reply.c: fills the reply from the value at `index`. Raises on a value that cannot be a
 * reply. */
void cn_lua_set_reply(lua_State *L, int index, struct cn_reply *reply);
/* Appends a further piece of the answer. Raises. */
void cn_lua_add_chunk(lua_State *L, int index, struct cn_reply *reply);
/* Appends a piece that a step yields, which may be any value that a reply may be. Raises. */
void cn_lua_add_piece(lua_State *L, int index, struct cn_reply *reply);
/* Makes the reply a refusal. The status is the value at index `status`, 400 to 599; without one, or
 * with nil or 0, the handler has failed. Raises on any other value. */
void cn_lua_refuse(lua_State *L, int status, struct cn_str message, struct cn_reply *reply);
/* Turns the error value on the top of the stack (popped) into a failed reply. Never raises. */
void cn_lua_fail_reply(lua_State *L, int pcall_rc, struct cn_reply *reply);

/* lua_json.c: pushes the `json` table; makes the array mark. Raises. */
void cn_lua_open_json(lua_State *L);
/* Pushes the value of a JSON text; 0, or -1 with a message pushed instead. JSON's null becomes
 * continuo.null, or nothing where `null_is_nil`. Raises only when memory is used up. */
int cn_lua_json_decode(lua_State *L, struct cn_str text, bool null_is_nil);
/* Raises "PATH: what" of the path at the top; a long one loses its middle, so that the message
 * holds both. */
_Noreturn void cn_lua_path_error(lua_State *L, const char *what);
/* Appends the value at `index` as JSON; `name` begins paths in messages. Raises. */
void cn_lua_json_encode(lua_State *L, int index, const char *name, struct cn_buf *out);
/* Is the table at `index` marked as a JSON array? */
bool cn_lua_is_array(lua_State *L, int index);
/* Marks the table on the top as a JSON array. */
void cn_lua_mark_array(lua_State *L);

/* lua_array.c: pushes the function continuo.array and makes its metatable. Raises. */
void cn_lua_open_array(lua_State *L);
/* The string at the top becomes a view of a tensor's elements, or nil for types that Lua has no
 * numbers for (FP16, BF16). BOOL is u8; UINT64 is read as i64, with the same bits. Raises. */
void cn_lua_push_values(lua_State *L, enum cn_datatype type);
bool cn_lua_is_number_array(lua_State *L, int index);
/* Is it a continuo.array whose bytes are values of that type? They live as long as it does. Any
 * fits a type that Lua has no numbers for. */
bool cn_lua_array_has(lua_State *L, int index, enum cn_datatype type, struct cn_str *bytes);

/* lua_torch.c: sets the global `torch`. Raises. */
void cn_lua_open_torch(lua_State *L);
/* Frees what torch.load has opened. Call it after lua_close: the modules are closed by then. */
void cn_lua_close_torch(struct lua_rt *rt);

/* lua_metrics.c: pushes the `metrics` table. Raises. */
void cn_lua_open_metrics(lua_State *L);

/* lua_tensor.c: the row's tensors by name into the table at the top. Raises. */
void cn_lua_fill_inputs(lua_State *L, const struct cn_row *row);
/* Pushes one tensor as a table. Raises. */
void cn_lua_push_tensor(lua_State *L, const struct cn_tensor *tensor);
/* Makes the metatable of tensors. Raises. */
void cn_lua_open_tensor(lua_State *L);
/* True if cn_lua_push_tensor made the table at `index`, or the state codec read it as a tensor. */
bool cn_lua_is_tensor(lua_State *L, int index);
/* Marks the table on the top as a tensor. */
void cn_lua_mark_tensor(lua_State *L);
/* Reads the table at `index`, which has the fields of an output, into `out`. Messages call it
 * `what` and `name`, for example "argument '2'". Pushes the string that holds its bytes. Raises on
 * a value that cannot be a tensor. */
void cn_lua_read_tensor(lua_State *L, int index, const char *what, const char *name,
                        struct cn_tensor *out);
/* Packs the tensors of the table at `index` into the reply's body. Raises on a value that cannot be
 * a tensor. */
void cn_lua_set_outputs(lua_State *L, int index, struct cn_reply *reply);

/* lua_state_encode.c: appends the state table at `index` to `out`. Raises, naming the key. */
void cn_lua_state_encode(lua_State *L, int index, struct cn_buf *out);
/* lua_state_decode.c: */
void cn_lua_open_state_codec(lua_State *L); /* once a VM; raises */
#define CN_LUA_STATE_HOLDER "continuo.state_holder"
/* Checks and parses; the result is pushed by cn_lua_state_push. 0 or CN_E_STATE_STORE. */
struct cn_lua_state_bytes;
int cn_lua_state_parse(struct cn_str bytes, struct cn_lua_state_bytes **out, struct cn_error *err);
void cn_lua_state_push(lua_State *L, const struct cn_lua_state_bytes *parsed); /* raises */
void cn_lua_state_bytes_free(struct cn_lua_state_bytes *parsed);

/* lua_stack.c: functions of the table `continuo`. */
int cn_lua_stack(lua_State *L);
int cn_lua_reply_stack(lua_State *L);
/* Marks a request as answered, and tells the worker so if it is open. Raises if the userdata at
 * `request` does not belong to this call. */
void cn_lua_request_set_answered(lua_State *L, int request);

#endif
