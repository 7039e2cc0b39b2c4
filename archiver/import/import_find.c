/* archiver/import/import_find.c - finds out what is imported of a model's folder: which versions,
 * and for each of them the file that is the model. Archiver only. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/import/import_priv.h"
#include "core/memory/mem.h"

const char *
cn_import_text(const struct cn_pbtxt *config, const char *name)
{
    const struct cn_pbtxt *field = cn_pbtxt_get(config, name);

    return field && field->kind == CN_PBTXT_STRING && field->text.len ? field->text.ptr : NULL;
}

/* --- versions --- */

static int
compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

bool
cn_import_version_number(const char *name, uint64_t *out)
{
    char again[24];

    *out = strtoull(name, NULL, 10);
    snprintf(again, sizeof(again), "%" PRIu64, *out);
    return *out > 0 && strcmp(again, name) == 0;
}

int
cn_import_list_versions(struct import *import)
{
    DIR *folder = opendir(import->spec->dir);
    struct dirent *entry;
    uint64_t number;

    if (!folder)
        return cn_fail_sys(import->err, CN_E_IO, errno, "cannot list folder %s", import->spec->dir);
    while ((entry = readdir(folder)) != NULL && import->n_versions < CN_IMPORT_VERSIONS_MAX)
        if (cn_import_version_number(entry->d_name, &number))
            import->versions[import->n_versions++] = number;
    closedir(folder);
    qsort(import->versions, import->n_versions, sizeof(*import->versions), compare_numbers);
    if (import->n_versions == 0)
        return cn_fail(import->err, CN_E_NOT_FOUND, "%s has no version folder (1, 2, ...)",
                       import->spec->dir);
    return 0;
}

static bool
is_listed(const struct cn_pbtxt *specific, uint64_t version)
{
    for (const struct cn_pbtxt *one = specific->first; one; one = one->next)
        if (cn_str_eq(one->name, CN_STR("versions")) && one->kind == CN_PBTXT_NUMBER &&
            strtoull(one->text.ptr, NULL, 10) == version)
            return true;
    return false;
}

void
cn_import_choose_versions(struct import *import)
{
    const struct cn_pbtxt *policy = cn_pbtxt_get(import->config, "version_policy"), *specific;
    const struct cn_pbtxt *latest, *number;
    uint64_t wanted = 1;
    uint32_t kept = 0;

    if (policy && cn_pbtxt_get(policy, "all"))
        return;
    specific = policy ? cn_pbtxt_get(policy, "specific") : NULL;
    latest = policy ? cn_pbtxt_get(policy, "latest") : NULL;
    number = latest ? cn_pbtxt_get(latest, "num_versions") : NULL;
    if (number && number->kind == CN_PBTXT_NUMBER)
        wanted = strtoull(number->text.ptr, NULL, 10);
    for (uint32_t i = 0; i < import->n_versions; i++)
        if (specific ? is_listed(specific, import->versions[i])
                     : import->n_versions - i <= (wanted ? wanted : 1))
            import->versions[kept++] = import->versions[i];
    import->n_versions = kept;
}

/* --- the model of a version --- */

/* Returns the path of the file in the version's folder, which the caller frees, or NULL if there is
 * no such file. */
static char *
file_in(const char *folder, const char *name)
{
    char *path = cn_path_join(folder, name);

    if (access(path, R_OK) == 0)
        return path;
    cn_free(path);
    return NULL;
}

static const char *
backend_of(const struct import *import)
{
    const char *backend = cn_import_text(import->config, "backend");
    const char *platform = cn_import_text(import->config, "platform");

    if (!backend && platform && strcmp(platform, "onnxruntime_onnx") == 0)
        return "onnxruntime";
    return backend ? backend : platform ? platform : "";
}

/* Finds the file that the configuration names, or `otherwise`, in the version's folder. A file of
 * ONNX may lie in a folder of the same name, beside its weights. */
static int
find_named(const struct import *import, const char *folder, const char *otherwise,
           struct import_model *out)
{
    const char *named = cn_import_text(import->config, "default_model_filename");
    const char *name = named ? named : otherwise;
    struct stat st;
    char *inner;

    out->path = file_in(folder, name);
    if (!out->path)
        return cn_fail(import->err, CN_E_NOT_FOUND,
                       "%s/%s does not exist; name the file in default_model_filename, or give a "
                       "handler with --handler",
                       folder, name);
    if (out->kind == CN_IMPORT_ONNX && stat(out->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        inner = file_in(out->path, name);
        if (!inner)
            return cn_fail(import->err, CN_E_NOT_FOUND, "%s is a folder and has no file %s",
                           out->path, name);
        cn_free(out->path);
        out->path = inner;
    }
    return 0;
}

/* Finds the model. The first of these counts: the handler of --handler; the file that the
 * configuration names, if the backend is one of our runtimes; a handler of ours in the version's
 * folder, whatever the backend is; the backend's own file, if models of that backend run here. */
static int
find_model(const struct import *import, const char *folder, struct import_model *out)
{
    static const char *const ours[] = {"handler.lua", "handler.py", "handler.so"};
    const char *backend = backend_of(import);

    *out = (struct import_model){.kind = CN_IMPORT_HANDLER};
    if (import->spec->handler) {
        out->path = cn_strdup(import->spec->handler);
        return 0;
    }
    if (strcmp(backend, "lua") == 0 || strcmp(backend, "c") == 0)
        return find_named(import, folder, backend[0] == 'c' ? ours[2] : ours[0], out);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if ((out->path = file_in(folder, ours[i])) != NULL)
            return 0;
    if (strcmp(backend, "python") == 0) {
        out->kind = CN_IMPORT_PYTHON;
        return find_named(import, folder, "model.py", out);
    }
    if (strcmp(backend, "onnxruntime") == 0) {
        out->kind = CN_IMPORT_ONNX;
        return find_named(import, folder, "model.onnx", out);
    }
    return cn_fail(import->err, CN_E_INVALID_MODEL,
                   "%s: the backend %s is not supported; models of the backends python and "
                   "onnxruntime run as they are, and for others write a handler in Python, Lua or "
                   "C (docs/handlers.md) and put it into %s as handler.py, handler.lua or "
                   "handler.so, or give it with --handler",
                   import->pbtxt, *backend ? backend : "\"\"", folder);
}

int
cn_import_find_model(const struct import *import, uint64_t number, char version[24],
                     struct import_model *found)
{
    char *folder;
    int rc;

    snprintf(version, 24, "%" PRIu64, number);
    folder = cn_path_join(import->spec->dir, version);
    rc = find_model(import, folder, found);
    cn_free(folder);
    return rc;
}
