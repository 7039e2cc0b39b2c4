/* core/system/write_file.c - writes output completely, or reports an error. Any thread.
 *
 * To write a file atomically, its bytes go to a temporary file, which is synced and then renamed
 * over the old one. The order matters: a rename before the sync could leave an empty file after a
 * power failure. O_EXCL and O_NOFOLLOW make sure that the temporary file is our own, and not a link
 * that somebody else has put there. */
#include "core/system/write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int
cn_write_all(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = write(fd, at, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

int
cn_write_out(int fd, const void *bytes, size_t len)
{
    int failed = cn_write_all(fd, bytes, len);

    /* a pipe cannot be synced */
    if (!failed && fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP)
        failed = errno;
    if (close(fd) < 0 && !failed)
        failed = errno;
    return failed;
}

/* `old`: the file whose owner, group and mode the new one gets; NULL: it gets `mode`. */
static int
write_atomically(const char *path, const char *beside, mode_t mode, const struct stat *old,
                 const void *bytes, size_t len)
{
    int fd, failed;

    unlink(beside);
    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return errno;
    if (old && (fchown(fd, old->st_uid, old->st_gid) < 0 || fchmod(fd, old->st_mode & 0777) < 0)) {
        failed = errno;
        close(fd);
    } else {
        failed = cn_write_out(fd, bytes, len);
    }
    if (!failed && rename(beside, path) < 0)
        failed = errno;
    if (failed)
        unlink(beside);
    return failed;
}

int
cn_write_file_atomically(const char *path, const char *beside, mode_t mode, const void *bytes,
                         size_t len)
{
    return write_atomically(path, beside, mode, NULL, bytes, len);
}

int
cn_replace_file(const char *path, const char *beside, const struct stat *old, const void *bytes,
                size_t len)
{
    return write_atomically(path, beside, 0600, old, bytes, len);
}

bool
cn_stdout_complete(const char *program)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "%s: error: the output could not be written completely\n", program);
    return false;
}
