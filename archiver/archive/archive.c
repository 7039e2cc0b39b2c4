/* archiver/archive/archive.c - unpacks a model archive into a folder, completely or not at all.
 *
 * Nothing in an archive can be trusted until its manifest is checked. So it is unpacked into a new
 * folder beside the destination, verified there, and only then renamed. Runs on the file thread, or
 * in the archiver program.
 */
#include "archiver/archive/archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/unpack.h"
#include "archiver/archive/verify.h"
#include "archiver/sign/sign.h"
#include "core/memory/mem.h"
#include "core/system/random.h"

#define PACKING_BYTES_MAX (UINT64_C(256) << 20) /* by how much an archive may exceed its files */

const struct cn_archive_limits cn_archive_default_limits = {
    .max_bytes = 8ull << 30, .max_file_bytes = 4ull << 30, .max_files = 10000};

/* Returns the only entry of the folder, to be freed with cn_free(). Returns NULL if the folder has
 * no entry or several. */
static char *
only_entry(const char *dir)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    char *only = NULL;
    unsigned n = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (++n == 1)
            only = cn_strdup(entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    if (n != 1) {
        cn_free(only);
        only = NULL;
    }
    return only;
}

static bool
exists(const char *dir, const char *relative)
{
    char *path = cn_path_join(dir, relative);
    bool yes = access(path, F_OK) == 0;

    cn_free(path);
    return yes;
}

/* Finds the model's folder among what was unpacked: tar.gz archives have one folder around
 * everything. */
static char *
find_model_root(const char *unpacked)
{
    char *only, *inner;

    if (exists(unpacked, CN_MANIFEST_PATH) || (only = only_entry(unpacked)) == NULL)
        return cn_strdup(unpacked);
    inner = cn_path_join(unpacked, only);
    cn_free(only);
    if (exists(inner, CN_MANIFEST_PATH))
        return inner;
    cn_free(inner);
    return cn_strdup(unpacked);
}

/* `dest` may exist, but must be empty. rename(2) checks that without a race. */
static int
move_into_place(const char *name, const char *from, const char *dest, struct cn_error *err)
{
    if (rename(from, dest) == 0)
        return 0;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return cn_fail(err, CN_E_CONFLICT, "%s: %s exists and is not an empty folder", name, dest);
    return cn_fail_sys(err, CN_E_IO, errno, "%s: cannot rename to %s", name, dest);
}

static int
unpack_to(const char *name, int fd, const char *dest, const char *temp,
          const struct cn_archive_limits *limits, struct cn_manifest *manifest,
          struct cn_error *err)
{
    int rc = cn_unpack(name, fd, temp, limits ? limits : &cn_archive_default_limits, err);
    char *root;

    if (rc != 0)
        return rc;
    root = find_model_root(temp);
    rc = cn_verify_read_manifest(name, root, manifest, err);
    if (rc == 0) {
        rc = cn_verify_dir(name, root, manifest, true, err);
        if (rc == 0)
            rc = move_into_place(name, root, dest, err);
        if (rc != 0)
            cn_manifest_fini(manifest);
    }
    cn_free(root);
    return rc;
}

static int
unpack_archive(const char *name, int fd, const char *dest, const struct cn_archive_limits *limits,
               struct cn_manifest *manifest, struct cn_error *err)
{
    size_t len = strlen(dest);
    char *temp = cn_alloc(len + 40);
    int rc;

    while (len > 1 && dest[len - 1] == '/')
        len--;
    snprintf(temp, len + 40, "%.*s.tmp-%016" PRIx64, (int)len, dest, cn_random_u64());
    if (mkdir(temp, 0755) < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "%s: cannot make folder %s", name, temp);
    } else {
        rc = unpack_to(name, fd, dest, temp, limits, manifest, err);
        /* Needed also after success: the folder that was around everything is left over. */
        cn_archive_remove_dir(temp);
    }
    cn_free(temp);
    return rc;
}

/* Returns the folder that `dest` is in, to be freed with cn_free(). */
static char *
parent_of(const char *dest)
{
    size_t len = strlen(dest);

    while (len > 1 && dest[len - 1] == '/')
        len--;
    while (len > 0 && dest[len - 1] != '/')
        len--;
    return len ? cn_strndup(dest, len) : cn_strdup(".");
}

/* Verifies the archive's signature, if it must have one. All archives come this way: those of the
 * start, of the APIs, of URLs, of snapshots and of other nodes. What is unpacked are the very bytes
 * that were verified, because the copy belongs to this process alone. */
static int
unpack_trusted(const char *path, int fd, const char *dest, const struct cn_archive_limits *limits,
               struct cn_manifest *manifest, struct cn_error *err)
{
    const char *name = cn_basename(path);
    char *parent;
    int rc, copy;

    if (limits == NULL || limits->trusted_keys == NULL)
        return unpack_archive(name, fd, dest, limits, manifest, err);
    parent = parent_of(dest);
    rc = cn_sign_verified_copy(limits->trusted_keys, path, fd, parent,
                               limits->max_bytes + PACKING_BYTES_MAX, &copy, err);
    cn_free(parent);
    if (rc != 0)
        return rc;
    rc = unpack_archive(name, copy, dest, limits, manifest, err);
    close(copy);
    return rc;
}

/* Makes up a manifest for a folder without one, in which somebody develops a model. The folder has
 * handler.lua, handler.py, handler.so, model.pt or model.onnx, and may have model-config.yaml and
 * requirements.txt. The model gets the folder's name. */
static int
assume_manifest(const char *name, const char *dir, struct cn_manifest *manifest,
                struct cn_error *err)
{
    const char *handler = exists(dir, "handler.lua")  ? "handler.lua"
                          : exists(dir, "handler.py") ? "handler.py"
                          : exists(dir, "handler.so") ? "handler.so"
                                                      : NULL;
    const char *model = handler                     ? NULL
                        : exists(dir, "model.pt")   ? "model.pt"
                        : exists(dir, "model.onnx") ? "model.onnx"
                                                    : NULL;

    if (handler == NULL && model == NULL)
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "%s: the folder has no " CN_MANIFEST_PATH
                       ", and no handler.lua, handler.py, handler.so, model.pt or model.onnx",
                       name);
    memset(manifest, 0, sizeof(*manifest));
    manifest->handler = handler ? cn_strdup(handler) : NULL;
    manifest->serialized_file = model ? cn_strdup(model) : NULL;
    manifest->runtime = cn_strdup(cn_manifest_runtime(manifest));
    manifest->model_name = cn_strdup(cn_basename(dir));
    manifest->model_version = cn_strdup("1.0");
    if (exists(dir, "model-config.yaml"))
        manifest->config_file = cn_strdup("model-config.yaml");
    if (exists(dir, "requirements.txt"))
        manifest->requirements_file = cn_strdup("requirements.txt");
    return 0;
}

static int
read_folder(const char *name, const char *dir, struct cn_manifest *manifest, struct cn_error *err)
{
    int rc = exists(dir, CN_MANIFEST_PATH) ? cn_verify_read_manifest(name, dir, manifest, err)
                                           : assume_manifest(name, dir, manifest, err);

    if (rc != 0)
        return rc;
    rc = cn_verify_dir(name, dir, manifest, false, err);
    if (rc != 0)
        cn_manifest_fini(manifest);
    return rc;
}

static int
absolute(const char *path, char **out, struct cn_error *err)
{
    char *real = realpath(path, NULL);

    if (real == NULL)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot resolve %s", path);
    *out = cn_strdup(real);
    free(real);
    return 0;
}

int
cn_archive_unpack(const char *path, const char *dest, const struct cn_archive_limits *limits,
                  struct cn_manifest *manifest, char **dir, struct cn_error *err)
{
    const char *name = cn_basename(path);
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (name[0] == '\0') /* "folder/" */
        name = path;
    if (fd < 0)
        return cn_fail_sys(err, errno == ENOENT ? CN_E_NOT_FOUND : CN_E_IO, errno,
                           "cannot read model archive %s", path);
    if (fstat(fd, &st) < 0) {
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot stat %s", path);
    } else if (S_ISDIR(st.st_mode) && limits && limits->trusted_keys) {
        rc = cn_fail(err, CN_E_UNTRUSTED,
                     "%s is a folder, and a server with trusted-keys serves only signed archives: "
                     "pack the folder with continuo-archiver and sign the archive",
                     path);
    } else if (S_ISDIR(st.st_mode)) {
        rc = absolute(path, dir, err);
        if (rc == 0 && (rc = read_folder(name, *dir, manifest, err)) != 0) {
            cn_free(*dir);
            *dir = NULL;
        }
    } else if (!S_ISREG(st.st_mode)) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is neither a file nor a folder", path);
    } else {
        rc = unpack_trusted(path, fd, dest, limits, manifest, err);
        if (rc == 0 && (rc = absolute(dest, dir, err)) != 0) {
            cn_manifest_fini(manifest);
            cn_archive_remove_dir(dest);
        }
    }
    close(fd);
    return rc;
}

int
cn_archive_reread(const char *dest, struct cn_manifest *manifest, char **dir, struct cn_error *err)
{
    int rc = absolute(dest, dir, err);

    if (rc == 0 && (rc = cn_verify_read_manifest(cn_basename(dest), *dir, manifest, err)) != 0) {
        cn_free(*dir);
        *dir = NULL;
    }
    return rc;
}
