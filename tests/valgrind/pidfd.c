/* tests/valgrind/pidfd.c - pidfd_open for servers under valgrind, which (3.19) does not know that
 * call.
 *
 * Loaded before libc (LD_PRELOAD). A descriptor is a pipe's end here; a thread waits for the
 * process and then writes a byte, so that it becomes readable as a pidfd does. What takes such a
 * descriptor finds the process by its number.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 65536

int pidfd_open(pid_t pid, unsigned flags);
int pidfd_send_signal(int fd, int number, siginfo_t *info, unsigned flags);

struct wait {
    pid_t pid;
    int fd;
};

static pid_t pids[FDS_MAX];

static void *
wait_for_end(void *ctx)
{
    struct wait wait = *(struct wait *)ctx;
    siginfo_t info;
    ssize_t n;

    free(ctx);
    while (waitid(P_PID, (id_t)wait.pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        continue;
    n = write(wait.fd, "", 1);
    (void)n; /* nobody reads it any more */
    close(wait.fd);
    return NULL;
}

int
pidfd_open(pid_t pid, unsigned flags)
{
    struct wait *wait = malloc(sizeof(*wait));
    pthread_t thread;
    int fds[2];

    (void)flags;
    if (!wait || pipe2(fds, O_CLOEXEC) < 0 || fds[0] >= FDS_MAX) {
        free(wait);
        return -1;
    }
    *wait = (struct wait){pid, fds[1]};
    if (pthread_create(&thread, NULL, wait_for_end, wait) != 0)
        return -1;
    pthread_detach(thread);
    pids[fds[0]] = pid;
    return fds[0];
}

int
waitid(idtype_t kind, id_t id, siginfo_t *info, int options)
{
    if (kind == P_PIDFD)
        return (int)syscall(SYS_waitid, P_PID, pids[id], info, options, NULL);
    return (int)syscall(SYS_waitid, kind, id, info, options, NULL);
}

int
pidfd_send_signal(int fd, int number, siginfo_t *info, unsigned flags)
{
    (void)info;
    (void)flags;
    return kill(pids[fd], number);
}
