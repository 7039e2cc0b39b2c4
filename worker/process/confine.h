/* worker/process/confine.h - how a worker's process sets itself up before it serves. */
#ifndef CN_WORKER_PROCESS_CONFINE_H
#define CN_WORKER_PROCESS_CONFINE_H

#include <stdbool.h>

/* True if descriptor CN_WORKER_FD is a stream socket, as the server gives it to each worker. */
bool cn_worker_has_socket(void);

/* Logs as a worker does: one line for each event, which the server reads, at the level that the
 * environment names. */
void cn_worker_log_begin(void);

/* Makes the kernel kill this process when its server ends; `fd` is its socket to the server.
 * Returns 0, or -1 and sets errno: ESRCH if the server has ended already. */
int cn_worker_end_with_server(int fd);

/* Makes the process end with its server, gain no rights, leave no core file, and leave signals to
 * the server: a ^C or a service manager's SIGTERM reaches the whole group, but the server drains
 * first. Returns 0, or -1 after it has said what failed. */
int cn_worker_confine(void);

#endif
