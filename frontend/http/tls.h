/* frontend/http/tls.h - the server's certificate and key, for all https listeners.
 *
 * They are read at start and again on SIGHUP. A handshake that has begun keeps what it started
 * with, and open connections are not touched. There is one certificate per process, because
 * libmicrohttpd's callback does not say for which daemon it asks.
 *
 * The authorities of --client-ca are read at the same times. frontend/access/http_certificate.c
 * compares the certificates of clients with them.
 */
#ifndef CN_FRONTEND_HTTP_TLS_H
#define CN_FRONTEND_HTTP_TLS_H

#include <gnutls/abstract.h>
#include <stdint.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"

struct cn_client_ca;

/* The TLS versions that are offered, in GnuTLS' notation. */
#define CN_TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:%SERVER_PRECEDENCE"

/* Reads certificate, key and the authorities of clients. Main thread, before the listeners are
 * created. CN_E_CONFIG says which file is wrong and what to do. */
int cn_tls_start(const struct cn_server_config *config, struct cn_error *err);
/* Reads them again, on loop 0. If that fails, the server keeps the old ones. */
int cn_tls_reload(const struct cn_server_config *config, struct cn_error *err);
/* Returns when the current certificate expires, as Unix time in seconds; 0: there is no
 * certificate. Any thread. */
uint64_t cn_tls_ends_s(void);
/* Frees all certificates. Call it when no listener is left; it does nothing without a start. */
void cn_tls_stop(void);

/* The authorities that sign the certificates of clients; NULL: clients need none. They stay until
 * cn_tls_stop(). Any thread. */
const struct cn_client_ca *cn_tls_client_ca(void);
/* Most certificates that a client may send together. */
#define CN_TLS_CLIENT_CHAIN_MAX 16
/* A session begins: lets it ask its client for a certificate, if there are such authorities. A
 * client that has none is served all the same, as far as TLS is concerned. */
void cn_tls_ask_client(gnutls_session_t session);

/* The callback for libmicrohttpd's MHD_OPTION_HTTPS_CERT_CALLBACK. Any loop. */
gnutls_certificate_retrieve_function2 cn_tls_retrieve;

#endif
