/* grpc/rpc.h - the gRPC ports, as the server drives them. Functions run on loop 0, unless a
 * comment says otherwise. */
#ifndef CN_GRPC_RPC_H
#define CN_GRPC_RPC_H

#include <stdbool.h>
#include <stdint.h>

struct cn_client_address;
struct cn_loop;
struct cn_management;
struct cn_rpc;
struct cn_server_config;

/* What gRPC needs from the server. All of it stays in place until cn_rpc_destroy(). */
struct cn_rpc_host {
    const struct cn_server_config *config;
    struct cn_management *management;
    struct cn_loop *const *loops;
    unsigned n_loops;
};

enum cn_grpc_port { CN_GRPC_INFERENCE, CN_GRPC_MANAGEMENT, CN_N_GRPC };

/* Before the loops run, or on loop 0. Never NULL. */
struct cn_rpc *cn_rpc_create(const struct cn_rpc_host *host);
/* Takes over a connection that was accepted, and the place of its address (may be NULL). `is_tls`:
 * it begins with a handshake, for which cn_tls_start() has read the certificate. */
void cn_rpc_connect(struct cn_rpc *rpc, enum cn_grpc_port port, int fd, bool is_tls,
                    struct cn_client_address *from);
/* How many connections the port has. Any thread. */
uint32_t cn_rpc_n_open(const struct cn_rpc *rpc, enum cn_grpc_port port);
/* Refuses new calls on the port; streams end once everything that they owe is answered. */
void cn_rpc_drain(struct cn_rpc *rpc, enum cn_grpc_port port);
/* Has the loop of that index no connections left? Called on that loop. */
bool cn_rpc_is_empty(const struct cn_rpc *rpc, unsigned loop);
/* Ends all calls now. Any thread. */
void cn_rpc_cut(struct cn_rpc *rpc);
/* Frees everything when no loop runs any more. NULL is allowed. */
void cn_rpc_destroy(struct cn_rpc *rpc);

#endif
