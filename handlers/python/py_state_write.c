/* handlers/python/py_state_write.c - writes a state as bytes (py_state_format.h). Worker's thread.
 *
 * A state must be read back as it was written, since a step may find its state in memory or, after
 * a restart, in the store. So each type is written as itself. A value that could not be read back
 * unchanged is an error, and the message names its place, such as state["users"][3]. Such values
 * are objects of other classes, also of classes derived from the known ones, and one list, dict or
 * array in two places, which would be read back as two.
 *
 * Objects of NumPy and PyTorch are described by continuo._state, which knows these packages. Their
 * elements are then copied once, from where they are to the output.
 */
#include <string.h>

#include "core/memory/mem.h"
#include "handlers/python/format/py_state_format.h"
#include "handlers/python/py_priv.h"
#include "proto/wire.h"

#define SEEN_FEW 8 /* up to this number, objects are compared one by one */

/* A container that is being written and the place in it, for messages. */
struct place {
    PyObject *key; /* borrowed; NULL: `index` says where */
    Py_ssize_t index;
};

struct writer {
    struct cn_buf *out;
    size_t begun, max_bytes;
    uint32_t depth;
    struct place places[PY_STATE_DEPTH_MAX];
    const void **seen; /* a hash table with open addressing; used beyond SEEN_FEW objects */
    uint32_t n_seen, seen_mask;
    const void *few[SEEN_FEW];
};

/* Functions of continuo._state. */
static PyObject *describe_fn, *int_bytes_fn, *pickle_fn, *path_fn, *error_class;

int
cn_py_state_write_init(PyObject *module)
{
    describe_fn = PyObject_GetAttrString(module, "describe");
    int_bytes_fn = PyObject_GetAttrString(module, "int_to_bytes");
    pickle_fn = PyObject_GetAttrString(module, "to_pickle");
    path_fn = PyObject_GetAttrString(module, "path");
    error_class = PyObject_GetAttrString(module, "StateError");
    return describe_fn && int_bytes_fn && pickle_fn && path_fn && error_class ? 0 : -1;
}

/* --- errors --- */

/* Raises StateError 'state["users"][3]: what'. Returns -1. */
static int
refuse(struct writer *writer, const char *what)
{
    PyObject *keys = PyList_New(0), *one, *text;

    for (uint32_t i = 0; keys && i < writer->depth; i++) {
        const struct place *place = &writer->places[i];

        one = place->key ? Py_BuildValue("(O)", place->key) : PyLong_FromSsize_t(place->index);
        if (!one || PyList_Append(keys, one) < 0)
            Py_CLEAR(keys);
        Py_XDECREF(one);
    }
    if (!keys)
        return -1;
    text = PyObject_CallFunction(path_fn, "Os", keys, what);
    Py_DECREF(keys);
    if (text) {
        PyErr_SetObject(error_class, text);
        Py_DECREF(text);
    }
    return -1;
}

/* Returns true and sets an exception if the state is too large, or would be with `more` bytes. */
static bool
is_too_large(struct writer *writer, size_t more)
{
    const size_t len = writer->out->len - writer->begun;

    if (!writer->out->failed && (!writer->max_bytes || more <= writer->max_bytes - len) &&
        (!writer->max_bytes || len <= writer->max_bytes))
        return false;
    PyErr_SetString(PyExc_OverflowError, "the state is too large");
    return true;
}

/* --- objects that may be in the state only once --- */

static uint32_t
slot_of(const struct writer *writer, const void *object)
{
    uint32_t at = (uint32_t)((uintptr_t)object * 0x9e3779b97f4a7c15u >> 32);

    while (writer->seen[at & writer->seen_mask] && writer->seen[at & writer->seen_mask] != object)
        at++;
    return at & writer->seen_mask;
}

/* Makes the table, or doubles it. */
static int
grow_seen(struct writer *writer)
{
    const void **old = writer->seen;
    const uint32_t n_old = old ? writer->seen_mask + 1 : 0, n = n_old ? 2 * n_old : 64;

    writer->seen = cn_try_alloc(n * sizeof(*writer->seen));
    if (!writer->seen) {
        writer->seen = old;
        PyErr_NoMemory();
        return -1;
    }
    memset(writer->seen, 0, n * sizeof(*writer->seen));
    writer->seen_mask = n - 1;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i])
            writer->seen[slot_of(writer, old[i])] = old[i];
    if (!old)
        for (uint32_t i = 0; i < SEEN_FEW; i++)
            writer->seen[slot_of(writer, writer->few[i])] = writer->few[i];
    cn_free(old);
    return 0;
}

static int
check_once(struct writer *writer, const void *object)
{
    uint32_t at;

    if (!writer->seen) {
        for (uint32_t i = 0; i < writer->n_seen; i++)
            if (writer->few[i] == object)
                goto twice;
        if (writer->n_seen < SEEN_FEW) {
            writer->few[writer->n_seen++] = object;
            return 0;
        }
    }
    if ((!writer->seen || 2 * writer->n_seen > writer->seen_mask) && grow_seen(writer) < 0)
        return -1;
    at = slot_of(writer, object);
    if (writer->seen[at])
        goto twice;
    writer->seen[at] = object;
    writer->n_seen++;
    return 0;

twice:
    return refuse(writer, "this object stands in the state a second time, and would come back as "
                          "two objects: store a copy");
}

/* --- values --- */

static int put(struct writer *writer, PyObject *value);

/* Appends a tag, a size as a u32, and the bytes. */
static int
put_sized(struct writer *writer, char tag, const char *bytes, Py_ssize_t len)
{
    if ((uint64_t)len > UINT32_MAX)
        return refuse(writer, "it is longer than 4 GB");
    if (is_too_large(writer, (size_t)len))
        return -1;
    cn_write_u8(writer->out, (uint8_t)tag);
    cn_write_u32(writer->out, (uint32_t)len);
    cn_buf_append(writer->out, bytes, (size_t)len);
    return 0;
}

/* Like put_sized(), for a bytes object whose reference it takes. NULL means that an exception is
 * set. */
static int
put_bytes(struct writer *writer, char tag, PyObject *bytes)
{
    Py_ssize_t len;
    char *at;
    int rc;

    if (!bytes)
        return -1;
    rc = PyBytes_AsStringAndSize(bytes, &at, &len);
    if (rc == 0)
        rc = put_sized(writer, tag, at, len);
    Py_DECREF(bytes);
    return rc;
}

static int
put_text(struct writer *writer, PyObject *text)
{
    Py_ssize_t len;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &len);

    if (utf8)
        return put_sized(writer, 's', utf8, len);
    PyErr_Clear(); /* the text has a lone surrogate, which JSON text may contain */
    return put_bytes(writer, 's', PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
}

static int
put_int(struct writer *writer, PyObject *value)
{
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);

    if (overflow)
        return put_bytes(writer, 'I', PyObject_CallFunctionObjArgs(int_bytes_fn, value, NULL));
    if (number == -1 && PyErr_Occurred())
        return -1;
    cn_write_u8(writer->out, 'i');
    cn_write_u64(writer->out, (uint64_t)number);
    return 0;
}

static void
put_double(struct writer *writer, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    cn_write_u64(writer->out, bits);
}

static int
begin(struct writer *writer, char tag, PyObject *container, Py_ssize_t count)
{
    if (writer->depth == PY_STATE_DEPTH_MAX)
        return refuse(writer, "containers are nested more than 64 levels deep");
    if ((uint64_t)count > UINT32_MAX)
        return refuse(writer, "it has more than 4,294,967,295 values");
    /* The empty tuple is one object everywhere, and an object that cannot change may be in two
     * places. */
    if (tag != 't' && tag != 'z' && check_once(writer, container) < 0)
        return -1;
    cn_write_u8(writer->out, (uint8_t)tag);
    if (tag != 'D')
        cn_write_u32(writer->out, (uint32_t)count);
    return is_too_large(writer, (size_t)count) ? -1 : 0;
}

static int
put_list(struct writer *writer, char tag, PyObject *list)
{
    const bool tuple = tag == 't';
    const Py_ssize_t count = tuple ? PyTuple_Size(list) : PyList_Size(list);
    int rc = begin(writer, tag, list, count);

    if (rc < 0)
        return rc;
    writer->depth++;
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        PyObject *value = tuple ? PyTuple_GetItem(list, i) : PyList_GetItem(list, i);

        if (!value)
            return -1; /* a thread of the handler has shortened it */
        Py_INCREF(value);
        writer->places[writer->depth - 1] = (struct place){NULL, i};
        rc = put(writer, value);
        Py_DECREF(value);
    }
    writer->depth--;
    return rc;
}

static int
put_dict(struct writer *writer, PyObject *dict)
{
    const Py_ssize_t count = PyDict_Size(dict);
    PyObject *key, *value;
    Py_ssize_t at = 0, n = 0;
    int rc = begin(writer, 'm', dict, count);

    if (rc < 0)
        return rc;
    writer->depth++;
    while (rc == 0 && PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        writer->places[writer->depth - 1] = (struct place){key, 0};
        rc = put(writer, key);
        if (rc == 0)
            rc = put(writer, value);
        Py_DECREF(key);
        Py_DECREF(value);
        n++;
    }
    writer->depth--;
    if (rc == 0 && n != count)
        return refuse(writer, "a thread of the handler changed it while it was written");
    return rc;
}

/* Writes a set or a deque, from a list of its values. */
static int
put_as_list(struct writer *writer, char tag, PyObject *container, PyObject *list, long maxlen)
{
    const Py_ssize_t count = list ? PyList_Size(list) : -1;
    int rc = list ? begin(writer, tag, container, count) : -1;

    if (rc == 0 && tag == 'D') {
        cn_write_u32(writer->out, (uint32_t)(maxlen + 1));
        cn_write_u32(writer->out, (uint32_t)count);
    }
    writer->depth++;
    for (Py_ssize_t i = 0; rc == 0 && i < count; i++) {
        writer->places[writer->depth - 1] = (struct place){NULL, i};
        rc = put(writer, PyList_GetItem(list, i));
    }
    writer->depth--;
    Py_XDECREF(list);
    return rc;
}

/* --- what continuo._state describes --- */

/* Writes an array or a tensor from the tuple ("a" or "x", type, flag, shape, address, size,
 * keeper). The keeper is the object that keeps the memory at the address. */
static int
put_array(struct writer *writer, PyObject *container, PyObject *facts)
{
    unsigned long long address, size;
    PyObject *shape, *keep;
    const char *tag, *type;
    Py_ssize_t rank;
    int flag;

    if (!PyArg_ParseTuple(facts, "ssiOKKO", &tag, &type, &flag, &shape, &address, &size, &keep) ||
        check_once(writer, container) < 0 || (rank = PyTuple_Size(shape)) < 0)
        return -1;
    if (rank > PY_STATE_RANK_MAX || strlen(type) > PY_STATE_TYPE_MAX)
        return refuse(writer, "an array of this type or rank cannot be stored");
    if (is_too_large(writer, size))
        return -1;
    cn_write_u8(writer->out, (uint8_t)*tag);
    cn_write_u8(writer->out, (uint8_t)strlen(type));
    cn_buf_puts(writer->out, type);
    cn_write_u8(writer->out, (uint8_t)flag);
    cn_write_u8(writer->out, (uint8_t)rank);
    for (Py_ssize_t i = 0; i < rank; i++) {
        const long long n = PyLong_AsLongLong(PyTuple_GetItem(shape, i));

        if (n < 0)
            return PyErr_Occurred() ? -1 : refuse(writer, "a dimension is negative");
        cn_write_u64(writer->out, (uint64_t)n);
    }
    cn_write_u64(writer->out, size);
    cn_buf_append(writer->out, (const void *)(uintptr_t)address, size);
    return 0;
}

/* Writes a NumPy scalar from the tuple ("g", type, bytes). */
static int
put_scalar(struct writer *writer, PyObject *facts)
{
    const char *tag, *type, *bytes;
    Py_ssize_t len;

    if (!PyArg_ParseTuple(facts, "ssy#", &tag, &type, &bytes, &len))
        return -1;
    cn_write_u8(writer->out, 'g');
    cn_write_u8(writer->out, (uint8_t)strlen(type));
    cn_buf_puts(writer->out, type);
    cn_write_u32(writer->out, (uint32_t)len);
    cn_buf_append(writer->out, bytes, (size_t)len);
    return 0;
}

/* Writes an object that is not of a built-in type. */
static int
put_other(struct writer *writer, PyObject *value)
{
    PyObject *facts = PyObject_CallFunctionObjArgs(describe_fn, value, NULL), *list;
    const char *tag, *why;
    long maxlen;
    int rc = -1;

    if (!facts)
        return -1;
    if (cn_py_is(facts, &PyUnicode_Type)) { /* a str says why the object cannot be stored */
        why = PyUnicode_AsUTF8AndSize(facts, NULL);
        rc = why ? refuse(writer, why) : -1;
    } else if (PyArg_Parse(PyTuple_GetItem(facts, 0), "s", &tag)) {
        if (*tag == 'a' || *tag == 'x')
            rc = put_array(writer, value, facts);
        else if (*tag == 'g')
            rc = put_scalar(writer, facts);
        else if (PyArg_ParseTuple(facts, "slO", &tag, &maxlen, &list)) {
            Py_INCREF(list);
            rc = put_as_list(writer, 'D', value, list, maxlen);
        }
    }
    Py_DECREF(facts);
    return rc;
}

static int
put(struct writer *writer, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);

    if (type == &PyUnicode_Type)
        return put_text(writer, value);
    if (type == &PyLong_Type)
        return put_int(writer, value);
    if (type == &PyFloat_Type) {
        cn_write_u8(writer->out, 'd');
        put_double(writer, PyFloat_AsDouble(value));
        return 0;
    }
    if (type == &PyDict_Type)
        return put_dict(writer, value);
    if (type == &PyList_Type)
        return put_list(writer, 'l', value);
    if (type == &PyTuple_Type)
        return put_list(writer, 't', value);
    if (type == &PyBytes_Type) {
        Py_INCREF(value);
        return put_bytes(writer, 'b', value);
    }
    if (value == Py_None || type == &PyBool_Type) {
        cn_write_u8(writer->out, value == Py_None ? 'N' : value == Py_True ? 'T' : 'F');
        return 0;
    }
    if (type == &PySet_Type || type == &PyFrozenSet_Type)
        return put_as_list(writer, type == &PySet_Type ? 'S' : 'z', value, PySequence_List(value),
                           0);
    if (type == &PyByteArray_Type) {
        if (check_once(writer, value) < 0)
            return -1;
        return put_sized(writer, 'B', PyByteArray_AsString(value), PyByteArray_Size(value));
    }
    if (type == &PyComplex_Type) {
        cn_write_u8(writer->out, 'c');
        put_double(writer, PyComplex_RealAsDouble(value));
        put_double(writer, PyComplex_ImagAsDouble(value));
        return 0;
    }
    return put_other(writer, value);
}

int
cn_py_state_write(PyObject *state, bool pickle, size_t max_bytes, struct cn_buf *out)
{
    struct writer writer = {.out = out, .begun = out->len, .max_bytes = max_bytes};
    int rc;

    cn_buf_append(out, PY_STATE_HEADER, PY_STATE_HEADER_BYTES);
    if (pickle)
        rc = put_bytes(&writer, 'p', PyObject_CallFunctionObjArgs(pickle_fn, state, NULL));
    else
        rc = put(&writer, state);
    if (rc == 0 && is_too_large(&writer, 0))
        rc = -1;
    cn_free(writer.seen);
    return rc;
}
