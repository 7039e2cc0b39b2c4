/* frontend/guard/grpc_tls_calls.h - bounds gRPC connections with TLS.
 *
 * libgrpc accepts the connections of a TLS port itself, and what it reads from them is encrypted.
 * So the program defines accept4() and SSL_read() as well (library_calls.h says how that works).
 * accept4() counts the connections of the port and of each address, and closes those that are too
 * many. SSL_read() shows the decrypted bytes to h2_guard.h, which cuts a connection that cancels
 * too many calls. It does not know whose connection it is, so there is one further bound for all
 * connections with TLS together.
 */
#ifndef CN_FRONTEND_GUARD_GRPC_TLS_CALLS_H
#define CN_FRONTEND_GUARD_GRPC_TLS_CALLS_H

#include <stdint.h>

struct cn_h2_limits;
struct sockaddr;

/* All connections with TLS together may cancel this many times as many calls as one. */
#define CN_GRPC_TLS_TIMES 20

struct cn_grpc_tls_port {
    uint16_t number;              /* the TCP port */
    unsigned port;                /* enum cn_grpc_port */
    uint32_t max_connections;     /* of all clients */
    uint32_t address_connections; /* of one address; 0: see cn_client_address_take() */
};

/* Begins to guard a port on which libgrpc listens. `limits` must stay in place, and be the same for
 * each port. At most CN_GRPC_PORTS ports. Loop 0, or before the loops run. */
void cn_grpc_tls_calls_add(const struct cn_grpc_tls_port *port, const struct cn_h2_limits *limits);
/* How many connections were closed since the start because there were too many. Any thread. */
uint64_t cn_grpc_tls_calls_refused(void);

/* accept4() of our own listeners, which count connections themselves. */
int cn_grpc_tls_calls_own_accept(int fd, struct sockaddr *from, unsigned *from_len, int flags);

#endif
