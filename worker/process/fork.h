/* worker/process/fork.h - forks a sibling: a child of the caller's parent. One thread. */
#ifndef CN_WORKER_PROCESS_FORK_H
#define CN_WORKER_PROCESS_FORK_H

#include <sys/types.h>

#include "core/errors/error.h"

/* Can this process fork siblings? Returns 0, or CN_E_UNIMPLEMENTED with the reason: it has more
 * than one thread, or the kernel lacks a call that is needed. */
int cn_fork_check(struct cn_error *err);

/* Like fork(), but the child's parent is the caller's parent, which reaps it and gets its SIGCHLD.
 * No handlers of pthread_atfork run. Returns -1 and sets errno on failure. Call it only after
 * cn_fork_check() has returned 0. */
pid_t cn_fork_sibling(void);

#endif
