/* handlers/python/py_triton_batch.c - makes the requests of a batch for a model of Triton's, and
 * packs its responses. Worker's thread. */
#include <string.h>

#include "handlers/python/py_fields.h"
#include "handlers/python/py_triton.h"

/* TRITONSERVER_REQUEST_FLAG_SEQUENCE_START and ..._END */
#define STARTS 1
#define ENDS 2

#define FEW 16 /* inputs whose names are remembered, and outputs that are packed here */

static PyObject *row_name, *zero, *no_text;

/* --- what clients have sent --- */

/* Returns a sequence's id as Triton has it: an int behind CN_SEQUENCE_NUMBER, or a str; 0 without
 * one. An int with an owner before it (docs/keys.md) is a str that begins with that byte, so that
 * 42 and "42" of one owner differ. */
static PyObject *
correlation_of(const struct cn_row *row)
{
    const struct cn_str id = row->sequence_id;
    unsigned long long number = 0;

    if (!(row->flags & CN_ROW_STATEFUL) || id.len == 0) {
        Py_INCREF(zero);
        return zero;
    }
    if (*id.ptr != CN_SEQUENCE_NUMBER)
        return cn_py_text(id);
    for (size_t i = 1; i < id.len; i++) {
        if (id.ptr[i] < '0' || id.ptr[i] > '9')
            return cn_py_text(id);
        number = number * 10 + (unsigned long long)(id.ptr[i] - '0'); /* the server sends a u64 */
    }
    return PyLong_FromUnsignedLongLong(number);
}

/* Returns a tensor's name. The inputs of all requests of a model have the same few names. */
static PyObject *
name_of(struct cn_str name, uint32_t i)
{
    static PyObject *last[FEW];
    Py_ssize_t len;
    const char *text;

    if (i >= FEW)
        return cn_py_text(name);
    text = last[i] ? PyUnicode_AsUTF8AndSize(last[i], &len) : NULL;
    if (!text || (size_t)len != name.len || memcmp(text, name.ptr, name.len) != 0) {
        Py_XDECREF(last[i]);
        last[i] = cn_py_text(name);
    }
    Py_XINCREF(last[i]);
    return last[i];
}

/* Returns a tensor's shape, which is usually that of the tensor before it. */
static PyObject *
shape_of(const struct cn_tensor *tensor)
{
    static int64_t last_shape[CN_TENSOR_RANK_MAX];
    static uint32_t last_rank;
    static PyObject *last;

    if (!last || tensor->rank != last_rank ||
        memcmp(tensor->shape, last_shape, last_rank * sizeof(*last_shape)) != 0) {
        Py_XDECREF(last);
        last = cn_py_shape(tensor);
        last_rank = tensor->rank;
        memcpy(last_shape, tensor->shape, last_rank * sizeof(*last_shape));
    }
    Py_XINCREF(last);
    return last;
}

static PyObject *
new_tensor(const struct cn_tensor *given, uint32_t i)
{
    PyObject *made = PyType_GenericNew((PyTypeObject *)cn_py_triton.tensor_class, NULL, NULL);
    struct tensor *tensor = (struct tensor *)made;

    if (!made)
        return NULL;
    tensor->type = given->type;
    tensor->name = name_of(given->name, i);
    tensor->shape = shape_of(given);
    tensor->data = cn_py_elements(given);
    if (!tensor->name || !tensor->shape || !tensor->data)
        Py_CLEAR(made);
    return made;
}

/* Returns a list of the inputs. *n_others is the number of other parts, such as parameters. */
static PyObject *
inputs_of(const struct cn_row *row, uint32_t *n_others)
{
    PyObject *list = PyList_New(0), *made;
    struct cn_tensor tensor;

    *n_others = 0;
    for (uint32_t i = 0; list && i < row->n_parts; i++) {
        if (!cn_tensor_of_part(&row->parts[i], &tensor)) {
            ++*n_others;
            continue;
        }
        made = new_tensor(&tensor, i);
        if (!made || PyList_Append(list, made) < 0)
            Py_CLEAR(list);
        Py_XDECREF(made);
    }
    return list;
}

/* Everything is read at once, because a model may keep its request. */
static PyObject *
new_request(PyObject *row_object, PyObject *outputs, PyObject *make_sender)
{
    const struct cn_row *row = cn_py_row_of(row_object);
    PyObject *made =
        row ? PyType_GenericNew((PyTypeObject *)cn_py_triton.request_class, NULL, NULL) : NULL;
    struct request *request = (struct request *)made;
    bool starts;
    uint32_t n_others;

    if (!made)
        return NULL;
    starts = (row->flags & CN_ROW_STATEFUL) && row->sequence_id.len &&
             ((struct py_row *)row_object)->fresh;
    if (row->flags & CN_ROW_NAMED)
        request->request_id = cn_py_text(row->request_id);
    else
        cn_py_set(&request->request_id, no_text);
    request->correlation_id = correlation_of(row);
    request->inputs = inputs_of(row, &n_others);
    cn_py_set(&request->outputs, outputs);
    request->flags = PyLong_FromLong((starts ? STARTS : 0) | (row->flags & CN_ROW_END ? ENDS : 0));
    if (request->inputs && n_others)
        request->parameters = cn_py_row_parameters(row_object, NULL);
    else
        cn_py_set(&request->parameters, Py_None);
    cn_py_set(&request->row, row_object);
    cn_py_set(&request->make_sender, make_sender);
    cn_py_set(&request->sender, Py_None);
    if (!request->request_id || !request->correlation_id || !request->inputs || !request->flags ||
        !request->parameters)
        Py_CLEAR(made);
    return made;
}

/* receive([continuo.types.Request, ...], outputs, make_sender) -> [InferenceRequest, ...] */
PyObject *
cn_py_triton_receive(PyObject *self, PyObject *args)
{
    PyObject *given, *outputs, *make_sender, *list, *row, *made;
    Py_ssize_t n;

    (void)self;
    if (!PyArg_ParseTuple(args, "O!OO", &PyList_Type, &given, &outputs, &make_sender) ||
        !cn_py_is_used(cn_py_triton.request_class))
        return NULL;
    list = PyList_New(n = PyList_Size(given));
    for (Py_ssize_t i = 0; list && i < n; i++) {
        row = PyObject_GetAttr(PyList_GetItem(given, i), row_name);
        made = row ? new_request(row, outputs, make_sender) : NULL;
        if (!made || PyList_SetItem(list, i, made) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}

/* --- what models answer --- */

bool
cn_py_is_response(PyObject *value)
{
    return (PyObject *)Py_TYPE(value) == cn_py_triton.response_class;
}

/* Can this output be packed here, beside the ones before it? */
static bool
is_usual(PyObject *tensors, Py_ssize_t i)
{
    PyObject *object = PyList_GetItem(tensors, i);
    const struct tensor *tensor = (const struct tensor *)object, *other;

    if (!PyType_IsSubtype(Py_TYPE(object), cn_py_triton.tensor_fields) || !tensor->value ||
        !tensor->name || !cn_py_is(tensor->name, &PyUnicode_Type))
        return false;
    for (Py_ssize_t j = 0; j < i; j++) {
        other = (const struct tensor *)PyList_GetItem(tensors, j);
        if (PyUnicode_Compare(other->name, tensor->name) == 0)
            return false;
    }
    return PySet_Size(cn_py_triton.known_outputs) == 0 ||
           PySet_Contains(cn_py_triton.known_outputs, tensor->name) == 1;
}

int
cn_py_put_response(struct py_rt *rt, PyObject *value, struct cn_buf *out)
{
    const struct response *response = (struct response *)value;
    Py_ssize_t n;
    int rc = 0;

    if (!response->tensors || !cn_py_is(response->tensors, &PyList_Type) ||
        (n = PyList_Size(response->tensors)) > FEW || response->parameters != Py_None)
        return 1;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!is_usual(response->tensors, i))
            return 1;
    cn_write_u32(out, (uint32_t)n);
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
        const struct tensor *tensor = (struct tensor *)PyList_GetItem(response->tensors, i);

        rc = cn_py_put_output(rt, tensor->name, tensor->value, out);
    }
    return rc;
}

int
cn_py_triton_batch_init(void)
{
    row_name = PyUnicode_InternFromString("_row");
    zero = PyLong_FromLong(0);
    no_text = PyUnicode_FromString("");
    return row_name && zero && no_text ? 0 : -1;
}
