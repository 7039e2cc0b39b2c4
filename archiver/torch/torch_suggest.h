/* archiver/torch/torch_suggest.h - guesses a model's YAML from a file of PyTorch. Archiver only. */
#ifndef CN_ARCHIVER_TORCH_TORCH_SUGGEST_H
#define CN_ARCHIVER_TORCH_TORCH_SUGGEST_H

#include "archiver/torch/torch_file.h"
#include "core/memory/buf.h"

/* Appends the YAML. Comments in it say what the file does not say. An argument is taken for a state
 * if a result has its name; where results have no names, all arguments but the first are, if there
 * are as many results. */
void cn_torch_suggest(const struct cn_torch_file *file, struct cn_buf *out);

#endif
