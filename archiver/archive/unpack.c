/* archiver/archive/unpack.c - turns the entries of an archive into files, or refuses them.
 *
 * Headers can lie. So each name, kind and size is checked twice: in the headers, before anything is
 * written, and again as it is unpacked. Runs on the file thread, or in the archiver program.
 */
#include "archiver/archive/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"

#define BLOCK_BYTES 65536

struct unpacker {
    struct archive *reader;
    const char *name; /* the archive's file name, for error messages */
    const char *root; /* the folder to unpack into */
    const struct cn_archive_limits *limits;
    uint64_t bytes;
    uint32_t n_files;
    char block[BLOCK_BYTES];
    struct cn_error *err;
};

typedef int (*entry_fn)(struct unpacker *u, struct archive_entry *entry);

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
                                   "%s: entry \"%.200s\" is both a file and a folder", u->name,
                                   shown);
                return cn_fail_sys(u->err, CN_E_IO, why, "%s: cannot make a folder for %.200s",
                                   u->name, shown);
            }
        }
        *c = kept;
        if (kept == '\0')
            return 0;
    }
}

/* Copies libarchive's error on one line and without our paths. */
static int
reader_error(struct unpacker *u, const char *doing)
{
    const char *text = archive_error_string(u->reader);

    return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: %s: %.200s", u->name, doing,
                   text ? text : "damaged archive");
}

/* Checks the limits. `file_bytes` belongs to this entry, u->bytes to all entries so far. */
static int
check_bytes(struct unpacker *u, uint64_t file_bytes, const char *shown)
{
    if (file_bytes > u->limits->max_file_bytes)
        return cn_fail(u->err, CN_E_INVALID_MODEL,
                       "%s: entry \"%.200s\" unpacks to more than %" PRIu64 " bytes", u->name,
                       shown, u->limits->max_file_bytes);
    if (u->bytes > u->limits->max_bytes)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: unpacks to more than %" PRIu64 " bytes",
                       u->name, u->limits->max_bytes);
    return 0;
}

static int
copy_content(struct unpacker *u, int fd, const char *shown)
{
    uint64_t file_bytes = 0;

    for (;;) {
        /* Holes of a sparse entry come out as zeros, and are counted, too. */
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
        rc = check_bytes(u, file_bytes, shown);
        if (rc != 0)
            return rc;
        rc = cn_write_all(fd, u->block, (size_t)got);
        if (rc != 0)
            return cn_fail_sys(u->err, CN_E_IO, rc, "%s: cannot write %.200s", u->name, shown);
    }
}

static int
unpack_file(struct unpacker *u, char *path, const char *shown)
{
    int rc = make_folders(u, path, false, shown), fd;

    if (rc != 0)
        return rc;
    /* Because of O_EXCL, two entries with the same plain name never become one file. */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: entry \"%.200s\" comes twice", u->name,
                       shown);
    if (fd < 0)
        return cn_fail_sys(u->err, CN_E_IO, errno, "%s: cannot make %.200s", u->name, shown);
    rc = copy_content(u, fd, shown);
    /* A full disk may be reported only now. */
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

/* Replaces all characters outside printable ASCII by '?', for error messages. */
static void
show_name(const char *raw, char out[201])
{
    size_t n = 0;

    for (; raw[n] != '\0' && n < 200; n++)
        out[n] = raw[n] < 0x20 || raw[n] > 0x7e ? '?' : raw[n];
    out[n] = '\0';
}

/* Makes the checks for which an entry's header is enough. Fills in the plain name ("" for the root
 * itself) and the name for messages. */
static int
check_entry(struct unpacker *u, struct archive_entry *entry, char clean[CN_ARCHIVE_PATH_MAX],
            char shown[201])
{
    const char *raw = archive_entry_pathname(entry), *problem;
    unsigned type = archive_entry_filetype(entry);

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
    /* "./", which tar writes for the folder itself */
    if (clean[0] == '\0' && type != AE_IFDIR)
        return cn_fail(u->err, CN_E_INVALID_MODEL, "%s: an entry has no name", u->name);
    return 0;
}

/* The first pass writes nothing, so that most bad archives cost no disk space. Sizes in headers are
 * only claims, but an entry that claims too much is refused at once. */
static int
look_at_entry(struct unpacker *u, struct archive_entry *entry)
{
    char clean[CN_ARCHIVE_PATH_MAX], shown[201];
    uint64_t bytes = (uint64_t)archive_entry_size(entry);
    int rc = check_entry(u, entry, clean, shown);

    if (rc != 0 || !archive_entry_size_is_set(entry))
        return rc;
    u->bytes += bytes <= u->limits->max_bytes ? bytes : u->limits->max_bytes + 1;
    return check_bytes(u, bytes, shown);
}

static int
unpack_entry(struct unpacker *u, struct archive_entry *entry)
{
    char clean[CN_ARCHIVE_PATH_MAX], shown[201], *path;
    int rc = check_entry(u, entry, clean, shown);

    if (rc != 0 || clean[0] == '\0')
        return rc;
    path = cn_path_join(u->root, clean);
    rc = archive_entry_filetype(entry) == AE_IFDIR ? make_folders(u, path, true, shown)
                                                   : unpack_file(u, path, shown);
    cn_free(path);
    return rc;
}

/* --- the whole --- */

static int
walk_entries(struct unpacker *u, entry_fn fn)
{
    for (;;) {
        struct archive_entry *entry;
        int rc = archive_read_next_header(u->reader, &entry);

        if (rc == ARCHIVE_EOF)
            break;
        /* libarchive warns about things that we do not use (times, owners), or about a name, which
         * we check. */
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return reader_error(u, "not a readable zip or tar.gz archive");
        rc = fn(u, entry);
        if (rc != 0)
            return rc;
    }
    if (u->n_files == 0)
        return cn_fail(u->err, CN_E_INVALID_MODEL,
                       "%s: the file is empty, or not a zip or tar.gz archive", u->name);
    return 0;
}

static int
read_archive(struct unpacker *u, int fd, entry_fn fn)
{
    int rc;

    u->bytes = 0;
    u->n_files = 0;
    u->reader = archive_read_new();
    if (u->reader == NULL)
        return cn_fail(u->err, CN_E_OUT_OF_MEMORY, "%s: out of memory while unpacking", u->name);
    archive_read_support_filter_gzip(u->reader);
    /* Zip files are read by their directory only. Read as a stream, a file that was cut off would
     * look complete. */
    archive_read_support_format_zip_seekable(u->reader);
    archive_read_support_format_tar(u->reader);
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        archive_read_open_fd(u->reader, fd, BLOCK_BYTES) != ARCHIVE_OK)
        rc = reader_error(u, "not a readable zip or tar.gz archive");
    else
        rc = walk_entries(u, fn);
    archive_read_free(u->reader);
    return rc;
}

static int
with_utf8_names(struct unpacker *u, int fd, entry_fn fn)
{
    /* Names are UTF-8 whatever the process' locale is. This is set for this thread only. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), old = (locale_t)0;
    int rc;

    if (utf8 != (locale_t)0)
        old = uselocale(utf8);
    rc = read_archive(u, fd, fn);
    if (utf8 != (locale_t)0) {
        uselocale(old);
        freelocale(utf8);
    }
    return rc;
}

int
cn_unpack(const char *name, int fd, const char *root, const struct cn_archive_limits *limits,
          struct cn_error *err)
{
    struct unpacker *u = cn_alloc(sizeof(*u));
    int rc;

    u->name = name;
    u->root = root;
    u->limits = limits;
    u->err = err;
    rc = with_utf8_names(u, fd, look_at_entry);
    if (rc == 0)
        rc = with_utf8_names(u, fd, unpack_entry);
    cn_free(u);
    return rc;
}
