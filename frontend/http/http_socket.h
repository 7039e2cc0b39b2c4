/* frontend/http/http_socket.h - listening sockets, made by us so that several loops share a
 * port. */
#ifndef CN_FRONTEND_HTTP_HTTP_SOCKET_H
#define CN_FRONTEND_HTTP_HTTP_SOCKET_H

#include <stdbool.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"

/* `flag` stands in messages ("--inference-address"). */

/* Non-blocking, listening. With `shared` further sockets may be bound to the same address; port 0
 * is replaced in `address` by the one that was given. CN_E_UNAVAILABLE names flag and fix. */
int cn_http_socket_listen(struct cn_address *address, bool shared, const char *flag, int *out,
                          struct cn_error *err);
/* Does nobody listen there yet? Sockets that share a port would not notice. */
int cn_http_socket_probe(const struct cn_address *address, const char *flag, struct cn_error *err);
/* Removes a unix socket's name; nothing for TCP. */
void cn_http_socket_forget(const struct cn_address *address);
/* "http://127.0.0.1:8080", "unix:/path" */
#define CN_HTTP_ADDRESS_MAX 320
void cn_http_address_format(const struct cn_address *address, char out[CN_HTTP_ADDRESS_MAX]);

#endif
