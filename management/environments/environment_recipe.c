/* management/environments/environment_recipe.c - what an environment is made from, and its digest.
 * File thread.
 *
 * Names of requirements files do not matter, and names of wheels do, because pip reads a package's
 * version from them. Files are listed in the order in which they are named, and those of a folder
 * by name, so that the order of a folder on the disk changes nothing.
 *
 * A recipe is a text such as this one; its SHA-256 is the digest, and models with the same digest
 * share an environment:
 *   continuo environment 1
 *   interpreter ...                         what the interpreter says about itself
 *   requirements 9c56cc51b374... -          SHA-256 of each requirements file, included ones too
 *   path 2c26b46b68ff... ./libs/helper.whl  of each local file that they refer to
 *   wheel fcde2b2edba5... wheels/numpy-2.1-cp312-cp312-linux_x86_64.whl
 * Packages from an index are not in it: "numpy" without a version is whatever pip finds on the day
 * on which the environment is made. */
#include "management/environments/environment_recipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/digest.h"
#include "core/memory/mem.h"
#include "management/environments/requirements_scan.h"

#define FORMAT "continuo environment 1\n" /* a change of how environments are made changes it */
#define REQUIREMENTS_MAX_BYTES (1u << 20) /* one file; pip-compile writes 100 kB for a large one */
#define FILES_MAX 10000                   /* the bound for an archive's files, too */
#define DEPTH_MAX 16

struct recipe {
    const char *dir;
    struct cn_buf *out;
    struct cn_error *err;
    unsigned n_files, depth;
    int rc;
};

/* The requirements file that is being scanned. Further requirements files in it are named relative
 * to it, and packages relative to the model's folder. A file that includes itself ends at
 * DEPTH_MAX. */
struct scanning {
    struct recipe *recipe;
    const char *path;
};

static int
put_file(struct recipe *recipe, const char *kind, const char *path, const char *name)
{
    char hex[65];

    if (++recipe->n_files > FILES_MAX)
        return cn_fail(recipe->err, CN_E_INVALID_MODEL,
                       "the requirements of the model refer to more than %d files", FILES_MAX);
    if (cn_digest_file(path, 1, hex, NULL, recipe->err))
        return recipe->err ? recipe->err->code : CN_E_IO;
    cn_buf_printf(recipe->out, "%s %s %s\n", kind, hex, name);
    return 0;
}

/* --- folders */

static int
skip_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int put_tree(struct recipe *recipe, const char *kind, const char *path, const char *name);

static int
put_folder(struct recipe *recipe, const char *kind, const char *path, const char *name)
{
    struct dirent **entries;
    int n = scandir(path, &entries, skip_dots, alphasort), rc = 0;

    if (n < 0)
        return cn_fail_sys(recipe->err, CN_E_IO, errno, "cannot read %s", path);
    for (int i = 0; i < n; i++) {
        char below[PATH_MAX], shown[PATH_MAX];

        if (!rc &&
            snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name) < (int)sizeof below) {
            snprintf(shown, sizeof shown, "%s/%s", name, entries[i]->d_name);
            rc = put_tree(recipe, kind, below, shown);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

/* Adds a file, or all files of a folder. Anything else, and what does not exist, is left out: pip
 * will say what is wrong with it. */
static int
put_tree(struct recipe *recipe, const char *kind, const char *path, const char *name)
{
    struct stat st;
    int rc;

    if (stat(path, &st) < 0 || recipe->depth >= DEPTH_MAX)
        return 0;
    if (S_ISREG(st.st_mode))
        return put_file(recipe, kind, path, name);
    if (!S_ISDIR(st.st_mode))
        return 0;
    recipe->depth++;
    rc = put_folder(recipe, kind, path, name);
    recipe->depth--;
    return rc;
}

/* --- requirements files */

static int
read_text(const char *path, struct cn_buf *out, struct cn_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > REQUIREMENTS_MAX_BYTES) {
        close(fd);
        return cn_fail(err, CN_E_INVALID_MODEL,
                       "the requirements file %s is not a regular file of at most %u bytes", path,
                       REQUIREMENTS_MAX_BYTES);
    }
    while ((n = read(fd, cn_buf_reserve(out, 65536), 65536)) > 0 &&
           out->len <= REQUIREMENTS_MAX_BYTES)
        out->len += (size_t)n;
    close(fd);
    return n < 0 ? cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", path) : 0;
}

static int put_requirements(struct recipe *recipe, const char *path);

/* A path in a file with `from` before its last slash. */
static bool
path_beside(const char *from, struct cn_str path, char out[PATH_MAX])
{
    const char *slash = strrchr(from, '/');
    const int len = slash && path.ptr[0] != '/' ? (int)(slash - from + 1) : 0;

    return snprintf(out, PATH_MAX, "%.*s%.*s", len, from, CN_STR_ARG(path)) < PATH_MAX;
}

static void
on_reference(void *ctx, enum cn_requirement_kind kind, struct cn_str path)
{
    struct scanning *scanning = ctx;
    struct recipe *recipe = scanning->recipe;
    char full[PATH_MAX], name[PATH_MAX], dir[PATH_MAX];

    if (recipe->rc || path.len >= sizeof name)
        return;
    snprintf(dir, sizeof dir, "%s/", recipe->dir);
    snprintf(name, sizeof name, "%.*s", CN_STR_ARG(path));
    if (!path_beside(kind == CN_REQUIREMENT_FILE ? scanning->path : dir, path, full))
        return;
    if (kind == CN_REQUIREMENT_PATH)
        recipe->rc = put_tree(recipe, "path", full, name);
    else if (access(full, R_OK) == 0)
        recipe->rc = put_requirements(recipe, full);
}

static int
put_requirements(struct recipe *recipe, const char *path)
{
    struct scanning scanning = {recipe, path};
    struct cn_buf text;
    int rc;

    if (recipe->depth >= DEPTH_MAX)
        return cn_fail(recipe->err, CN_E_INVALID_MODEL,
                       "requirements files include each other more than %d levels deep", DEPTH_MAX);
    rc = put_file(recipe, "requirements", path, "-");
    if (rc)
        return rc;
    cn_buf_init(&text, 0);
    rc = read_text(path, &text, recipe->err);
    recipe->depth++;
    if (!rc && text.len)
        cn_requirements_scan(cn_buf_str(&text), on_reference, &scanning);
    recipe->depth--;
    cn_buf_fini(&text);
    return rc ? rc : recipe->rc;
}

int
cn_environment_recipe(const char *dir, const char *requirements, const char *interpreter,
                      struct cn_buf *out, struct cn_error *err)
{
    struct recipe recipe = {.dir = dir, .out = out, .err = err};
    char path[PATH_MAX];
    int rc;

    if (snprintf(path, sizeof path, "%s/%s", dir, requirements) >= (int)sizeof path)
        return cn_fail(err, CN_E_INVALID_MODEL, "the path of the requirements file is too long");
    cn_buf_printf(out, FORMAT "interpreter %s\n", interpreter);
    rc = put_requirements(&recipe, path);
    if (rc)
        return rc;
    if (snprintf(path, sizeof path, "%s/" CN_ENVIRONMENT_WHEELS, dir) >= (int)sizeof path)
        return 0;
    return put_tree(&recipe, "wheel", path, CN_ENVIRONMENT_WHEELS);
}

void
cn_environment_digest(struct cn_str recipe, char digest[CN_ENVIRONMENT_DIGEST_BYTES])
{
    unsigned char sum[crypto_hash_sha256_BYTES];

    crypto_hash_sha256(sum, (const unsigned char *)recipe.ptr, recipe.len);
    sodium_bin2hex(digest, CN_ENVIRONMENT_DIGEST_BYTES, sum, sizeof sum);
}
