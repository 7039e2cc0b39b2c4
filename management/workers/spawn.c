/* management/workers/spawn.c - starts a worker process and watches how it ends. Queue's loop.
 *
 * posix_spawn() shares our memory until the child calls exec, so a start costs the same however
 * much memory the server has. A process is watched by its pidfd, which names exactly this process
 * even after its pid was given to another one.
 *
 * The child gets nothing that it need not have: an environment of the names in `allowed`, the
 * descriptors 0 to 4, and no signal that is blocked or ignored. It is in a process group of its
 * own.
 */
#include "management/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/errors/panic.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"
#include "proto/frame.h"

/* Descriptors for the child are first moved to this number or above, so that giving one its final
 * number never overwrites another. */
#define SAFE_FD 10

/* Environment variables that a worker may see; a '*' stands for any ending. The server's
 * environment may hold secrets, which are not for handlers. */
static const char *const allowed[] = {
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "USER",
    "LD_LIBRARY_PATH",
    "ASAN_OPTIONS",
    "LSAN_OPTIONS",
    "UBSAN_OPTIONS",
    "TSAN_OPTIONS",
    "MALLOC_*",
    "GLIBC_TUNABLES",
    "OMP_*",
    "CUDA_VISIBLE_DEVICES",
    "PYTHON*",
    "PYENV_*",
    "VIRTUAL_ENV",
    "CONDA_*",
    "CONTINUO_LOG_LEVEL",
    "CONTINUO_TEST_*",
    "CONTINUO_WORKER_*",
    "GCOV_*",
    "LLVM_PROFILE_FILE",
};

/* What an installer of packages may see besides: from where the operator wants packages to come.
 * Their addresses may hold passwords, which are not for handlers. */
static const char *const allowed_to_installers[] = {
    "PIP_*",      "HTTP_PROXY",    "HTTPS_PROXY",  "ALL_PROXY",          "NO_PROXY",
    "http_proxy", "https_proxy",   "all_proxy",    "no_proxy",           "XDG_*",
    "NETRC",      "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "CC",         "CXX",           "CFLAGS",       "CXXFLAGS",           "LDFLAGS",
};

static bool
is_among(const char *entry, const char *const *names, size_t n)
{
    size_t name_len = strcspn(entry, "="), len, i;

    for (i = 0; i < n; i++) {
        len = strlen(names[i]);
        if (names[i][len - 1] == '*') {
            if (name_len >= len - 1 && strncmp(entry, names[i], len - 1) == 0)
                return true;
        } else if (name_len == len && strncmp(entry, names[i], len) == 0) {
            return true;
        }
    }
    return false;
}

static bool
may_see(const char *entry, bool installs)
{
    return is_among(entry, allowed, sizeof allowed / sizeof *allowed) ||
           (installs && is_among(entry, allowed_to_installers,
                                 sizeof allowed_to_installers / sizeof *allowed_to_installers));
}

char **
cn_spawn_environment(bool installs)
{
    size_t n = 0, kept = 0;
    char **out;

    while (environ && environ[n])
        n++;
    out = cn_alloc((n + 2) * sizeof *out); /* one more, for TMPDIR */
    for (size_t i = 0; i < n; i++)
        if (may_see(environ[i], installs))
            out[kept++] = cn_strdup(environ[i]);
    return out;
}

/* Lets TMPDIR name the process's own folder for temporary files. */
static void
set_temp_dir(char **environment, const char *folder)
{
    struct cn_buf text;
    size_t i = 0;

    cn_buf_init(&text, 0);
    cn_buf_printf(&text, "TMPDIR=%s", folder);
    while (environment[i] && strncmp(environment[i], "TMPDIR=", 7) != 0)
        i++;
    if (environment[i])
        cn_free(environment[i]);
    else
        environment[i + 1] = NULL; /* cn_spawn_environment has left room */
    environment[i] = cn_buf_take(&text, NULL);
}

#ifdef CN_PYTHON_PRELOAD
/* A build with AddressSanitizer: an interpreter that loads our library must have the sanitizer's
 * own library before all others, and it frees little of its memory at its end. */
static char **
with_sanitizer(char **environment)
{
    size_t n = 0;
    char **out;

    while (environment[n])
        n++;
    out = cn_alloc((n + 3) * sizeof *out);
    memcpy(out, environment, n * sizeof *out);
    out[n] = cn_strdup("LD_PRELOAD=" CN_PYTHON_PRELOAD);
    out[n + 1] = cn_strdup("LSAN_OPTIONS=detect_leaks=0");
    cn_free(environment);
    return out;
}
#endif

void
cn_spawn_environment_free(char **environment)
{
    size_t i;

    for (i = 0; environment[i]; i++)
        cn_free(environment[i]);
    cn_free(environment);
}

/* Moves *fd to SAFE_FD or above; -1 and errno on failure (*fd is then unchanged). */
static int
move_up(int *fd)
{
    int moved = fcntl(*fd, F_DUPFD_CLOEXEC, SAFE_FD);

    if (moved < 0)
        return -1;
    close(*fd);
    *fd = moved;
    return 0;
}

/* Opens a socket pair or a pipe. [0] is ours and does not block; [1] is for the child. */
static int
open_pair(bool is_pipe, int fds[2], struct cn_error *err)
{
    int rc =
        is_pipe ? pipe2(fds, O_CLOEXEC) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds);

    if (rc < 0) {
        fds[0] = fds[1] = -1;
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot connect a worker by a %s",
                           is_pipe ? "pipe" : "socket pair");
    }
    if (move_up(&fds[1]) < 0 || fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
        return cn_fail_sys(err, CN_E_UNAVAILABLE, errno,
                           "cannot prepare the descriptors of a worker");
    return 0;
}

static int
add_actions(posix_spawn_file_actions_t *actions, const struct cn_spawn_spec *spec, int socket_fd,
            int print_fd)
{
    int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, print_fd, STDOUT_FILENO);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, print_fd, STDERR_FILENO);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, socket_fd, CN_WORKER_FD);
    if (!rc && spec->lock_fd >= 0)
        rc = posix_spawn_file_actions_adddup2(actions, spec->lock_fd, CN_WORKER_LOCK_FD);
    if (!rc)
        rc = posix_spawn_file_actions_addclosefrom_np(
            actions, spec->lock_fd >= 0 ? CN_WORKER_LOCK_FD + 1 : CN_WORKER_LOCK_FD);
    if (!rc)
        rc = posix_spawn_file_actions_addchdir_np(actions, spec->dir);
    return rc;
}

/* The child has a process group of its own, so Ctrl-C at our terminal reaches only the server,
 * which then stops its workers in order. */
static int
set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t set;
    int rc = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                      POSIX_SPAWN_SETSIGDEF);

    sigemptyset(&set);
    if (!rc)
        rc = posix_spawnattr_setsigmask(attributes, &set);
    sigfillset(&set);
    if (!rc)
        rc = posix_spawnattr_setsigdefault(attributes, &set);
    if (!rc)
        rc = posix_spawnattr_setpgroup(attributes, 0);
    return rc;
}

static void
set_words(const struct cn_spawn_spec *spec, char *argv[3 + CN_SPAWN_WORDS_MAX + 1])
{
    unsigned n = 0;

    argv[n++] = (char *)(spec->script ? spec->program : "continuo-worker");
    if (spec->script)
        argv[n++] = (char *)spec->script;
    argv[n++] = (char *)spec->label;
    for (unsigned i = 0; spec->words && spec->words[i] && i < CN_SPAWN_WORDS_MAX; i++)
        argv[n++] = (char *)spec->words[i];
    argv[n] = NULL;
}

static int
start(const struct cn_spawn_spec *spec, int socket_fd, int print_fd, pid_t *pid)
{
    char *argv[3 + CN_SPAWN_WORDS_MAX + 1];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    char **environment;
    int rc;

    set_words(spec, argv);
    rc = posix_spawn_file_actions_init(&actions);
    if (rc)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc)
        goto destroy_actions;
    rc = set_attributes(&attributes);
    if (!rc)
        rc = add_actions(&actions, spec, socket_fd, print_fd);
    if (!rc) {
        environment = cn_spawn_environment(spec->installs);
        if (spec->temp_dir && *spec->temp_dir)
            set_temp_dir(environment, spec->temp_dir);
#ifdef CN_PYTHON_PRELOAD
        if (spec->script && !spec->installs)
            environment = with_sanitizer(environment);
#endif
        rc = posix_spawn(pid, spec->program, &actions, &attributes, argv, environment);
        cn_spawn_environment_free(environment);
    }
    posix_spawnattr_destroy(&attributes);
destroy_actions:
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

static void
close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

void
cn_spawn_close(struct cn_spawned *ours)
{
    close_fd(ours->pid_fd);
    close_fd(ours->socket_fd);
    close_fd(ours->stderr_fd);
    *ours = (struct cn_spawned){.pid_fd = -1, .socket_fd = -1, .stderr_fd = -1};
}

void
cn_spawn_close_ends(struct cn_spawn_ends *theirs)
{
    close_fd(theirs->fds[0]);
    close_fd(theirs->fds[1]);
    *theirs = (struct cn_spawn_ends){{-1, -1}};
}

int
cn_spawn_open(struct cn_spawned *ours, struct cn_spawn_ends *theirs, struct cn_error *err)
{
    int pair[2] = {-1, -1}, print[2] = {-1, -1};
    int rc = open_pair(false, pair, err);

    if (!rc)
        rc = open_pair(true, print, err);
    *ours = (struct cn_spawned){.pid_fd = -1, .socket_fd = pair[0], .stderr_fd = print[0]};
    *theirs = (struct cn_spawn_ends){{pair[1], print[1]}};
    if (rc) {
        cn_spawn_close(ours);
        cn_spawn_close_ends(theirs);
    }
    return rc;
}

/* The processes that are watched and not reaped yet. Any thread. */
static struct {
    pthread_mutex_t lock;
    pid_t *pids;
    size_t n, cap;
} watched = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
note(pid_t pid)
{
    pthread_mutex_lock(&watched.lock);
    if (watched.n == watched.cap) {
        watched.cap = watched.cap ? watched.cap * 2 : 16;
        watched.pids = cn_try_realloc(watched.pids, watched.cap * sizeof *watched.pids);
        if (!watched.pids)
            cn_panic(__FILE__, __LINE__, "not enough memory for %zu pids", watched.cap);
    }
    watched.pids[watched.n++] = pid;
    pthread_mutex_unlock(&watched.lock);
}

static void
forget(pid_t pid)
{
    pthread_mutex_lock(&watched.lock);
    for (size_t i = 0; i < watched.n; i++)
        if (watched.pids[i] == pid) {
            watched.pids[i] = watched.pids[--watched.n];
            break;
        }
    if (watched.n == 0) {
        cn_free(watched.pids);
        watched.pids = NULL;
        watched.cap = 0;
    }
    pthread_mutex_unlock(&watched.lock);
}

bool
cn_spawn_is_watched(pid_t pid)
{
    bool found = false;

    pthread_mutex_lock(&watched.lock);
    for (size_t i = 0; i < watched.n && !found; i++)
        found = watched.pids[i] == pid;
    pthread_mutex_unlock(&watched.lock);
    return found;
}

/* No other code reaps our children, so the pid still names this process, dead or alive. */
int
cn_spawn_adopt(struct cn_spawned *ours, pid_t pid, struct cn_error *err)
{
    ours->pid = pid;
    ours->pid_fd = pidfd_open(pid, 0);
    if (ours->pid_fd >= 0) {
        note(pid);
        return 0;
    }
    cn_fail_sys(err, CN_E_UNAVAILABLE, errno, "cannot watch worker %d", (int)pid);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return CN_E_UNAVAILABLE;
}

int
cn_spawn(const struct cn_spawn_spec *spec, struct cn_spawned *out, struct cn_error *err)
{
    struct cn_spawn_ends theirs;
    pid_t pid;
    int rc = cn_spawn_open(out, &theirs, err), sys;

    if (rc)
        return rc;
    sys = start(spec, theirs.fds[0], theirs.fds[1], &pid);
    cn_spawn_close_ends(&theirs);
    if (sys)
        rc = cn_fail_sys(err, CN_E_UNAVAILABLE, sys, "cannot start %s in %s", spec->program,
                         spec->dir);
    else
        rc = cn_spawn_adopt(out, pid, err);
    if (rc)
        cn_spawn_close(out);
    return rc;
}

void
cn_spawn_kill(int pid_fd)
{
    if (pid_fd >= 0)
        pidfd_send_signal(pid_fd, SIGKILL, NULL, 0);
}

void
cn_spawn_kill_group(pid_t pid)
{
    if (pid > 0)
        kill(-pid, SIGKILL);
}

bool
cn_spawn_reap(int pid_fd, struct cn_exit *out)
{
    siginfo_t info = {0};

    if (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED | WNOHANG) < 0) {
        /* It was reaped elsewhere, so we only know that it is gone. */
        *out = (struct cn_exit){.number = -1};
        return errno == ECHILD;
    }
    if (info.si_pid == 0)
        return false;
    forget(info.si_pid);
    *out = (struct cn_exit){.by_signal = info.si_code != CLD_EXITED, .number = info.si_status};
    return true;
}

void
cn_spawn_wait(int pid_fd)
{
    siginfo_t info = {0};

    while (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED) < 0 && errno == EINTR)
        continue;
    if (info.si_pid)
        forget(info.si_pid);
}

void
cn_exit_describe(const struct cn_exit *ended, char *out, size_t out_bytes)
{
    const char *name;

    if (!ended->by_signal) {
        snprintf(out, out_bytes, "exited with status %d", ended->number);
        return;
    }
    name = sigabbrev_np(ended->number);
    snprintf(out, out_bytes, "was killed by signal %d (%s%s)", ended->number, name ? "SIG" : "",
             name ? name : "unknown");
}
