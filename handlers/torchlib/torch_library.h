/* handlers/torchlib/torch_library.h - finds and opens libcontinuo_torch.so, once per process.
 * Worker's thread. */
#ifndef CN_HANDLERS_TORCHLIB_TORCH_LIBRARY_H
#define CN_HANDLERS_TORCHLIB_TORCH_LIBRARY_H

#include "core/errors/error.h"
#include "handlers/torchlib/torch_abi.h"

/* Opens the library at `path`, or with "" the one beside this program. If that needs a newer
 * libtorch than the one that it finds, a library beside it is taken that was built against an older
 * one and says so in its name: libcontinuo_torch-2.12.so. What was opened stays open, because
 * libtorch cannot be unloaded. Returns CN_E_LOAD_FAILED, with a sentence that says how to get it,
 * if there is no library or if it has another ABI. */
int cn_torch_library_open(const char *path, const struct ctt_api **out, struct cn_error *err);

/* Returns a new seed from the kernel. A process's own random numbers would not do, because they are
 * the same in all forked processes. */
uint64_t cn_torch_new_seed(void);

#endif
