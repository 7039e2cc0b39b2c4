/* frontend/server/grpc_door.h - the gRPC ports: listens, loads the module for the first client, and
 * hands it the connections. Loop 0.
 */
#ifndef CN_FRONTEND_SERVER_GRPC_DOOR_H
#define CN_FRONTEND_SERVER_GRPC_DOOR_H

#include <stdbool.h>

#include "core/errors/error.h"
#include "frontend/http/http_socket.h"
#include "frontend/server/grpc_module.h"

struct cn_grpc_door;
struct cn_http_shared;

/* Before the loops run. `shared` stays in place. CN_E_UNAVAILABLE names the flag: an address that
 * can't be had, or no module. */
int cn_grpc_door_create(const struct cn_http_shared *shared, struct cn_grpc_door **out,
                        struct cn_error *err);
/* Where clients find it: "127.0.0.1:7070", "unix:/path", "none". */
void cn_grpc_door_format(const struct cn_grpc_door *door, enum cn_grpc_port port,
                         char out[CN_HTTP_ADDRESS_MAX]);
/* Certificate, key and CA are read again, for TLS ports. On failure those from before stay. */
int cn_grpc_door_reload(struct cn_grpc_door *door, struct cn_error *err);
/* Takes no new connections and calls on this port; harmless twice. */
void cn_grpc_door_drain(struct cn_grpc_door *door, enum cn_grpc_port port);
/* On the loop of that index, after both ports were drained: is nothing left? */
bool cn_grpc_door_is_empty(const struct cn_grpc_door *door, unsigned loop);
/* Ends the calls that are left. */
void cn_grpc_door_cut(struct cn_grpc_door *door);
/* When no loop runs. NULL is allowed. */
void cn_grpc_door_destroy(struct cn_grpc_door *door);

#endif
