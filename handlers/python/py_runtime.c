/* handlers/python/py_runtime.c - the runtime "python": opens a model's program, keeps its states,
 * and closes it. Worker's thread.
 *
 * The interpreter is the user's own, and it is there before the worker: it has loaded this library
 * and called _worker.serve() (py_module.c). To open a model, continuo._runtime imports the handler
 * and returns a program (python/continuo/types.py). The program's functions are kept here, so that
 * a call looks up no name.
 *
 * An error of a handler fails the row, or the batch, in which it happened. Where py_limits.c cannot
 * end a call, the server replaces the worker after responseTimeout.
 */
#include "handlers/python/py_runtime.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"
#include "proto/frame.h"

static struct py_rt *
py_rt(struct cn_runtime *rt)
{
    return cn_cast(struct py_rt, (struct py_rt *)rt, PY_RT_MAGIC);
}

/* --- open and close --- */

static void
runtime_close(struct cn_runtime *base)
{
    struct py_rt *rt;

    if (!base)
        return;
    rt = py_rt(base);
    cn_py_enter();
    if (rt->looping)
        cn_timer_cancel(&rt->loop_timer);
#define PY_DROP(name) Py_CLEAR(rt->name);
    PY_PROGRAM_FUNCTIONS(PY_DROP)
#undef PY_DROP
    Py_CLEAR(rt->program);
    Py_CLEAR(rt->declared);
#define PY_DROP_OBJECT(field, name) Py_CLEAR(rt->field);
    PY_RUNTIME_OBJECTS(PY_DROP_OBJECT)
#undef PY_DROP_OBJECT
#define PY_DROP_NAME(name) Py_CLEAR(rt->names.name);
    PY_ATTRIBUTES(PY_DROP_NAME)
#undef PY_DROP_NAME
    cn_py_rt = NULL;
    cn_py_leave();
    cn_py_limits_close(rt);
    cn_samples_fini(&rt->base.samples);
    cn_free(rt->model);
    cn_free(rt->version);
    rt->magic = 0;
    cn_free(rt);
}

/* Sets *out to the program's function; NULL if it has none. */
static int
take_function(struct py_rt *rt, const char *name, PyObject **out)
{
    *out = PyObject_GetAttrString(rt->program, name);
    if (!*out)
        return -1;
    if (*out == Py_None)
        Py_CLEAR(*out);
    return 0;
}

/* The device that continuo._device has chosen. */
static int
take_device(struct py_rt *rt)
{
    PyObject *device = PyObject_GetAttrString(rt->program, "device");
    const char *name = device ? PyUnicode_AsUTF8AndSize(device, NULL) : NULL;

    if (name && strcmp(name, "cpu") != 0)
        snprintf(rt->base.device, sizeof(rt->base.device), "%s", name);
    Py_XDECREF(device);
    return name ? 0 : -1;
}

static int
take_program(struct py_rt *rt)
{
    PyObject *schema, *format;
    int is_pickle;

#define PY_TAKE(name)                                                                              \
    if (take_function(rt, #name, &rt->name) < 0)                                                   \
        return -1;
    PY_PROGRAM_FUNCTIONS(PY_TAKE)
#undef PY_TAKE
    if (!rt->step && !rt->batch) {
        PyErr_SetString(PyExc_TypeError, "the program has neither step nor batch");
        return -1;
    }
    rt->base.runs_rows_apart = !rt->batch;
    schema = PyObject_GetAttrString(rt->program, "state_schema");
    rt->schema = schema ? (uint32_t)PyLong_AsUnsignedLong(schema) : 0;
    Py_XDECREF(schema);
    if (PyErr_Occurred())
        return -1;
    format = PyObject_GetAttrString(rt->program, "state_format");
    is_pickle = format ? PyUnicode_CompareWithASCIIString(format, "pickle") == 0 : 0;
    rt->pickle = is_pickle;
    Py_XDECREF(format);
    return format ? take_device(rt) : -1;
}

static int
take_objects(struct py_rt *rt, PyObject *module)
{
#define PY_TAKE_OBJECT(field, name)                                                                \
    if (!(rt->field = PyObject_GetAttrString(module, name)))                                       \
        return -1;
    PY_RUNTIME_OBJECTS(PY_TAKE_OBJECT)
#undef PY_TAKE_OBJECT
#define PY_TAKE_NAME(name)                                                                         \
    if (!(rt->names.name = PyUnicode_InternFromString(#name)))                                     \
        return -1;
    PY_ATTRIBUTES(PY_TAKE_NAME)
#undef PY_TAKE_NAME
    return 0;
}

/* Imports continuo._runtime and calls its open_model. */
static int
open_program(struct py_rt *rt, const struct cn_load *load, struct cn_str config_json)
{
    PyObject *module = PyImport_ImportModule("continuo._runtime"), *facts = NULL;
    int rc = -1;

    if (!module)
        return -1;
    if (take_objects(rt, module) == 0)
        facts = Py_BuildValue("{ss,ss,ss,ss,sK,sK,ss,ss,sO,sO,sK}", "name", rt->model, "version",
                              rt->version, "dir", load->model_dir ? load->model_dir : ".", "file",
                              load->handler && *load->handler ? load->handler : "handler.py",
                              "worker", (unsigned long long)load->worker_index, "batch_size",
                              (unsigned long long)load->batch_size, "envelope",
                              load->service_envelope ? load->service_envelope : "", "metrics",
                              load->metrics ? load->metrics : "", "stateful",
                              rt->stateful ? Py_True : Py_False, "typed",
                              load->typed ? Py_True : Py_False, "traceback_bytes",
                              (unsigned long long)load->traceback_bytes);
    if (facts)
        rt->program = PyObject_CallMethod(module, "open_model", "Os#", facts,
                                          config_json.ptr ? config_json.ptr : "",
                                          (Py_ssize_t)config_json.len);
    if (rt->program)
        rt->declared = PyObject_GetAttrString(module, "declared");
    if (rt->declared)
        rc = take_program(rt);
    Py_XDECREF(facts);
    Py_DECREF(module);
    return rc;
}

/* Whether a handler may be forked shows when it is loaded. */
static int
runtime_check_zygote(const struct cn_load *load, struct cn_error *err)
{
    (void)load, (void)err;
    return 0;
}

/* Some libraries, such as the one under NumPy, start threads while they are loaded, and end them
 * before a fork to start them again later. cn_fork_sibling() does not tell them, so that a zygote
 * would have threads which its children lack. A child that ends at once makes them do it. */
static void
end_library_threads(void)
{
    const pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* Can children of this process run requests? */
static int
check_forkable(struct py_rt *rt, struct cn_error *err)
{
    PyObject *preload = PyObject_GetAttrString(rt->program, "preload");
    const char *why = preload && PyUnicode_Check(preload) ? PyUnicode_AsUTF8AndSize(preload, NULL)
                      : preload == Py_False               ? "the handler has preload = False"
                                                          : NULL;

    PyErr_Clear();
    if (why)
        cn_fail(err, CN_E_UNIMPLEMENTED, "%s", why);
    Py_XDECREF(preload);
    if (why)
        return CN_E_UNIMPLEMENTED;
    if (rt->looping)
        return cn_fail(err, CN_E_UNIMPLEMENTED,
                       "load(model) has used asyncio, whose loop cannot be shared");
    end_library_threads();
    return 0;
}

static int
runtime_open(const struct cn_load *load, struct cn_str config_json, struct cn_runtime **out,
             struct cn_error *err)
{
    struct py_rt *rt = cn_alloc(sizeof(*rt));
    int rc;

    rt->base.ops = &cn_python_runtime_ops;
    cn_samples_init(&rt->base.samples, load);
    rt->magic = PY_RT_MAGIC;
    rt->model = cn_strdup(load->model_name ? load->model_name : "");
    rt->version = cn_strdup(load->model_version ? load->model_version : "");
    rt->stateful = load->stateful && !load->state;
    rt->state_max_bytes = load->state_max_bytes;
    cn_py_enter();
    cn_py_rt = rt;
    rc = cn_py_limits_open(rt, load, err);
    if (rc == 0 && open_program(rt, load, config_json) < 0)
        rc = cn_py_fail_error(rt, CN_E_LOAD_FAILED, err);
    if (rc == 0 && load->zygote)
        rc = check_forkable(rt, err);
    rt->zygote = load->zygote;
    snprintf(rt->describe_text, sizeof(rt->describe_text), "Python %.*s",
             (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
    cn_py_leave();
    if (rc < 0) {
        runtime_close(&rt->base);
        return rc;
    }
    *out = &rt->base;
    return 0;
}

/* --- in the process that serves --- */

static void
runtime_fork(struct cn_runtime *rt, enum cn_fork_moment moment)
{
    (void)rt;
    cn_py_fork(moment);
}

static int
runtime_serve(struct cn_runtime *base, const struct cn_load *load, struct cn_error *err)
{
    struct py_rt *rt = py_rt(base);
    PyObject *module, *done = NULL;
    int rc = 0;

    cn_py_limits_serve(rt);
    if (!rt->zygote)
        return 0;
    cn_py_hide_fds();
    cn_py_enter();
    module = PyImport_ImportModule("continuo._runtime");
    if (module)
        done = PyObject_CallMethod(module, "serve_forked", "K",
                                   (unsigned long long)load->worker_index);
    if (!done)
        rc = cn_py_fail_error(rt, CN_E_LOAD_FAILED, err);
    Py_XDECREF(done);
    Py_XDECREF(module);
    cn_py_leave();
    return rc;
}

static const char *
runtime_describe(struct cn_runtime *rt)
{
    return py_rt(rt)->describe_text;
}

static uint32_t
runtime_state_schema(struct cn_runtime *rt)
{
    return py_rt(rt)->schema;
}

/* --- calls --- */

static void
runtime_run(struct cn_runtime *rt, struct cn_item **items, uint32_t n)
{
    cn_py_enter();
    cn_py_run(py_rt(rt), items, n);
    cn_py_leave();
}

static void
runtime_drop(struct cn_runtime *rt, void *resume)
{
    cn_py_enter();
    cn_py_drop(py_rt(rt), resume);
    cn_py_leave();
}

static void
runtime_metadata(struct cn_runtime *base, struct cn_item *item)
{
    struct py_rt *rt = py_rt(base);
    PyObject *said;

    if (!rt->describe) {
        cn_buf_puts(&item->reply.body, "{}");
        return;
    }
    cn_py_enter();
    cn_py_call_begin(rt, item->deadline_ms);
    said = PyObject_CallFunctionObjArgs(rt->describe, NULL);
    cn_py_call_end(rt);
    if (said && !PyDict_Check(said)) {
        PyErr_Format(PyExc_TypeError, "describe() must return a dict, got %R", Py_TYPE(said));
        Py_CLEAR(said);
    }
    if (!said || cn_py_set_reply(rt, said, &item->reply) < 0)
        cn_py_fail_reply(rt, &item->reply);
    Py_XDECREF(said);
    cn_py_leave();
}

static void
runtime_on_close(struct cn_runtime *base, struct cn_str sequence_id, void *state,
                 enum cn_close_reason reason)
{
    struct py_rt *rt = py_rt(base);
    PyObject *done;

    if (!rt->close)
        return;
    cn_py_enter();
    cn_py_call_begin(rt, CN_NEVER);
    done = PyObject_CallFunction(rt->close, "s#Os", sequence_id.ptr ? sequence_id.ptr : "",
                                 (Py_ssize_t)sequence_id.len, state ? state : (void *)Py_None,
                                 cn_close_reason_word(reason));
    cn_py_call_end(rt);
    if (!done) {
        struct cn_error err;
        char quoted[1200];

        cn_py_fail_error(rt, CN_E_HANDLER_FAILED, &err);
        cn_log(CN_LOG_WARN, "event=handler_close_failed model=%s version=%s error=%s", rt->model,
               rt->version, cn_log_quote(err.message, strlen(err.message), quoted, sizeof(quoted)));
    }
    Py_XDECREF(done);
    cn_py_leave();
}

/* --- states --- */

static int
runtime_state_encode(struct cn_runtime *base, void *state, struct cn_buf *out, struct cn_error *err)
{
    struct py_rt *rt = py_rt(base);
    int rc;

    cn_py_enter();
    rc = cn_py_state_write(state, rt->pickle, rt->state_max_bytes, out);
    if (rc < 0 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        rc = cn_fail(err, CN_E_STATE_TOO_LARGE,
                     "the sequence's state is larger than %zu bytes (state.maxBytes)",
                     rt->state_max_bytes ? rt->state_max_bytes : out->max_bytes);
    } else if (rc < 0) {
        rc = cn_py_fail_error(rt, CN_E_HANDLER_FAILED, err);
    }
    cn_py_leave();
    return rc;
}

/* Calls migrate(state, from_schema, version), which may return a state or change the old one in
 * place. */
static PyObject *
migrate(struct py_rt *rt, PyObject *state, uint32_t from_schema)
{
    PyObject *made;

    if (!rt->migrate) {
        PyErr_Format(PyExc_ValueError,
                     "a stored state has schema %u, but the handler declares %u and has no "
                     "migrate(state, from_schema, version)",
                     from_schema, rt->schema);
        Py_DECREF(state);
        return NULL;
    }
    cn_py_call_begin(rt, CN_NEVER);
    made = PyObject_CallFunction(rt->migrate, "OIz", state, (unsigned)from_schema,
                                 rt->base.from_version);
    cn_py_call_end(rt);
    if (made == Py_None) {
        Py_DECREF(made);
        return state;
    }
    Py_DECREF(state);
    return made;
}

static int
runtime_state_decode(struct cn_runtime *base, struct cn_str bytes, uint32_t from_schema,
                     void **state, struct cn_error *err)
{
    struct py_rt *rt = py_rt(base);
    PyObject *made;
    int rc = 0;

    cn_py_enter();
    made = cn_py_state_read(bytes, rt->pickle);
    if (!made)
        rc = cn_py_fail_error(rt, CN_E_STATE_STORE, err);
    else if (from_schema != rt->schema && !(made = migrate(rt, made, from_schema)))
        rc = cn_py_fail_error(rt, CN_E_HANDLER_FAILED, err);
    cn_py_leave();
    if (rc == 0)
        *state = made;
    return rc;
}

static void
runtime_state_free(struct cn_runtime *base, void *state)
{
    struct py_rt *rt = py_rt(base);

    if (!state)
        return;
    cn_py_enter();
    if (rt->newest == state)
        rt->newest = NULL;
    Py_DECREF((PyObject *)state);
    cn_py_leave();
}

/* Calls `add` for a path of the module sys, if it is one. */
static void
add_path(PyObject *path, void (*add)(void *ctx, const char *path), void *ctx)
{
    const char *text = path && PyUnicode_Check(path) ? PyUnicode_AsUTF8AndSize(path, NULL) : NULL;

    if (text && *text == '/')
        add(ctx, text);
    PyErr_Clear();
}

/* The interpreter has found its modules already: they lie in these folders. */
static void
runtime_prepare(const struct cn_load *load, void (*add)(void *ctx, const char *path), void *ctx)
{
    static const char *const prefixes[] = {"prefix", "exec_prefix", "base_prefix",
                                           "base_exec_prefix"};
    PyObject *list;

    (void)load;
    cn_py_enter();
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
        add_path(PySys_GetObject(prefixes[i]), add, ctx);
    list = PySys_GetObject("path");
    for (Py_ssize_t i = 0; list && PyList_Check(list) && i < PyList_Size(list); i++)
        add_path(PyList_GetItem(list, i), add, ctx);
    cn_py_leave();
}

const struct cn_runtime_ops cn_python_runtime_ops = {
    .name = "python",
    .prepare = runtime_prepare,
    .open = runtime_open,
    .close = runtime_close,
    .describe = runtime_describe,
    .state_schema = runtime_state_schema,
    .run = runtime_run,
    .drop = runtime_drop,
    .metadata = runtime_metadata,
    .state_encode = runtime_state_encode,
    .state_decode = runtime_state_decode,
    .state_free = runtime_state_free,
    .on_close = runtime_on_close,
    .poll = cn_py_loop_poll,
    .check_zygote = runtime_check_zygote,
    .fork = runtime_fork,
    .serve = runtime_serve,
};
