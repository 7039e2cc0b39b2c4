/* access/certificate/tls.h - the server's certificate and key, for all ports with TLS.
 *
 * They are read at start and again on SIGHUP. A handshake that has begun keeps what it started
 * with, and open connections are not touched. There is one certificate per process.
 *
 * The authorities of --client-ca and --grpc-client-ca are read at the same times, and the
 * certificates of clients are compared with them.
 */
#ifndef CN_ACCESS_CERTIFICATE_TLS_H
#define CN_ACCESS_CERTIFICATE_TLS_H

#include <gnutls/abstract.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/server/server_config.h"
#include "core/errors/error.h"

struct cn_certificate;
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
/* The same for clients of gRPC. */
const struct cn_client_ca *cn_tls_grpc_client_ca(void);
/* Reads and verifies the certificate that a client has shown in its handshake. *out is NULL if it
 * has shown none, or if `ca` is NULL. CN_E_CERTIFICATE says why it is refused. */
int cn_tls_take_certificate(gnutls_session_t session, const struct cn_client_ca *ca,
                            struct cn_certificate **out, struct cn_error *err);
/* A session begins: lets it ask its client for a certificate, if there are such authorities. A
 * client that has none is served all the same, as far as TLS is concerned. */
void cn_tls_ask_client(gnutls_session_t session);

/* Returns what recv() or send() would, for the result of GnuTLS' function of the same purpose: -1
 * with EAGAIN, EINTR, or ECONNRESET for anything that ends the connection. Any thread. */
ssize_t cn_tls_like_socket(ssize_t n);

/* Gives a handshake the present certificate (gnutls_certificate_set_retrieve_function2). Any
 * loop. */
gnutls_certificate_retrieve_function2 cn_tls_retrieve;

#endif
