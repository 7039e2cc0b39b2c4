/* frontend/http/tls.h - the server's certificate and key, for every https listener.
 *
 * Read at start and again on SIGHUP. A handshake that began takes what was there; connections that
 * stand are not touched. One per process: libmicrohttpd asks for it without saying on whose behalf.
 */
#ifndef CN_FRONTEND_HTTP_TLS_H
#define CN_FRONTEND_HTTP_TLS_H

#include <gnutls/abstract.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"

/* What a handshake may use. */
#define CN_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* Main thread, before the listeners. CN_E_CONFIG says which file is wrong and what to do. */
int cn_tls_start(const struct cn_server_config *config, struct cn_error *err);
/* Loop 0. On failure the server goes on with what it has. */
int cn_tls_reload(const struct cn_server_config *config, struct cn_error *err);
/* When the certificate that handshakes get now ends: Unix time in seconds; 0: there is none. Any
 * thread. */
uint64_t cn_tls_ends_s(void);
/* When no listener is left. Harmless without a start. */
void cn_tls_stop(void);

/* libmicrohttpd's MHD_OPTION_HTTPS_CERT_CALLBACK. Any loop. */
gnutls_certificate_retrieve_function2 cn_tls_retrieve;

#endif
