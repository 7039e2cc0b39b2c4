/* frontend/http_accept.h - takes clients from one listening socket, as long as there is room for them.
 *
 * libmicrohttpd could do that itself, but once accept() had no descriptor for it, it accepts nobody until
 * one of its connections has ended. Owned by the loop thread.
 */
#ifndef CN_FRONTEND_HTTP_ACCEPT_H
#define CN_FRONTEND_HTTP_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/loop.h"

struct sockaddr;

struct cn_http_accept {
    struct cn_loop *loop;
    int fd; /* listening; -1: closed */
    struct cn_watch watch;
    struct cn_timer pause;
    bool is_full; /* its owner had no room for one more */
    bool failing; /* said so already */
    bool (*has_room)(const struct cn_http_accept *accept);
    /* `fd` is non-blocking, and the callee's. */
    void (*on_client)(struct cn_http_accept *accept, int fd, const struct sockaddr *from,
                      uint32_t from_len);
};

/* `accept` has its functions; `fd` is its own from here on, also on failure. */
int cn_http_accept_begin(struct cn_http_accept *accept, struct cn_loop *loop, int fd,
                         struct cn_error *err);
/* Its owner has room again. Cheap when it always had. */
void cn_http_accept_go_on(struct cn_http_accept *accept);
/* Closes the listening socket. Harmless twice. */
void cn_http_accept_end(struct cn_http_accept *accept);

#endif
