/* handlers/python/py_triton.c - what models for Triton's Python backend get and give, as far as
 * each step makes it: the fields of Tensor, InferenceRequest and InferenceResponse, and the usual
 * way in which they are set. Worker's thread; models may make tensors and responses in others.
 *
 * The classes themselves are Python's (continuo.triton), and are derived from the types here. A
 * call of a class with other arguments than the usual ones goes to its method _begin(), which knows
 * all of them and refuses the wrong ones. continuo.triton.fields does the same without this file.
 */
#include <string.h>

#include "handlers/python/py_fields.h"
#include "handlers/python/py_triton.h"

#define KNOWN_TYPES_MAX 16

struct cn_py_triton cn_py_triton;
static PyObject *dtype_name, *tensors_name, *begin_name;
/* NumPy's types that a tensor may have, as far as tensors had them, and those of inputs. */
static PyObject *known_types[KNOWN_TYPES_MAX], *input_types[CN_DATATYPE_BF16 + 1];
static uint32_t n_known_types;

/* --- the classes --- */

/* Lets the derived class look at the arguments. */
static int
begin_slowly(PyObject *self, PyObject *args, PyObject *named)
{
    PyObject *begin = PyObject_GetAttr(self, begin_name);
    PyObject *done = begin ? PyObject_Call(begin, args, named) : NULL;

    Py_XDECREF(begin);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static bool
is_known_type(PyObject *array)
{
    PyObject *type = PyObject_GetAttr(array, dtype_name);
    bool known = false;

    if (!type)
        PyErr_Clear();
    for (uint32_t i = 0; i < n_known_types && !known; i++)
        known = known_types[i] == type;
    Py_XDECREF(type);
    return known;
}

/* Tensor(name, array) */
static int
tensor_init(PyObject *self, PyObject *args, PyObject *named)
{
    struct tensor *tensor = (struct tensor *)self;
    PyObject *array;

    if (!named && PyTuple_Size(args) == 2) {
        array = PyTuple_GetItem(args, 1);
        if (cn_py_is(PyTuple_GetItem(args, 0), &PyUnicode_Type) &&
            cn_py_is(array, cn_py_array_class()) && is_known_type(array)) {
            cn_py_set(&tensor->name, PyTuple_GetItem(args, 0));
            cn_py_set(&tensor->value, array);
            return 0;
        }
    }
    if (begin_slowly(self, args, named) < 0)
        return -1;
    if (tensor->value && cn_py_is(tensor->value, cn_py_array_class()) &&
        n_known_types < KNOWN_TYPES_MAX && !is_known_type(tensor->value))
        known_types[n_known_types++] = PyObject_GetAttr(tensor->value, dtype_name);
    return 0;
}

static void
tensor_dealloc(PyObject *self)
{
    struct tensor *tensor = (struct tensor *)self;
    PyTypeObject *type = Py_TYPE(self);

    Py_CLEAR(tensor->name);
    Py_CLEAR(tensor->value);
    Py_CLEAR(tensor->shape);
    Py_CLEAR(tensor->data);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Returns an input as Python code reads it: datatype, shape, elements; None for other tensors. */
static PyObject *
tensor_raw(PyObject *self, void *closure)
{
    struct tensor *tensor = (struct tensor *)self;

    (void)closure;
    if (!tensor->data)
        Py_RETURN_NONE;
    return Py_BuildValue("(sOO)", cn_datatype_word(tensor->type), tensor->shape, tensor->data);
}

/* Keeps NumPy's type of a datatype, as Python code has found it. */
static void
keep_input_type(const struct tensor *tensor)
{
    if (tensor->data && tensor->value && cn_py_is(tensor->value, cn_py_array_class()) &&
        tensor->type != CN_DATATYPE_BYTES)
        input_types[tensor->type] = PyObject_GetAttr(tensor->value, dtype_name);
}

/* as_numpy(): the array of an input is made when the model asks for it. */
static PyObject *
tensor_as_numpy(PyObject *self, PyObject *args)
{
    struct tensor *tensor = (struct tensor *)self;
    PyObject *made;

    (void)args;
    if (!tensor->value && tensor->data && input_types[tensor->type])
        tensor->value = PyObject_CallFunctionObjArgs((PyObject *)cn_py_array_class(), tensor->shape,
                                                     input_types[tensor->type], tensor->data, NULL);
    else if (!tensor->value || !cn_py_is(tensor->value, cn_py_array_class())) {
        made = PyObject_CallMethod(self, "_as_numpy", NULL);
        if (made && !input_types[tensor->type])
            keep_input_type(tensor);
        return made;
    }
    Py_XINCREF(tensor->value);
    return tensor->value;
}

static PyMemberDef tensor_members[] = {
    {"_name", T_OBJECT_EX, offsetof(struct tensor, name), 0, NULL},
    {"_value", T_OBJECT, offsetof(struct tensor, value), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyGetSetDef tensor_getters[] = {
    {"_raw", tensor_raw, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMethodDef tensor_methods[] = {
    {"as_numpy", tensor_as_numpy, METH_NOARGS, "The elements as a NumPy array."},
    {NULL, NULL, 0, NULL},
};

CN_PY_FIELDS_FUNCTIONS(request)
CN_PY_FIELDS_FUNCTIONS(response)

static PyMemberDef request_members[] = {
    {"_request_id", T_OBJECT_EX, offsetof(struct request, request_id), 0, NULL},
    {"_correlation_id", T_OBJECT_EX, offsetof(struct request, correlation_id), 0, NULL},
    {"_inputs", T_OBJECT_EX, offsetof(struct request, inputs), 0, NULL},
    {"_outputs", T_OBJECT_EX, offsetof(struct request, outputs), 0, NULL},
    {"_flags", T_OBJECT_EX, offsetof(struct request, flags), 0, NULL},
    {"_parameters", T_OBJECT_EX, offsetof(struct request, parameters), 0, NULL},
    {"_row", T_OBJECT_EX, offsetof(struct request, row), 0, NULL},
    {"_make_sender", T_OBJECT_EX, offsetof(struct request, make_sender), 0, NULL},
    {"_sender", T_OBJECT_EX, offsetof(struct request, sender), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Returns a copy of the list of tensors with which a response is usually made, the only argument;
 * NULL without an exception for all other arguments. */
static PyObject *
usual_tensors(PyObject *args, PyObject *named)
{
    const Py_ssize_t n_args = PyTuple_Size(args), n_named = named ? PyDict_Size(named) : 0;
    PyObject *list;

    if (n_args + n_named != 1)
        return NULL;
    list = n_args ? PyTuple_GetItem(args, 0) : PyDict_GetItemWithError(named, tensors_name);
    if (!list || !cn_py_is(list, &PyList_Type))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
        if (!PyType_IsSubtype(Py_TYPE(PyList_GetItem(list, i)), cn_py_triton.tensor_fields))
            return NULL;
    return PyList_GetSlice(list, 0, PyList_Size(list));
}

/* InferenceResponse([tensor, ...]) */
static int
response_init(PyObject *self, PyObject *args, PyObject *named)
{
    struct response *response = (struct response *)self;
    PyObject *tensors = usual_tensors(args, named);

    if (!tensors)
        return PyErr_Occurred() ? -1 : begin_slowly(self, args, named);
    cn_py_set(&response->tensors, tensors);
    Py_DECREF(tensors);
    cn_py_set(&response->error, Py_None);
    cn_py_set(&response->parameters, Py_None);
    return 0;
}

static PyMemberDef response_members[] = {
    {"_tensors", T_OBJECT_EX, offsetof(struct response, tensors), 0, NULL},
    {"_error", T_OBJECT_EX, offsetof(struct response, error), 0, NULL},
    {"_parameters", T_OBJECT_EX, offsetof(struct response, parameters), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* --- the module's part --- */

/* use_triton(InferenceRequest, Tensor, InferenceResponse, names of the outputs that are sent) */
PyObject *
cn_py_triton_use(PyObject *self, PyObject *args)
{
    PyObject *request, *tensor, *response, *outputs;

    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", &PyType_Type, &request, &PyType_Type, &tensor,
                          &PyType_Type, &response, &PyFrozenSet_Type, &outputs))
        return NULL;
    cn_py_set(&cn_py_triton.request_class, request);
    cn_py_set(&cn_py_triton.tensor_class, tensor);
    cn_py_set(&cn_py_triton.response_class, response);
    cn_py_set(&cn_py_triton.known_outputs, outputs);
    Py_RETURN_NONE;
}

int
cn_py_triton_init(PyObject *module)
{
    PyType_Slot of_tensor[] = {
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_init, tensor_init},
        {Py_tp_dealloc, tensor_dealloc},
        {Py_tp_members, tensor_members},
        {Py_tp_getset, tensor_getters},
        {Py_tp_methods, tensor_methods},
        {0, NULL},
    };
    PyType_Slot of_request[] = {
        {Py_tp_new, PyType_GenericNew},     {Py_tp_dealloc, request_dealloc},
        {Py_tp_traverse, request_traverse}, {Py_tp_clear, request_clear},
        {Py_tp_members, request_members},   {0, NULL},
    };
    PyType_Slot of_response[] = {
        {Py_tp_new, PyType_GenericNew},
        {Py_tp_init, response_init},
        {Py_tp_dealloc, response_dealloc},
        {Py_tp_traverse, response_traverse},
        {Py_tp_clear, response_clear},
        {Py_tp_members, response_members},
        {0, NULL},
    };

    dtype_name = PyUnicode_InternFromString("dtype");
    tensors_name = PyUnicode_InternFromString("output_tensors");
    begin_name = PyUnicode_InternFromString("_begin");
    cn_py_triton.tensor_fields = cn_py_add_type(module, "continuo._worker.TensorFields",
                                                sizeof(struct tensor), 0, of_tensor);
    return dtype_name && tensors_name && begin_name && cn_py_triton_batch_init() == 0 &&
                   cn_py_triton.tensor_fields &&
                   cn_py_add_type(module, "continuo._worker.ResponseFields",
                                  sizeof(struct response), Py_TPFLAGS_HAVE_GC, of_response) &&
                   cn_py_add_type(module, "continuo._worker.RequestFields", sizeof(struct request),
                                  Py_TPFLAGS_HAVE_GC, of_request)
               ? 0
               : -1;
}
