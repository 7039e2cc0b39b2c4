/* archiver/onnx/onnx_file.c - reads the protobuf message of an ONNX file. Archiver only.
 *
 * An ONNX file is one protobuf message. A message is a series of fields, each with a tag (8 *
 * number + kind) and a value; nested messages are values of kind 2, with their length in front. For
 * example
 *   3a 05 0a 03 ...   field 7 of the model (its graph) has 5 bytes: field 1 (a node) with 3 bytes
 * Only the few fields that are named below are read, and all others are skipped by their length, so
 * a file of gigabytes costs little: its weights are never touched. Texts point into the mapped
 * file.
 *
 * Three things are looked for: the inputs and outputs of the graph with types and shapes, the
 * initializers, because an input that has one needs no value, and the names of files with weights
 * outside of this one, wherever a tensor is. */
#include "archiver/onnx/onnx_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The numbers of fields in onnx.proto. */
enum { MODEL_GRAPH = 7, MODEL_FUNCTION = 25 };
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { GRAPH_SPARSE_INITIALIZER = 15, FUNCTION_NODE = 7 };
enum { NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_TENSOR = 5, ATTRIBUTE_GRAPH = 6, ATTRIBUTE_TENSORS = 10, ATTRIBUTE_GRAPHS = 11 };
enum { ATTRIBUTE_SPARSE = 22, ATTRIBUTE_SPARSES = 23, SPARSE_VALUES = 1, SPARSE_INDICES = 2 };
enum { TENSOR_NAME = 8, TENSOR_EXTERNAL = 13 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2 };
enum { TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE = 2, SHAPE_DIM = 1 };
enum { DIM_SIZE = 1, DIM_NAME = 2 };

/* Bodies of If, Loop and Scan may contain further bodies. Protobuf's own readers have the same
 * limit. */
#define DEPTH_MAX 100

/* One field of a message. */
struct field {
    uint32_t number, kind; /* kind 0 is a number, kind 2 is bytes; other kinds are skipped */
    uint64_t value;
    struct cn_str bytes;
};

static bool
read_number(struct cn_str *in, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && in->len > 0; shift += 7) {
        uint8_t byte = (uint8_t)*in->ptr;

        in->ptr++;
        in->len--;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool
take(struct cn_str *in, uint64_t n, struct cn_str *out)
{
    if (n > in->len)
        return false;
    *out = (struct cn_str){in->ptr, (size_t)n};
    in->ptr += n;
    in->len -= (size_t)n;
    return true;
}

/* Reads the next field. Returns 1 if there was one, 0 at the end of the message, or -1 if the
 * message is damaged. */
static int
next(struct cn_str *in, struct field *out)
{
    uint64_t tag, len;

    if (in->len == 0)
        return 0;
    *out = (struct field){0};
    if (!read_number(in, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX)
        return -1;
    out->number = (uint32_t)(tag >> 3);
    out->kind = tag & 7;
    switch (out->kind) {
    case 0:
        return read_number(in, &out->value) ? 1 : -1;
    case 1:
        return take(in, 8, &out->bytes) ? 1 : -1;
    case 2:
        return read_number(in, &len) && take(in, len, &out->bytes) ? 1 : -1;
    case 5:
        return take(in, 4, &out->bytes) ? 1 : -1;
    default:
        return -1;
    }
}

static bool
is_bytes(const struct field *field, uint32_t number)
{
    return field->kind == 2 && field->number == number;
}

static const char *
type_word(uint64_t number)
{
    static const char *const words[] = {NULL,     "FP32",   "UINT8", "INT8", "UINT16", "INT16",
                                        "INT32",  "INT64",  NULL,    "BOOL", "FP16",   "FP64",
                                        "UINT32", "UINT64", NULL,    NULL,   "BF16"};

    return number < sizeof(words) / sizeof(words[0]) ? words[number] : NULL;
}

static int
read_dim(struct cn_str in, struct cn_onnx_dim *out)
{
    struct field field;
    int rc;

    *out = (struct cn_onnx_dim){.size = -1};
    while ((rc = next(&in, &field)) > 0) {
        if (field.kind == 0 && field.number == DIM_SIZE && field.value <= INT64_MAX)
            out->size = (int64_t)field.value;
        if (is_bytes(&field, DIM_NAME))
            out->name = field.bytes;
    }
    return rc;
}

static int
read_shape(struct cn_str in, struct cn_onnx_value *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (!is_bytes(&field, SHAPE_DIM))
            continue;
        if (out->rank == CN_ONNX_RANK_MAX || read_dim(field.bytes, &out->dims[out->rank]) < 0)
            return -1;
        out->rank++;
    }
    return rc;
}

/* Reads a message that has the tensor's type (`tensor`), or has such a message in it. */
static int
read_type(struct cn_str in, bool tensor, struct cn_onnx_value *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (!tensor && is_bytes(&field, TYPE_TENSOR) && read_type(field.bytes, true, out) < 0)
            return -1;
        if (tensor && field.kind == 0 && field.number == TENSOR_TYPE_ELEMENT)
            out->type = type_word(field.value);
        if (tensor && is_bytes(&field, TENSOR_TYPE_SHAPE) && read_shape(field.bytes, out) < 0)
            return -1;
    }
    return rc;
}

static int
read_value(struct cn_str in, struct cn_onnx_value *values, uint32_t *n)
{
    struct cn_onnx_value *out = &values[*n];
    struct field field;
    int rc;

    if (*n == CN_ONNX_VALUES_MAX)
        return -1;
    *out = (struct cn_onnx_value){0};
    while ((rc = next(&in, &field)) > 0) {
        if (is_bytes(&field, VALUE_NAME))
            out->name = field.bytes;
        if (is_bytes(&field, VALUE_TYPE) && read_type(field.bytes, false, out) < 0)
            return -1;
    }
    *n += rc == 0;
    return rc;
}

/* Remembers the path of a file of weights, once. Returns -1 if there are too many. */
static int
add_weights(struct cn_onnx_file *out, struct cn_str path)
{
    for (uint32_t i = 0; i < out->n_weights; i++)
        if (cn_str_eq(out->weights[i], path))
            return 0;
    if (path.len == 0)
        return 0;
    if (out->n_weights == CN_ONNX_FILES_MAX)
        return -1;
    out->weights[out->n_weights++] = path;
    return 0;
}

static int
read_entry(struct cn_str in, struct cn_onnx_file *out)
{
    struct cn_str key = {NULL, 0}, value = {NULL, 0};
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (is_bytes(&field, ENTRY_KEY))
            key = field.bytes;
        if (is_bytes(&field, ENTRY_VALUE))
            value = field.bytes;
    }
    if (rc == 0 && cn_str_eq(key, CN_STR("location")))
        rc = add_weights(out, value);
    return rc;
}

/* Removes the input `name` from the list. An input for which the file has an initializer has a
 * value already, so a request need not give it. */
static void
drop_input(struct cn_onnx_file *out, struct cn_str name)
{
    for (uint32_t i = 0; i < out->n_inputs; i++)
        if (cn_str_eq(out->inputs[i].name, name)) {
            out->n_inputs--;
            memmove(&out->inputs[i], &out->inputs[i + 1],
                    (out->n_inputs - i) * sizeof(out->inputs[0]));
            return;
        }
}

/* Reads a tensor that is stored in the file. `names` is true for the initializers of the model's
 * own graph, whose names drop inputs. The names in a body are other names, even if they are spelt
 * like those of the model's inputs. */
static int
read_tensor(struct cn_str in, bool names, struct cn_onnx_file *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (names && is_bytes(&field, TENSOR_NAME))
            drop_input(out, field.bytes);
        if (is_bytes(&field, TENSOR_EXTERNAL) && read_entry(field.bytes, out) < 0)
            return -1;
    }
    return rc;
}

static int
read_sparse(struct cn_str in, bool names, struct cn_onnx_file *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0)
        if ((is_bytes(&field, SPARSE_VALUES) || is_bytes(&field, SPARSE_INDICES)) &&
            read_tensor(field.bytes, names, out) < 0)
            return -1;
    return rc;
}

static int read_body(struct cn_str in, uint32_t nodes, unsigned depth, struct cn_onnx_file *out);

static int
read_attribute(struct cn_str in, unsigned depth, struct cn_onnx_file *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (field.kind != 2)
            continue;
        switch (field.number) {
        case ATTRIBUTE_TENSOR:
        case ATTRIBUTE_TENSORS:
            rc = read_tensor(field.bytes, false, out);
            break;
        case ATTRIBUTE_SPARSE:
        case ATTRIBUTE_SPARSES:
            rc = read_sparse(field.bytes, false, out);
            break;
        case ATTRIBUTE_GRAPH:
        case ATTRIBUTE_GRAPHS:
            rc = read_body(field.bytes, GRAPH_NODE, depth + 1, out);
            break;
        default:
            break;
        }
        if (rc < 0)
            return -1;
    }
    return rc;
}

static int
read_node(struct cn_str in, unsigned depth, struct cn_onnx_file *out)
{
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0)
        if (is_bytes(&field, NODE_ATTRIBUTE) && read_attribute(field.bytes, depth, out) < 0)
            return -1;
    return rc;
}

/* Reads the weights of a graph, of the body of an operator (If, Loop, Scan) or of a function.
 * `nodes` is the number of the field that has its nodes. */
static int
read_body(struct cn_str in, uint32_t nodes, unsigned depth, struct cn_onnx_file *out)
{
    struct field field;
    int rc;

    if (depth > DEPTH_MAX)
        return -1;
    while ((rc = next(&in, &field)) > 0) {
        if (is_bytes(&field, nodes))
            rc = read_node(field.bytes, depth, out);
        else if (nodes == GRAPH_NODE && is_bytes(&field, GRAPH_INITIALIZER))
            rc = read_tensor(field.bytes, depth == 0, out);
        else if (nodes == GRAPH_NODE && is_bytes(&field, GRAPH_SPARSE_INITIALIZER))
            rc = read_sparse(field.bytes, depth == 0, out);
        if (rc < 0)
            return -1;
    }
    return rc;
}

static int
read_graph(struct cn_str graph, struct cn_onnx_file *out)
{
    struct cn_str in = graph;
    struct field field;
    int rc;

    while ((rc = next(&in, &field)) > 0) {
        if (is_bytes(&field, GRAPH_INPUT) &&
            read_value(field.bytes, out->inputs, &out->n_inputs) < 0)
            return -1;
        if (is_bytes(&field, GRAPH_OUTPUT) &&
            read_value(field.bytes, out->outputs, &out->n_outputs) < 0)
            return -1;
    }
    /* Read the message once more, now that all inputs are known. */
    return rc < 0 ? -1 : read_body(graph, GRAPH_NODE, 0, out);
}

int
cn_onnx_file_read(const char *name, struct cn_str bytes, struct cn_arena *arena,
                  struct cn_onnx_file *out, struct cn_error *err)
{
    const size_t size = CN_ONNX_VALUES_MAX * sizeof(struct cn_onnx_value);
    bool graph = false;
    struct field field;
    int rc;

    memset(out, 0, sizeof(*out));
    out->inputs = cn_arena_alloc(arena, size);
    out->outputs = cn_arena_alloc(arena, size);
    out->weights = cn_arena_alloc(arena, CN_ONNX_FILES_MAX * sizeof(*out->weights));
    while ((rc = next(&bytes, &field)) > 0) {
        if (is_bytes(&field, MODEL_FUNCTION)) {
            rc = read_body(field.bytes, FUNCTION_NODE, 1, out);
        } else if (is_bytes(&field, MODEL_GRAPH) && !graph) {
            graph = true;
            rc = read_graph(field.bytes, out);
        }
        if (rc < 0)
            break;
    }
    if (rc == 0 && graph)
        return 0;
    return cn_fail(
        err, CN_E_INVALID_MODEL,
        "%s is not an ONNX file, or has more than %d inputs, %d outputs or %d files of weights, or "
        "a tensor of more than %d dimensions",
        name, CN_ONNX_VALUES_MAX, CN_ONNX_VALUES_MAX, CN_ONNX_FILES_MAX, CN_ONNX_RANK_MAX);
}

int
cn_onnx_file_map(const char *path, struct cn_str *out, struct cn_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    struct stat st;
    void *at;

    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = cn_fail(err, CN_E_NOT_FOUND, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is not an ONNX file: it is empty, or not a file",
                     path);
    } else {
        at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED)
            rc = cn_fail(err, CN_E_IO, "cannot read %s: %s", path, strerror(errno));
        else
            *out = (struct cn_str){at, (size_t)st.st_size};
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

void
cn_onnx_file_unmap(struct cn_str bytes)
{
    munmap((void *)(uintptr_t)bytes.ptr, bytes.len);
}
