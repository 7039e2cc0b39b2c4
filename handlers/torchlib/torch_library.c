/* handlers/torchlib/torch_library.c - finds and opens libcontinuo_torch.so, once per process.
 * Worker's thread. */
#include "handlers/torchlib/torch_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/system/program_path.h"
#include "core/time/clock.h"

#define NAME "libcontinuo_torch.so"
#define HOW_TO_GET                                                                                 \
    "build it with scripts/setup.sh --torch && scripts/build.sh, or name it with --torch-library"

/* Says whether the libtorch that is loaded is older than the one against which the library was
 * built. Calls may go wrong then: a library that was built against 2.13 crashes with 2.12. A newer
 * libtorch that lacks a function is refused when the library is opened. Versions that cannot be
 * read are not compared. */
static bool
is_older(const struct ctt_api *api)
{
    unsigned has[2], needs[2];

    return sscanf(api->version, "%u.%u", &has[0], &has[1]) == 2 &&
           sscanf(api->compiled, "%u.%u", &needs[0], &needs[1]) == 2 &&
           (has[0] < needs[0] || (has[0] == needs[0] && has[1] < needs[1]));
}

static int
fail_older(const struct ctt_api *api, const char *path, struct cn_error *err)
{
    unsigned major = 0, minor = 0;

    (void)sscanf(api->compiled, "%u.%u", &major, &minor);
    return cn_fail(err, CN_E_LOAD_FAILED,
                   "libtorch %s is older than that against which %s was built (%s): install "
                   "PyTorch %u.%u or later, or build the library against yours "
                   "(docs/torch.md#what-the-server-needs)",
                   api->version, path, api->compiled, major, minor);
}

/* `*older` is set if the library opens, but its libtorch is too old for it. */
static int
open_one(const char *path, const struct ctt_api **out, bool *older, struct cn_error *err)
{
    /* RTLD_LOCAL, because nobody else should see libtorch's symbols. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ctt_get_fn get;
    const struct ctt_api *api;

    *older = false;
    if (!library)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "cannot open %s: %s; it needs the libraries of the PyTorch for which it was "
                       "built: put that PyTorch back, or name its folder (.../torch/lib) in the "
                       "variable LD_LIBRARY_PATH",
                       path, dlerror());
    *(void **)&get = dlsym(library, CTT_SYMBOL);
    if (!get)
        return cn_fail(err, CN_E_LOAD_FAILED, "%s exports no symbol " CTT_SYMBOL, path);
    api = get(CTT_ABI);
    if (!api || api->abi != CTT_ABI || api->size < sizeof(*api))
        return cn_fail(
            err, CN_E_LOAD_FAILED,
            "%s belongs to another version of Continuo (this one needs ABI %d): rebuild it", path,
            CTT_ABI);
    if ((*older = is_older(api)))
        return fail_older(api, path, err);
    *out = api;
    return 0;
}

/* The number that a library's name ends with: 2012 for libcontinuo_torch-2.12.so, 0 without one. */
static unsigned
version_in_name(const char *path)
{
    const char *at = strrchr(path, '-');
    unsigned major, minor;
    int end = 0;

    if (!at || sscanf(at, "-%u.%u.so%n", &major, &minor, &end) != 2 || !end || at[end] ||
        minor >= 1000)
        return 0;
    return major * 1000 + minor;
}

static int
newest_first(const void *a, const void *b)
{
    const unsigned x = version_in_name(*(char *const *)a), y = version_in_name(*(char *const *)b);

    return (x < y) - (x > y);
}

/* Tries the libraries beside the one at `path` that were built against other versions of PyTorch,
 * the newest first: .so and .so beside X.so. Only an open library tells which libtorch
 * it has found, wherever that lies. A first library with any other fault hides nothing: it is an
 * error of the installation. If all fail, `err` keeps what was wrong with the first library, or
 * says which of them needs the oldest PyTorch. */
static int
open_beside(const char *path, const struct ctt_api **out, struct cn_error *err)
{
    const size_t len = strlen(path), stem = len > 3 ? len - 3 : 0;
    char pattern[PATH_MAX];
    struct cn_error why;
    glob_t found = {0};
    int rc = CN_E_LOAD_FAILED;
    bool older;

    if (strcmp(path + stem, ".so") != 0 ||
        snprintf(pattern, sizeof(pattern), "%.*s-*.so", (int)stem, path) >= (int)sizeof(pattern))
        return rc;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        qsort(found.gl_pathv, found.gl_pathc, sizeof(*found.gl_pathv), newest_first);
    for (size_t i = 0; rc != 0 && i < found.gl_pathc && version_in_name(found.gl_pathv[i]); i++) {
        rc = open_one(found.gl_pathv[i], out, &older, &why);
        if (rc != 0 && older && err)
            *err = why;
    }
    globfree(&found);
    return rc;
}

int
cn_torch_library_open(const char *path, const struct ctt_api **out, struct cn_error *err)
{
    char found[PATH_MAX];
    bool older;
    int rc;

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
    rc = open_one(path, out, &older, err);
    return older ? open_beside(path, out, err) : rc;
}

uint64_t
cn_torch_new_seed(void)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        seed = cn_now_us() ^ (uint64_t)getpid() << 32;
    return seed;
}
