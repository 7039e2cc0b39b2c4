/* worker/process/confine.c - how a worker's process sets itself up before it serves. One thread. */
#include "worker/process/confine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "core/log/log.h"
#include "proto/frame.h"

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

int
cn_worker_confine(void)
{
    const struct rlimit none = {0, 0};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        setrlimit(RLIMIT_CORE, &none) != 0) {
        perror("continuo-worker: cannot confine itself");
        return -1;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return 0;
}
