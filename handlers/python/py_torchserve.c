/* handlers/python/py_torchserve.c - what handlers of TorchServe get and give, as far as each step
 * makes it: the fields of RequestProcessor, and the usual answer. Worker's thread.
 *
 * The class RequestProcessor is Python's (continuo.torchserve.context), and is derived from the
 * type here. After a batch the handler's results are put into the processors, which are the replies
 * then. continuo.torchserve.fields does the same without this file.
 */
#include "handlers/python/py_fields.h"
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"

/* Each field may be NULL, which Python code reads as None. */
struct processor {
    PyObject ob_base;
    PyObject *headers, *request, *sequence_id;
    PyObject *response_headers; /* a dict; NULL: the handler has asked for none */
    PyObject *status, *phrase;
    PyObject *result; /* an int or a bytes object: the answer's body */
};

/* What use_torchserve() was given; NULL before. */
static PyObject *processor_class, *encode;
/* The header with a sequence's id, and that of continuousBatching. */
static PyObject *sequence_key, *stream_next;
static PyObject *row_name;

/* --- the class --- */

CN_PY_FIELDS_FUNCTIONS(processor)

/* get_request_property(key): the sequence's id is known without the headers. */
static PyObject *
processor_property(PyObject *self, PyObject *key)
{
    struct processor *processor = (struct processor *)self;
    PyObject *headers, *value;

    if (!processor->headers && cn_py_is(key, &PyUnicode_Type) &&
        (key == sequence_key || PyUnicode_Compare(key, sequence_key) == 0)) {
        value = processor->sequence_id ? processor->sequence_id : Py_None;
        Py_INCREF(value);
        return value;
    }
    headers = PyObject_CallMethod(self, "get_request_properties", NULL);
    value = headers ? PyObject_CallMethod(headers, "get", "O", key) : NULL;
    Py_XDECREF(headers);
    return value;
}

/* get_response_headers(): a dict, which the handler may change. */
static PyObject *
processor_headers(PyObject *self, PyObject *args)
{
    struct processor *processor = (struct processor *)self;

    (void)args;
    if (!processor->response_headers)
        processor->response_headers = PyDict_New();
    Py_XINCREF(processor->response_headers);
    return processor->response_headers;
}

/* add_response_property(key, value) */
static PyObject *
processor_add(PyObject *self, PyObject *args)
{
    struct processor *processor = (struct processor *)self;
    PyObject *key, *value;

    if (!PyArg_UnpackTuple(args, "add_response_property", 2, 2, &key, &value))
        return NULL;
    if (!processor->response_headers)
        processor->response_headers = PyDict_New();
    if (!processor->response_headers || PyDict_SetItem(processor->response_headers, key, value) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMemberDef members[] = {
    {"_headers", T_OBJECT, offsetof(struct processor, headers), 0, NULL},
    {"_request", T_OBJECT, offsetof(struct processor, request), 0, NULL},
    {"_sequence_id", T_OBJECT, offsetof(struct processor, sequence_id), 0, NULL},
    {"_status", T_OBJECT, offsetof(struct processor, status), 0, NULL},
    {"_phrase", T_OBJECT, offsetof(struct processor, phrase), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef methods[] = {
    {"get_request_property", processor_property, METH_O, NULL},
    {"get_response_headers", processor_headers, METH_NOARGS, NULL},
    {"add_response_property", processor_add, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

/* --- what clients have sent --- */

static PyObject *
new_processor(PyObject *request, const struct cn_row *row)
{
    PyObject *made = PyType_GenericNew((PyTypeObject *)processor_class, NULL, NULL);
    struct processor *processor = (struct processor *)made;

    if (!made)
        return NULL;
    Py_INCREF(request);
    processor->request = request;
    if (row->flags & CN_ROW_STATEFUL && !(processor->sequence_id = cn_py_text(row->sequence_id)))
        Py_CLEAR(made);
    return made;
}

/* Notes a request: its processor, its id, and its state by the id of its sequence. */
static int
note_request(Py_ssize_t i, PyObject *processor, const struct cn_row *row, PyObject *state,
             PyObject *ids, PyObject *named)
{
    PyObject *key = PyLong_FromSsize_t(i), *id = cn_py_text(row->request_id);
    PyObject *sequence_id = ((struct processor *)processor)->sequence_id;
    int rc = key && id ? PyDict_SetItem(ids, key, id) : -1;

    if (rc == 0 && sequence_id)
        rc = PyDict_SetItem(named, sequence_id, state);
    Py_XDECREF(key);
    Py_XDECREF(id);
    return rc;
}

/* receive_rows(states, reqs) -> processors, requests' ids by index, states by sequence */
PyObject *
cn_py_torchserve_receive(PyObject *self, PyObject *args)
{
    PyObject *states, *reqs, *list, *ids, *named;
    Py_ssize_t n;

    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!", &PyList_Type, &states, &PyList_Type, &reqs) ||
        !cn_py_is_used(processor_class))
        return NULL;
    list = PyList_New(n = PyList_Size(reqs));
    ids = PyDict_New();
    named = PyDict_New();
    for (Py_ssize_t i = 0; list && ids && named && i < n; i++) {
        PyObject *request = PyList_GetItem(reqs, i), *object = PyObject_GetAttr(request, row_name);
        const struct cn_row *row = object ? cn_py_row_of(object) : NULL;
        PyObject *made = row ? new_processor(request, row) : NULL;
        PyObject *state = PyList_GetItem(states, i);

        if (!made || PyList_SetItem(list, i, made) < 0 || !state ||
            note_request(i, made, row, state, ids, named) < 0)
            Py_CLEAR(list);
        Py_XDECREF(object);
    }
    if (list && ids && named)
        return Py_BuildValue("(NNN)", list, ids, named);
    Py_XDECREF(list);
    Py_XDECREF(ids);
    Py_XDECREF(named);
    return NULL;
}

/* plain_data(reqs) -> a list of the requests' parts by name; None if a part has a content type */
PyObject *
cn_py_torchserve_data(PyObject *self, PyObject *reqs)
{
    const Py_ssize_t n = PyList_Size(reqs);
    PyObject *list = n < 0 ? NULL : PyList_New(n);

    (void)self;
    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *row = PyObject_GetAttr(PyList_GetItem(reqs, i), row_name);
        PyObject *parts = row && cn_py_row_of(row) ? cn_py_row_plain_parts(row, NULL) : NULL;

        Py_XDECREF(row);
        if (parts && parts != Py_None && PyList_SetItem(list, i, parts) == 0)
            continue;
        Py_DECREF(list);
        return parts;
    }
    return list;
}

/* --- what handlers answer --- */

/* Are all headers texts, and none for continuousBatching? */
static bool
are_usual(PyObject *headers)
{
    PyObject *name, *text;
    Py_ssize_t at = 0;

    while (PyDict_Next(headers, &at, &name, &text))
        if (!cn_py_is(name, &PyUnicode_Type) || !cn_py_is(text, &PyUnicode_Type) ||
            PyUnicode_Compare(name, stream_next) == 0)
            return false;
    return true;
}

/* Puts a result into its processor. Returns 1, or 0 if only Python code can make the reply, or -1
 * with an exception set. */
static int
take_result(PyObject *object, PyObject *result)
{
    struct processor *processor = (struct processor *)object;
    int overflow = 0;

    if ((PyObject *)Py_TYPE(object) != processor_class ||
        (processor->response_headers && !are_usual(processor->response_headers)))
        return 0;
    if (cn_py_is(result, &PyLong_Type))
        PyLong_AsLongLongAndOverflow(result, &overflow);
    if (!overflow && (cn_py_is(result, &PyLong_Type) || cn_py_is(result, &PyBytes_Type)))
        Py_INCREF(result);
    else if (cn_py_is(result, &PyUnicode_Type))
        result = PyUnicode_AsUTF8String(result);
    else
        result = PyObject_CallFunctionObjArgs(encode, result, NULL);
    if (!result)
        return -1;
    Py_XDECREF(processor->result);
    processor->result = result;
    return 1;
}

/* give_results(processors, results) -> the processors as replies; None if not all of them can be */
PyObject *
cn_py_torchserve_give(PyObject *self, PyObject *args)
{
    PyObject *processors, *results;
    Py_ssize_t n;
    int rc = 1;

    (void)self;
    if (!PyArg_ParseTuple(args, "OO!", &processors, &PyList_Type, &results))
        return NULL;
    n = cn_py_is(processors, &PyList_Type) ? PyList_Size(processors) : -1;
    for (Py_ssize_t i = 0; rc == 1 && i < n; i++)
        rc = i < PyList_Size(results)
                 ? take_result(PyList_GetItem(processors, i), PyList_GetItem(results, i))
                 : 0;
    if (rc < 0)
        return NULL;
    if (rc == 0 || n != PyList_Size(results))
        Py_RETURN_NONE;
    return PyList_GetSlice(processors, 0, n);
}

bool
cn_py_is_processor(PyObject *value)
{
    return (PyObject *)Py_TYPE(value) == processor_class;
}

/* `headers` may be NULL. Without a content type among them the answer has none. */
static int
put_headers(PyObject *headers, struct cn_reply *reply)
{
    struct cn_str type = CN_STR(""), name_text, value_text;
    PyObject *name, *value;
    struct cn_error err;
    Py_ssize_t at = 0;

    while (headers && PyDict_Next(headers, &at, &name, &value)) {
        if (cn_py_str(name, &name_text) < 0 || cn_py_str(value, &value_text) < 0)
            return -1;
        if (cn_str_eq_nocase(name_text, CN_STR("content-type")))
            type = value_text;
        else if (cn_reply_put_header(reply, name_text, value_text, &err) < 0)
            return cn_py_raise(&err);
    }
    if (!reply->head_out && cn_reply_set_content_type(reply, type, &err) < 0)
        return cn_py_raise(&err);
    return 0;
}

int
cn_py_set_processor(PyObject *value, struct cn_reply *reply)
{
    struct processor *processor = (struct processor *)value;
    PyObject *result = processor->result, *headers = processor->response_headers;
    const long long status = processor->status ? PyLong_AsLongLong(processor->status) : 200;
    int rc = 0;

    if (status == -1 && PyErr_Occurred())
        return -1;
    if (!result) {
        PyErr_SetString(PyExc_TypeError, "a RequestProcessor cannot be a reply");
        return -1;
    }
    if (status && status != 200) {
        struct cn_error err;

        if (cn_reply_set_status(reply, status, &err) < 0)
            return cn_py_raise(&err);
    }
    if ((headers && PyDict_Size(headers) > 0) || (status && status != 200))
        rc = put_headers(headers, reply);
    if (rc == 0 && cn_py_is(result, &PyLong_Type))
        cn_buf_put_int(&reply->body, PyLong_AsLongLong(result));
    else if (rc == 0)
        rc = cn_py_append_bytes(result, &reply->body);
    return rc;
}

/* --- the module's part --- */

/* use_torchserve(RequestProcessor, encode) */
PyObject *
cn_py_torchserve_use(PyObject *self, PyObject *args)
{
    PyObject *type, *function;

    (void)self;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &function))
        return NULL;
    cn_py_set(&processor_class, type);
    cn_py_set(&encode, function);
    Py_RETURN_NONE;
}

int
cn_py_torchserve_init(PyObject *module)
{
    PyType_Slot slots[] = {
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_dealloc, processor_dealloc},
        {Py_tp_traverse, processor_traverse},
        {Py_tp_clear, processor_clear},
        {Py_tp_members, members},
        {Py_tp_methods, methods},
        {0, NULL},
    };

    row_name = PyUnicode_InternFromString("_row");
    sequence_key = PyUnicode_InternFromString("ts_request_sequence_id");
    stream_next = PyUnicode_InternFromString("ts_stream_next");
    return row_name && sequence_key && stream_next &&
                   cn_py_add_type(module, "continuo._worker.ProcessorFields",
                                  sizeof(struct processor), Py_TPFLAGS_HAVE_GC, slots)
               ? 0
               : -1;
}
