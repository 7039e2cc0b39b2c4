/* handlers/torchlib/torch_library.h - finds and opens libcontinuo_torch.so, once per process.
 * Worker's thread. */
#ifndef CN_HANDLERS_TORCHLIB_TORCH_LIBRARY_H
#define CN_HANDLERS_TORCHLIB_TORCH_LIBRARY_H

#include "core/errors/error.h"
#include "handlers/torchlib/torch_abi.h"

/* `path`: the library, or "" for the one beside this program. It stays open: libtorch cannot be
 * unloaded. CN_E_LOAD_FAILED with one sentence on how to get it, also where it has another ABI. */
int cn_torch_library_open(const char *path, const struct ctt_api **out, struct cn_error *err);

/* Where random numbers may begin: the kernel's own, since what is kept of them is alike in forked
 * processes. */
uint64_t cn_torch_new_seed(void);

#endif
