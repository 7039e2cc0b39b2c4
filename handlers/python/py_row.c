/* handlers/python/py_row.c - the worker's row, which a Request shows to the handler. Worker's
 * thread.
 *
 * A row's fields are made when they are asked for, because most handlers read one or two of them.
 * The bytes belong to the worker and are gone when the request is over; then `row` is NULL, and a
 * handler that kept the request gets an error instead of another client's bytes.
 *
 * A step that streams or awaits has several calls, and its item exists only during each of them.
 * What it sends in between, in a turn of the asyncio loop, waits in `later`.
 */
#include <stdlib.h>
#include <string.h>

#include "core/time/clock.h"
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"
#include "proto/tensor.h"

static PyTypeObject *row_type;

/* Returns the row, or NULL with an exception if the request is over. */
static const struct cn_row *
live_row(PyObject *self)
{
    const struct py_row *row = (const struct py_row *)self;

    if (!row->row)
        PyErr_SetString(PyExc_RuntimeError,
                        "this request has ended: keep what you need from it in the state");
    return row->row;
}

const struct cn_row *
cn_py_row_of(PyObject *object)
{
    if (cn_py_is(object, row_type))
        return live_row(object);
    PyErr_SetString(PyExc_TypeError, "the worker's row is needed");
    return NULL;
}

static PyObject *
bytes_of(struct cn_str text)
{
    return PyBytes_FromStringAndSize(text.ptr, (Py_ssize_t)text.len);
}

PyObject *
cn_py_text(struct cn_str text)
{
    return PyUnicode_DecodeUTF8(text.ptr ? text.ptr : "", (Py_ssize_t)text.len, "replace");
}

/* --- fields --- */

static PyObject *
row_body(PyObject *self, void *closure)
{
    struct py_row *row = (struct py_row *)self;

    (void)closure;
    if (!live_row(self))
        return NULL;
    if (!row->body)
        row->body = bytes_of(cn_row_body(row->row));
    Py_XINCREF(row->body);
    return row->body;
}

static PyObject *
row_sequence_id(PyObject *self, void *closure)
{
    const struct cn_row *row = live_row(self);

    (void)closure;
    if (!row)
        return NULL;
    if (!(row->flags & CN_ROW_STATEFUL))
        Py_RETURN_NONE;
    return cn_py_text(row->sequence_id);
}

static PyObject *
row_request_id(PyObject *self, void *closure)
{
    const struct cn_row *row = live_row(self);

    (void)closure;
    return row ? cn_py_text(row->request_id) : NULL;
}

static PyObject *
row_flag(PyObject *self, void *closure)
{
    const struct cn_row *row = live_row(self);

    return row ? PyBool_FromLong((row->flags & (uint32_t)(uintptr_t)closure) != 0) : NULL;
}

static PyObject *
row_start(PyObject *self, void *closure)
{
    (void)closure;
    return live_row(self) ? PyBool_FromLong(((struct py_row *)self)->fresh) : NULL;
}

static PyObject *
row_step(PyObject *self, void *closure)
{
    (void)closure;
    return live_row(self) ? PyLong_FromUnsignedLongLong(((struct py_row *)self)->step) : NULL;
}

/* Returns how many ms are left before the deadline; -1 without a deadline. */
static PyObject *
row_deadline(PyObject *self, void *closure)
{
    const uint64_t deadline_ms = ((struct py_row *)self)->deadline_ms, now = cn_now_ms();

    (void)closure;
    if (!live_row(self))
        return NULL;
    return PyLong_FromLongLong(deadline_ms == CN_NEVER ? -1
                               : deadline_ms > now     ? (long long)(deadline_ms - now)
                                                       : 0);
}

/* Returns why the stream must end, or None. */
static PyObject *
row_stop(PyObject *self, void *closure)
{
    const struct py_row *row = (const struct py_row *)self;

    (void)closure;
    if (!live_row(self))
        return NULL;
    if (row->stop == CN_STOP_NONE)
        Py_RETURN_NONE;
    return PyUnicode_FromString(cn_stop_reason_word(row->stop));
}

/* --- methods --- */

/* Appends `one` to the list and takes its reference. Returns false and frees both on failure. */
static bool
push(PyObject **list, PyObject *one)
{
    if (*list && (!one || PyList_Append(*list, one) < 0))
        Py_CLEAR(*list);
    Py_XDECREF(one);
    return *list != NULL;
}

static PyObject *
row_parts(PyObject *self, PyObject *args)
{
    const struct cn_row *row = live_row(self);
    PyObject *list = row ? PyList_New(0) : NULL;

    (void)args;
    for (uint32_t i = 0; list && i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];

        push(&list, Py_BuildValue("(NNN)", cn_py_text(part->name), bytes_of(part->data),
                                  cn_py_text(part->content_type)));
    }
    return list;
}

PyObject *
cn_py_row_plain_parts(PyObject *self, PyObject *ignored)
{
    const struct cn_row *row = live_row(self);
    PyObject *dict = row ? PyDict_New() : NULL;

    (void)ignored;
    for (uint32_t i = 0; dict && i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];
        PyObject *name = NULL, *data = NULL;

        if (part->content_type.len) {
            Py_DECREF(dict);
            Py_RETURN_NONE;
        }
        name = cn_py_text(part->name);
        data = PyByteArray_FromStringAndSize(part->data.ptr, (Py_ssize_t)part->data.len);
        if (!name || !data || PyDict_SetItem(dict, name, data) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(name);
        Py_XDECREF(data);
    }
    return dict;
}

static PyObject *
row_headers(PyObject *self, PyObject *args)
{
    const struct cn_row *row = live_row(self);
    PyObject *list = row ? PyList_New(0) : NULL;

    (void)args;
    for (uint32_t i = 0; list && i < row->n_headers; i++)
        push(&list, Py_BuildValue("(NN)", cn_py_text(row->headers[i].name),
                                  cn_py_text(row->headers[i].value)));
    return list;
}

PyObject *
cn_py_row_parameters(PyObject *self, PyObject *ignored)
{
    static const char kind[] = "parameter/";
    const struct cn_row *row = live_row(self);
    PyObject *list = row ? PyList_New(0) : NULL;

    (void)ignored;
    for (uint32_t i = 0; list && i < row->n_parts; i++) {
        const struct cn_part *part = &row->parts[i];

        if (part->content_type.len > sizeof(kind) - 1 &&
            memcmp(part->content_type.ptr, kind, sizeof(kind) - 1) == 0)
            push(&list, Py_BuildValue("(NNN)", cn_py_text(part->name), bytes_of(part->data),
                                      cn_py_text(part->content_type)));
    }
    return list;
}

static PyObject *
list_of_bytes(struct cn_str data)
{
    PyObject *list = PyList_New(0);
    struct cn_reader reader;
    struct cn_str element;

    cn_reader_init(&reader, data.ptr, data.len);
    while (list && cn_tensor_next(&reader, &element))
        push(&list, bytes_of(element));
    return list;
}

PyObject *
cn_py_shape(const struct cn_tensor *tensor)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)tensor->rank);

    for (uint32_t i = 0; shape && i < tensor->rank; i++) {
        PyObject *n = PyLong_FromLongLong(tensor->shape[i]);

        if (!n || PyTuple_SetItem(shape, (Py_ssize_t)i, n) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

PyObject *
cn_py_elements(const struct cn_tensor *tensor)
{
    return tensor->type == CN_DATATYPE_BYTES
               ? list_of_bytes(tensor->data)
               : PyByteArray_FromStringAndSize(tensor->data.ptr, (Py_ssize_t)tensor->data.len);
}

/* Returns the tensors as tuples (name, datatype, shape, elements). */
static PyObject *
row_inputs(PyObject *self, PyObject *args)
{
    const struct cn_row *row = live_row(self);
    PyObject *list = row ? PyList_New(0) : NULL;
    struct cn_tensor tensor;

    (void)args;
    for (uint32_t i = 0; list && i < row->n_parts; i++) {
        if (!cn_tensor_of_part(&row->parts[i], &tensor))
            continue;
        push(&list, Py_BuildValue("(NsNN)", cn_py_text(tensor.name), cn_datatype_word(tensor.type),
                                  cn_py_shape(&tensor), cn_py_elements(&tensor)));
    }
    return list;
}

/* Checks that this is the worker's thread, because the worker's lists are not locked. */
static bool
check_thread(const char *what)
{
    if (cn_py_is_worker_thread())
        return true;
    PyErr_Format(PyExc_RuntimeError,
                 "%s was called in a thread of the handler; call it in the step itself", what);
    return false;
}

static void
wake(const struct py_row *row)
{
    if (row->row && row->rt->base.wake)
        row->rt->base.wake(row->rt->base.worker, row->job_id);
}

/* Sends the pieces while the handler runs on. The socket may have to wait for the server, so the
 * handler's threads run meanwhile. */
static void
leave_now(struct py_row *row)
{
    const struct cn_runtime *rt = &row->rt->base;

    if (!rt->send || row->item->reply.n_chunks == 0)
        return;
    cn_py_leave();
    row->stop = rt->send(rt->worker, row->item);
    cn_py_enter();
}

static PyObject *
row_send(PyObject *self, PyObject *piece)
{
    struct py_row *row = (struct py_row *)self;

    if (!live_row(self) || !check_thread("req.send()"))
        return NULL;
    if (row->item) {
        if (cn_py_add_piece(row->rt, piece, &row->item->reply) < 0)
            return NULL;
        leave_now(row);
        Py_RETURN_NONE;
    }
    if (!row->later && !(row->later = PyList_New(0)))
        return NULL;
    if (PyList_Append(row->later, piece) < 0)
        return NULL;
    wake(row);
    Py_RETURN_NONE;
}

/* Called when the step can go on: the worker runs its item again soon. */
static PyObject *
row_wake(PyObject *self, PyObject *args)
{
    (void)args;
    if (!((struct py_row *)self)->item)
        wake((struct py_row *)self);
    Py_RETURN_NONE;
}

/* --- the type --- */

static void
row_dealloc(PyObject *self)
{
    struct py_row *row = (struct py_row *)self;
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(row->body);
    Py_CLEAR(row->later);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyGetSetDef fields[] = {
    {"body", row_body, NULL, NULL, NULL},
    {"sequence_id", row_sequence_id, NULL, NULL, NULL},
    {"request_id", row_request_id, NULL, NULL, NULL},
    {"start", row_start, NULL, NULL, NULL},
    {"end", row_flag, NULL, NULL, (void *)(uintptr_t)CN_ROW_END},
    {"explain", row_flag, NULL, NULL, (void *)(uintptr_t)CN_ROW_EXPLAIN},
    {"generated_id", row_flag, NULL, NULL, (void *)(uintptr_t)CN_ROW_GENERATED_ID},
    {"named_request", row_flag, NULL, NULL, (void *)(uintptr_t)CN_ROW_NAMED},
    {"instance", row_flag, NULL, NULL, (void *)(uintptr_t)CN_ROW_INSTANCE},
    {"step", row_step, NULL, NULL, NULL},
    {"deadline_ms", row_deadline, NULL, NULL, NULL},
    {"stop", row_stop, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"parts", row_parts, METH_NOARGS, NULL},
    {"plain_parts", cn_py_row_plain_parts, METH_NOARGS, NULL},
    {"headers", row_headers, METH_NOARGS, NULL},
    {"parameters", cn_py_row_parameters, METH_NOARGS, NULL},
    {"inputs", row_inputs, METH_NOARGS, NULL},
    {"send", row_send, METH_O, NULL},
    {"wake", row_wake, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int
cn_py_row_init(void)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, row_dealloc}, {Py_tp_getset, fields}, {Py_tp_methods, methods}, {0, NULL}};
    PyType_Spec spec = {"continuo._worker.Row", sizeof(struct py_row), 0, Py_TPFLAGS_DEFAULT,
                        slots};

    row_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return row_type ? 0 : -1;
}

struct py_row *
cn_py_row_new(struct py_rt *rt, struct cn_item *item)
{
    struct py_row *row = PyObject_New(struct py_row, row_type);

    if (!row)
        return NULL;
    row->rt = rt;
    row->row = item->row;
    row->item = item;
    row->job_id = item->row->job_id;
    row->deadline_ms = item->deadline_ms;
    row->step = item->step;
    row->stop = item->stop;
    row->fresh = item->state == NULL;
    row->body = row->later = NULL;
    return row;
}

int
cn_py_row_resume(struct py_row *row, struct cn_item *item)
{
    PyObject *later = row->later;
    int rc = 0;

    row->item = item;
    row->stop = item->stop;
    row->deadline_ms = item->deadline_ms;
    if (!later)
        return 0;
    row->later = NULL;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(later); i++)
        rc = cn_py_add_piece(row->rt, PyList_GetItem(later, i), &item->reply);
    Py_DECREF(later);
    return rc;
}

void
cn_py_row_rest(struct py_row *row)
{
    row->item = NULL;
}

void
cn_py_row_end(struct py_row *row)
{
    row->item = NULL;
    row->row = NULL;
    Py_CLEAR(row->later);
}
