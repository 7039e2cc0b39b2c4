/* handlers/python/py_state_read.c - builds a state from its bytes (py_state_format.h). Worker's
 * thread.
 *
 * The bytes are checked first (cn_py_state_check), so that sizes need no checks here. What remains
 * are contents that Python refuses: text that is not UTF-8, a key that cannot be hashed, an array
 * whose shape and size disagree. Reading runs no code of the handler: all values are of built-in
 * types or of types of NumPy and PyTorch. A pickled state is read only if the handler asks for it.
 */
#include <string.h>

#include "handlers/python/format/py_state_format.h"
#include "handlers/python/py_priv.h"
#include "proto/wire.h"

/* Functions of continuo._state. */
static PyObject *make_array_fn, *make_tensor_fn, *make_scalar_fn, *make_deque_fn, *int_fn,
    *unpickle_fn;

int
cn_py_state_read_init(PyObject *module)
{
    make_array_fn = PyObject_GetAttrString(module, "make_array");
    make_tensor_fn = PyObject_GetAttrString(module, "make_tensor");
    make_scalar_fn = PyObject_GetAttrString(module, "make_scalar");
    make_deque_fn = PyObject_GetAttrString(module, "make_deque");
    int_fn = PyObject_GetAttrString(module, "int_from_bytes");
    unpickle_fn = PyObject_GetAttrString(module, "from_pickle");
    return make_array_fn && make_tensor_fn && make_scalar_fn && make_deque_fn && int_fn &&
                   unpickle_fn
               ? 0
               : -1;
}

static PyObject *get(struct cn_reader *reader, bool pickle);

static PyObject *
get_call(struct cn_reader *reader, PyObject *function)
{
    struct cn_str bytes = cn_read_str32(reader);

    return PyObject_CallFunction(function, "y#", bytes.ptr ? bytes.ptr : "", (Py_ssize_t)bytes.len);
}

static double
get_double(struct cn_reader *reader)
{
    const uint64_t bits = cn_read_u64(reader);
    double number;

    memcpy(&number, &bits, sizeof(number));
    return number;
}

static PyObject *
get_list(struct cn_reader *reader)
{
    const uint32_t count = cn_read_u32(reader);
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *value = get(reader, false);

        if (!value || PyList_Append(list, value) < 0)
            Py_CLEAR(list);
        Py_XDECREF(value);
    }
    return list;
}

/* Reads a container that Python makes from a list. */
static PyObject *
get_by_list(struct cn_reader *reader, PyObject *(*make)(PyObject *))
{
    PyObject *list = get_list(reader), *made = list ? make(list) : NULL;

    Py_XDECREF(list);
    return made;
}

static PyObject *
get_deque(struct cn_reader *reader)
{
    const uint32_t maxlen = cn_read_u32(reader);
    PyObject *list = get_list(reader), *made = NULL;

    if (list)
        made = PyObject_CallFunction(make_deque_fn, "Ol", list, (long)maxlen - 1);
    Py_XDECREF(list);
    return made;
}

static PyObject *
get_dict(struct cn_reader *reader)
{
    const uint32_t count = cn_read_u32(reader);
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < count; i++) {
        PyObject *key = get(reader, false), *value = key ? get(reader, false) : NULL;

        if (!value || PyDict_SetItem(dict, key, value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return dict;
}

/* Makes an array or tensor. The Python function returns (object, address), with room for exactly
 * `size` bytes of elements at the address. */
static PyObject *
get_array(struct cn_reader *reader, PyObject *make)
{
    struct cn_str type = cn_read_bytes(reader, cn_read_u8(reader)), data;
    const int flag = cn_read_u8(reader);
    const uint8_t rank = cn_read_u8(reader);
    PyObject *shape = PyTuple_New(rank), *made, *object = NULL;
    unsigned long long address;

    for (uint8_t i = 0; shape && i < rank; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(cn_read_u64(reader));

        if (!n || PyTuple_SetItem(shape, i, n) < 0)
            Py_CLEAR(shape);
    }
    if (!shape)
        return NULL;
    data = cn_read_bytes(reader, cn_read_u64(reader));
    made = PyObject_CallFunction(make, "s#iOK", type.ptr, (Py_ssize_t)type.len, flag, shape,
                                 (unsigned long long)data.len);
    Py_DECREF(shape);
    if (!made)
        return NULL;
    if (PyArg_ParseTuple(made, "OK", &object, &address)) {
        if (data.len)
            memcpy((void *)(uintptr_t)address, data.ptr, data.len);
        Py_INCREF(object);
    }
    Py_DECREF(made);
    return object;
}

static PyObject *
get_scalar(struct cn_reader *reader)
{
    struct cn_str type = cn_read_bytes(reader, cn_read_u8(reader)), data = cn_read_str32(reader);

    return PyObject_CallFunction(make_scalar_fn, "s#y#", type.ptr, (Py_ssize_t)type.len,
                                 data.ptr ? data.ptr : "", (Py_ssize_t)data.len);
}

static PyObject *
get_pickle(struct cn_reader *reader, bool pickle)
{
    if (pickle)
        return get_call(reader, unpickle_fn);
    PyErr_SetString(PyExc_ValueError, "the stored state is pickled, and the handler does not have "
                                      "state_format = \"pickle\"");
    return NULL;
}

/* Reads one value. With `pickle` it may be a pickled object. */
static PyObject *
get(struct cn_reader *reader, bool pickle)
{
    const uint8_t tag = cn_read_u8(reader);
    struct cn_str bytes;
    double real;

    switch (tag) {
    case 'N':
        Py_RETURN_NONE;
    case 'T':
        Py_RETURN_TRUE;
    case 'F':
        Py_RETURN_FALSE;
    case 'i':
        return PyLong_FromLongLong((long long)cn_read_u64(reader));
    case 'I':
        return get_call(reader, int_fn);
    case 'd':
        return PyFloat_FromDouble(get_double(reader));
    case 'c':
        real = get_double(reader);
        return PyComplex_FromDoubles(real, get_double(reader));
    case 's':
        bytes = cn_read_str32(reader);
        return PyUnicode_DecodeUTF8(bytes.ptr ? bytes.ptr : "", (Py_ssize_t)bytes.len,
                                    "surrogatepass");
    case 'b':
        bytes = cn_read_str32(reader);
        return PyBytes_FromStringAndSize(bytes.ptr, (Py_ssize_t)bytes.len);
    case 'B':
        bytes = cn_read_str32(reader);
        return PyByteArray_FromStringAndSize(bytes.ptr, (Py_ssize_t)bytes.len);
    case 'l':
        return get_list(reader);
    case 't':
        return get_by_list(reader, PyList_AsTuple);
    case 'S':
        return get_by_list(reader, PySet_New);
    case 'z':
        return get_by_list(reader, PyFrozenSet_New);
    case 'D':
        return get_deque(reader);
    case 'm':
        return get_dict(reader);
    case 'a':
        return get_array(reader, make_array_fn);
    case 'x':
        return get_array(reader, make_tensor_fn);
    case 'g':
        return get_scalar(reader);
    case 'p':
        return get_pickle(reader, pickle);
    }
    PyErr_SetString(PyExc_SystemError, "a checked state has an unknown tag");
    return NULL;
}

PyObject *
cn_py_state_read(struct cn_str bytes, bool pickle)
{
    struct cn_reader reader;
    struct cn_error err;
    PyObject *state;

    if (cn_py_state_check(bytes, &err) < 0) {
        PyErr_SetString(PyExc_ValueError, err.message);
        return NULL;
    }
    cn_reader_init(&reader, bytes.ptr, bytes.len);
    cn_reader_take(&reader, PY_STATE_HEADER_BYTES);
    state = get(&reader, pickle);
    if (state && reader.bad) { /* the check and this reader disagree */
        Py_CLEAR(state);
        PyErr_SetString(PyExc_SystemError, "a checked state ended early");
    }
    return state;
}
