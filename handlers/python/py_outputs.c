/* handlers/python/py_outputs.c - packs the output tensors of a typed model into a reply. Worker's
 * thread.
 *
 * The elements of a NumPy array of numbers are copied once, from the array to the reply, also if
 * they do not lie side by side. continuo._tensors.convert makes such an array, or bytes, of
 * everything else: of lists, strings, PyTorch tensors, and numbers in another byte order.
 */
#include <string.h>

#include "handlers/python/py_priv.h"
#include "proto/tensor.h"

/* An array of at most this size is put into order here, if it is not. */
#define FEW_BYTES 256

#define LITTLE_ENDIAN_HOST (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

PyTypeObject *
cn_py_array_class(void)
{
    static PyObject *found;
    PyObject *name, *numpy;

    if (found)
        return (PyTypeObject *)found;
    name = PyUnicode_FromString("numpy");
    numpy = name ? PyImport_GetModule(name) : NULL;
    if (numpy)
        found = PyObject_GetAttrString(numpy, "ndarray");
    PyErr_Clear();
    Py_XDECREF(name);
    Py_XDECREF(numpy);
    return (PyTypeObject *)found;
}

static bool
is_array(PyObject *value)
{
    PyTypeObject *array = cn_py_array_class();

    return array && (cn_py_is(value, array) || PyType_IsSubtype(Py_TYPE(value), array));
}

/* Returns the datatype of an array's elements, which have `bytes` bytes each; CN_DATATYPE_NONE if
 * they are not numbers in the protocol's byte order. `format` is one of the module struct. */
static enum cn_datatype
datatype_of(const char *format, Py_ssize_t bytes)
{
    static const enum cn_datatype of_signed[] = {[1] = CN_DATATYPE_INT8,
                                                 [2] = CN_DATATYPE_INT16,
                                                 [4] = CN_DATATYPE_INT32,
                                                 [8] = CN_DATATYPE_INT64},
                                  of_unsigned[] = {[1] = CN_DATATYPE_UINT8,
                                                   [2] = CN_DATATYPE_UINT16,
                                                   [4] = CN_DATATYPE_UINT32,
                                                   [8] = CN_DATATYPE_UINT64};
    const bool native = *format != '<';

    if (*format && strchr("@=^<", *format))
        format++;
    if (!format[0] || format[1] || bytes < 1 || bytes > 8 ||
        (native && bytes > 1 && !LITTLE_ENDIAN_HOST))
        return CN_DATATYPE_NONE;
    switch (*format) {
    case '?':
        return CN_DATATYPE_BOOL;
    case 'e':
        return CN_DATATYPE_FP16;
    case 'f':
        return CN_DATATYPE_FP32;
    case 'd':
        return CN_DATATYPE_FP64;
    default:
        return strchr("bhilq", *format)   ? of_signed[bytes]
               : strchr("BHILQ", *format) ? of_unsigned[bytes]
                                          : CN_DATATYPE_NONE;
    }
}

static int
check_tensor(const struct cn_tensor *tensor)
{
    struct cn_error err;

    return cn_tensor_check(tensor, &err) < 0 ? cn_py_raise(&err) : 0;
}

static int
set_rank(struct cn_tensor *tensor, Py_ssize_t rank)
{
    if (rank > CN_TENSOR_RANK_MAX) {
        PyErr_Format(PyExc_TypeError,
                     "output '%.200s': its rank is %zd, and at most %d is possible",
                     tensor->name.ptr, rank, CN_TENSOR_RANK_MAX);
        return -1;
    }
    tensor->rank = (uint32_t)rank;
    return 0;
}

/* Does the view have its elements in the order of C, without gaps? */
static bool
is_contiguous(const struct cn_py_buffer *view)
{
    Py_ssize_t bytes = view->itemsize;

    for (int i = view->ndim; i-- > 0; bytes *= view->shape[i])
        if (view->shape[i] > 1 && view->strides[i] != bytes)
            return false;
    return true;
}

/* Appends the array that `view` shows. */
static int
put_view(struct cn_tensor *tensor, const struct cn_py_buffer *view, struct cn_buf *out)
{
    char *at;

    if (set_rank(tensor, view->ndim) < 0)
        return -1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        tensor->shape[i] = view->shape[i];
    tensor->data = (struct cn_str){view->buf, (size_t)view->len};
    if (check_tensor(tensor) < 0)
        return -1;
    at = cn_tensors_put_head(out, tensor);
    return at && view->len ? PyBuffer_ToContiguous(at, view, view->len, 'C') : 0;
}

/* Appends an array. Returns 0; 1, and appends nothing, if it must be converted first; or -1 with an
 * exception set. */
static int
put_array(struct cn_tensor *tensor, PyObject *array, PyObject *declared, struct cn_buf *out)
{
    struct cn_py_buffer view;
    int rc = 1;

    if (PyObject_GetBuffer(array, &view, CN_PY_BUFFER_READ) < 0) {
        PyErr_Clear(); /* dates, for example, have no buffer */
        return 1;
    }
    tensor->type = datatype_of(view.format ? view.format : "B", view.itemsize);
    /* NumPy puts the elements of a larger array into order faster. */
    if (view.len > FEW_BYTES && !is_contiguous(&view))
        tensor->type = CN_DATATYPE_NONE;
    if (tensor->type != CN_DATATYPE_NONE) {
        const char *word = cn_datatype_word(tensor->type);

        rc = 0;
        if (declared && PyUnicode_CompareWithASCIIString(declared, word) != 0) {
            PyErr_Format(PyExc_TypeError,
                         "output '%s' is an array of %s, but the model declares %U: convert it "
                         "with .astype()",
                         tensor->name.ptr, word, declared);
            rc = -1;
        }
        if (rc == 0)
            rc = put_view(tensor, &view, out);
    }
    PyBuffer_Release(&view);
    return rc;
}

/* Appends (datatype, shape, bytes), or instead of the bytes (address, size, keeper). */
static int
put_packed(struct cn_tensor *tensor, PyObject *packed, struct cn_buf *out)
{
    PyObject *word, *shape, *data, *keeper;
    unsigned long long address, size;
    struct cn_str type;
    Py_ssize_t len;
    char *bytes;

    if (!PyArg_ParseTuple(packed, "OO!O", &word, &PyTuple_Type, &shape, &data))
        return -1;
    type.ptr = PyUnicode_AsUTF8AndSize(word, &len);
    if (!type.ptr)
        return -1;
    type.len = (size_t)len;
    tensor->type = cn_datatype_parse(type);
    if (tensor->type == CN_DATATYPE_NONE) {
        PyErr_Format(PyExc_TypeError, "output '%s': '%U' is not a datatype", tensor->name.ptr,
                     word);
        return -1;
    }
    if (set_rank(tensor, PyTuple_Size(shape)) < 0)
        return -1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        tensor->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, (Py_ssize_t)i));
    if (PyErr_Occurred())
        return -1;
    if (cn_py_is(data, &PyBytes_Type)) {
        PyBytes_AsStringAndSize(data, &bytes, &len);
        tensor->data = (struct cn_str){bytes, (size_t)len};
    } else {
        if (!PyArg_ParseTuple(data, "KKO", &address, &size, &keeper))
            return -1;
        tensor->data = (struct cn_str){(const char *)(uintptr_t)address, (size_t)size};
    }
    if (check_tensor(tensor) < 0)
        return -1;
    cn_tensors_put_one(out, tensor);
    return 0;
}

int
cn_py_put_output(struct py_rt *rt, PyObject *name, PyObject *value, struct cn_buf *out)
{
    struct cn_tensor tensor = {0};
    PyObject *declared, *made;
    Py_ssize_t len;
    int rc = 1;

    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "outputs: the name of an output must be a str, got %R", name);
        return -1;
    }
    tensor.name.ptr = PyUnicode_AsUTF8AndSize(name, &len);
    if (!tensor.name.ptr)
        return -1;
    tensor.name.len = (size_t)len;
    declared = PyDict_GetItemWithError(rt->declared, name); /* borrowed */
    if (!declared && PyErr_Occurred())
        return -1;
    if (is_array(value))
        rc = put_array(&tensor, value, declared, out);
    if (rc <= 0)
        return rc;
    made = PyObject_CallFunctionObjArgs(rt->convert_output, name, value,
                                        declared ? declared : Py_None, NULL);
    if (!made)
        return -1;
    rc = is_array(made) ? put_array(&tensor, made, declared, out) : put_packed(&tensor, made, out);
    if (rc > 0) {
        PyErr_Format(PyExc_SystemError, "output '%U' was not converted", name);
        rc = -1;
    }
    Py_DECREF(made);
    return rc;
}

int
cn_py_put_outputs(struct py_rt *rt, PyObject *outputs, struct cn_buf *out)
{
    PyObject *items = PyMapping_Items(outputs);
    const Py_ssize_t n = items ? PyList_Size(items) : -1;
    int rc = n < 0 ? -1 : 0;

    if (n > CN_TENSORS_MAX) {
        PyErr_Format(PyExc_ValueError, "a reply has %zd outputs; at most %d are possible", n,
                     CN_TENSORS_MAX);
        rc = -1;
    }
    if (rc == 0)
        cn_write_u32(out, (uint32_t)n);
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        PyObject *pair = PyList_GetItem(items, i);

        if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
            rc = cn_py_put_output(rt, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), out);
        } else {
            PyErr_SetString(PyExc_TypeError, "Reply.outputs: items() must give pairs");
            rc = -1;
        }
    }
    Py_XDECREF(items);
    return rc;
}
