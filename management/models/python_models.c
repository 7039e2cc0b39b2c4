/* management/models/python_models.c - which interpreter runs a Python model. Any thread.
 *
 * The interpreter is the user's own, so that the handler has the packages that are installed there.
 * It is not started here: the worker says itself that it is too old, or what cannot be imported.
 */
#include "management/models/python_models.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/system/program_path.h"
#include "core/text/str.h"

#define LIBRARY "python/continuo/_worker.abi3.so"

static bool
ends_with(const char *text, size_t len, const char *ending)
{
    const size_t n = strlen(ending);

    return len >= n && memcmp(text + len - n, ending, n) == 0;
}

bool
cn_is_python_handler(const char *handler, const char *runtime)
{
    const size_t len = strcspn(handler, ":");

    if (ends_with(handler, len, ".py"))
        return true;
    if (ends_with(handler, len, ".lua") || ends_with(handler, len, ".so") || len == 0)
        return false;
    return !runtime || strcmp(runtime, "python") == 0 || strcmp(runtime, "python3") == 0;
}

char *
cn_python_wanted(struct cn_yaml_doc *doc)
{
    const struct cn_yaml *value = doc ? cn_yaml_get(cn_yaml_root(doc), "python") : NULL;

    return value && value->kind == CN_YAML_STRING && value->text.len
               ? cn_strndup(value->text.ptr, value->text.len)
               : NULL;
}

/* Returns the path of a program that can be run; NULL if there is none. A name without a slash is
 * looked up in PATH, another one from `dir`. */
static char *
find_program(const char *name, const char *dir)
{
    const char *path = getenv("PATH");
    char file[PATH_MAX];
    int len;

    if (strchr(name, '/')) {
        len = snprintf(file, sizeof(file), "%s%s%s", name[0] == '/' ? "" : dir,
                       name[0] == '/' ? "" : "/", name);
        return len < (int)sizeof(file) && access(file, X_OK) == 0 ? cn_strdup(file) : NULL;
    }
    for (const char *at = path ? path : "/usr/bin:/bin"; *at; at += *at == ':') {
        const size_t n = strcspn(at, ":");

        len = snprintf(file, sizeof(file), "%.*s/%s", (int)n, at, name);
        at += n;
        if (n > 0 && len < (int)sizeof(file) && access(file, X_OK) == 0)
            return cn_strdup(file);
    }
    return NULL;
}

static int
find_package(char **package, struct cn_error *err)
{
    char path[PATH_MAX];
    int rc = cn_program_path(LIBRARY, path, sizeof(path), err);

    if (rc)
        return rc;
    if (access(path, R_OK) != 0)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "this server was built without Python, so it cannot run Python models: %s "
                       "is missing; install python3-dev and build it again",
                       path);
    *package = cn_strndup(path, strlen(path) - strlen("/continuo/_worker.abi3.so"));
    return 0;
}

int
cn_python_find(const char *wanted, const char *dir, const char *by_option, char **python,
               char **package, struct cn_error *err)
{
    const char *name = wanted ? wanted : by_option ? by_option : "python3";
    char *found = find_program(name, wanted ? dir : ".");
    int rc;

    if (!found)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "there is no Python interpreter %s%s: install Python 3.9 or later, or name "
                       "an interpreter with --python or with the key python of the model's YAML",
                       name,
                       wanted      ? " (the key python of the model's YAML)"
                       : by_option ? " (--python)"
                                   : " in PATH");
    rc = find_package(package, err);
    if (rc)
        cn_free(found);
    else
        *python = found;
    return rc;
}
