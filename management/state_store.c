/* management/state_store.c - the stores in the state folder, one a model version: made, marked,
 * checked, set aside, deleted. File thread; at start and end the main thread. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "management/spawn.h"
#include "management/state_dir.h"
#include "management/state_dir_priv.h"
#include "proto/frame.h"

#define MARK "UNVERIFIED"
/* In the name of what was set aside. No version's folder has it: '~' stands only before a sum, in
 * hexadecimal digits (cn_state_dir_encode). */
#define BAD "~bad-"
#define BAD_BYTES (sizeof BAD - 1 + 20) /* with a time */

static int
remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    if (remove(path) < 0 && errno != ENOENT)
        cn_log(CN_LOG_WARN, "event=not_removed path=%s reason=\"%s\"", path, strerror(errno));
    return 0;
}

static void
remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static int
remove_below(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    return where->level > 0 ? remove_entry(path, st, kind, where) : 0;
}

void
cn_state_empty_tree(const char *path)
{
    nftw(path, remove_below, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* Calls `fn` for each folder models/<name>/<version>. Ends at the first that isn't 0. */
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
            if (entry->d_name[0] == '.' || strstr(entry->d_name, BAD))
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
    int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600), rc = 0;

    if (fd < 0)
        rc = cn_fail_sys(err, CN_E_CONFIG, errno, "cannot write %s", mark);
    else
        close(fd);
    cn_free(mark);
    return rc;
}

int
cn_state_mark_stores(const char *state_path, struct cn_error *err)
{
    return each_store(state_path, mark_store, err);
}

/* Says in *err what could not be flushed, and goes on. */
static int
sync_store(const char *store, struct cn_error *err)
{
    DIR *dir = opendir(store);
    struct dirent *entry;
    int fd;

    while (dir && (entry = readdir(dir))) {
        if (entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN)
            continue;
        fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
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

/* Runs `worker_program --check-store DIR`; its findings go to our stderr. Returns 0 whole, 1 damaged, or
 * an error. */
static int
check_store(const char *store, const char *worker_program, struct cn_error *err)
{
    char *argv[] = {(char *)"continuo-worker", (char *)"--check-store", (char *)store, NULL};
    char **environment = cn_spawn_environment();
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    int status, rc;

    /* This thread blocks all signals; the program should not. */
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    rc = posix_spawn(&pid, worker_program, NULL, &attributes, argv, environment);
    posix_spawnattr_destroy(&attributes);
    cn_spawn_environment_free(environment);
    if (rc)
        return cn_fail_sys(err, CN_E_LOAD_FAILED, rc, "cannot run %s", worker_program);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return cn_fail_sys(err, CN_E_LOAD_FAILED, errno, "cannot wait for %s", worker_program);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CN_CHECK_NO_ROOM)
        return cn_fail(err, CN_E_STATE_STORE,
                       "the store %s is to be checked after a power cut, and the disk has no room "
                       "for its lock.mdb; make room and register the model again",
                       store);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

/* Keeps the bytes for whoever wants to look, out of the way of a fresh store. */
static int
set_aside(const char *store, struct cn_error *err)
{
    size_t begun = (size_t)(strrchr(store, '/') + 1 - store), len = strlen(store);
    struct cn_buf bad;
    char *path;
    int rc = 0;

    if (len - begun > NAME_MAX - BAD_BYTES) /* the new name is a file's, too */
        len = begun + NAME_MAX - BAD_BYTES;
    cn_buf_init(&bad, 0);
    cn_buf_printf(&bad, "%.*s" BAD "%llu", (int)len, store, (unsigned long long)cn_wall_ms());
    path = cn_buf_take(&bad, NULL);
    cn_log(CN_LOG_ERROR,
           "event=store_damaged store=%s set_aside=%s "
           "note=\"after a power cut; its sequences start anew\"",
           store, path);
    if (rename(store, path) < 0)
        rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot set the damaged store %s aside",
                         store);
    cn_free(path);
    return rc;
}

static int
verify_if_marked(const char *store, const char *worker_program, struct cn_error *err)
{
    char *mark = cn_state_path(store, MARK);
    int rc = 0;

    if (access(mark, F_OK) == 0) {
        rc = check_store(store, worker_program, err);
        if (rc == 0) {
            cn_log(CN_LOG_INFO, "event=store_verified store=%s", store);
            if (unlink(mark) < 0)
                rc = cn_fail_sys(err, CN_E_STATE_STORE, errno, "cannot remove %s", mark);
        } else if (rc > 0) {
            rc = set_aside(store, err);
        }
    }
    cn_free(mark);
    return rc;
}

int
cn_state_dir_prepare_store(const char *store, const char *worker_program, struct cn_error *err)
{
    char *model = cn_strndup(store, (size_t)(strrchr(store, '/') - store));
    int rc = verify_if_marked(store, worker_program, err);

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
    rmdir(model); /* stays when other versions are in it */
    cn_free(model);
}
