/* handlers/onnx/onnx_runtime.h - the runtime "onnx": ONNX files without a handler, run by the
 * library in the pip package onnxruntime (handlers/modules/module_runtime.h). Worker's thread. */
#ifndef CN_HANDLERS_ONNX_ONNX_RUNTIME_H
#define CN_HANDLERS_ONNX_ONNX_RUNTIME_H

#include "handlers/modules/module_kind.h"
#include "handlers/runtime.h"

extern const struct cn_module_kind cn_onnx_kind;
extern const struct cn_runtime_ops cn_onnx_runtime_ops;

#endif
