/* frontend/server/grpc_door.h - the gRPC ports: listens, and hands connections to grpc/. Loop 0. */
#ifndef CN_FRONTEND_SERVER_GRPC_DOOR_H
#define CN_FRONTEND_SERVER_GRPC_DOOR_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "frontend/http/http_socket.h"
#include "grpc/rpc.h"

struct cn_grpc_door;
struct cn_http_shared;

/* Opens the ports, before the loops run. `shared` must stay in place. CN_E_UNAVAILABLE names the
 * option: an address cannot be used. Destroy `*out` also after an error. */
int cn_grpc_door_create(const struct cn_http_shared *shared, struct cn_grpc_door **out,
                        struct cn_error *err);
/* Formats the port's address as clients write it: "127.0.0.1:7070", "unix:/path", "none". */
void cn_grpc_door_format(const struct cn_grpc_door *door, enum cn_grpc_port port,
                         char out[CN_HTTP_ADDRESS_MAX]);
/* Stops accepting connections and calls on this port. May be called twice. */
void cn_grpc_door_drain(struct cn_grpc_door *door, enum cn_grpc_port port);
/* Has the loop of that index no connections left? Called on that loop, after both ports were
 * drained. */
bool cn_grpc_door_is_empty(const struct cn_grpc_door *door, unsigned loop);
/* Ends the calls that are left on all loops. */
void cn_grpc_door_cut(struct cn_grpc_door *door);
/* Frees everything when no loop runs any more. NULL is allowed. */
void cn_grpc_door_destroy(struct cn_grpc_door *door);

#endif
