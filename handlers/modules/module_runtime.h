/* handlers/modules/module_runtime.h - the runtime "torch": TorchScript models whose state the
 * worker keeps.
 *
 * No handler: the model's YAML says which tensors go in and come out
 * (handlers/modules/module_config.h). The rows of a batch are gathered into tensors of a fixed
 * number of rows, run, and scattered. Worker's thread.
 */
#ifndef CN_HANDLERS_MODULES_MODULE_RUNTIME_H
#define CN_HANDLERS_MODULES_MODULE_RUNTIME_H

#include "handlers/runtime.h"

extern const struct cn_runtime_ops cn_torch_runtime_ops;

#endif
