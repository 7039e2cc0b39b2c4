/* frontend/server/grpc_module.h - what the server and the gRPC module know of each other.
 *
 * The module (rpc/, continuo-grpc.so) is loaded when the first client connects to a gRPC port, so a
 * server that nobody asks over gRPC does not carry the library (docs/decisions says what it costs).
 */
#ifndef CN_FRONTEND_SERVER_GRPC_MODULE_H
#define CN_FRONTEND_SERVER_GRPC_MODULE_H

#include <stdbool.h>

#include "core/errors/error.h"

struct cn_address;
struct cn_http_shared;
struct cn_rpc;

enum cn_grpc_port { CN_GRPC_INFERENCE, CN_GRPC_MANAGEMENT, CN_N_GRPC };

#define CN_GRPC_MODULE_SYMBOL "cn_grpc_module"

/* All on loop 0 where nothing else is said. */
struct cn_grpc_module {
    const char *version; /* CN_VERSION: server and module must be of one build */
    /* `tls`: where the module itself shall listen, with TLS; NULL: not on that port. Port 0 becomes
     * the one that it got. */
    int (*create)(const struct cn_http_shared *shared, struct cn_address *const tls[CN_N_GRPC],
                  struct cn_rpc **out, struct cn_error *err);
    /* Reads certificate, key and CA again; on failure those from before stay. */
    int (*reload)(struct cn_rpc *rpc, struct cn_error *err);
    /* A connection that was accepted; the module's from here on. */
    void (*connect)(struct cn_rpc *rpc, enum cn_grpc_port port, int fd);
    /* No new calls; streams end when what they owe is answered. */
    void (*drain)(struct cn_rpc *rpc, enum cn_grpc_port port);
    /* On the loop of that index: has it nothing left? */
    bool (*is_empty)(const struct cn_rpc *rpc, unsigned loop);
    /* Ends all calls now. */
    void (*cut)(struct cn_rpc *rpc);
    /* When no loop runs. */
    void (*destroy)(struct cn_rpc *rpc);
};

#endif
