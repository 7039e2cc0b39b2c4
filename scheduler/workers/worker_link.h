/* scheduler/workers/worker_link.h - one worker process as the scheduler sees it: a socket with
 * credit.
 *
 * Frames to the worker are collected during a turn and leave with one write at its end. What the
 * socket does not take waits in a buffer, which is bounded by the worker's credit. A link belongs
 * to the model queue's loop. It knows nothing of processes; its owner does
 * (management/workers/supervisor.h).
 */
#ifndef CN_SCHEDULER_WORKERS_WORKER_LINK_H
#define CN_SCHEDULER_WORKERS_WORKER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"
#include "proto/frame.h"

struct cn_worker_link;

struct cn_worker_link_ops {
    /* LOADED arrived. With error_code 0 the worker is ready, and the owner attaches the link to its
     * queue; otherwise the model cannot be loaded, and the owner ends the process. `loaded` is
     * borrowed. */
    void (*on_loaded)(void *owner, const struct cn_loaded *loaded);
    void (*on_stats)(void *owner, const struct cn_worker_stats *stats);
    /* The link is dead, after end of file, a write error or a bad frame. Called once. The owner
     * kills the process if it lives, detaches the link from its queue and destroys it. `why` is one
     * line. */
    void (*on_lost)(void *owner, const char *why);
    /* A call took longer than responseTimeout: the owner must kill -9 the process and then treat
     * the link as lost. */
    void (*on_overdue)(void *owner, const char *why);
    /* on_progress: how far loading has come. on_forked: a zygote's answer to FORK. NULL: not
     * wanted. The structs are borrowed. */
    void (*on_progress)(void *owner, const struct cn_progress *progress);
    void (*on_forked)(void *owner, const struct cn_forked *forked);
};

/* Makes a link on `loop`. `fd`: a non-blocking stream socket, which belongs to the link from here
 * on, also if this fails. `index`: the worker's number in its pool, from 1. The caller keeps
 * `owner` and `ops` in place, and destroys the link. */
int cn_worker_link_create(struct cn_loop *loop, int fd, uint32_t index, uint64_t max_frame_bytes,
                          const struct cn_worker_link_ops *ops, void *owner,
                          struct cn_worker_link **out, struct cn_error *err);
/* Closes the socket and frees the link, which must be detached. It may be called from inside the
 * owner's callbacks. NULL is allowed. */
void cn_worker_link_destroy(struct cn_worker_link *link);

void cn_worker_link_send_load(struct cn_worker_link *link, const struct cn_load *load);
/* Asks a zygote that has loaded to fork a worker. `fds`: the new worker's socket and the descriptor
 * that it prints to; they stay the caller's. False: nothing was sent, and the link will be lost. */
bool cn_worker_link_send_fork(struct cn_worker_link *link, struct cn_str label, const int fds[2]);
/* Asks the worker to finish what it has and to exit with 0. */
void cn_worker_link_send_stop(struct cn_worker_link *link);

/* The number of rows that were sent and have no final answer yet. */
uint32_t cn_worker_link_in_flight(const struct cn_worker_link *link);

#endif
