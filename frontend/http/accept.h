/* frontend/http/accept.h - takes clients from one listening socket, as long as its owner is ready
 * for them.
 *
 * For HTTP libmicrohttpd could do that itself, but once accept() had no descriptor for it, it
 * accepts nobody until one of its connections has ended. Owned by the loop thread.
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
    int fd; /* listening; -1: closed */
    struct cn_watch watch;
    struct cn_timer pause;
    bool is_held; /* its owner was not ready */
    bool failing; /* said so already */
    /* Asked when a client waits. False: it goes on waiting, until cn_accept_go_on(). */
    bool (*is_ready)(struct cn_accept *accept);
    /* `fd` is non-blocking, and the callee's. */
    void (*on_client)(struct cn_accept *accept, int fd, const struct sockaddr *from,
                      uint32_t from_len);
};

/* `accept` has its functions; `fd` is its own from here on, also on failure. */
int cn_accept_begin(struct cn_accept *accept, struct cn_loop *loop, int fd, struct cn_error *err);
/* Its owner is ready again. Cheap when it always was. */
void cn_accept_go_on(struct cn_accept *accept);
/* Closes the listening socket. Harmless twice, and when `fd` is -1 before it began. */
void cn_accept_end(struct cn_accept *accept);

#endif
