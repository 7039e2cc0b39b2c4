/* archiver/torch/torch_parse.h - the texts inside a file of PyTorch. Archiver only. */
#ifndef CN_ARCHIVER_TORCH_TORCH_PARSE_H
#define CN_ARCHIVER_TORCH_TORCH_PARSE_H

#include "archiver/torch/torch_file.h"

/* Returns the next value of the list, or NULL if it is full. */
struct cn_torch_value *cn_torch_value_add(struct cn_torch_value *values, uint32_t *n);

/* Each of these reads one text and fills the arguments and results. The strings of `out` point into
 * the text or into the arena. Returns NULL, or what is wrong, for an error message. */

/* The code of a TorchScript module, and the name of the class whose `forward` is wanted. */
const char *cn_torch_script_parse(struct cn_str code, struct cn_str class_name,
                                  struct cn_arena *arena, struct cn_torch_file *out);
/* models/NAME.json of an exported program. */
const char *cn_torch_exported_parse(struct cn_str json, struct cn_arena *arena,
                                    struct cn_torch_file *out);
/* The C++ source that AOTInductor puts beside its machine code. */
const char *cn_torch_package_parse(struct cn_str source, struct cn_torch_file *out);

#endif
