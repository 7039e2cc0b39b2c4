/* archiver/pack/pack_write.c - writes an archive with libarchive, or a folder without it. Archiver
 * only.
 *
 * The bytes must depend on nothing but the content. So all entries have the same time, owner and
 * mode; gzip's header gets no time; a zip's local times are written in UTC; and names are written
 * as UTF-8 whatever the locale is. The manifest is the last entry.
 *
 * A file's digest was taken before it is copied. If its size has changed in between, packing fails,
 * because the archive would not match its manifest. */
#include "archiver/pack/pack_write.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "archiver/archive/archive_path.h"
#include "archiver/archive/manifest.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"

/* 1980-01-01 00:00:00 UTC, the oldest time that zip can hold. */
#define ENTRY_TIME 315532800

typedef int (*sink_fn)(void *ctx, const char *bytes, size_t len, struct cn_error *err);

/* Passes the whole content of `file` to `sink`. Fails if its size has changed since it was
 * hashed. */
static int
stream_file(const struct cn_pack_file *file, sink_fn sink, void *ctx, struct cn_error *err)
{
    char block[65536];
    uint64_t total = 0;
    ssize_t got;
    int rc = 0, fd = open(file->source, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", file->source);
    while (rc == 0 && (got = read(fd, block, sizeof(block))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot read %s", file->source);
            break;
        }
        total += (uint64_t)got;
        if (total <= file->bytes)
            rc = sink(ctx, block, (size_t)got, err);
    }
    close(fd);
    if (rc == 0 && total != file->bytes)
        rc = cn_fail(err, CN_E_IO, "%s changed while it was packed; try again", file->source);
    return rc;
}

static int
writer_error(struct archive *writer, struct cn_error *err)
{
    const char *text = archive_error_string(writer);

    return cn_fail(err, CN_E_IO, "cannot write the archive: %.300s",
                   text ? text : "no reason given");
}

static int
archive_sink(void *ctx, const char *bytes, size_t len, struct cn_error *err)
{
    return archive_write_data(ctx, bytes, len) == (la_ssize_t)len ? 0 : writer_error(ctx, err);
}

/* In a .tar.gz all files lie below a folder with the model's name (`folder`), as TorchServe has it;
 * in a .mar they lie at the root. */
static int
begin_entry(struct archive *writer, const char *folder, const char *name, uint64_t bytes,
            struct cn_error *err)
{
    struct archive_entry *entry = archive_entry_new();
    char *path = folder ? cn_path_join(folder, name) : cn_strdup(name);
    int rc;

    archive_entry_set_pathname(entry, path);
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, (la_int64_t)bytes);
    archive_entry_set_mtime(entry, ENTRY_TIME, 0);
    archive_entry_set_uid(entry, 0);
    archive_entry_set_gid(entry, 0);
    rc = archive_write_header(writer, entry);
    cn_free(path);
    archive_entry_free(entry);
    return rc == ARCHIVE_OK ? 0 : writer_error(writer, err);
}

static int
configure(struct archive *writer, enum cn_pack_format format, struct cn_error *err)
{
    bool ok;

    if (format == CN_PACK_TGZ) {
        /* gzip's header would hold the time of packing. */
        ok = archive_write_set_format_pax_restricted(writer) == ARCHIVE_OK &&
             archive_write_add_filter_gzip(writer) == ARCHIVE_OK &&
             archive_write_set_filter_option(writer, "gzip", "timestamp", NULL) == ARCHIVE_OK;
    } else {
        ok = archive_write_set_format_zip(writer) == ARCHIVE_OK &&
             archive_write_set_format_option(writer, "zip", "compression",
                                             format == CN_PACK_MAR ? "deflate" : "store") ==
                 ARCHIVE_OK;
    }
    /* No padding to blocks of 10 kB behind the end. */
    archive_write_set_bytes_in_last_block(writer, 1);
    return ok ? 0 : writer_error(writer, err);
}

static int
write_entries(struct archive *writer, const char *folder, const struct cn_pack_files *files,
              struct cn_str manifest, struct cn_error *err)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < files->n_items; i++) {
        const struct cn_pack_file *file = &files->items[i];

        rc = begin_entry(writer, folder, file->name, file->bytes, err);
        if (rc == 0)
            rc = stream_file(file, archive_sink, writer, err);
    }
    if (rc == 0)
        rc = begin_entry(writer, folder, CN_MANIFEST_PATH, manifest.len, err);
    if (rc == 0)
        rc = archive_sink(writer, manifest.ptr, manifest.len, err);
    return rc;
}

int
cn_pack_write_archive(int fd, enum cn_pack_format format, const char *name,
                      const struct cn_pack_files *files, struct cn_str manifest,
                      struct cn_error *err)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0), old = (locale_t)0;
    struct archive *writer = archive_write_new();
    int rc;

    /* A zip's times are local ones: the same bytes must come out in every time zone. */
    if (format != CN_PACK_TGZ) {
        setenv("TZ", "UTC", 1);
        tzset();
    }
    if (utf8 != (locale_t)0)
        old = uselocale(utf8); /* names are UTF-8 */
    rc = configure(writer, format, err);
    if (rc == 0 && archive_write_open_fd(writer, fd) != ARCHIVE_OK)
        rc = writer_error(writer, err);
    if (rc == 0)
        rc = write_entries(writer, format == CN_PACK_TGZ ? name : NULL, files, manifest, err);
    if (rc == 0 && archive_write_close(writer) != ARCHIVE_OK)
        rc = writer_error(writer, err);
    archive_write_free(writer);
    if (utf8 != (locale_t)0) {
        uselocale(old);
        freelocale(utf8);
    }
    return rc;
}

static int
fd_sink(void *ctx, const char *bytes, size_t len, struct cn_error *err)
{
    int failed = cn_write_all(*(int *)ctx, bytes, len);

    return failed ? cn_fail_sys(err, CN_E_IO, failed, "cannot write the archive") : 0;
}

/* Opens <dir>/<name> for writing, with the folders above it. */
static int
create_in(const char *dir, const char *name, int *fd, struct cn_error *err)
{
    char *path = cn_path_join(dir, name);
    int rc = 0;

    for (char *c = path + strlen(dir) + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot make folder %s", path);
        *c = '/';
    }
    *fd = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (rc == 0 && *fd < 0)
        rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", path);
    cn_free(path);
    return rc;
}

/* Are source and target the same file, because a model is packed into its own folder? Then the file
 * must not be opened for writing, which would empty it. */
static bool
is_same(const char *dir, const struct cn_pack_file *file)
{
    char *path = cn_path_join(dir, file->name);
    struct stat a, b;
    bool same = stat(path, &a) == 0 && stat(file->source, &b) == 0 && a.st_dev == b.st_dev &&
                a.st_ino == b.st_ino;

    cn_free(path);
    return same;
}

int
cn_pack_write_folder(const char *dir, const struct cn_pack_files *files, struct cn_str manifest,
                     struct cn_error *err)
{
    int rc = 0, fd;

    for (uint32_t i = 0; rc == 0 && i <= files->n_items; i++) {
        bool last = i == files->n_items;

        if (!last && is_same(dir, &files->items[i]))
            continue;
        rc = create_in(dir, last ? CN_MANIFEST_PATH : files->items[i].name, &fd, err);
        if (rc != 0)
            break;
        rc = last ? fd_sink(&fd, manifest.ptr, manifest.len, err)
                  : stream_file(&files->items[i], fd_sink, &fd, err);
        if (close(fd) < 0 && rc == 0)
            rc = cn_fail_sys(err, CN_E_IO, errno, "cannot write %s", dir);
    }
    return rc;
}
