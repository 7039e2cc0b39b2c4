/* worker/worker.h - a worker process: one model, one socket to the server, one thread. */
#ifndef CN_WORKER_WORKER_H
#define CN_WORKER_WORKER_H

#include "handlers/runtime.h"

/* cn_runtime_find, or a test's own. */
typedef const struct cn_runtime_ops *(*cn_runtime_find_fn)(const char *name);

/* Serves the stream socket `fd` until the server says STOP or is gone. Returns the exit status.
 * LOAD may ask for a zygote; then the call also returns in each worker that was forked. `title`:
 * where ps finds what this process is, NUL-terminated; a forked worker writes its own there. Or
 * NULL. */
int cn_worker_run(int fd, cn_runtime_find_fn find, char *title);

/* Opens the store in `dir`, reads every record and prints what it found. Returns the exit status: 0
 * all is well (also when there is no store), 1 damaged or unreadable, CN_CHECK_NO_ROOM nothing is
 * known: the disk is too full to look. */
int cn_worker_check_store(const char *dir, bool mend);
/* Accepts what a damaged store lost. 0, CN_CHECK_NO_ROOM, CN_CHECK_DAMAGED when that failed, or 1:
 * the store cannot be opened. */
int cn_worker_accept_store(const char *dir);

#endif
