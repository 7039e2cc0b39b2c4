/* archiver/archive/verify.c - checks an unpacked model's folder against its manifest. File thread,
 * or the archiver program.
 *
 * There are three checks. Files that the manifest names (handler, model, YAML) must be there. If
 * the manifest lists digests, each listed file must match its digest. And if `exact` is set, there
 * must be no file that is not listed. Otherwise somebody could add a file to an archive, for
 * example a Lua module that is loaded in place of the model's own, and no digest would show it. A
 * folder in the model store that somebody edits by hand is checked without `exact`. */
#include "archiver/archive/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/digest.h"
#include "archiver/archive/python_handler.h"
#include "core/memory/mem.h"

#define MANIFEST_MAX (16u << 20)

/* Reads the manifest's file. It is opened without following links and without waiting, because a
 * link or a named pipe may lie at its place. */
static int
read_whole(const char *name, const char *path, struct cn_buf *out, struct cn_error *err)
{
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "%s: has no " CN_MANIFEST_PATH "; pack it with "
                       "continuo-archiver",
                       name);
    if (fd < 0)
        return cn_fail_sys(err, CN_E_INVALID_MODEL, errno, "%s: cannot read " CN_MANIFEST_PATH,
                           name);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)MANIFEST_MAX) {
        rc = cn_fail(err, CN_E_INVALID_MODEL,
                     "%s: " CN_MANIFEST_PATH " is not a file of at most 16 MiB", name);
        goto close_file;
    }
    for (;;) {
        char *room = cn_buf_reserve(out, 16384);
        ssize_t got = room ? read(fd, room, 16384) : 0;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 || room == NULL)
            rc = cn_fail(err, CN_E_INVALID_MODEL, "%s: cannot read " CN_MANIFEST_PATH, name);
        if (got <= 0)
            break;
        out->len += (size_t)got;
    }
close_file:
    close(fd);
    return rc;
}

int
cn_verify_read_manifest(const char *name, const char *dir, struct cn_manifest *manifest,
                        struct cn_error *err)
{
    char *path = cn_path_join(dir, CN_MANIFEST_PATH), shown[512];
    struct cn_buf text;
    int rc;

    snprintf(shown, sizeof(shown), "%.400s: " CN_MANIFEST_PATH, name);
    cn_buf_init(&text, MANIFEST_MAX + 65536u);
    rc = read_whole(name, path, &text, err);
    if (rc == 0)
        rc = cn_manifest_parse(shown, cn_buf_str(&text), manifest, err);
    cn_buf_fini(&text);
    cn_free(path);
    return rc;
}

static bool
is_file(const char *dir, const char *relative)
{
    char *path = cn_path_join(dir, relative);
    struct stat st;
    bool yes = stat(path, &st) == 0 && S_ISREG(st.st_mode);

    cn_free(path);
    return yes;
}

/* The handler's file, or NULL if the archive needs none. `path` is room for its name. */
static const char *
handler_file(const struct cn_manifest *manifest, char path[CN_ARCHIVE_PATH_MAX])
{
    const char *runtime = cn_manifest_runtime(manifest);

    if (manifest->handler == NULL)
        return NULL;
    if (strcmp(runtime, "lua") == 0 || strcmp(runtime, "c") == 0)
        return manifest->handler;
    if (strncmp(runtime, "python", 6) != 0 || cn_python_handler_is_built_in(manifest->handler))
        return NULL;
    return cn_python_handler_file(manifest->handler, path, CN_ARCHIVE_PATH_MAX) ? path
                                                                                : manifest->handler;
}

/* Checks that the files that the manifest names are there. */
static int
check_named(const char *name, const char *dir, const struct cn_manifest *manifest,
            struct cn_error *err)
{
    char path[CN_ARCHIVE_PATH_MAX];
    const char *runtime = cn_manifest_runtime(manifest);
    bool model = strcmp(runtime, "torch") == 0 || strcmp(runtime, "onnx") == 0;
    const struct {
        const char *key, *file;
    } named[] = {{"model.handler", handler_file(manifest, path)},
                 {"model.serializedFile", manifest->serialized_file},
                 {"model.modelFile", manifest->model_file},
                 {"model.configFile", manifest->config_file}};

    if (model && manifest->serialized_file == NULL)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "%s: the runtime %s needs model.serializedFile in " CN_MANIFEST_PATH
                       ", which does not have it",
                       name, runtime);
    if (manifest->handler == NULL && !model)
        return cn_fail(err, CN_E_INVALID_MODEL, "%s: " CN_MANIFEST_PATH " names no model.handler",
                       name);
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
        if (named[i].file != NULL && !is_file(dir, named[i].file))
            return cn_fail(err, CN_E_INVALID_MODEL, "%s: %s \"%.200s\" is not in the archive", name,
                           named[i].key, named[i].file);
    }
    return 0;
}

static int
check_digests(const char *name, const char *dir, const struct cn_manifest *manifest,
              struct cn_error *err)
{
    for (uint32_t i = 0; i < manifest->n_files; i++) {
        const struct cn_manifest_file *file = &manifest->files[i];
        char *path = cn_path_join(dir, file->path), hex[65];
        struct stat st;
        int rc = 0;

        if (lstat(path, &st) < 0)
            rc = cn_fail(err, CN_E_INVALID_MODEL,
                         "%s: %.200s is listed in the manifest but missing in the archive", name,
                         file->path);
        else
            rc = cn_digest_file(path, 0, hex, NULL, err);
        cn_free(path);
        if (rc == 0 && strcmp(hex, file->sha256) != 0)
            rc = cn_fail(err, CN_E_INVALID_MODEL,
                         "%s: %.200s differs from its sha256 in the "
                         "manifest; it was changed after packing: pack it again",
                         name, file->path);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int
compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Looks for files that are not listed, in this folder and those below it. `known` is the sorted
 * list of files that may be there. `relative` is this folder's path; "" is the model's folder
 * itself. Unpacking bounds the depth of folders. */
static int
check_no_more(const char *name, const char *dir, const char *relative, const char **known,
              size_t n_known, struct cn_error *err)
{
    char *path = relative[0] ? cn_path_join(dir, relative) : cn_strdup(dir);
    DIR *folder = opendir(path);
    struct dirent *entry;
    int rc = 0;

    cn_free(path);
    if (folder == NULL)
        return cn_fail_sys(err, CN_E_IO, errno, "%s: cannot list folder %s", name, relative);
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        char *inner;
        const char *key;
        struct stat st;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        inner = relative[0] ? cn_path_join(relative, entry->d_name) : cn_strdup(entry->d_name);
        key = inner;
        if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            rc = cn_fail_sys(err, CN_E_IO, errno, "%s: cannot stat %s", name, inner);
        else if (S_ISDIR(st.st_mode))
            rc = check_no_more(name, dir, inner, known, n_known, err);
        else if (strcmp(inner, CN_MANIFEST_PATH) != 0 &&
                 bsearch(&key, known, n_known, sizeof(known[0]), compare_text) == NULL)
            rc = cn_fail(err, CN_E_INVALID_MODEL,
                         "%s: %.200s is not listed in the manifest, which "
                         "lists the other files; pack it again",
                         name, inner);
        cn_free(inner);
    }
    closedir(folder);
    return rc;
}

int
cn_verify_dir(const char *name, const char *dir, const struct cn_manifest *manifest, bool exact,
              struct cn_error *err)
{
    const char **known;
    int rc = check_named(name, dir, manifest, err);

    if (rc != 0 || manifest->n_files == 0)
        return rc;
    rc = check_digests(name, dir, manifest, err);
    if (rc != 0 || !exact)
        return rc;
    known = cn_alloc(manifest->n_files * sizeof(*known));
    for (uint32_t i = 0; i < manifest->n_files; i++)
        known[i] = manifest->files[i].path;
    qsort(known, manifest->n_files, sizeof(*known), compare_text);
    rc = check_no_more(name, dir, "", known, manifest->n_files, err);
    cn_free(known);
    return rc;
}
