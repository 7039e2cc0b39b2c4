/* handlers/python/py_fields.c - types in C from which classes of Python are derived. */
#include "handlers/python/py_fields.h"

#include <string.h>

void
cn_py_set(PyObject **field, PyObject *value)
{
    PyObject *old = *field;

    Py_INCREF(value);
    *field = value;
    Py_XDECREF(old);
}

bool
cn_py_is_used(PyObject *object)
{
    if (!object)
        PyErr_SetString(PyExc_RuntimeError, "the worker has not loaded a model of this kind");
    return object != NULL;
}

PyTypeObject *
cn_py_add_type(PyObject *module, const char *name, size_t size, unsigned flags, PyType_Slot *slots)
{
    PyType_Spec spec = {name, (int)size, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | flags,
                        slots};
    PyObject *type = PyType_FromSpec(&spec);

    return type && PyObject_SetAttrString(module, strrchr(name, '.') + 1, type) == 0
               ? (PyTypeObject *)type
               : NULL;
}

static size_t
n_fields(size_t size)
{
    return (size - sizeof(PyObject)) / sizeof(PyObject *);
}

int
cn_py_fields_clear(PyObject *self, size_t size)
{
    PyObject **fields = (PyObject **)(self + 1);

    for (size_t i = 0; i < n_fields(size); i++)
        Py_CLEAR(fields[i]);
    return 0;
}

int
cn_py_fields_traverse(PyObject *self, size_t size, visitproc visit, void *arg)
{
    PyObject **fields = (PyObject **)(self + 1);

    Py_VISIT(Py_TYPE(self));
    for (size_t i = 0; i < n_fields(size); i++)
        Py_VISIT(fields[i]);
    return 0;
}

void
cn_py_fields_dealloc(PyObject *self, size_t size)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    cn_py_fields_clear(self, size);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}
