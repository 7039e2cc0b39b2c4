/* handlers/python/py_module.c - the module continuo._worker. Its function serve() is the worker;
 * the others are for the Python part of the package. Worker's thread, except where a function says
 * otherwise. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/log/log.h"
#include "handlers/python/format/py_state_format.h"
#include "handlers/python/py_priv.h"
#include "proto/frame.h"
#include "worker/process/confine.h"
#include "worker/worker.h"

struct py_rt *cn_py_rt;

static const struct cn_runtime_ops *
find_runtime(const char *name)
{
    return name && strcmp(name, cn_python_runtime_ops.name) == 0 ? &cn_python_runtime_ops : NULL;
}

/* The last word of the command line names the model and the worker. Returns the address of this
 * word in the memory from which ps reads the command line, so that it can be changed; NULL if it is
 * not found. The words lie one behind the other, and the C library points to the first one. */
static char *
find_title(void)
{
    char words[4096];
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : read(fd, words, sizeof(words));
    const char *last;

    if (fd >= 0)
        close(fd);
    if (n < 2 || n == (ssize_t)sizeof(words) || words[n - 1] ||
        strcmp(program_invocation_name, words) != 0)
        return NULL;
    last = memrchr(words, '\0', (size_t)n - 1);
    return last ? program_invocation_name + (last + 1 - words) : NULL;
}

/* serve() -> exit status */
static PyObject *
module_serve(PyObject *self, PyObject *args)
{
    int rc;

    (void)self, (void)args;
    if (!cn_worker_has_socket()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "only continuo can start a worker, with a socket as descriptor 3");
        return NULL;
    }
    cn_worker_log_begin();
    if (cn_worker_confine() != 0)
        return PyLong_FromLong(1);
    cn_py_hide_fds();
    cn_py_leave();
    rc = cn_worker_run(CN_WORKER_FD, find_runtime, find_title());
    cn_py_enter();
    return PyLong_FromLong(rc);
}

/* forked(): this process was forked by the handler. */
static PyObject *
module_forked(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    cn_py_forked();
    Py_RETURN_NONE;
}

/* log(level, text): any thread. A long text takes several events. */
static PyObject *
module_log(PyObject *self, PyObject *args)
{
    const char *text;
    char quoted[3600];
    size_t len;
    int level;

    (void)self;
    if (!PyArg_ParseTuple(args, "is", &level, &text))
        return NULL;
    if (level < CN_LOG_ERROR || level > CN_LOG_DEBUG)
        level = CN_LOG_INFO;
    do {
        len = cn_py_log_part(text, CN_PY_LOG_PART);
        cn_log((enum cn_log_level)level, "event=handler_log model=%s version=%s text=%s",
               cn_py_rt ? cn_py_rt->model : "-", cn_py_rt ? cn_py_rt->version : "-",
               cn_log_quote(text, len, quoted, sizeof(quoted)));
        text += len;
    } while (*text);
    Py_RETURN_NONE;
}

/* overdue() -> the limit of the call in ms if its time is up, else 0 */
static PyObject *
module_overdue(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return PyLong_FromUnsignedLongLong(
        cn_py_rt && cn_py_is_worker_thread() ? cn_py_call_overdue(cn_py_rt) : 0);
}

static PyObject *
module_alarm_signal(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return PyLong_FromLong(cn_py_alarm_signal());
}

static PyObject *
module_memory_limit(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    return PyLong_FromUnsignedLongLong(cn_py_rt ? cn_py_rt->memory_max : 0);
}

static int
take_dims(PyObject *list, struct cn_header dims[CN_SAMPLE_DIMS_MAX], uint32_t *n)
{
    Py_ssize_t name_len, value_len;

    if (PyList_Size(list) > CN_SAMPLE_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "a metric has at most %d dimensions", CN_SAMPLE_DIMS_MAX);
        return -1;
    }
    for (*n = 0; *n < (uint32_t)PyList_Size(list); ++*n) {
        struct cn_header *dim = &dims[*n];

        if (!PyArg_ParseTuple(PyList_GetItem(list, *n), "s#s#", &dim->name.ptr, &name_len,
                              &dim->value.ptr, &value_len))
            return -1;
        dim->name.len = (size_t)name_len;
        dim->value.len = (size_t)value_len;
    }
    return 0;
}

/* measure(kind, name, value, [(dimension, value), ...], unit) returns False when this call has
 * recorded as many samples as it may. */
static PyObject *
module_measure(PyObject *self, PyObject *args)
{
    struct cn_header dims[CN_SAMPLE_DIMS_MAX];
    struct cn_sample sample = {.dims = dims};
    Py_ssize_t name_len, unit_len;
    struct cn_error err;
    PyObject *list;
    int kind, rc;

    (void)self;
    if (!PyArg_ParseTuple(args, "is#dOs#", &kind, &sample.name.ptr, &name_len, &sample.value, &list,
                          &sample.unit.ptr, &unit_len) ||
        take_dims(list, dims, &sample.n_dims) < 0)
        return NULL;
    if (!cn_py_rt || !cn_py_is_worker_thread()) {
        PyErr_SetString(PyExc_RuntimeError, "metrics are recorded in the handler's own calls, not "
                                            "in a thread that it has started");
        return NULL;
    }
    sample.type = (enum cn_sample_type)kind;
    sample.name.len = (size_t)name_len;
    sample.unit.len = (size_t)unit_len;
    rc = cn_samples_add(&cn_py_rt->base.samples, &sample, &err);
    if (rc == CN_E_HANDLER_FAILED) {
        cn_py_raise(&err);
        return NULL;
    }
    if (rc != 0)
        cn_samples_log(&cn_py_rt->base.samples, &err);
    return PyBool_FromLong(rc == 0);
}

/* loop_begin(fd): tells the worker that the asyncio loop exists, and the descriptor of its
 * selector. */
static PyObject *
module_loop_begin(PyObject *self, PyObject *args)
{
    int fd;

    (void)self;
    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    if (cn_py_rt)
        cn_py_loop_begin(cn_py_rt, fd);
    Py_RETURN_NONE;
}

/* state_to_bytes(state, pickle=False, max_bytes=0) and its reverse, for tests. */
static PyObject *
module_state_to_bytes(PyObject *self, PyObject *args)
{
    unsigned long long max_bytes = 0;
    PyObject *state, *bytes = NULL;
    struct cn_buf out;
    int pickle = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "O|pK", &state, &pickle, &max_bytes))
        return NULL;
    cn_buf_init(&out, 0);
    if (cn_py_state_write(state, pickle, (size_t)max_bytes, &out) == 0)
        bytes = PyBytes_FromStringAndSize(out.data, (Py_ssize_t)out.len);
    cn_buf_fini(&out);
    return bytes;
}

static PyObject *
module_state_from_bytes(PyObject *self, PyObject *args)
{
    const char *bytes;
    Py_ssize_t len;
    int pickle = 0;

    (void)self;
    if (!PyArg_ParseTuple(args, "y#|p", &bytes, &len, &pickle))
        return NULL;
    return cn_py_state_read((struct cn_str){bytes, (size_t)len}, pickle);
}

static PyMethodDef functions[] = {
    {"serve", module_serve, METH_NOARGS, "Serves the server's socket until it says stop."},
    {"forked", module_forked, METH_NOARGS, "This process was forked by the handler."},
    {"log", module_log, METH_VARARGS, "log(level, text): writes to the server's log."},
    {"measure", module_measure, METH_VARARGS, "Records a metric."},
    {"overdue", module_overdue, METH_NOARGS, "The limit of a call in ms if its time is up."},
    {"alarm_signal", module_alarm_signal, METH_NOARGS, "The signal for which overdue() is."},
    {"memory_limit", module_memory_limit, METH_NOARGS, "handler.limits.memoryBytes; 0: none."},
    {"loop_begin", module_loop_begin, METH_VARARGS, "The asyncio loop was made."},
    {"use_triton", cn_py_triton_use, METH_VARARGS, "The classes of continuo.triton."},
    {"receive", cn_py_triton_receive, METH_VARARGS, "Requests as models of Triton get them."},
    {"use_torchserve", cn_py_torchserve_use, METH_VARARGS, "What continuo.torchserve has."},
    {"receive_rows", cn_py_torchserve_receive, METH_VARARGS, "A batch as TorchServe has it."},
    {"plain_data", cn_py_torchserve_data, METH_O, "The parts of requests by name."},
    {"give_results", cn_py_torchserve_give, METH_VARARGS, "Makes replies of results."},
    {"state_to_bytes", module_state_to_bytes, METH_VARARGS, "A state as it is stored."},
    {"state_from_bytes", module_state_from_bytes, METH_VARARGS, "A stored state."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "continuo._worker",
    .m_size = -1,
    .m_methods = functions,
};

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__worker(void);

PyMODINIT_FUNC
PyInit__worker(void)
{
    PyObject *module = PyModule_Create(&definition),
             *state = module ? PyImport_ImportModule("continuo._state") : NULL;

    if (state && cn_py_row_init() == 0 && cn_py_triton_init(module) == 0 &&
        cn_py_torchserve_init(module) == 0 && cn_py_state_write_init(state) == 0 &&
        cn_py_state_read_init(state) == 0 &&
        PyModule_AddStringConstant(module, "VERSION", CN_VERSION) == 0) {
        Py_DECREF(state);
        return module;
    }
    Py_XDECREF(state);
    Py_XDECREF(module);
    return NULL;
}
