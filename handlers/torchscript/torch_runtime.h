/* handlers/torchscript/torch_runtime.h - the runtime "torch": TorchScript models and packages of
 * AOTInductor without a handler (handlers/modules/module_runtime.h). Worker's thread. */
#ifndef CN_HANDLERS_TORCHSCRIPT_TORCH_RUNTIME_H
#define CN_HANDLERS_TORCHSCRIPT_TORCH_RUNTIME_H

#include "handlers/modules/module_kind.h"
#include "handlers/runtime.h"

extern const struct cn_module_kind cn_torch_kind;
extern const struct cn_runtime_ops cn_torch_runtime_ops;

#endif
