/* tests/campaign/power/power_files.c - remembers what would be on the disk after a power cut.
 *
 * A worker is started with this library (LD_PRELOAD; power_cut.py builds it). Whenever a file below
 * CONTINUO_TEST_POWER_DIR is synced by fsync() or fdatasync(), its content is first copied to
 * CONTINUO_TEST_POWER_KEPT, under the number of its inode: this, and nothing written later, is what
 * a disk must keep. What is written through a descriptor with O_DSYNC is added to it, since LMDB
 * writes its meta pages so. power_cut.py then drops what was not synced. As a program of its own
 * (-DWRAPPER), this file starts the worker with the library, since the server hides LD_PRELOAD from
 * its workers. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef WRAPPER

int
main(int argc, char **argv)
{
    const char *library = getenv("CONTINUO_TEST_POWER_LIBRARY");
    const char *worker = getenv("CONTINUO_TEST_POWER_WORKER");

    (void)argc;
    if (!library || !worker || setenv("LD_PRELOAD", library, 1) != 0)
        return 127;
    execv(worker, argv);
    return 127;
}

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>

static _Atomic unsigned long n_copies;

/* Is this a file of the store? Then *final is the name of its copy, and *path its own. */
static bool
is_kept(int fd, char path[PATH_MAX], char final[PATH_MAX + 64])
{
    const char *dir = getenv("CONTINUO_TEST_POWER_DIR"), *kept = getenv("CONTINUO_TEST_POWER_KEPT");
    char link[64];
    struct stat about;
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    if (!dir || !kept || n <= 0)
        return false;
    path[n] = '\0';
    if (strncmp(path, dir, strlen(dir)) != 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        return false;
    snprintf(final, PATH_MAX + 64, "%s/%lu", kept, (unsigned long)about.st_ino);
    return true;
}

/* Copies the file's present content. A copy appears whole or not at all. */
static void
keep(int fd)
{
    const char *kept = getenv("CONTINUO_TEST_POWER_KEPT");
    char path[PATH_MAX], part[PATH_MAX + 64], final[PATH_MAX + 64], bytes[65536];
    ssize_t n;
    off_t at = 0;
    int in, out;

    if (!is_kept(fd, path, final))
        return;
    snprintf(part, sizeof(part), "%s/part-%d-%lu", kept, (int)getpid(),
             atomic_fetch_add(&n_copies, 1));
    in = open(path, O_RDONLY | O_CLOEXEC);
    out = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while (in >= 0 && out >= 0 && (n = pread(in, bytes, sizeof(bytes), at)) > 0) {
        if (write(out, bytes, (size_t)n) != n)
            abort();
        at += n;
    }
    if (out < 0 || in < 0 || rename(part, final) != 0)
        abort(); /* a copy that is missing would make the test blind */
    close(in);
    close(out);
}

static int
call(const char *name, int fd)
{
    int (*real)(int);
    void *found = dlsym(RTLD_NEXT, name);

    memcpy(&real, &found, sizeof(found));
    keep(fd);
    return real(fd);
}

static ssize_t
write_at(const char *name, int fd, const void *bytes, size_t len, off_t at)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    void *found = dlsym(RTLD_NEXT, name);
    char path[PATH_MAX], final[PATH_MAX + 64];
    ssize_t n;
    int copy;

    memcpy(&real, &found, sizeof(found));
    n = real(fd, bytes, len, at);
    if (n <= 0 || !(fcntl(fd, F_GETFL) & O_DSYNC) || !is_kept(fd, path, final))
        return n;
    copy = open(final, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (copy < 0 || real(copy, bytes, (size_t)n, at) != n)
        abort();
    close(copy);
    return n;
}

ssize_t
pwrite(int fd, const void *bytes, size_t len, off_t at)
{
    return write_at("pwrite", fd, bytes, len, at);
}

ssize_t
pwrite64(int fd, const void *bytes, size_t len, off_t at)
{
    return write_at("pwrite64", fd, bytes, len, at);
}

int
fsync(int fd)
{
    return call("fsync", fd);
}

int
fdatasync(int fd)
{
    return call("fdatasync", fd);
}

#endif
