/* handlers/onnx/onnx_library.c - finds and opens libonnxruntime.so, once per process. Worker's
 * thread.
 *
 * The server is not linked with onnxruntime and does not contain it. Only one function of the
 * library is looked up by name, OrtGetApiBase(), which gives a table of function pointers by a
 * version number. New versions only append to that table, so the positions in ort_functions.def
 * hold for all later versions of the same major number. */
#include "handlers/onnx/onnx_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HOW_TO_GET                                                                                 \
    "install it with pip install onnxruntime, or name the library with onnx.library in the "       \
    "model's YAML or with --onnxruntime"

/* Prints the folder of the package without importing the package, which would take a second. */
#define ASK_PYTHON                                                                                 \
    "python3 -c 'import importlib.util as u; s = u.find_spec(\"onnxruntime\"); "                   \
    "print(s.submodule_search_locations[0] if s else \"\")' 2>/dev/null"

static struct ort opened;
static char opened_file[PATH_MAX];

/* Writes the package's folder to `out`, or "" if there is no python3 or no package. */
static void
ask_python(char *out, size_t n)
{
    FILE *answer = popen(ASK_PYTHON, "re");

    out[0] = '\0';
    if (!answer)
        return;
    if (!fgets(out, (int)n, answer))
        out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    pclose(answer);
}

/* Finds the library in a folder: in the folder itself, or under capi/, where the package has it. */
static bool
find_in(const char *folder, char *out, size_t n)
{
    static const char *const places[] = {"libonnxruntime.so*", "capi/libonnxruntime.so*"};
    char pattern[PATH_MAX + 64];
    bool found = false;

    for (size_t i = 0; !found && i < sizeof(places) / sizeof(places[0]); i++) {
        glob_t names = {0};

        found = (size_t)snprintf(pattern, sizeof(pattern), "%s/%s", folder, places[i]) <
                    sizeof(pattern) &&
                glob(pattern, 0, NULL, &names) == 0 && names.gl_pathc > 0 &&
                (size_t)snprintf(out, n, "%s", names.gl_pathv[0]) < n;
        globfree(&names);
    }
    return found;
}

static int
find_library(const char *path, char *out, size_t n, struct cn_error *err)
{
    char folder[PATH_MAX];
    struct stat st;

    if (*path) {
        if (stat(path, &st) != 0)
            return cn_fail(err, CN_E_LOAD_FAILED,
                           "ONNX models need onnxruntime, but %s does not exist: " HOW_TO_GET,
                           path);
        if (!S_ISDIR(st.st_mode)) {
            snprintf(out, n, "%s", path);
            return 0;
        }
        snprintf(folder, sizeof(folder), "%s", path);
    } else {
        ask_python(folder, sizeof(folder));
        if (!*folder)
            return cn_fail(err, CN_E_LOAD_FAILED,
                           "ONNX models need onnxruntime, which python3 of PATH does not "
                           "have: " HOW_TO_GET);
    }
    if (find_in(folder, out, n))
        return 0;
    return cn_fail(
        err, CN_E_LOAD_FAILED,
        "%s has no libonnxruntime.so; the package onnxruntime has it from 1.20 on: " HOW_TO_GET,
        folder);
}

static int
take_table(const char *path, const struct ort_base *base, struct cn_error *err)
{
    const char *version = base->version();
    const void *const *table = NULL;
    int major = 0, minor = 0;

    if (sscanf(version, "%d.%d", &major, &minor) != 2 || major != ORT_MAJOR ||
        minor < ORT_MINOR_MIN || !(table = base->table(ORT_TABLE_VERSION)))
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s is onnxruntime %s, but this server knows how to call %d.%d and newer of "
                       "major version %d: " HOW_TO_GET,
                       path, version, ORT_MAJOR, ORT_MINOR_MIN, ORT_MAJOR);
    opened.version = version;
#define ORT_FUNCTION(name, position, result, arguments)                                            \
    memcpy(&opened.name, &table[position], sizeof(opened.name));
#include "handlers/onnx/ort_functions.def"
#undef ORT_FUNCTION
    return 0;
}

const char *
cn_onnx_library_file(void)
{
    return opened_file;
}

int
cn_onnx_library_open(const char *path, const struct ort **out, struct cn_error *err)
{
    const struct ort_base *(*get)(void);
    char file[PATH_MAX];
    void *library;
    int rc;

    *out = &opened;
    if (opened.version)
        return 0;
    if ((rc = find_library(path, file, sizeof(file), err)) != 0)
        return rc;
    /* Newer packages send usage data to their maker, from a thread of their own. A process with
     * that thread could not be forked. If you want the data to be sent, set the variable to 0. */
    setenv("ORT_DISABLE_TELEMETRY", "1", 0);
    /* RTLD_LOCAL, because nobody else should see the library's symbols. */
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return cn_fail(err, CN_E_LOAD_FAILED, "cannot open %s: %s", file, dlerror());
    *(void **)&get = dlsym(library, "OrtGetApiBase");
    if (!get)
        return cn_fail(err, CN_E_LOAD_FAILED,
                       "%s is not onnxruntime: it exports no symbol OrtGetApiBase", file);
    if ((rc = take_table(file, get(), err)) == 0)
        snprintf(opened_file, sizeof(opened_file), "%s", file);
    return rc;
}
