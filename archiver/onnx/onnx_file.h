/* archiver/onnx/onnx_file.h - reads what an ONNX file declares: its inputs and outputs, and the
 * files that have its weights. Archiver only.
 *
 * The file is a protobuf message whose weights may take gigabytes. So it is mapped into memory, and
 * only names and shapes are kept. The numbers of fields are those of onnx.proto.
 */
#ifndef CN_ARCHIVER_ONNX_ONNX_FILE_H
#define CN_ARCHIVER_ONNX_ONNX_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

#define CN_ONNX_VALUES_MAX 512 /* the limit for inputs, and for outputs */
#define CN_ONNX_FILES_MAX 8192 /* the limit for files of weights */
#define CN_ONNX_RANK_MAX 8

/* A dimension has a size, or a name that stands for any size, or neither. */
struct cn_onnx_dim {
    int64_t size;       /* -1 means any size */
    struct cn_str name; /* empty if it has no name */
};

struct cn_onnx_value {
    struct cn_str name;
    const char *type; /* such as "FP32"; NULL if it is not a tensor of a type that we know */
    uint32_t rank;
    struct cn_onnx_dim dims[CN_ONNX_RANK_MAX];
};

/* The strings are borrowed from the file's bytes. */
struct cn_onnx_file {
    struct cn_onnx_value *inputs, *outputs; /* without the inputs for which the file has a value */
    uint32_t n_inputs, n_outputs;
    struct cn_str *weights; /* paths relative to the file's folder, from all graphs and functions */
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
