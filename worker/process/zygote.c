/* worker/process/zygote.c - a process that has loaded its model and forks workers of it. One
 * thread.
 *
 * A TorchScript model takes seconds to load and hundreds of megabytes of memory. A zygote loads it
 * once; each worker that it forks is ready at once and shares those pages (decision 0014). The
 * zygote runs no requests and has no store open. Each FORK comes with two descriptors: the new
 * worker's socket, and where its output goes. The worker inherits everything else from the zygote:
 * the server's lock, its confinement, and the loaded model. Its life then goes on in start.c with a
 * LOAD of its own.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log/log.h"
#include "worker/process/confine.h"
#include "worker/process/fork.h"
#include "worker/worker_priv.h"

/* A FORK frame is small: its label has the names of a model and a version, and a number. */
#define FORK_BYTES 4096

static void
close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Takes the two descriptors out of a message; -1 when it has none. */
static void
take_fds(struct msghdr *message, int fds[2])
{
    struct cmsghdr *head = CMSG_FIRSTHDR(message);

    fds[0] = fds[1] = -1;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(2 * sizeof(int)))
        memcpy(fds, CMSG_DATA(head), 2 * sizeof(int));
}

/* Waits for one FORK. One recvmsg returns exactly one frame, because the kernel does not join
 * messages that carry descriptors. Returns 1, 0 when the server is gone, or an error. `label` lies
 * in `bytes`. */
static int
read_fork(struct cn_worker *worker, char bytes[FORK_BYTES], struct cn_str *label, int fds[2],
          struct cn_error *err)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec text = {bytes, FORK_BYTES};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    struct cn_frame frame;
    ssize_t n;
    long size;

    do
        n = recvmsg(worker->channel.fd, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return cn_fail_sys(err, CN_E_IO, errno, "cannot read from the server");
    take_fds(&message, fds);
    if (n == 0)
        return 0;
    size = cn_frame_next(bytes, (size_t)n, FORK_BYTES, &frame, err);
    if (size == (long)n && frame.type == CN_FRAME_STOP)
        return 0;
    if (size < 0 || size != (long)n || frame.type != CN_FRAME_FORK || fds[0] < 0 || fds[1] < 0 ||
        cn_frame_get_fork(&frame, label, err) != 0) {
        close_both(fds);
        return cn_fail(err, CN_E_PROTOCOL, "a zygote got %zd bytes that are not a FORK frame", n);
    }
    return 1;
}

/* Overwrites the text that ps shows with as much of the label as fits. */
static void
write_title(char *title, struct cn_str label)
{
    size_t room = title ? strlen(title) : 0, n = label.len < room ? label.len : room;

    if (!room)
        return;
    memset(title, 0, room);
    memcpy(title, label.ptr, n);
}

/* In the new worker: what the server gives to one that it starts itself
 * (management/workers/spawn.c, worker/process/worker_main.c) and what a child doesn't have from its
 * parent. */
static int
become_worker(struct cn_worker *worker, const int fds[2], struct cn_error *err)
{
    const int own = worker->channel.fd;
    int failed;

    cn_channel_fini(&worker->channel);
    failed = setpgid(0, 0) != 0 || dup2(fds[0], own) < 0 || cn_worker_end_with_server(own) != 0 ||
                     dup2(fds[1], STDOUT_FILENO) < 0 || dup2(fds[1], STDERR_FILENO) < 0
                 ? errno
                 : 0;
    cn_channel_init(&worker->channel, own); /* a channel in any case: the caller ends it */
    close_both(fds);
    return failed ? cn_fail_sys(err, CN_E_IO, failed, "a forked worker cannot be set up") : 1;
}

static void
tell_fork(const struct cn_worker *worker, enum cn_fork_moment moment)
{
    if (worker->rt->ops->fork)
        worker->rt->ops->fork(worker->rt, moment);
}

static pid_t
fork_worker(const struct cn_worker *worker)
{
    pid_t pid;

    tell_fork(worker, CN_FORK_BEFORE);
    pid = cn_fork_sibling();
    tell_fork(worker, pid == 0 ? CN_FORK_IN_CHILD : CN_FORK_IN_PARENT);
    return pid;
}

int
cn_zygote_serve(struct cn_worker *worker, char *title, struct cn_error *err)
{
    char bytes[FORK_BYTES];
    struct cn_str label;
    int fds[2], rc;

    while ((rc = read_fork(worker, bytes, &label, fds, err)) > 0) {
        struct cn_forked forked = {0};
        pid_t pid = fork_worker(worker);

        if (pid == 0) {
            write_title(title, label);
            return become_worker(worker, fds, err);
        }
        if (pid < 0)
            forked.message = cn_str_from(strerror(errno));
        else
            forked.pid = (uint32_t)pid;
        close_both(fds);
        cn_frame_put_forked(&worker->channel.out, &forked);
        rc = cn_channel_flush(&worker->channel, err);
        if (rc != 0 || worker->channel.eof)
            return rc;
    }
    worker->channel.eof = true;
    return rc;
}
