/* worker/process/fork.h - a fork whose child is the server's own, as its parent is. One thread. */
#ifndef CN_WORKER_PROCESS_FORK_H
#define CN_WORKER_PROCESS_FORK_H

#include <sys/types.h>

#include "core/errors/error.h"

/* 0, or CN_E_UNIMPLEMENTED with the reason: this process has more than one thread, or the kernel
 * doesn't tell what a child needs. */
int cn_fork_check(struct cn_error *err);

/* As fork(), but the child's parent is the caller's parent, who reaps it and is told of its death.
 * No handlers of pthread_atfork run. -1 and errno. Only where cn_fork_check() says 0. */
pid_t cn_fork_sibling(void);

#endif
