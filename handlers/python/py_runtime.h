/* handlers/python/py_runtime.h - the runtime "python", which is part of the library
 * continuo/_worker.abi3.so and of no program. */
#ifndef CN_HANDLERS_PYTHON_PY_RUNTIME_H
#define CN_HANDLERS_PYTHON_PY_RUNTIME_H

#include "handlers/runtime.h"

extern const struct cn_runtime_ops cn_python_runtime_ops;

#endif
