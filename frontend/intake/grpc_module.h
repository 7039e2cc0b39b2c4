/* frontend/intake/grpc_module.h - the interface between the server and the gRPC module.
 *
 * The module (grpc/, continuo-grpc.so) is loaded when the first client connects to a gRPC port, so
 * a server that has no gRPC clients does not carry the library (docs/decisions/0008 says what it
 * costs). This header stands here because server and module both include it.
 */
#ifndef CN_FRONTEND_INTAKE_GRPC_MODULE_H
#define CN_FRONTEND_INTAKE_GRPC_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

struct cn_client_address;
struct cn_loop;
struct cn_management;
struct cn_rpc;
struct cn_server_config;

/* What the module needs from the server. All of it stays in place until `destroy`. */
struct cn_rpc_host {
    const struct cn_server_config *config;
    struct cn_management *management;
    struct cn_loop *const *loops;
    unsigned n_loops;
};

enum cn_grpc_port { CN_GRPC_INFERENCE, CN_GRPC_MANAGEMENT, CN_N_GRPC };

#define CN_GRPC_MODULE_SYMBOL "cn_grpc_module"

/* The module's functions. They are called on loop 0 unless their comment says otherwise. */
struct cn_grpc_module {
    const char *version; /* CN_VERSION: server and module must come from one build */
    /* Starts the module. `has_tls`: a port has TLS, so certificate and key are read. */
    int (*create)(const struct cn_rpc_host *host, bool has_tls, struct cn_rpc **out,
                  struct cn_error *err);
    /* Reads certificate, key and CA again. On failure the old ones stay in use. */
    int (*reload)(struct cn_rpc *rpc, struct cn_error *err);
    /* Takes over a connection that was accepted, and the place of its address (may be NULL). */
    void (*connect)(struct cn_rpc *rpc, enum cn_grpc_port port, int fd, bool is_tls,
                    struct cn_client_address *from);
    /* How many connections the port has. */
    uint32_t (*n_open)(const struct cn_rpc *rpc, enum cn_grpc_port port);
    /* Refuses new calls on the port; streams end once everything that they owe is answered. */
    void (*drain)(struct cn_rpc *rpc, enum cn_grpc_port port);
    /* Has the loop of that index no connections left? Called on that loop. */
    bool (*is_empty)(const struct cn_rpc *rpc, unsigned loop);
    /* Ends all calls now. */
    void (*cut)(struct cn_rpc *rpc);
    /* Frees the module's data when no loop runs any more. */
    void (*destroy)(struct cn_rpc *rpc);
};

#endif
