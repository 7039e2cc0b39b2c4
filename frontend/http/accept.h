/* frontend/http/accept.h - accepts clients from one listening socket while its owner has room for
 * them.
 *
 * The ports for HTTP and for gRPC use this. A cn_accept is owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_ACCEPT_H
#define CN_FRONTEND_HTTP_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"
#include "core/loop/loop.h"

struct sockaddr;

struct cn_accept {
    struct cn_loop *loop;
    int fd; /* the listening socket; -1: closed */
    struct cn_watch watch;
    struct cn_timer pause;
    bool is_held; /* is_ready() said no; the socket is not watched */
    bool failing; /* the log already has the message about failing accepts */
    /* Is called when a client waits. Returns false when the owner has no room: the client then
     * waits in the kernel until the owner calls cn_accept_go_on(). */
    bool (*is_ready)(struct cn_accept *accept);
    /* Gets a new connection. `fd` is non-blocking; the callee closes it. */
    void (*on_client)(struct cn_accept *accept, int fd, const struct sockaddr *from,
                      uint32_t from_len);
};

/* Starts to accept. The caller has set is_ready and on_client. `fd` is a listening, non-blocking
 * socket; this object closes it, also when this function fails. */
int cn_accept_begin(struct cn_accept *accept, struct cn_loop *loop, int fd, struct cn_error *err);
/* The owner has room again. Does nothing when accepting was not held up, so it may be called
 * often. */
void cn_accept_go_on(struct cn_accept *accept);
/* Closes the listening socket and stops the timer. May be called twice, or when `fd` is -1. */
void cn_accept_end(struct cn_accept *accept);

#endif
