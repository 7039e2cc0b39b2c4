/* handlers/python/py_reply.c - makes a reply from what a Python handler returns. Worker's thread.
 *
 * A str or a bytes object is the body as it is, and this file handles it. Everything else goes
 * through continuo._runtime.render, which returns the parts of the reply.
 */
#include "handlers/python/py_priv.h"
#include "handlers/reply.h"
#include "proto/tensor.h"

int
cn_py_raise(const struct cn_error *err)
{
    PyErr_SetString(PyExc_ValueError, err->message);
    return -1;
}

static int
check_body(const struct cn_reply *reply)
{
    struct cn_error err;

    return cn_reply_check_body(reply, &err) < 0 ? cn_py_raise(&err) : 0;
}

static int
append_text(PyObject *text, struct cn_buf *out)
{
    Py_ssize_t len;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &len);

    if (!utf8)
        return -1;
    cn_buf_append(out, utf8, (size_t)len);
    return 0;
}

static int
append_bytes(PyObject *bytes, struct cn_buf *out)
{
    Py_ssize_t len;
    char *at;

    if (PyBytes_AsStringAndSize(bytes, &at, &len) < 0)
        return -1;
    cn_buf_append(out, at, (size_t)len);
    return 0;
}

/* Returns the text of an object. The object must stay alive while the text is used. */
static int
str_of(PyObject *text, struct cn_str *out)
{
    Py_ssize_t len;

    out->ptr = PyUnicode_AsUTF8AndSize(text, &len);
    out->len = out->ptr ? (size_t)len : 0;
    return out->ptr ? 0 : -1;
}

static int
set_headers(PyObject *headers, struct cn_reply *reply)
{
    struct cn_str name, value;
    struct cn_error err;

    for (Py_ssize_t i = 0; i < PyList_Size(headers); i++) {
        PyObject *pair = PyList_GetItem(headers, i);

        if (str_of(PyTuple_GetItem(pair, 0), &name) < 0 ||
            str_of(PyTuple_GetItem(pair, 1), &value) < 0)
            return -1;
        if (cn_reply_put_header(reply, name, value, &err) < 0)
            return cn_py_raise(&err);
    }
    return 0;
}

/* (name, datatype, shape, bytes or (address, size, keeper)) */
static int
put_output(PyObject *packed, struct cn_reply *reply)
{
    struct cn_tensor tensor = {0};
    PyObject *name, *word, *shape, *data, *keeper;
    unsigned long long address, size;
    struct cn_error err;
    struct cn_str type;
    Py_ssize_t len;
    char *bytes;

    if (!PyArg_ParseTuple(packed, "OOOO", &name, &word, &shape, &data) ||
        str_of(name, &tensor.name) < 0 || str_of(word, &type) < 0)
        return -1;
    tensor.type = cn_datatype_parse(type);
    if (tensor.type == CN_DATATYPE_NONE || PyTuple_Size(shape) > CN_TENSOR_RANK_MAX) {
        PyErr_Format(PyExc_TypeError, "output '%U': '%U' is not a datatype, or the rank exceeds %d",
                     name, word, CN_TENSOR_RANK_MAX);
        return -1;
    }
    tensor.rank = (uint32_t)PyTuple_Size(shape);
    for (uint32_t i = 0; i < tensor.rank; i++)
        tensor.shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, (Py_ssize_t)i));
    if (PyErr_Occurred())
        return -1;
    if (cn_py_is(data, &PyBytes_Type)) {
        PyBytes_AsStringAndSize(data, &bytes, &len);
        tensor.data = (struct cn_str){bytes, (size_t)len};
    } else {
        if (!PyArg_ParseTuple(data, "KKO", &address, &size, &keeper))
            return -1;
        tensor.data = (struct cn_str){(const char *)(uintptr_t)address, (size_t)size};
    }
    if (cn_tensor_check(&tensor, &err) < 0)
        return cn_py_raise(&err);
    cn_tensors_put_one(&reply->body, &tensor);
    return 0;
}

static int
set_content(PyObject *content, struct cn_reply *reply)
{
    const Py_ssize_t n = cn_py_is(content, &PyList_Type) ? PyList_Size(content) : -1;

    if (n < 0)
        return append_bytes(content, &reply->body);
    if (n > CN_TENSORS_MAX) {
        PyErr_Format(PyExc_ValueError, "a reply has %zd outputs; at most %d are possible", n,
                     CN_TENSORS_MAX);
        return -1;
    }
    cn_write_u32(&reply->body, (uint32_t)n);
    for (Py_ssize_t i = 0; i < n; i++)
        if (put_output(PyList_GetItem(content, i), reply) < 0)
            return -1;
    return 0;
}

static int
set_type(PyObject *type, bool tensors, struct cn_reply *reply)
{
    struct cn_str text = CN_STR(CN_TENSORS_TYPE);
    struct cn_error err;

    if ((type == Py_None && !tensors) || reply->head_out)
        return 0;
    if (!tensors && str_of(type, &text) < 0)
        return -1;
    return cn_reply_set_content_type(reply, text, &err) < 0 ? cn_py_raise(&err) : 0;
}

static int
set_rendered(PyObject *rendered, struct cn_reply *reply)
{
    PyObject *content, *type, *headers;
    int status, end, stop;
    struct cn_error err;

    if (!PyArg_ParseTuple(rendered, "OOiOpp", &content, &type, &status, &headers, &end, &stop))
        return -1;
    if (status && cn_reply_set_status(reply, status, &err) < 0)
        return cn_py_raise(&err);
    if (headers != Py_None && set_headers(headers, reply) < 0)
        return -1;
    if (set_type(type, cn_py_is(content, &PyList_Type), reply) < 0 ||
        set_content(content, reply) < 0)
        return -1;
    reply->end_sequence = end;
    reply->stop_streams = stop;
    return 0;
}

int
cn_py_set_reply(struct py_rt *rt, PyObject *value, struct cn_reply *reply)
{
    PyObject *rendered;
    int rc;

    cn_reply_begin(reply);
    if (cn_py_is(value, &PyUnicode_Type)) {
        rc = append_text(value, &reply->body);
    } else if (cn_py_is(value, &PyBytes_Type)) {
        rc = append_bytes(value, &reply->body);
    } else {
        rendered = PyObject_CallFunctionObjArgs(rt->render, value, NULL);
        rc = rendered ? set_rendered(rendered, reply) : -1;
        Py_XDECREF(rendered);
    }
    return rc < 0 ? rc : check_body(reply);
}

int
cn_py_add_piece(struct py_rt *rt, PyObject *value, struct cn_reply *reply)
{
    struct cn_error err;

    if (value == Py_None)
        return 0;
    if (cn_py_set_reply(rt, value, reply) < 0)
        return -1;
    if (reply->end_sequence || reply->stop_streams) {
        PyErr_SetString(PyExc_ValueError,
                        "end_sequence and stop_streams belong to the answer, not to a piece of it");
        return -1;
    }
    return cn_reply_body_to_chunk(reply, &err) < 0 ? cn_py_raise(&err) : 0;
}
