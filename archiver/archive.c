/* archiver/archive.c - libarchive's reading half: an archive becomes a folder, or nothing does.
 *
 * All of an archive is hostile until its manifest is checked. It is unpacked
 * into a new folder beside the destination, with every name, kind and size
 * checked as it really comes out (headers lie), verified there, and only then
 * renamed. File thread, or the archiver program.
 */
#include "archiver/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/path.h"
#include "archiver/verify.h"
#include "core/mem.h"
#include "core/random.h"

#define BLOCK_BYTES 65536

const struct cn_archive_limits cn_archive_default_limits = {
    .max_bytes = 8ull << 30, .max_file_bytes = 4ull << 30, .max_files = 10000};

struct unpacker {
    struct archive *reader;
    const char *name; /* for messages: the archive's file name */
    const char *root; /* where to unpack */
    const struct cn_archive_limits *limits;
    uint64_t bytes;
    uint32_t n_files;
    char block[BLOCK_BYTES];
    struct cn_error *err;
};

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    remove(path);
    return 0; /* go on: what can be deleted is */
}

void
cn_archive_remove_dir(const char *dest)
{
    nftw(dest, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* --- one entry --- */

/* Makes the folders above `path` (inside the root), and `path` itself if `also_last`. */
static int
make_folders(struct unpacker *u, char *path, bool also_last, const char *shown)
{
    size_t start = strlen(u->root) + 1;

    for (char *c = path + start;; c++) {
        char kept = *c;

        if (kept != '/' && kept != '\0')
            continue;
        if (kept == '\0' && !also_last)
            return 0;
        *c = '\0';
        if (mkdir(path, 0755) < 0) {
            int why = errno;
            struct stat st;
            if (why != EEXIST || lstat(path, &st) < 0 || !S_ISDIR(st.st_mode)) {
                *c = kept;
                if (why == EEXIST || why == ENOTDIR)
                    return cn_fail(u->err, CN_E_INVALID_MODEL,
                                   "%s: entry \"%.200s\" is a file and "
                                   "a folder at once",
                                   u->name, shown);
                return cn_fail_sys(u->err, CN_E_IO, why, "%s: cannot make a folder for %.200s",
                                   u->name, shown);
            }
        }
        *c = kept;
        if (kept == '\0')
            return 0;
    }
}

static int
write_all(struct unpacker *u, int fd, size_t len, const char *shown)
{
    for (size_t done = 0; done < len;) {
        ssize_t wrote = write(fd, u->block + done, len - done);

        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return cn_fail_sys(u->err, CN_E_IO, errno, "%s: cannot write %.200s", u->name, shown);
        done += (size_t)wrote;
    }
    return 0;
}

/* What the archive library says, on one line and without our paths. */
static int
reader_error(struct unpacker *u, const char *doing)
{
    const char *text = archive_error_string(u->reader);

    return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: %s: %.200s", u->name, doing,
                   text ? text : "damaged archive");
}

static int
copy_content(struct unpacker *u, int fd, const char *shown)
{
    uint64_t file_bytes = 0;

    for (;;) {
        /* Holes of a sparse entry come out as zeros here, so they are counted too. */
        la_ssize_t got = archive_read_data(u->reader, u->block, sizeof(u->block));
        int rc;

        if (got < 0) {
            char doing[256];
            snprintf(doing, sizeof(doing), "cannot unpack \"%.200s\"", shown);
            return reader_error(u, doing);
        }
        if (got == 0)
            return 0;
        file_bytes += (uint64_t)got;
        u->bytes += (uint64_t)got;
        if (file_bytes > u->limits->max_file_bytes)
            return cn_fail(u->err, CN_E_INVALID_MODEL,
                           "%s: entry \"%.200s\" unpacks to more than "
                           "%" PRIu64 " bytes",
                           u->name, shown, u->limits->max_file_bytes);
        if (u->bytes > u->limits->max_bytes)
            return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: unpacks to more than %" PRIu64 " bytes",
                           u->name, u->limits->max_bytes);
        rc = write_all(u, fd, (size_t)got, shown);
        if (rc != 0)
            return rc;
    }
}

static int
unpack_file(struct unpacker *u, char *path, const char *shown)
{
    int rc = make_folders(u, path, false, shown), fd;

    if (rc != 0)
        return rc;
    /* O_EXCL: two entries with one plain name never merge. */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: entry \"%.200s\" comes twice", u->name,
                       shown);
    if (fd < 0)
        return cn_fail_sys(u->err, CN_E_IO, errno, "%s: cannot make %.200s", u->name, shown);
    rc = copy_content(u, fd, shown);
    /* A full disk may show only now. */
    if (close(fd) < 0 && rc == 0)
        rc = cn_fail_sys(u->err, CN_E_IO, errno, "%s: cannot write %.200s", u->name, shown);
    return rc;
}

static const char *
kind_word(unsigned type)
{
    return type == AE_IFLNK                       ? "a symbolic link"
           : type == AE_IFCHR || type == AE_IFBLK ? "a device"
           : type == AE_IFIFO                     ? "a named pipe"
           : type == AE_IFSOCK                    ? "a socket"
                                                  : "neither a file nor a folder";
}

/* For a message: what is outside printable ASCII becomes '?'. */
static void
show_name(const char *raw, char out[201])
{
    size_t n = 0;

    for (; raw[n] != '\0' && n < 200; n++)
        out[n] = raw[n] < 0x20 || raw[n] > 0x7e ? '?' : raw[n];
    out[n] = '\0';
}

static int
unpack_entry(struct unpacker *u, struct archive_entry *entry)
{
    const char *raw = archive_entry_pathname(entry), *problem;
    char clean[CN_ARCHIVE_PATH_MAX], shown[201];
    unsigned type = archive_entry_filetype(entry);
    char *path;
    int rc;

    if (raw == NULL)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: an entry's name is not UTF-8", u->name);
    show_name(raw, shown);
    if (++u->n_files > u->limits->max_files)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: more than %" PRIu32 " entries", u->name,
                       u->limits->max_files);
    problem = cn_archive_path_clean(raw, clean);
    if (problem != NULL)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: entry \"%s\" %s", u->name, shown, problem);
    if (archive_entry_hardlink(entry) != NULL)
        return cn_fail(u->err, CN_E_INVALID_MODEL,
                       "%s: entry \"%s\" is a hard link; only files "
                       "and folders are allowed",
                       u->name, shown);
    if (type != AE_IFREG && type != AE_IFDIR)
        return cn_fail(u->err, CN_E_INVALID_MODEL,
                       "%s: entry \"%s\" is %s; only files and folders "
                       "are allowed",
                       u->name, shown, kind_word(type));
    if (clean[0] == '\0') /* "./", which tar writes for the folder itself */
        return type == AE_IFDIR
                   ? 0
                   : cn_fail(u->err, CN_E_INVALID_MODEL, "%s: an entry has no name", u->name);
    path = cn_path_join(u->root, clean);
    rc = type == AE_IFDIR ? make_folders(u, path, true, shown) : unpack_file(u, path, shown);
    cn_free(path);
    return rc;
}

/* --- the whole --- */

static int
unpack_entries(struct unpacker *u)
{
    for (;;) {
        struct archive_entry *entry;
        int rc = archive_read_next_header(u->reader, &entry);

        if (rc == ARCHIVE_EOF)
            break;
        /* A warning is about what we don't use (times, owners) or about a name, which is checked. */
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return reader_error(u, "cannot read it as a zip or tar.gz");
        rc = unpack_entry(u, entry);
        if (rc != 0)
            return rc;
    }
    if (u->n_files == 0)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: is empty, or no zip or tar.gz", u->name);
    return 0;
}

static int
unpack_all(struct unpacker *u, int fd)
{
    /* Names are UTF-8 whatever the process' locale is; this thread only. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), old = (locale_t)0;
    int rc;

    if (utf8 != (locale_t)0)
        old = uselocale(utf8);
    u->reader = archive_read_new();
    if (u->reader == NULL) {
        rc = cn_fail(u->err, CN_E_OUT_OF_MEMORY, "%s: no memory for it", u->name);
        goto restore_locale;
    }
    archive_read_support_filter_gzip(u->reader);
    /* By its directory only: read as a stream, a zip that was cut off would look whole. */
    archive_read_support_format_zip_seekable(u->reader);
    archive_read_support_format_tar(u->reader);
    if (archive_read_open_fd(u->reader, fd, BLOCK_BYTES) != ARCHIVE_OK)
        rc = reader_error(u, "cannot read it as a zip or tar.gz");
    else
        rc = unpack_entries(u);
    archive_read_free(u->reader);
restore_locale:
    if (utf8 != (locale_t)0) {
        uselocale(old);
        freelocale(utf8);
    }
    return rc;
}

/* The only entry of the folder, to be freed with cn_free; NULL when there are none or several. */
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

/* Where the model is in what was unpacked: tar.gz archives have one folder around everything. */
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

/* dest itself may be there, but must be empty: rename(2) sees to that without a race. */
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
    struct unpacker *u = cn_alloc(sizeof(*u));
    char *root = NULL;
    int rc;

    u->name = name;
    u->root = temp;
    u->limits = limits ? limits : &cn_archive_default_limits;
    u->err = err;
    rc = unpack_all(u, fd);
    cn_free(u);
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
        /* Also after success: the folder that was around everything is left over. */
        cn_archive_remove_dir(temp);
    }
    cn_free(temp);
    return rc;
}

/* A folder without a manifest, as one works in it: handler.lua or handler.so, and model-config.yaml
 * if it is there. Named for the folder. */
static int
assume_manifest(const char *name, const char *dir, struct cn_manifest *manifest,
                struct cn_error *err)
{
    const char *handler = exists(dir, "handler.lua")  ? "handler.lua"
                          : exists(dir, "handler.so") ? "handler.so"
                                                      : NULL;

    if (handler == NULL)
        return cn_fail(
            err, CN_E_INVALID_MODEL,
            "%s: the folder has no " CN_MANIFEST_PATH ", and no handler.lua or handler.so", name);
    memset(manifest, 0, sizeof(*manifest));
    manifest->handler = cn_strdup(handler);
    manifest->runtime = cn_strdup(cn_has_suffix(handler, ".lua") ? "lua" : "c");
    manifest->model_name = cn_strdup(cn_basename(dir));
    manifest->model_version = cn_strdup("1.0");
    if (exists(dir, "model-config.yaml"))
        manifest->config_file = cn_strdup("model-config.yaml");
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
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot look at %s", path);
    } else if (S_ISDIR(st.st_mode)) {
        rc = absolute(path, dir, err);
        if (rc == 0 && (rc = read_folder(name, *dir, manifest, err)) != 0) {
            cn_free(*dir);
            *dir = NULL;
        }
    } else if (!S_ISREG(st.st_mode)) {
        rc = cn_fail(err, CN_E_INVALID_MODEL, "%s is neither a file nor a folder", path);
    } else {
        rc = unpack_archive(name, fd, dest, limits, manifest, err);
        if (rc == 0 && (rc = absolute(dest, dir, err)) != 0) {
            cn_manifest_fini(manifest);
            cn_archive_remove_dir(dest);
        }
    }
    close(fd);
    return rc;
}
