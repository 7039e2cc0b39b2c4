/* handlers/python/py_api.h - Python's C API as this folder uses it: the stable ABI of 3.9, so that
 * one library runs in each interpreter from 3.9 on. It is included here and nowhere else. */
#ifndef CN_HANDLERS_PYTHON_PY_API_H
#define CN_HANDLERS_PYTHON_PY_API_H

#define Py_LIMITED_API 0x03090000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* The stable ABI promises this function from 3.10 on, but 3.9 has the same one. Without it each
 * text would be copied twice. The text belongs to the object. */
const char *PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *len);

/* The stable ABI promises this struct and these functions from 3.11 on, but 3.9 has the same ones.
 * They read the elements of a NumPy array without a call of its methods. */
struct cn_py_buffer {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format; /* of the module struct; NULL: "B" */
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
};
#define CN_PY_BUFFER_READ 0x1c /* PyBUF_RECORDS_RO: with shape, strides and format */
int PyObject_GetBuffer(PyObject *object, struct cn_py_buffer *view, int flags);
int PyBuffer_ToContiguous(void *out, const struct cn_py_buffer *view, Py_ssize_t len, char order);
void PyBuffer_Release(struct cn_py_buffer *view);

/* True if the object is of this type and not of one derived from it. */
static inline int
cn_py_is(PyObject *object, PyTypeObject *type)
{
    return Py_TYPE(object) == type;
}

#endif
