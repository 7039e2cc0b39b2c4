/* archiver/torch/torch_file.h - reads what a file of PyTorch declares: the arguments and results of
 * its method. Archiver only.
 *
 * Three kinds of files are read, all of them zip files: TorchScript (.pt), a package of AOTInductor
 * (.pt2), and an exported program (.pt2), which is what such a package is compiled from. Nothing in
 * them is run, and no libtorch is needed. The weights are not read.
 */
#ifndef CN_ARCHIVER_TORCH_TORCH_FILE_H
#define CN_ARCHIVER_TORCH_TORCH_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

#define CN_TORCH_VALUES_MAX 256
#define CN_TORCH_RANK_MAX 8

enum cn_torch_kind { CN_TORCH_SCRIPT, CN_TORCH_PACKAGE, CN_TORCH_EXPORTED };

enum cn_torch_value_kind {
    CN_TORCH_TENSOR,
    CN_TORCH_NUMBER, /* int, float or bool */
    CN_TORCH_OTHER   /* a list, a dictionary, a text: `text` is its type */
};

struct cn_torch_dim {
    int64_t size;       /* -1 means any size */
    struct cn_str name; /* of the symbol that stands for any size; may be empty */
};

/* An argument or a result. A tuple is several values in a row. */
struct cn_torch_value {
    enum cn_torch_value_kind kind;
    struct cn_str name; /* of an argument; of a result the variable that it is, or empty */
    struct cn_str text; /* the type as TorchScript writes it, or a number's default value */
    const char *type;   /* such as "FP32"; NULL if the file does not say it */
    bool shaped;        /* whether the file says the dimensions */
    uint32_t rank;
    struct cn_torch_dim dims[CN_TORCH_RANK_MAX];
};

struct cn_torch_file {
    enum cn_torch_kind kind;
    struct cn_torch_value *arguments, *results;
    uint32_t n_arguments, n_results;
};

/* Reads the bytes of a file. `name` is used in error messages. Returns CN_E_INVALID_MODEL if the
 * bytes are not one of the three kinds, or if the module has no method `forward`. All texts are in
 * the arena. */
int cn_torch_file_read(const char *name, struct cn_str bytes, struct cn_arena *arena,
                       struct cn_torch_file *out, struct cn_error *err);

#endif
