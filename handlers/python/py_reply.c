/* handlers/python/py_reply.c - makes a reply from what a Python handler returns. Worker's thread.
 *
 * A str or a bytes object is the body as it is, the tensors of an OutputsReply are packed as they
 * are, and a CheckedReply has the parts of a reply. Everything else goes through
 * continuo._runtime.render, which returns these parts.
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

int
cn_py_append_bytes(PyObject *bytes, struct cn_buf *out)
{
    Py_ssize_t len;
    char *at;

    if (PyBytes_AsStringAndSize(bytes, &at, &len) < 0)
        return -1;
    cn_buf_append(out, at, (size_t)len);
    return 0;
}

int
cn_py_str(PyObject *text, struct cn_str *out)
{
    Py_ssize_t len;

    out->ptr = PyUnicode_AsUTF8AndSize(text, &len);
    out->len = out->ptr ? (size_t)len : 0;
    return out->ptr ? 0 : -1;
}

static int
put_header(PyObject *name, PyObject *value, struct cn_reply *reply)
{
    struct cn_str name_text, value_text;
    struct cn_error err;

    if (cn_py_str(name, &name_text) < 0 || cn_py_str(value, &value_text) < 0)
        return -1;
    return cn_reply_put_header(reply, name_text, value_text, &err) < 0 ? cn_py_raise(&err) : 0;
}

/* Takes a list of pairs. */
static int
set_headers(PyObject *headers, struct cn_reply *reply)
{
    int rc = 0;

    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(headers); i++) {
        PyObject *pair = PyList_GetItem(headers, i);

        rc = put_header(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), reply);
    }
    return rc;
}

static int
set_type(PyObject *type, bool tensors, struct cn_reply *reply)
{
    struct cn_str text = CN_STR(CN_TENSORS_TYPE);
    struct cn_error err;

    if ((type == Py_None && !tensors) || reply->head_out)
        return 0;
    if (!tensors && cn_py_str(type, &text) < 0)
        return -1;
    return cn_reply_set_content_type(reply, text, &err) < 0 ? cn_py_raise(&err) : 0;
}

static int
set_rendered(struct py_rt *rt, PyObject *rendered, struct cn_reply *reply)
{
    PyObject *content, *type, *headers;
    int status, end, stop;
    struct cn_error err;
    bool tensors;

    if (!PyArg_ParseTuple(rendered, "OOiOpp", &content, &type, &status, &headers, &end, &stop))
        return -1;
    if (status && cn_reply_set_status(reply, status, &err) < 0)
        return cn_py_raise(&err);
    if (headers != Py_None && set_headers(headers, reply) < 0)
        return -1;
    tensors = !PyBytes_Check(content);
    if (set_type(type, tensors, reply) < 0)
        return -1;
    if (tensors ? cn_py_put_outputs(rt, content, &reply->body) < 0
                : cn_py_append_bytes(content, &reply->body) < 0)
        return -1;
    reply->end_sequence = end;
    reply->stop_streams = stop;
    return 0;
}

/* A CheckedReply is a tuple. */
static int
set_checked(PyObject *value, struct cn_reply *reply)
{
    PyObject *body, *type, *headers, *name, *text;
    Py_ssize_t at = 0;
    int status, end;
    struct cn_error err;

    if (!PyArg_ParseTuple(value, "OUiO!p", &body, &type, &status, &PyDict_Type, &headers, &end))
        return -1;
    if (status != 200 && cn_reply_set_status(reply, status, &err) < 0)
        return cn_py_raise(&err);
    while (PyDict_Next(headers, &at, &name, &text))
        if (put_header(name, text, reply) < 0)
            return -1;
    if (set_type(type, false, reply) < 0 || cn_py_append_bytes(body, &reply->body) < 0)
        return -1;
    reply->end_sequence = end;
    return 0;
}

/* An OutputsReply has outputs and nothing else. */
static int
set_outputs(struct py_rt *rt, PyObject *value, struct cn_reply *reply)
{
    PyObject *outputs = PyObject_GetAttr(value, rt->names.outputs);
    int rc = outputs ? set_type(Py_None, true, reply) : -1;

    if (rc == 0)
        rc = cn_py_put_outputs(rt, outputs, &reply->body);
    Py_XDECREF(outputs);
    return rc;
}

/* An InferenceResponse of a model for Triton, without an error. */
static int
set_response(struct py_rt *rt, PyObject *value, struct cn_reply *reply)
{
    PyObject *made;
    int rc = cn_py_put_response(rt, value, &reply->body);

    if (rc <= 0)
        return rc < 0 ? rc : set_type(Py_None, true, reply);
    made = PyObject_CallMethod(rt->program, "reply", "O", value);
    rc = made ? set_outputs(rt, made, reply) : -1;
    Py_XDECREF(made);
    return rc;
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
        rc = cn_py_append_bytes(value, &reply->body);
    } else if ((PyObject *)Py_TYPE(value) == rt->outputs_reply) {
        rc = set_outputs(rt, value, reply);
    } else if (cn_py_is_response(value)) {
        rc = set_response(rt, value, reply);
    } else if (cn_py_is_processor(value)) {
        rc = cn_py_set_processor(value, reply);
    } else if ((PyObject *)Py_TYPE(value) == rt->checked_reply) {
        rc = set_checked(value, reply);
    } else {
        rendered = PyObject_CallFunctionObjArgs(rt->render, value, NULL);
        rc = rendered ? set_rendered(rt, rendered, reply) : -1;
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
