/* handlers/torchlib/torch_library.c - finds and opens libcontinuo_torch.so, once per process.
 * Worker's thread. */
#include "handlers/torchlib/torch_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/system/program_path.h"
#include "core/time/clock.h"

#define NAME "libcontinuo_torch.so"
#define HOW_TO_GET                                                                                 \
    "build it with scripts/setup.sh --torch && scripts/build.sh, or name it with --torch-library"

/* With an older libtorch, calls may go wrong: a library that was built against 2.13 crashes with
 * 2.12. A newer one that lacks a function is refused when the library is opened. Versions that
 * cannot be read are not compared. */
static int
compare_versions(const struct ctt_api *api, const char *path, struct cn_error *err)
{
    unsigned has[2], needs[2];

    if (sscanf(api->version, "%u.%u", &has[0], &has[1]) != 2 ||
        sscanf(api->compiled, "%u.%u", &needs[0], &needs[1]) != 2 || has[0] > needs[0] ||
        (has[0] == needs[0] && has[1] >= needs[1]))
        return 0;
    return cn_fail(err, CN_E_LOAD_FAILED,
                   "libtorch %s is older than that against which %s was built (%s): install "
                   "PyTorch %u.%u or later, or build the library against yours "
                   "(docs/torch.md#what-the-server-needs)",
                   api->version, path, api->compiled, needs[0], needs[1]);
}

static int
look_at(void *library, const char *path, const struct ctt_api **out, struct cn_error *err)
{
    ctt_get_fn get;
    const struct ctt_api *api;

    *(void **)&get = dlsym(library, CTT_SYMBOL);
    if (!get)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s exports no symbol " CTT_SYMBOL, path);
    api = get(CTT_ABI);
    if (!api || api->abi != CTT_ABI || api->size < sizeof(*api))
        return cn_fail(
            err, CN_E_LOAD_FAILED,
            "%s belongs to another version of Continuo (this one needs ABI %d): rebuild it", path,
            CTT_ABI);
    *out = api;
    return compare_versions(api, path, err);
}

int
cn_torch_library_open(const char *path, const struct ctt_api **out, struct cn_error *err)
{
    char found[PATH_MAX];
    void *library;

    if (!*path) {
        if (cn_program_path(NAME, found, sizeof(found), err) != 0 || access(found, F_OK) != 0)
            return cn_fail(err, CN_E_LOAD_FAILED,
                           "TorchScript models need " NAME
                           ", which is not in the folder of continuo-worker: " HOW_TO_GET);
        path = found;
    } else if (access(path, F_OK) != 0) {
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "TorchScript models need " NAME ", but %s does not exist: " HOW_TO_GET,
                       path);
    }
    /* RTLD_LOCAL, because nobody else should see libtorch's symbols. */
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "cannot open %s: %s; it needs the libraries of the PyTorch for which it was "
                       "built: put that PyTorch back, or name its folder (.../torch/lib) in the "
                       "variable LD_LIBRARY_PATH",
                       path, dlerror());
    return look_at(library, path, out, err);
}

uint64_t
cn_torch_new_seed(void)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = cn_now_us() ^ (uint64_t)getpid() << 32;
    return seed;
}
