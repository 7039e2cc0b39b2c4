/* handlers/onnx/onnx_library.h - finds and opens libonnxruntime.so, once per process. Worker's
 * thread. */
#ifndef CN_HANDLERS_ONNX_ONNX_LIBRARY_H
#define CN_HANDLERS_ONNX_ONNX_LIBRARY_H

#include "core/errors/error.h"
#include "handlers/onnx/ort_abi.h"

/* `path`: the library or a folder that has it; "": that of the package onnxruntime of `python3` in
 * PATH. It stays open. CN_E_LOAD_FAILED with one sentence on how to get it, also where its version
 * is one that we do not know how to call. */
int cn_onnx_library_open(const char *path, const struct ort **out, struct cn_error *err);

#endif
