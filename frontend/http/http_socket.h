/* frontend/http/http_socket.h - makes listening sockets. Several loops can share a port
 * (SO_REUSEPORT). */
#ifndef CN_FRONTEND_HTTP_HTTP_SOCKET_H
#define CN_FRONTEND_HTTP_HTTP_SOCKET_H

#include <stdbool.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"

/* In all functions `flag` is the option that messages name, for example "--inference-address". */

/* Makes a non-blocking, listening socket. With `shared`, further sockets may be bound to the same
 * address. Port 0 is replaced in `address` by the port that the kernel chose. CN_E_UNAVAILABLE
 * names the option and what to do. */
int cn_http_socket_listen(struct cn_address *address, bool shared, const char *flag, int *out,
                          struct cn_error *err);
/* Returns an error when another program listens at the address. Sockets that share a port would not
 * notice. */
int cn_http_socket_probe(const struct cn_address *address, const char *flag, struct cn_error *err);
/* Removes a unix socket's file; does nothing for TCP. */
void cn_http_socket_forget(const struct cn_address *address);
/* Formats an address: "http://127.0.0.1:8080", "unix:/path". */
#define CN_HTTP_ADDRESS_MAX 320
void cn_http_address_format(const struct cn_address *address, char out[CN_HTTP_ADDRESS_MAX]);

#endif
