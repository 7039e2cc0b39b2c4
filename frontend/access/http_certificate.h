/* frontend/access/http_certificate.h - the certificate with which a client has connected over
 * https, if --client-ca asks for one.
 *
 * TLS proves that the client has the certificate's private key. Whether the certificate is one of
 * those that are wanted is decided here, at the connection's first request, and not by TLS: the
 * client then gets an answer that says what is wrong, where a failed handshake would have a number.
 * On the loop of the connection. */
#ifndef CN_FRONTEND_ACCESS_HTTP_CERTIFICATE_H
#define CN_FRONTEND_ACCESS_HTTP_CERTIFICATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/errors/error.h"

struct cn_certificate;
struct cn_http_conn;
struct cn_http_request;
struct cn_server_config;

/* Checks the certificate of the request's connection. `*out` is the one that was accepted; NULL:
 * the client has none and needs none. CN_E_CERTIFICATE: it needs one, or has one that was refused.
 */
int cn_http_check_certificate(struct cn_http_request *request, const struct cn_certificate **out,
                              struct cn_error *err);
/* The origin whose pages may send the request (--cors-allowed-origin); NULL: none. If only a
 * certificate stands for the client, "*" does not count: a browser shows the certificate for pages
 * of all sites, while no page can show a key that it does not know. */
const char *cn_http_allowed_origin(const struct cn_http_request *request);
/* May pages of the allowed origin let the browser show its certificate, and read the answers? */
bool cn_http_allows_credentials(const struct cn_server_config *config);
/* When the certificate that was accepted for the connection expires; CN_NEVER: it has none. */
uint64_t cn_http_certificate_ends_ms(const struct cn_http_conn *conn);
/* The connection ends. */
void cn_http_certificate_forget(struct cn_http_conn *conn);

#endif
