/* archiver/onnx/onnx_suggest.h - guesses a model's YAML from the graph of an ONNX file. Archiver
 * only. */
#ifndef CN_ARCHIVER_ONNX_ONNX_SUGGEST_H
#define CN_ARCHIVER_ONNX_ONNX_SUGGEST_H

#include "archiver/onnx/onnx_file.h"
#include "core/memory/buf.h"

/* Appends the YAML. Comments in it say what could not be guessed. An input and an output are taken
 * for a state if their names belong together, such as h_in and h_out, and they have the same type
 * and rank. */
void cn_onnx_suggest(const struct cn_onnx_file *file, struct cn_buf *out);

#endif
