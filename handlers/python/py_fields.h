/* handlers/python/py_fields.h - types in C from which classes of Python are derived, and whose
 * members behind ob_base are all objects or NULL. */
#ifndef CN_HANDLERS_PYTHON_PY_FIELDS_H
#define CN_HANDLERS_PYTHON_PY_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

#include "handlers/python/py_api.h"

/* Was the module given this class? If not, sets an exception. */
bool cn_py_is_used(PyObject *object);
/* Replaces the object in a field. */
void cn_py_set(PyObject **field, PyObject *value);
/* Makes a type and adds it to the module, whose name `name` begins with. Returns NULL with an
 * exception set if that fails. */
PyTypeObject *cn_py_add_type(PyObject *module, const char *name, size_t size, unsigned flags,
                             PyType_Slot *slots);

/* What Python calls for an object of `size` bytes, without the members of derived classes. */
int cn_py_fields_clear(PyObject *self, size_t size);
int cn_py_fields_traverse(PyObject *self, size_t size, visitproc visit, void *arg);
void cn_py_fields_dealloc(PyObject *self, size_t size);

/* Defines these functions for a struct: request_clear() and so on. */
#define CN_PY_FIELDS_FUNCTIONS(type)                                                               \
    static int type##_clear(PyObject *self)                                                        \
    {                                                                                              \
        return cn_py_fields_clear(self, sizeof(struct type));                                      \
    }                                                                                              \
    static int type##_traverse(PyObject *self, visitproc visit, void *arg)                         \
    {                                                                                              \
        return cn_py_fields_traverse(self, sizeof(struct type), visit, arg);                       \
    }                                                                                              \
    static void type##_dealloc(PyObject *self)                                                     \
    {                                                                                              \
        cn_py_fields_dealloc(self, sizeof(struct type));                                           \
    }

#endif
