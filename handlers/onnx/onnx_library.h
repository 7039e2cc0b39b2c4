/* handlers/onnx/onnx_library.h - finds and opens libonnxruntime.so, once per process. Worker's
 * thread. */
#ifndef CN_HANDLERS_ONNX_ONNX_LIBRARY_H
#define CN_HANDLERS_ONNX_ONNX_LIBRARY_H

#include "core/errors/error.h"
#include "handlers/onnx/ort_abi.h"

/* Opens the library. `path` names its file or a folder that has it; with "" the library of the
 * package onnxruntime of the `python3` in PATH is used. The library stays open. Returns
 * CN_E_LOAD_FAILED, with a sentence that says how to get the library, if there is none or if it has
 * a version that we do not know how to call. */
int cn_onnx_library_open(const char *path, const struct ort **out, struct cn_error *err);
/* The file that was opened; "": none was. */
const char *cn_onnx_library_file(void);

#endif
