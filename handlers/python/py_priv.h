/* handlers/python/py_priv.h - what the files of the Python runtime share.
 *
 * There is one interpreter in a worker process. The worker's loop runs in the interpreter's main
 * thread, without its lock (the GIL): a runtime's function takes the lock when it begins and gives
 * it back when it ends, so that threads which a handler has started run while the worker waits.
 *
 * Functions here are called with the lock held. Those that return a PyObject * give a new
 * reference, or NULL with an exception set, unless they say otherwise.
 */
#ifndef CN_HANDLERS_PYTHON_PY_PRIV_H
#define CN_HANDLERS_PYTHON_PY_PRIV_H

#include "handlers/python/py_api.h"

#include <time.h>

#include "core/memory/buf.h"
#include "core/time/timer_wheel.h"
#include "handlers/python/py_runtime.h"
#include "handlers/runtime.h"
#include "proto/tensor.h"

#define PY_RT_MAGIC 0x50595254u

/* The functions of the handler's program (python/continuo/types.py); NULL: it has none. */
#define PY_PROGRAM_FUNCTIONS(F) F(init) F(step) F(batch) F(close) F(migrate) F(describe)

/* What the module continuo._runtime has for this folder: field, name there. */
#define PY_RUNTIME_OBJECTS(F)                                                                      \
    F(request, "Request")               /* a class */                                              \
    F(reply, "Reply")                   /* a class */                                              \
    F(checked_reply, "CheckedReply")    /* a class */                                              \
    F(outputs_reply, "OutputsReply")    /* a class */                                              \
    F(render, "render")                 /* renders a reply of any other kind */                    \
    F(convert_output, "convert_output") /* makes an array, or bytes, of any other output */        \
    F(open_stream, "open_stream")       /* makes a stream of what a step returned, or None */      \
    F(report, "report")                 /* describes an exception, for the client and the log */   \
    F(turn, "turn")                     /* runs one turn of the asyncio loop */

/* Names of attributes, as Python's own objects. */
#define PY_ATTRIBUTES(F) F(state) F(outputs) F(_row) F(_made)

struct py_rt {
    struct cn_runtime base; /* first: cn_runtime is what the worker holds */
    uint32_t magic;
    char *model, *version;
    bool stateful; /* the handler keeps a state */
    bool zygote;   /* it was opened in a process that forks the workers */
    bool pickle;   /* state_format = "pickle" */
    uint32_t schema;
    size_t state_max_bytes;
    PyObject *program;
#define PY_FIELD(name) PyObject *name;
    PY_PROGRAM_FUNCTIONS(PY_FIELD)
#undef PY_FIELD
#define PY_RUNTIME_FIELD(field, name) PyObject *field;
    PY_RUNTIME_OBJECTS(PY_RUNTIME_FIELD)
#undef PY_RUNTIME_FIELD
    struct {
#define PY_FIELD(name) PyObject *name;
        PY_ATTRIBUTES(PY_FIELD)
#undef PY_FIELD
    } names;
    PyObject *declared;       /* a dict with the datatypes of the declared outputs */
    const void *newest;       /* the newest sequence's state; only its address is used */
    const struct cn_row *row; /* row of the step that runs, for the log; NULL between steps */
    bool looping;             /* the asyncio loop exists */
    bool loop_due;            /* one of its timers is due, or a task can go on at once */
    struct cn_timer loop_timer;
    /* Limits (py_limits.c). Times are those of cn_now_ms(). */
    uint64_t call_ms, call_began_ms;
    uint64_t call_ends_ms; /* the end of the call that runs; CN_NEVER: none runs, or it is over */
    bool has_alarm;
    timer_t alarm;
    uint64_t alarm_at_ms; /* when it goes off; CN_NEVER: it is not set */
    uint64_t memory_max;  /* 0: no limit */
    bool out_of_memory;   /* a call has failed for it */
    char describe_text[64];
};

/* py_gil.c: takes and gives back the interpreter's lock in the worker's thread. */
void cn_py_enter(void);
void cn_py_leave(void);
/* Programs that the handler starts do not get the server's socket and lock. */
void cn_py_hide_fds(void);
/* Called in a process that was forked. If the handler has done it, the process must never go on as
 * a worker. */
void cn_py_forked(void);
/* Called in a zygote before and after it forks a worker. */
void cn_py_fork(enum cn_fork_moment moment);
/* True in the thread that runs the worker. */
bool cn_py_is_worker_thread(void);

/* py_row.c: the worker's row under a request. */
struct py_row {
    PyObject ob_base;
    struct py_rt *rt;
    const struct cn_row *row; /* NULL: the request is over */
    struct cn_item *item;     /* NULL: between two calls */
    uint64_t job_id, deadline_ms, step;
    enum cn_stop_reason stop;
    bool fresh;
    PyObject *body;  /* NULL: not asked for yet */
    PyObject *later; /* pieces that were sent between two calls; NULL: none */
};
/* Makes the type. Returns 0, or -1 with an exception set. */
int cn_py_row_init(void);
struct py_row *cn_py_row_new(struct py_rt *rt, struct cn_item *item);
/* Returns what is under a row; NULL with an exception if the request is over, or if the object is
 * something else. */
const struct cn_row *cn_py_row_of(PyObject *object);
/* Returns a list of the parameters of a v2 request: (name, value as bytes, type). */
PyObject *cn_py_row_parameters(PyObject *self, PyObject *ignored);
/* Returns a dict of the parts as bytearrays, in which the last one of a name counts; None if a part
 * has a content type. */
PyObject *cn_py_row_plain_parts(PyObject *self, PyObject *ignored);
/* Returns a tensor's shape as a tuple. */
PyObject *cn_py_shape(const struct cn_tensor *tensor);
/* Returns a tensor's elements as a bytearray, or for BYTES as a list of bytes objects. */
PyObject *cn_py_elements(const struct cn_tensor *tensor);
PyObject *cn_py_text(struct cn_str text);
/* Called when the item runs again. Moves what was sent meanwhile into its reply. Returns 0, or -1
 * with an exception set. */
int cn_py_row_resume(struct py_row *row, struct cn_item *item);
/* Called when the call is over: the item no longer exists until the next one. */
void cn_py_row_rest(struct py_row *row);
/* Called when the request is over: its bytes belong to others from now on. */
void cn_py_row_end(struct py_row *row);

/* py_reply.c: fill a reply from what a handler gave. 0, or -1 with an exception set. */
int cn_py_set_reply(struct py_rt *rt, PyObject *value, struct cn_reply *reply);
int cn_py_add_piece(struct py_rt *rt, PyObject *value, struct cn_reply *reply);
/* Gives the text of a str, which must stay alive while the text is used. */
int cn_py_str(PyObject *text, struct cn_str *out);
int cn_py_append_bytes(PyObject *bytes, struct cn_buf *out);
/* Raises the message of `err` as a ValueError. Returns -1. */
int cn_py_raise(const struct cn_error *err);

/* py_outputs.c: appends a packed set of tensors (proto/tensor.h). `outputs` is a mapping of names
 * to values. 0, or -1 with an exception set. */
int cn_py_put_outputs(struct py_rt *rt, PyObject *outputs, struct cn_buf *out);

int cn_py_put_output(struct py_rt *rt, PyObject *name, PyObject *value, struct cn_buf *out);
/* Returns the class numpy.ndarray, borrowed; NULL while nobody has imported NumPy. */
PyTypeObject *cn_py_array_class(void);

/* py_triton.c: models for Triton's Python backend. Makes the types. */
int cn_py_triton_init(PyObject *module);
/* Functions of the module. */
PyObject *cn_py_triton_use(PyObject *self, PyObject *args);
PyObject *cn_py_triton_receive(PyObject *self, PyObject *args);
/* Is this an InferenceResponse, and not of a class derived from it? */
bool cn_py_is_response(PyObject *value);
/* Appends the outputs of a response. Returns 0; 1, and appends nothing, if only the program's
 * reply() can make a reply of it; or -1 with an exception set. */
int cn_py_put_response(struct py_rt *rt, PyObject *response, struct cn_buf *out);

/* py_torchserve.c: handlers of TorchServe. Makes the type. */
int cn_py_torchserve_init(PyObject *module);
/* Functions of the module. */
PyObject *cn_py_torchserve_use(PyObject *self, PyObject *args);
PyObject *cn_py_torchserve_receive(PyObject *self, PyObject *args);
PyObject *cn_py_torchserve_data(PyObject *self, PyObject *reqs);
PyObject *cn_py_torchserve_give(PyObject *self, PyObject *args);
/* Is this a RequestProcessor, which give_results() makes a reply? */
bool cn_py_is_processor(PyObject *value);
int cn_py_set_processor(PyObject *value, struct cn_reply *reply);

/* py_error.c: turns the exception that is set into a failed reply, and logs it. */
void cn_py_fail_reply(struct py_rt *rt, struct cn_reply *reply);
/* Like cn_py_fail_reply(), but puts the error into `err`, with `code` if the handler has failed.
 * Returns the code. */
int cn_py_fail_error(struct py_rt *rt, int code, struct cn_error *err);

/* An event of the log has at most 4 kB, and a worker's line 3.6 kB of it (core/log/log.c,
 * stderr_tail.h), with up to 700 bytes before the text. */
#define CN_PY_LOG_PART 2900
/* Returns the length of the first part of `text` that takes at most `room` bytes of a line: whole
 * lines if there are any, and whole characters in any case. */
size_t cn_py_log_part(const char *text, size_t room);

/* py_step.c: runs a batch. */
void cn_py_run(struct py_rt *rt, struct cn_item **items, uint32_t n);
/* Ends a stream that is given up. */
void cn_py_drop(struct py_rt *rt, void *resume);

/* py_limits.c: time and memory. */
/* Bounds the memory from here on. */
int cn_py_limits_open(struct py_rt *rt, const struct cn_load *load, struct cn_error *err);
/* Call this in the process that runs requests: a timer does not outlive a fork. */
void cn_py_limits_serve(struct py_rt *rt);
void cn_py_limits_close(struct py_rt *rt);
/* A call of the handler begins, which may take until the deadline or handler.limits.callMSec. It
 * replaces the call before it. */
void cn_py_call_begin(struct py_rt *rt, uint64_t deadline_ms);
void cn_py_call_end(struct py_rt *rt);
/* Is the call that runs beyond its end? Then returns its limit in ms, once; otherwise 0. */
uint64_t cn_py_call_overdue(struct py_rt *rt);
/* The signal after which it should be asked. */
int cn_py_alarm_signal(void);
/* After a batch: finds out whether a handler that had no memory left has freed some. */
void cn_py_limits_check_memory(struct py_rt *rt);

/* py_loop.c: runs one turn of the asyncio loop: everything that can run now. Waits for nothing. */
void cn_py_loop_turn(struct py_rt *rt);
/* Called between batches, without the lock. */
void cn_py_loop_poll(struct cn_runtime *rt);
/* The loop was made, and its events can be waited for with this descriptor. */
void cn_py_loop_begin(struct py_rt *rt, int fd);

/* py_state_write.c and py_state_read.c turn a state into bytes and back. Encode appends to `out`.
 * Returns 0, or -1 with an exception set. With max_bytes 0 there is no limit; otherwise a larger
 * state raises OverflowError. */
int cn_py_state_write(PyObject *state, bool pickle, size_t max_bytes, struct cn_buf *out);
PyObject *cn_py_state_read(struct cn_str bytes, bool pickle);
/* Gets the functions of continuo._state. Returns 0, or -1 with an exception set. */
int cn_py_state_write_init(PyObject *module);
int cn_py_state_read_init(PyObject *module);

/* py_module.c: the runtime that is open; NULL: none. */
extern struct py_rt *cn_py_rt;

static inline struct py_rt *
cn_py_rt_of(struct cn_runtime *rt)
{
    return (struct py_rt *)rt;
}

#endif
