/* worker/worker.h - a worker process: one model, one socket to the server, one thread. */
#ifndef CN_WORKER_WORKER_H
#define CN_WORKER_WORKER_H

#include "handlers/runtime.h"

/* Returns the runtime of this name, or NULL. The function is cn_runtime_find, or a test's own. */
typedef const struct cn_runtime_ops *(*cn_runtime_find_fn)(const char *name);

/* Serves the stream socket `fd`, which it takes, until the server sends STOP or is gone. Returns
 * the process' exit status. When LOAD asks for a zygote, the call also returns in each worker that
 * was forked. `title` is the text of argv that ps shows, NUL-terminated; a forked worker overwrites
 * it with its own. It may be NULL. */
int cn_worker_run(int fd, cn_runtime_find_fn find, char *title);

/* Opens the store in `dir`, reads every record and prints the counts. With `mend` it first repairs
 * what can be repaired. Returns the exit status: 0 when all records are good (also when there is no
 * store), CN_CHECK_DAMAGED when some are not, 1 when the store cannot be read, CN_CHECK_NOT_DONE
 * when the machine kept it from being checked; then the reason is printed, and not the counts. */
int cn_worker_check_store(const char *dir, bool mend);
/* Accepts the loss of records in a damaged store, so that it can be used again. Returns 0,
 * CN_CHECK_NOT_DONE, CN_CHECK_DAMAGED when the loss could not be accepted, or 1 when the store
 * cannot be opened. */
int cn_worker_accept_store(const char *dir);

#endif
