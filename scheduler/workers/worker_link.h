/* scheduler/workers/worker_link.h - one worker process as the scheduler sees it: a socket with
 * credit.
 *
 * Frames out are collected during a turn and leave with one write at its end; what does not fit the
 * socket waits in a bounded buffer. Owned by the model queue's loop; knows nothing of processes:
 * its owner (management/workers/supervisor) does.
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
    /* LOADED arrived: ready (error_code 0), then the owner attaches the link to its queue; or the
     * model can't load, then the owner ends the process. `loaded` is borrowed. */
    void (*on_loaded)(void *owner, const struct cn_loaded *loaded);
    void (*on_stats)(void *owner, const struct cn_worker_stats *stats);
    /* End of file, write error or a bad frame: the link is dead. Called once; the owner kills the
     * process if it lives, detaches the link from its queue and destroys it. `why` is one line. */
    void (*on_lost)(void *owner, const char *why);
    /* A call took longer than responseTimeout: the owner must kill -9 the process and then treat
     * the link as lost. */
    void (*on_overdue)(void *owner, const char *why);
    /* How far loading is; of a zygote: a FORK's answer. NULL: nobody asks. Borrowed. */
    void (*on_progress)(void *owner, const struct cn_progress *progress);
    void (*on_forked)(void *owner, const struct cn_forked *forked);
};

/* `fd`: non-blocking stream socket, the link's from here on (also on failure). `index`: 1, 2,
 * ... */
int cn_worker_link_create(struct cn_loop *loop, int fd, uint32_t index, uint64_t max_frame_bytes,
                          const struct cn_worker_link_ops *ops, void *owner,
                          struct cn_worker_link **out, struct cn_error *err);
/* Must be detached. Closes the socket. Safe from inside the owner's callbacks. NULL is allowed. */
void cn_worker_link_destroy(struct cn_worker_link *link);

void cn_worker_link_send_load(struct cn_worker_link *link, const struct cn_load *load);
/* To a zygote that has loaded. `fds`: the new worker's socket and what it prints to; they stay the
 * caller's. False: it could not be sent, and the link will be lost. */
bool cn_worker_link_send_fork(struct cn_worker_link *link, struct cn_str label, const int fds[2]);
/* The worker finishes what it has and exits 0. */
void cn_worker_link_send_stop(struct cn_worker_link *link);

/* Rows sent and not finally answered. */
uint32_t cn_worker_link_in_flight(const struct cn_worker_link *link);

#endif
