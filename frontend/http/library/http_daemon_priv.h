/* frontend/http/library/http_daemon_priv.h - libmicrohttpd for http_listener.c and http_response.c.
 * Owned by the loop thread. */
#ifndef CN_FRONTEND_HTTP_LIBRARY_HTTP_DAEMON_PRIV_H
#define CN_FRONTEND_HTTP_LIBRARY_HTTP_DAEMON_PRIV_H

#include <sys/socket.h>

#include "frontend/http/http_listener.h"
#include "frontend/http/http_request.h"

/* This many connections above --max-connections are accepted, to tell them that the server is full;
 * further ones wait in the kernel. */
#define CN_HTTP_SURPLUS_MAX 32

/* The request waits no longer in the daemon's list of ready connections. */
static inline void
cn_http_stop_lingering(struct cn_http_request *request)
{
    request->lingering = false;
    request->listener->n_lingering--;
}

/* Starts the listener's daemon, whose sockets the loop watches from now on. CN_E_UNAVAILABLE. */
int cn_http_daemon_start(struct cn_http_listener *listener, struct cn_error *err);
/* Runs the daemon in the turns of the loop from now on. */
void cn_http_daemon_go(struct cn_http_listener *listener);
/* Runs it now. */
void cn_http_daemon_run(struct cn_http_listener *listener);
/* Gives it a connection, which it closes if it cannot take it. */
void cn_http_daemon_add(struct cn_http_listener *listener, int fd, const struct sockaddr *from,
                        uint32_t from_len);
/* Ends it. No connection may be suspended. */
void cn_http_daemon_stop(struct cn_http_listener *listener);

#endif
