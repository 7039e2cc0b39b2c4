/* handlers/python/py_step.c - runs a batch: row by row through step(state, req), or as a whole by
 * batch(states, reqs). Worker's thread.
 *
 * A state is a Python object. The worker holds one reference to it as item->state; a step gets it,
 * changes it in place or replaces it (req.state = ...), and afterwards what the request carries is
 * the state. A new sequence has none before its first step has succeeded, so that a failed one
 * leaves nothing behind.
 *
 * A step that returns a generator, a coroutine or an async generator is a stream (class Stream in
 * continuo._runtime), which is the item's `resume` until it ends. Streams that wait for the asyncio
 * loop get one turn of it together, after all rows of the batch have begun, so that a coroutine
 * which waits for nothing is answered in the call in which it began.
 */
#include "core/errors/panic.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/python/py_priv.h"

#define STREAM_MAGIC 0x50595354u

/* A step between two calls. */
struct py_stream {
    uint32_t magic;
    struct py_row *row;
    PyObject *request, *stream;
};

/* One row in a call. */
struct call {
    struct cn_item *item;
    struct py_row *row;
    PyObject *request;
    PyObject *stream; /* NULL: the step does not stream */
    bool waits;       /* the stream waits for the asyncio loop */
};

/* --- states --- */

static bool
can_change(PyObject *state)
{
    return cn_py_is(state, &PyDict_Type) || cn_py_is(state, &PyList_Type) ||
           !(cn_py_is(state, &PyLong_Type) || cn_py_is(state, &PyFloat_Type) ||
             cn_py_is(state, &PyUnicode_Type) || cn_py_is(state, &PyBytes_Type) ||
             cn_py_is(state, &PyTuple_Type) || cn_py_is(state, &PyBool_Type) || state == Py_None);
}

/* Returns the state that the step gets. */
static PyObject *
state_of(struct py_rt *rt, const struct cn_item *item, PyObject *request)
{
    PyObject *state;

    if (!rt->stateful) {
        state = Py_None;
        Py_INCREF(state);
    } else if (item->state) {
        state = item->state;
        Py_INCREF(state);
    } else if (rt->init) {
        state = PyObject_SetAttr(request, rt->names.state, Py_None) == 0
                    ? PyObject_CallFunctionObjArgs(rt->init, request, NULL)
                    : NULL;
    } else {
        state = PyDict_New();
    }
    if (state && rt->stateful && !item->state && state == rt->newest && can_change(state)) {
        Py_DECREF(state);
        PyErr_SetString(PyExc_ValueError, "a new sequence has the same object as another one for "
                                          "its state: make a new one for each, within init(req)");
        return NULL;
    }
    return state;
}

/* Makes the request's state the item's state. */
static int
keep_state(struct py_rt *rt, struct cn_item *item, PyObject *request)
{
    PyObject *state;

    if (!rt->stateful)
        return 0;
    state = PyObject_GetAttr(request, rt->names.state);
    if (!state)
        return -1;
    if (!item->state)
        rt->newest = state;
    else if (rt->newest == item->state && state != item->state)
        rt->newest = NULL;
    Py_XDECREF((PyObject *)item->state);
    item->state = state;
    return 0;
}

/* --- calls --- */

/* Makes a Request without its state. It has few fields, and they are set here rather than by a call
 * of its __init__. */
static PyObject *
new_request(struct py_rt *rt, struct py_row *row)
{
    PyObject *request = PyType_GenericNew((PyTypeObject *)rt->request, NULL, NULL);

    if (request && (PyObject_SetAttr(request, rt->names._row, (PyObject *)row) < 0 ||
                    PyObject_SetAttr(request, rt->names._made, Py_None) < 0))
        Py_CLEAR(request);
    return request;
}

/* Makes the row and the request, and attaches the state. Returns false if it fails; the item has
 * the error then. */
static bool
begin(struct py_rt *rt, struct cn_item *item, struct call *call)
{
    PyObject *state;

    *call = (struct call){.item = item};
    if (item->deadline_ms <= cn_now_ms()) {
        cn_reply_fail(&item->reply, CN_E_HANDLER_DEADLINE,
                      "the request's deadline passed before its step began");
        return false;
    }
    rt->row = item->row;
    cn_py_call_begin(rt, item->deadline_ms);
    call->row = cn_py_row_new(rt, item);
    if (call->row)
        call->request = new_request(rt, call->row);
    state = call->request ? state_of(rt, item, call->request) : NULL;
    if (state && PyObject_SetAttr(call->request, rt->names.state, state) == 0) {
        Py_DECREF(state);
        return true;
    }
    Py_XDECREF(state);
    cn_py_fail_reply(rt, &item->reply);
    return false;
}

/* Called when the item is answered or has failed: the request is over. */
static void
end(struct call *call)
{
    if (call->row)
        cn_py_row_end(call->row);
    Py_XDECREF((PyObject *)call->row);
    Py_XDECREF(call->request);
    Py_XDECREF(call->stream);
}

/* Gives a stream up. Whatever goes wrong is only logged, because no client gets it. */
static void
close_stream(struct py_rt *rt, PyObject *stream)
{
    PyObject *closed;

    cn_py_call_begin(rt, CN_NEVER);
    closed = PyObject_CallMethod(stream, "close", NULL);
    cn_py_call_end(rt);
    if (!closed) {
        struct cn_error err;

        cn_py_fail_error(rt, CN_E_HANDLER_FAILED, &err);
    }
    Py_XDECREF(closed);
}

/* A stream is given up, too: a step that has failed must not go on in a task of asyncio. The row
 * ends before that, since the reply is the error from now on. */
static void
fail(struct py_rt *rt, struct call *call)
{
    rt->row = call->item->row;
    cn_py_fail_reply(rt, &call->item->reply);
    if (call->stream) {
        cn_py_row_end(call->row);
        close_stream(rt, call->stream);
    }
    end(call);
}

/* Handles the last value of a step. A step that has sent pieces may end without a value, and so may
 * a generator. */
static void
finish(struct py_rt *rt, struct call *call, PyObject *value, bool generator)
{
    const struct cn_reply *reply = &call->item->reply;
    int rc = 0;

    if (value == Py_None && !generator && !reply->head_out && reply->n_chunks == 0) {
        PyErr_SetString(PyExc_TypeError, "the step returned None: return a reply, \"\" for an "
                                         "empty one");
        rc = -1;
    } else if (value != Py_None) {
        rc = cn_py_set_reply(rt, value, &call->item->reply);
    }
    if (rc == 0)
        rc = keep_state(rt, call->item, call->request);
    if (rc < 0)
        fail(rt, call);
    else
        end(call);
}

/* Lets the step go on in a later call, after rest_ms. */
static void
rest(struct py_rt *rt, struct call *call, uint64_t rest_ms)
{
    struct py_stream *kept;

    /* The worker may now commit the step or give it up, so it must have the state. */
    if (keep_state(rt, call->item, call->request) < 0) {
        fail(rt, call);
        return;
    }
    kept = cn_alloc(sizeof(*kept));
    *kept = (struct py_stream){STREAM_MAGIC, call->row, call->request, call->stream};
    cn_py_row_rest(call->row);
    call->item->resume = kept;
    call->item->reply.more = true;
    call->item->reply.rest_ms = rest_ms;
}

/* Lets the stream go on. */
static void
go_on(struct py_rt *rt, struct call *call)
{
    const enum cn_stop_reason stop = call->item->stop;
    PyObject *told, *value;
    long long rest_ms;
    int more;

    rt->row = call->item->row;
    told = PyObject_CallMethod(call->stream, "resume", "Os", (PyObject *)call->row,
                               stop == CN_STOP_NONE ? NULL : cn_stop_reason_word(stop));
    call->waits = told == Py_None;
    if (!told) {
        fail(rt, call);
    } else if (!call->waits) {
        if (!PyArg_ParseTuple(told, "pOL", &more, &value, &rest_ms)) {
            fail(rt, call);
        } else if (!more) {
            finish(rt, call, value, rest_ms == 0);
        } else if (cn_py_add_piece(rt, value, &call->item->reply) < 0) {
            fail(rt, call);
        } else {
            rest(rt, call, (uint64_t)rest_ms);
        }
    }
    Py_XDECREF(told);
}

/* Most steps return one of these types, and they are never streams. */
static bool
is_plain(const struct py_rt *rt, PyObject *result)
{
    PyTypeObject *const type = Py_TYPE(result);

    return type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyDict_Type ||
           type == &PyList_Type || type == (PyTypeObject *)rt->outputs_reply ||
           type == (PyTypeObject *)rt->checked_reply || type == (PyTypeObject *)rt->reply ||
           cn_py_is_response(result) || cn_py_is_processor(result);
}

/* Handles what the handler returned, which may be a stream. Takes the reference. */
static void
settle(struct py_rt *rt, struct call *call, PyObject *result)
{
    if (!result) {
        fail(rt, call);
        return;
    }
    if (is_plain(rt, result)) {
        finish(rt, call, result, false);
        Py_DECREF(result);
        return;
    }
    call->stream = PyObject_CallFunctionObjArgs(rt->open_stream, result, NULL);
    if (call->stream == Py_None) {
        Py_CLEAR(call->stream);
        finish(rt, call, result, false);
    } else if (call->stream) {
        go_on(rt, call);
    } else {
        fail(rt, call);
    }
    Py_DECREF(result);
}

static void
run_step(struct py_rt *rt, struct call *call)
{
    PyObject *state = PyObject_GetAttr(call->request, rt->names.state);

    cn_py_call_begin(rt, call->item->deadline_ms);
    settle(rt, call,
           state ? PyObject_CallFunctionObjArgs(rt->step, state, call->request, NULL) : NULL);
    Py_XDECREF(state);
}

/* Continues an item that was run before. */
static void
resume(struct py_rt *rt, struct call *call)
{
    struct py_stream *kept =
        cn_cast(struct py_stream, (struct py_stream *)call->item->resume, STREAM_MAGIC);

    call->row = kept->row;
    call->request = kept->request;
    call->stream = kept->stream;
    kept->magic = 0;
    cn_free(kept);
    call->item->resume = NULL;
    cn_py_call_begin(rt, CN_NEVER); /* a stream's deadline is told to it */
    if (cn_py_row_resume(call->row, call->item) < 0)
        fail(rt, call);
    else
        go_on(rt, call);
}

/* --- batches --- */

/* Fails all calls with the exception that is set. */
static void
fail_all(struct py_rt *rt, struct call *calls, uint32_t n)
{
    struct cn_reply why;

    cn_reply_init(&why, 0);
    cn_py_fail_reply(rt, &why);
    for (uint32_t i = 0; i < n; i++) {
        cn_reply_fail(&calls[i].item->reply, why.error_code, "%.*s",
                      CN_STR_ARG(cn_buf_str(&why.body)));
        calls[i].item->reply.status = why.status;
        end(&calls[i]);
    }
    cn_reply_fini(&why);
}

/* Calls batch(states, reqs). Returns NULL with an exception if that fails, or if the result has
 * another length. */
static PyObject *
call_batch(struct py_rt *rt, const struct call *calls, uint32_t n)
{
    PyObject *states = PyList_New(0), *requests = PyList_New(0), *result = NULL;
    bool ok = states && requests;

    for (uint32_t i = 0; ok && i < n; i++) {
        PyObject *state = PyObject_GetAttr(calls[i].request, rt->names.state);

        ok = state && PyList_Append(states, state) == 0 &&
             PyList_Append(requests, calls[i].request) == 0;
        Py_XDECREF(state);
    }
    if (ok)
        result = PyObject_CallFunctionObjArgs(rt->batch, states, requests, NULL);
    if (result && !cn_py_is(result, &PyList_Type) && !cn_py_is(result, &PyTuple_Type)) {
        PyErr_Format(PyExc_TypeError, "batch(states, reqs) must return a list of replies, got %R",
                     Py_TYPE(result));
        Py_CLEAR(result);
    } else if (result && PySequence_Size(result) != (Py_ssize_t)n) {
        PyErr_Format(PyExc_ValueError,
                     "batch(states, reqs) got %u requests and returned %zd "
                     "replies: return one for each",
                     n, PySequence_Size(result));
        Py_CLEAR(result);
    }
    Py_XDECREF(states);
    Py_XDECREF(requests);
    return result;
}

static void
run_batch(struct py_rt *rt, struct call *calls, uint32_t n)
{
    PyObject *result;
    uint64_t latest_ms = 0;

    rt->row = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (calls[i].item->deadline_ms > latest_ms)
            latest_ms = calls[i].item->deadline_ms;
    cn_py_call_begin(rt, latest_ms); /* the end of the most patient item */
    result = call_batch(rt, calls, n);
    if (!result) {
        fail_all(rt, calls, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        PyObject *one = PySequence_GetItem(result, (Py_ssize_t)i);

        if (one && PyExceptionInstance_Check(one)) {
            PyErr_SetObject((PyObject *)Py_TYPE(one), one);
            Py_CLEAR(one);
        }
        settle(rt, &calls[i], one);
    }
    Py_DECREF(result);
}

/* --- a call of the worker --- */

/* Runs one turn of the asyncio loop for all streams of the batch that wait for it. */
static void
settle_waiting(struct py_rt *rt, struct call *calls, uint32_t n)
{
    uint32_t waiting = 0;

    for (uint32_t i = 0; i < n; i++)
        waiting += calls[i].waits;
    if (waiting == 0)
        return;
    cn_py_call_begin(rt, CN_NEVER);
    cn_py_loop_turn(rt);
    cn_py_call_end(rt);
    for (uint32_t i = 0; i < n; i++) {
        if (!calls[i].waits)
            continue;
        go_on(rt, &calls[i]);
        if (calls[i].waits)
            rest(rt, &calls[i], CN_NEVER);
    }
}

void
cn_py_run(struct py_rt *rt, struct cn_item **items, uint32_t n)
{
    struct call few[64], *calls = n <= 64 ? few : cn_alloc(n * sizeof(*calls));
    uint32_t begun = 0, fresh;

    rt->base.worn_out = false;
    /* New rows come first, so that they are one array for a batch. */
    for (uint32_t i = 0; i < n; i++)
        if (!items[i]->resume && begin(rt, items[i], &calls[begun]))
            begun++;
        else if (!items[i]->resume)
            end(&calls[begun]);
    fresh = begun;
    if (rt->batch && fresh > 0)
        run_batch(rt, calls, fresh);
    else
        for (uint32_t i = 0; i < fresh; i++)
            run_step(rt, &calls[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (!items[i]->resume || items[i]->reply.more)
            continue;
        calls[begun] = (struct call){.item = items[i]};
        resume(rt, &calls[begun++]);
    }
    settle_waiting(rt, calls, begun);
    cn_py_call_end(rt);
    rt->row = NULL;
    cn_py_limits_check_memory(rt);
    if (calls != few)
        cn_free(calls);
}

void
cn_py_drop(struct py_rt *rt, void *given_up)
{
    struct py_stream *kept = cn_cast(struct py_stream, (struct py_stream *)given_up, STREAM_MAGIC);

    rt->row = kept->row->row;
    close_stream(rt, kept->stream);
    cn_py_row_end(kept->row);
    Py_DECREF((PyObject *)kept->row);
    Py_DECREF(kept->request);
    Py_DECREF(kept->stream);
    kept->magic = 0;
    cn_free(kept);
    rt->row = NULL;
}
