/* management/repository/model_store.c - finds a model's archive. It has no state and runs on the
 * caller's thread.
 *
 * A `url` of the management API may be a name inside the store, an absolute path, or file:// and an
 * absolute path. A name must not have "..", so a client that may only register models cannot read
 * files elsewhere by way of the store.
 *
 * A stamp is a hash of inode, size and change time of a file, or of everything in a folder. It
 * shows that an archive has changed without reading it. The stamps of a folder's entries are added,
 * so the order in which the folder lists them does not matter.
 */
#include "management/repository/model_store.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define STAMP_DEPTH_MAX 16 /* how deep folders may lie in a model's folder */

/* TorchServe has three of them; our archiver writes two more. */
static const char *const endings[] = {".mar", ".model", ".tar.gz", ".tgz", ".zip"};

int
cn_model_store_check(const char *store, struct cn_error *err)
{
    struct stat st;

    if (!store)
        return 0;
    if (stat(store, &st) < 0)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot open the model store %s", store);
    if (!S_ISDIR(st.st_mode))
        return cn_fail(err, CN_E_CONFIG, "the model store %s is not a folder", store);
    if (access(store, R_OK | X_OK) < 0)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read the model store %s", store);
    return 0;
}

static bool
has_parent_part(const char *path)
{
    const char *at = path, *end;

    for (;;) {
        end = strchrnul(at, '/');
        if (end - at == 2 && at[0] == '.' && at[1] == '.')
            return true;
        if (!*end)
            return false;
        at = end + 1;
    }
}

static int
check_path(const char *path, const char *url, struct cn_error *err)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return cn_fail(err, CN_E_MODEL_NOT_FOUND, "Model not found at: %s", url);
        return cn_fail_sys(err, CN_E_MODEL_NOT_FOUND, errno, "Model not found at: %s", url);
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Model not found at: %s (neither file nor folder)", url);
    return 0;
}

bool
cn_model_store_is_file_url(const char *url)
{
    return url && strncmp(url, "file://", 7) == 0;
}

int
cn_model_store_check_url(const char *url, struct cn_error *err)
{
    if (!url)
        return cn_fail(err, CN_E_BAD_REQUEST, "Parameter url is required.");
    if (!*url)
        return cn_fail(err, CN_E_MODEL_NOT_FOUND, "empty url");
    if (has_parent_part(url))
        return cn_fail(err, CN_E_MODEL_NOT_FOUND, "Relative path is not allowed in url: %s", url);
    return 0;
}

int
cn_model_store_resolve(const char *store, const char *url, char **path, struct cn_error *err)
{
    struct cn_buf buf;
    const char *at = url;
    int rc;

    rc = cn_model_store_check_url(url, err);
    if (rc)
        return rc;
    if (cn_model_store_is_file_url(url)) {
        at = url + 7;
        if (*at != '/')
            return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                           "Model not found at: %s (file:// needs an absolute path)", url);
    } else if (strncmp(url, "s3:", 3) == 0) {
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Model not found at: %s (this server has no S3 client; register a signed "
                       "https URL of the object, such as \"aws s3 presign %s\" prints)",
                       url, url);
    } else if (strstr(url, "://")) {
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Model not found at: %s (this server loads from its model store, local "
                       "paths, file://, http:// and https://)",
                       url);
    }
    cn_buf_init(&buf, 0);
    if (*at == '/') {
        cn_buf_puts(&buf, at);
    } else if (!store) {
        return cn_fail(err, CN_E_MODEL_NOT_FOUND,
                       "Model not found at: %s (the server was started without --model-store)",
                       url);
    } else {
        cn_buf_printf(&buf, "%s/%s", store, at);
    }
    *path = cn_buf_take(&buf, NULL);
    rc = check_path(*path, url, err);
    if (rc && store && at == url && *at == '/' && access(*path, F_OK) < 0) {
        /* TorchServe looks into its store for the last part of any path. */
        cn_free(*path);
        cn_buf_init(&buf, 0);
        cn_buf_printf(&buf, "%s%s", store, strrchr(at, '/'));
        *path = cn_buf_take(&buf, NULL);
        rc = at[strlen(at) - 1] == '/' ? rc : check_path(*path, url, err);
    }
    if (rc) {
        cn_free(*path);
        *path = NULL;
    }
    return rc;
}

bool
cn_model_store_is_archive(const char *name)
{
    size_t len = strlen(name), ending_len, i;

    for (i = 0; i < sizeof endings / sizeof *endings; i++) {
        ending_len = strlen(endings[i]);
        if (len > ending_len && strcmp(name + len - ending_len, endings[i]) == 0)
            return true;
    }
    return false;
}

static bool
is_model(int dir_fd, const char *name)
{
    struct stat st;

    if (name[0] == '.' || fstatat(dir_fd, name, &st, 0) < 0)
        return false;
    return S_ISDIR(st.st_mode) || (S_ISREG(st.st_mode) && cn_model_store_is_archive(name));
}

static int
compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int
cn_model_store_list(const char *store, char ***names, uint32_t *count, struct cn_error *err)
{
    DIR *dir;
    struct dirent *entry;
    char **found = NULL;
    uint32_t n = 0, room = 0;

    *names = NULL;
    *count = 0;
    if (!store)
        return cn_fail(err, CN_E_CONFIG, "--models all needs --model-store");
    dir = opendir(store);
    if (!dir)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read the model store %s", store);
    while ((entry = readdir(dir))) {
        if (!is_model(dirfd(dir), entry->d_name))
            continue;
        if (n == room) {
            char **more = cn_try_realloc(found, (room ? room * 2 : 16) * sizeof *found);

            if (!more)
                break;
            found = more;
            room = room ? room * 2 : 16;
        }
        found[n++] = cn_strdup(entry->d_name);
    }
    closedir(dir);
    if (n)
        qsort(found, n, sizeof *found, compare_names);
    *names = found;
    *count = n;
    return 0;
}

char *
cn_model_store_stem(const char *path)
{
    size_t end = strlen(path), begin, len, i;
    char *stem;

    while (end > 1 && path[end - 1] == '/')
        end--;
    begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    len = end - begin;
    for (i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending_len = strlen(endings[i]);

        if (len > ending_len && strncmp(path + end - ending_len, endings[i], ending_len) == 0) {
            len -= ending_len;
            break;
        }
    }
    stem = cn_strndup(path + begin, len);
    for (i = 0; i < len; i++)
        if (!isalnum((unsigned char)stem[i]) && stem[i] != '_')
            stem[i] = '_';
    return stem;
}

/* Is `file` called `name`, with or without its ending? */
static bool
is_called(const char *file, const char *name)
{
    size_t len = strlen(name);

    if (strncmp(file, name, len) != 0)
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strcmp(file + len, endings[i]) == 0)
            return true;
    return file[len] == '\0';
}

char *
cn_model_store_find(const char *store, const char *name)
{
    struct cn_error err;
    char **names, *found = NULL;
    uint32_t count;

    if (cn_model_store_list(store, &names, &count, &err))
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (!found && is_called(names[i], name))
            found = names[i];
        else
            cn_free(names[i]);
    }
    cn_free(names);
    return found;
}

/* Adds a number to an FNV-1a hash. */
static uint64_t
add_number(uint64_t hash, uint64_t number)
{
    for (unsigned i = 0; i < 8; i++, number >>= 8)
        hash = (hash ^ (number & 0xff)) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t
stamp_of(uint64_t hash, const struct stat *st)
{
    hash = add_number(hash, (uint64_t)st->st_ino);
    hash = add_number(hash, (uint64_t)st->st_size);
    hash = add_number(hash, (uint64_t)st->st_mtim.tv_sec);
    return add_number(hash, (uint64_t)st->st_mtim.tv_nsec);
}

/* The sum over all files of a folder. It does not depend on their order. */
static uint64_t
stamp_folder(const char *path, unsigned depth)
{
    struct dirent *entry;
    uint64_t sum = 0;
    DIR *dir = depth < STAMP_DEPTH_MAX ? opendir(path) : NULL;

    while (dir && (entry = readdir(dir))) {
        struct stat st;
        struct cn_buf inner;

        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += stamp_of(UINT64_C(14695981039346656037), &st);
        if (!S_ISDIR(st.st_mode))
            continue;
        cn_buf_init(&inner, 0);
        cn_buf_printf(&inner, "%s/%s", path, entry->d_name);
        cn_buf_append(&inner, "", 1);
        if (!inner.failed)
            sum += stamp_folder(inner.data, depth + 1);
        cn_buf_fini(&inner);
    }
    if (dir)
        closedir(dir);
    return sum;
}

uint64_t
cn_model_store_stamp(const char *path)
{
    struct stat st;
    uint64_t stamp;

    if (stat(path, &st) < 0)
        return 0;
    stamp = stamp_of(UINT64_C(14695981039346656037), &st);
    if (S_ISDIR(st.st_mode))
        stamp += stamp_folder(path, 0);
    return stamp ? stamp : 1;
}
