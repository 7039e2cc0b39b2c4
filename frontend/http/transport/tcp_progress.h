/* frontend/http/transport/tcp_progress.h - how far a TCP connection is, by the kernel's own
 * counters. Any thread. */
#ifndef CN_FRONTEND_HTTP_TRANSPORT_TCP_PROGRESS_H
#define CN_FRONTEND_HTTP_TRANSPORT_TCP_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct cn_tcp_progress {
    uint64_t received; /* bytes that came since the connection began */
    uint64_t taken;    /* bytes that the client has confirmed since then */
    bool has_unsent;   /* bytes wait because the client takes no more at present */
};

/* Reads the counters, which is a system call. Returns false for unix sockets. */
bool cn_tcp_progress_get(int fd, struct cn_tcp_progress *out);

#endif
