/* torchserve/program/launcher.c - starts and stops the server as TorchServe's launcher does. Main
 * thread.
 *
 * The server runs in this program. In the background it is a child process, which reports through a
 * pipe when it is ready. It prints to where the launcher's output went, so whoever started the
 * launcher can go on reading.
 */
#include "torchserve/program/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/server/server.h"
#include "torchserve/program/pid_file.h"

#define STOP_WAIT_MS 60000 /* the same as TorchServe's; longer than our default of drain-timeout */
#define KEY_FILE "key_file.json"

struct running {
    const struct cn_server_config *config;
    char pid_file[4096];
    int ready_fd; /* -1 if nobody waits */
};

static void
warn(void *ctx, const char *line)
{
    (void)ctx;
    fprintf(stderr, "torchserve: %s\n", line);
}

static void
on_ready(void *ctx)
{
    struct running *running = ctx;
    ssize_t n;

    if (running->ready_fd < 0)
        return;
    n = write(running->ready_fd, "", 1);
    (void)n; /* if the launcher is gone, nobody waits */
    close(running->ready_fd);
    running->ready_fd = -1;
}

static int
run(struct running *running)
{
    struct cn_error err;
    int code = cn_pid_file_write(running->pid_file, &err);

    if (code == CN_E_CONFLICT) {
        fprintf(stderr, "torchserve: %s\n", err.message);
        return 1;
    }
    if (code != 0) /* for example because of a full disk; only --stop needs the file */
        fprintf(stderr,
                "torchserve: %s; torchserve --stop will not find this server, so stop it with: "
                "kill %ld\n",
                err.message, (long)getpid());
    code = cn_server_run(running->config, on_ready, running);
    cn_pid_file_remove_own(running->pid_file);
    if (code == 0) {
        puts("Torchserve stopped.");
        fflush(stdout);
    }
    return code;
}

/* Waits until the server behind the pipe is ready. Returns 0, or the server's exit code if it ended
 * before that. */
static int
wait_ready(int fd, pid_t pid)
{
    ssize_t n;
    char byte;
    int status;

    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    close(fd);
    if (n == 1)
        return 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
}

/* Starts the server in a session of its own, so that it does not end with the terminal. */
static int
run_behind(struct running *running)
{
    int fds[2], null;
    pid_t pid;

    fflush(stdout);
    if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        fprintf(stderr, "torchserve: cannot start the server: %s\n", strerror(errno));
        return 1;
    }
    if (pid > 0) {
        close(fds[1]);
        return wait_ready(fds[0], pid);
    }
    close(fds[0]);
    running->ready_fd = fds[1];
    setsid();
    null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0 && dup2(null, STDIN_FILENO) >= 0)
        close(null);
    return run(running);
}

static int
start(struct running *running, bool in_foreground)
{
    bool is_stale;

    if (cn_pid_file_running(running->pid_file, &is_stale)) {
        puts("TorchServe is already running, please use torchserve --stop to stop TorchServe.");
        return 1;
    }
    if (is_stale) {
        puts("Removing orphan pid file.");
        unlink(running->pid_file);
    }
    return in_foreground ? run(running) : run_behind(running);
}

int
cn_torchserve_start(const struct cn_torchserve_command *command, char **environment)
{
    struct running running = {.ready_fd = -1};
    struct cn_server_config config;
    struct cn_error err;
    int code;

    if (cn_torchserve_config_load(command, environment, &config, warn, NULL, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    running.config = &config;
    cn_pid_file_path(environment, running.pid_file, sizeof(running.pid_file));
    code = start(&running, command->values[CN_TS_FOREGROUND] != NULL);
    cn_server_config_fini(&config);
    return code;
}

/* --- stop */

/* Waits until the process has ended. Returns false if it still runs after STOP_WAIT_MS. */
static bool
wait_gone(pid_t pid)
{
    struct pollfd watch = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    int n;

    if (watch.fd < 0)
        return errno == ESRCH;
    do
        n = poll(&watch, 1, STOP_WAIT_MS);
    while (n < 0 && errno == EINTR);
    close(watch.fd);
    return n == 1;
}

int
cn_torchserve_stop(char **environment)
{
    char path[4096];
    struct stat st;
    bool is_stale;
    pid_t pid;

    cn_pid_file_path(environment, path, sizeof(path));
    pid = cn_pid_file_running(path, &is_stale);
    if (pid == 0) {
        if (is_stale)
            unlink(path);
        puts("TorchServe is not currently running.");
        return 0;
    }
    if (kill(pid, SIGTERM) < 0 && errno != ESRCH) {
        fprintf(stderr, "torchserve: cannot stop pid %ld: %s\n", (long)pid, strerror(errno));
        return 1;
    }
    if (!wait_gone(pid)) {
        puts("Stopping TorchServe took too long.");
        return 1;
    }
    if (lstat(KEY_FILE, &st) == 0 && S_ISREG(st.st_mode))
        unlink(KEY_FILE);
    unlink(path);
    puts("TorchServe has stopped.");
    return 0;
}
