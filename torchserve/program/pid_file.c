/* torchserve/program/pid_file.c - the pid file of torchserve, by which --stop finds the server.
 * Main thread, at start and end.
 *
 * The file lies where TorchServe puts it: in the first usable folder of TMPDIR, TEMP, TMP and the
 * usual ones. A number alone proves little after a crash or a reboot, because another process may
 * have it by now. So a pid counts only if that process was started as torchserve; otherwise the
 * file is stale, and is replaced.
 *
 * The folder may be writable for everybody. The file is created and never opened if it exists, and
 * links are not followed, so nobody can make the server overwrite another file. */
#include "torchserve/program/pid_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/system/write_file.h"

#define NAME ".model_server.pid"

static const char *
variable(char **environment, const char *name)
{
    size_t len = strlen(name);

    for (; environment != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return *environment + len + 1;
    }
    return NULL;
}

static bool
is_usable(const char *dir)
{
    struct stat st;

    return dir != NULL && dir[0] != '\0' && stat(dir, &st) == 0 && S_ISDIR(st.st_mode) &&
           access(dir, W_OK | X_OK) == 0;
}

void
cn_pid_file_path(char **environment, char *out, size_t out_bytes)
{
    const char *const candidates[] = {variable(environment, "TMPDIR"),
                                      variable(environment, "TEMP"),
                                      variable(environment, "TMP"),
                                      "/tmp",
                                      "/var/tmp",
                                      "/usr/tmp"};

    for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        if (!is_usable(candidates[i]))
            continue;
        snprintf(out, out_bytes, "%s/" NAME, candidates[i]);
        return;
    }
    snprintf(out, out_bytes, NAME);
}

/* Reads the first bytes of a small file. Returns -1 if it cannot be opened. */
static ssize_t
read_start(const char *path, char *out, size_t out_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return -1;
    n = read(fd, out, out_bytes - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

static long
read_pid(const char *path)
{
    char text[32], *end;
    long pid;

    if (read_start(path, text, sizeof(text)) < 0)
        return -1;
    pid = strtol(text, &end, 10);
    return end > text && pid > 1 && pid <= INT_MAX ? pid : 0;
}

/* Returns whether this process was started as torchserve. A zombie has no command line, so it does
 * not count. */
static bool
is_torchserve(long pid)
{
    char path[64], command[4096];
    const char *name;

    snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
    if (read_start(path, command, sizeof(command)) <= 0)
        return false;
    name = strrchr(command, '/'); /* the first argument ends with a NUL */
    return strcmp(name ? name + 1 : command, "torchserve") == 0;
}

pid_t
cn_pid_file_running(const char *path, bool *is_stale)
{
    long pid = read_pid(path);

    *is_stale = pid >= 0 && !is_torchserve(pid);
    return pid > 0 && !*is_stale ? (pid_t)pid : 0;
}

int
cn_pid_file_write(const char *path, struct cn_error *err)
{
    /* Do not write through a link: somebody else may have put it into a folder that all may write
     * to. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    char text[32];
    int n = snprintf(text, sizeof(text), "%ld", (long)getpid()), failed;

    if (fd < 0 && errno == EEXIST)
        return cn_fail(err, CN_E_CONFLICT,
                       "the pid file %s already exists: another server is starting, or the file "
                       "cannot be removed",
                       path);
    if (fd < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot write the pid file %s", path);
    failed = cn_write_all(fd, text, (size_t)n);
    close(fd);
    if (!failed)
        return 0;
    unlink(path);
    return cn_fail_sys(err, CN_E_IO, failed, "cannot write the pid file %s", path);
}

void
cn_pid_file_remove_own(const char *path)
{
    if (read_pid(path) == (long)getpid())
        unlink(path);
}
