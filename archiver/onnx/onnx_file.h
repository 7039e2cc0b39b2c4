/* archiver/onnx/onnx_file.h - what an ONNX file declares: its inputs and outputs, and the files
 * that have its weights. Archiver only.
 *
 * The file is a protobuf message whose weights may take gigabytes, so it is read where it is
 * mapped, and only names and shapes are kept. The numbers of fields are those of onnx.proto.
 */
#ifndef CN_ARCHIVER_ONNX_ONNX_FILE_H
#define CN_ARCHIVER_ONNX_ONNX_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

#define CN_ONNX_VALUES_MAX 512 /* inputs; and as many outputs */
#define CN_ONNX_FILES_MAX 8192 /* files of weights */
#define CN_ONNX_RANK_MAX 8

/* A dimension: a size, a name that stands for any size, or neither. */
struct cn_onnx_dim {
    int64_t size;       /* -1: any */
    struct cn_str name; /* empty: none */
};

struct cn_onnx_value {
    struct cn_str name;
    const char *type; /* "FP32"; NULL: not a tensor, or its type is unknown to the server */
    uint32_t rank;
    struct cn_onnx_dim dims[CN_ONNX_RANK_MAX];
};

/* Strings are borrowed from the bytes. */
struct cn_onnx_file {
    struct cn_onnx_value *inputs, *outputs; /* without inputs that the file gives a value */
    uint32_t n_inputs, n_outputs;
    struct cn_str *weights; /* paths, relative to the file; of all bodies and functions, too */
    uint32_t n_weights;
};

/* Reads the file's declarations. `name` is used in error messages. Returns CN_E_INVALID_MODEL if
 * the bytes are not an ONNX file. */
int cn_onnx_file_read(const char *name, struct cn_str bytes, struct cn_arena *arena,
                      struct cn_onnx_file *out, struct cn_error *err);

/* Maps the file into memory. It is not read, because its weights, which are not needed here, may
 * take gigabytes. Returns CN_E_NOT_FOUND, or CN_E_INVALID_MODEL if it is empty or not a file. */
int cn_onnx_file_map(const char *path, struct cn_str *out, struct cn_error *err);
void cn_onnx_file_unmap(struct cn_str bytes);

#endif
