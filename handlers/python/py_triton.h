/* handlers/python/py_triton.h - the objects of models for Triton's Python backend, and what their
 * two files share (py_triton.c, py_triton_batch.c). */
#ifndef CN_HANDLERS_PYTHON_PY_TRITON_H
#define CN_HANDLERS_PYTHON_PY_TRITON_H

#include "handlers/python/py_priv.h"

/* Without `value` the tensor is an input: its datatype, shape, and elements as a bytearray or, for
 * BYTES, a list. With it, an array or a tensor of PyTorch. */
struct tensor {
    PyObject ob_base;
    PyObject *name, *value, *shape, *data;
    enum cn_datatype type;
};

struct request {
    PyObject ob_base;
    PyObject *request_id, *correlation_id, *inputs, *outputs, *flags, *parameters;
    PyObject *row, *make_sender, *sender;
};

struct response {
    PyObject ob_base;
    PyObject *tensors, *error, *parameters;
};

/* What use_triton() was given; NULL before. */
struct cn_py_triton {
    PyObject *request_class, *tensor_class, *response_class;
    PyObject *known_outputs; /* a frozenset of the outputs that are sent; empty: all */
    PyTypeObject *tensor_fields;
};
extern struct cn_py_triton cn_py_triton;

/* Makes what py_triton_batch.c needs. Returns 0, or -1 with an exception set. */
int cn_py_triton_batch_init(void);

#endif
