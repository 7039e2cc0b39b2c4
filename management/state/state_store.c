/* management/state/state_store.c - the stores in the state folder, one for each model version: they
 * are made, marked, checked, set aside and deleted. File thread; at start and end also the main
 * thread.
 *
 * The server never reads LMDB itself, because a damaged file can kill the process that maps it
 * (docs/decisions/0026-lmdbs-file-is-checked-before-it-is-opened.md). A store is checked, mended or
 * accepted by a run of the worker program, whose exit status is the result.
 *
 * After a power cut every store has the mark UNVERIFIED. cn_state_dir_prepare_store() has such a
 * store mended before its first worker opens it. There are three results: it is in order, and the
 * mark is removed; some records are damaged, and DAMAGED says so, while the others are used; or it
 * cannot be read at all. Then the folder is renamed and kept for an operator, an empty one takes
 * its place, and DAMAGED in it says where the old one is.
 *
 * The code of the model may write in the folder of its store, and put links and pipes in the place
 * of these files. So nothing here follows a link there, or waits for a pipe.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archiver/archive/archive.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "core/system/write_file.h"
#include "core/time/clock.h"
#include "management/state/state_dir.h"
#include "management/state/state_dir_priv.h"
#include "management/workers/spawn.h"
#include "proto/frame.h"

#define MARK "UNVERIFIED"
#define SAID_BYTES 1024                              /* bound for what the worker program prints */
#define BAD_BYTES (sizeof CN_STATE_BAD - 1 + 20 + 4) /* the ending, a time and ".new" behind it */

char *
cn_state_path(const char *dir, const char *name)
{
    struct cn_buf buf;

    cn_buf_init(&buf, 0);
    cn_buf_printf(&buf, "%s/%s", dir, name);
    return cn_buf_take(&buf, NULL);
}

/* A process of the model may still write there. So no path is followed below the folder. */
static void
remove_tree(const char *path)
{
    struct stat st;

    cn_archive_remove_dir(path);
    if (lstat(path, &st) == 0)
        cn_log(CN_LOG_WARN, "event=not_removed path=%s reason=\"not all in it can be deleted\"",
               path);
}

/* Calls `fn` for each folder models/<name>/<version>. Stops at the first result that is not 0. */
static int
each_store(const char *state_path, int (*fn)(const char *store, struct cn_error *err),
           struct cn_error *err)
{
    char *models = cn_state_path(state_path, "models"), *model, *store;
    DIR *outer = opendir(models), *inner;
    struct dirent *entry;
    int rc = 0;

    while (outer && !rc && (entry = readdir(outer))) {
        if (entry->d_name[0] == '.')
            continue;
        model = cn_state_path(models, entry->d_name);
        inner = opendir(model);
        while (inner && !rc && (entry = readdir(inner))) {
            if (entry->d_name[0] == '.' || strstr(entry->d_name, CN_STATE_BAD))
                continue;
            store = cn_state_path(model, entry->d_name);
            rc = fn(store, err);
            cn_free(store);
        }
        if (inner)
            closedir(inner);
        cn_free(model);
    }
    if (outer)
        closedir(outer);
    cn_free(models);
    return rc;
}

static int
mark_store(const char *store, struct cn_error *err)
{
    char *mark = cn_state_path(store, MARK);
    int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), rc = 0;

    if (fd < 0 && errno != EEXIST)
        rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot write %s", mark);
    else if (fd >= 0)
        close(fd);
    cn_free(mark);
    return rc;
}

int
cn_state_mark_stores(const char *state_path, struct cn_error *err)
{
    return each_store(state_path, mark_store, err);
}

/* Flushes the files of a store. What cannot be flushed is said in *err, and the others follow. */
static int
sync_store(const char *store, struct cn_error *err)
{
    DIR *dir = opendir(store);
    struct dirent *entry;
    int fd;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN)
            continue;
        fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd < 0)
            continue;
        if (fsync(fd) < 0)
            cn_fail_sys(err, CN_E_IO, errno, "cannot flush %s/%s", store, entry->d_name);
        close(fd);
    }
    if (dir)
        closedir(dir);
    return 0;
}

int
cn_state_sync_stores(const char *state_path, struct cn_error *err)
{
    err->code = 0;
    each_store(state_path, sync_store, err);
    return err->code;
}

/* --- by a worker program, since the server does not read LMDB --- */

static void
read_all(int fd, char *said, size_t said_bytes)
{
    size_t at = 0;
    ssize_t n;
    char rest[512];

    while ((n = at + 1 < said_bytes ? read(fd, said + at, said_bytes - 1 - at)
                                    : read(fd, rest, sizeof rest)) > 0 ||
           (n < 0 && errno == EINTR))
        at += n > 0 && at + 1 < said_bytes ? (size_t)n : 0;
    said[at] = '\0';
}

int
cn_state_run_worker(const char *worker_program, const char *option, const char *store, char *said,
                    size_t said_bytes)
{
    char *argv[] = {(char *)"continuo-worker", (char *)option, (char *)store, NULL};
    char **environment;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    int status, rc, ends[2] = {-1, -1};

    if (said && pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    environment = cn_spawn_environment(false);
    /* This thread blocks all signals; the program should not. */
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    if (said)
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    rc = posix_spawn(&pid, worker_program, &actions, &attributes, argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    cn_spawn_environment_free(environment);
    if (said) {
        close(ends[1]);
        if (rc == 0)
            read_all(ends[0], said, said_bytes);
        close(ends[0]);
    }
    if (rc) {
        errno = rc;
        return -1;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return status;
}

/* Was it the store that ended the program? Other signals come from somebody who wanted it to end:
 * an operator, the service manager, or the kernel when memory runs out. */
static bool
is_crash(int signal_number)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP};

    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        if (crashes[i] == signal_number)
            return true;
    return false;
}

/* Runs the worker program on a store; its findings go to our stdout and stderr. Returns its exit
 * status, which is 1 also if it has crashed. An error: nothing is known about the store, which is
 * as it was. */
static int
run_worker(const char *store, const char *option, const char *worker_program, struct cn_error *err)
{
    char said[SAID_BYTES];
    int status = cn_state_run_worker(worker_program, option, store, said, sizeof said);

    if (status < 0)
        return cn_fail_sys(err, CN_E_LOAD_FAILED, errno, "cannot run %s", worker_program);
    if (WIFSIGNALED(status) && is_crash(WTERMSIG(status)))
        return 1;
    if (WIFSIGNALED(status))
        return cn_fail(err, CN_E_STATE_STORE,
                       "the check of the store %s was ended by signal %d; register the model again",
                       store, WTERMSIG(status));
    status = WEXITSTATUS(status);
    if (status == 0 || status == 1 || status == CN_CHECK_DAMAGED) {
        fputs(said, stdout);
        return status;
    }
    said[strcspn(said, "\n")] = '\0';
    return cn_fail(err, CN_E_STATE_STORE,
                   "the store %s cannot be checked now and stays as it is: %s; register the model "
                   "again when that is mended",
                   store, status == CN_CHECK_NOT_DONE ? said : "the worker program has failed");
}

/* Writes the file DAMAGED, which says that something of the store is lost. */
static int
write_report(const char *store, const char *text, struct cn_error *err)
{
    char *path = cn_state_path(store, CN_STORE_REPORT);
    char *beside = cn_state_path(store, CN_STORE_REPORT ".new");
    struct cn_buf report;
    int failed;

    cn_buf_init(&report, 0);
    cn_buf_printf(&report, "lost 0\nsuspect 1\n%s\n", text);
    failed = cn_write_file_atomically(path, beside, 0600, report.data, report.len);
    cn_buf_fini(&report);
    if (failed)
        cn_fail_sys(err, CN_E_STATE_STORE, failed, "cannot write %s", path);
    cn_free(beside);
    cn_free(path);
    return failed ? CN_E_STATE_STORE : 0;
}

/* Returns a path beside the store, with the time and this ending, for bytes that an operator may
 * want. */
static char *
bad_path(const char *store, const char *ending)
{
    size_t begun = (size_t)(strrchr(store, '/') + 1 - store), len = strlen(store);
    struct cn_buf bad;

    if (len - begun > NAME_MAX - BAD_BYTES) /* the new name must fit into a file name, too */
        len = begun + NAME_MAX - BAD_BYTES;
    cn_buf_init(&bad, 0);
    cn_buf_printf(&bad, "%.*s" CN_STATE_BAD "%llu%s", (int)len, store,
                  (unsigned long long)cn_wall_ms(), ending);
    return cn_buf_take(&bad, NULL);
}

static void
say_set_aside(const char *store, const char *aside, const char *why)
{
    cn_log(CN_LOG_ERROR,
           "event=store_set_aside store=%s set_aside=%s note=\"%s; its sequences are lost\"", store,
           aside, why);
}

static int
fail_set_aside(const char *store, struct cn_error *err)
{
    return cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot set the damaged store %s aside",
                       store);
}

/* Renames the store's folder, so that a fresh store can be made. */
static int
set_aside(const char *store, const char *why, struct cn_error *err)
{
    char *aside = bad_path(store, "");
    int rc = rename(store, aside) < 0 ? fail_set_aside(store, err) : 0;

    if (!rc)
        say_set_aside(store, aside, why);
    cn_free(aside);
    return rc;
}

/* Makes the folder of a fresh store, in which DAMAGED says where the old one is. */
static int
make_fresh(const char *fresh, const char *aside, struct cn_error *err)
{
    struct cn_buf text;
    char *said;
    int rc = 0;

    if (mkdir(fresh, 0700) < 0)
        return cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot make the store %s", fresh);
    cn_buf_init(&text, 0);
    cn_buf_printf(&text,
                  "the store could not be read after a power failure and was moved to %s; all of "
                  "its sequences are lost, and their ids start anew",
                  aside);
    said = cn_buf_take(&text, NULL);
    rc = write_report(fresh, said, err);
    cn_free(said);
    return rc;
}

/* Puts the fresh folder in the place of the store in one step, if the file system can do that. */
static int
exchange(const char *store, const char *fresh, const char *aside)
{
    if (renameat2(AT_FDCWD, fresh, AT_FDCWD, store, RENAME_EXCHANGE) == 0)
        return rename(fresh, aside);
    return rename(store, aside) < 0 ? -1 : rename(fresh, store);
}

/* What takes the store's place is made first. A server that is killed, or finds no room for it,
 * never leaves an empty store that does not say what is lost. */
static int
set_aside_unreadable(const char *store, struct cn_error *err)
{
    char *aside = bad_path(store, ""), *fresh = bad_path(store, ".new");
    int rc = make_fresh(fresh, aside, err);

    if (rc)
        remove_tree(fresh);
    else if (exchange(store, fresh, aside) < 0)
        rc = fail_set_aside(store, err);
    else
        say_set_aside(store, aside, "unreadable after a power failure");
    cn_free(fresh);
    cn_free(aside);
    return rc;
}

static int
verify_if_marked(const char *store, const char *worker_program, struct cn_error *err)
{
    char *mark = cn_state_path(store, MARK);
    int rc = 0;

    if (faccessat(AT_FDCWD, mark, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
        rc = run_worker(store, "--mend-store", worker_program, err);
        if (rc == CN_CHECK_DAMAGED) /* each damaged record is refused by its own checksum */
            rc = write_report(store,
                              "records are damaged after a power failure; the log names them, and "
                              "steps of their sequences are refused",
                              err);
        if (rc == 0) {
            cn_log(CN_LOG_INFO, "event=store_verified store=%s", store);
            if (unlink(mark) < 0)
                rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot remove %s", mark);
        } else if (rc > 0) {
            rc = set_aside_unreadable(store, err);
        }
    }
    cn_free(mark);
    return rc;
}

int
cn_state_dir_accept_store(const char *store, const char *worker_program, bool in_use,
                          struct cn_error *err)
{
    char *report;
    int rc = run_worker(store, "--accept-store", worker_program, err);

    if (rc < 0)
        return rc;
    if (rc == 1 && !in_use)
        return set_aside(store, "unreadable, and accepted as lost", err);
    if (rc)
        return cn_fail(
            err, CN_E_STATE_STORE,
            "the store %s cannot be opened; unregister its model or stop the server, then "
            "accept the loss, or restore the folder from a backup",
            store);
    report = cn_state_path(store, CN_STORE_REPORT);
    if (unlink(report) < 0 && errno != ENOENT)
        rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot remove %s", report);
    cn_free(report);
    return rc;
}

static bool
is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void
cn_state_dir_recheck_store(const char *store)
{
    char *checked = cn_state_path(store, CN_STORE_CHECKED);

    if (unlink(checked) < 0 && errno != ENOENT && errno != ENOTDIR)
        cn_log(CN_LOG_WARN, "event=not_removed path=%s reason=\"%s\"", checked, strerror(errno));
    cn_free(checked);
}

int
cn_state_dir_prepare_store(const char *store, const char *worker_program, bool accept,
                           struct cn_error *err)
{
    char *model = cn_strndup(store, (size_t)(strrchr(store, '/') - store));
    int rc;

    cn_state_dir_recheck_store(store);
    rc = verify_if_marked(store, worker_program, err);
    if (!rc && accept && is_folder(store))
        rc = cn_state_dir_accept_store(store, worker_program, false, err);
    if (!rc && ((mkdir(model, 0700) < 0 && errno != EEXIST) ||
                (mkdir(store, 0700) < 0 && errno != EEXIST)))
        rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot make the store %s", store);
    cn_free(model);
    return rc;
}

void
cn_state_dir_remove_store(const char *store)
{
    char *model = cn_strndup(store, (size_t)(strrchr(store, '/') - store));

    remove_tree(store);
    rmdir(model); /* stays if other versions are in it */
    cn_free(model);
}
