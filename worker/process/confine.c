/* worker/process/confine.c - how a worker's process sets itself up before it serves. One thread. */
#include "worker/process/confine.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/log/log.h"
#include "proto/frame.h"

/* How long the kernel may take to close the files of a server that was killed, after it has given
 * the server's children to another parent. */
#define CLOSE_WAIT_MS 200

bool
cn_worker_has_socket(void)
{
    socklen_t len = sizeof(int);
    int type;

    return getsockopt(CN_WORKER_FD, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

void
cn_worker_log_begin(void)
{
    const char *level = getenv("CONTINUO_LOG_LEVEL");
    int parsed;

    cn_log_set_program("worker");
    cn_log_set_one_line(
        true); /* the server reads each line, and writes it as an event of its own */
    if (level && (parsed = cn_log_level_parse(level)) >= 0)
        cn_log_set_level((enum cn_log_level)parsed);
}

/* The kernel sends no signal for a parent that had ended before it was told to. An interpreter
 * under load takes seconds until it comes here, so that happens; and a worker that went on would
 * load its model, which may take minutes, before it reads the end of its socket. All that time it
 * would hold the lock of the state folder, for which the next server waits.
 *
 * The server made the socket pair, so the socket knows its pid. If our parent has another one, the
 * server is gone, or a program between us (a script that is named as the interpreter) started us:
 * then the socket tells. */
int
cn_worker_end_with_server(int fd)
{
    struct pollfd socket = {.fd = fd};
    struct ucred server;
    socklen_t len = sizeof(server);

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &len) != 0)
        return -1;
    if (getppid() == server.pid || poll(&socket, 1, CLOSE_WAIT_MS) <= 0)
        return 0;
    errno = ESRCH;
    return -1;
}

int
cn_worker_confine(void)
{
    const struct rlimit none = {0, 0};

    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    if (cn_worker_end_with_server(CN_WORKER_FD) == 0 &&
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && setrlimit(RLIMIT_CORE, &none) == 0)
        return 0;
    perror("continuo-worker: cannot confine itself");
    return -1;
}
