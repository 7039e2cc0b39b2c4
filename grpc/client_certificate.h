/* grpc/client_certificate.h - the certificates with which gRPC's clients have connected.
 *
 * The core verifies a certificate in the handshake, and gives its text with each call. A client
 * makes many calls, so each loop keeps what it has read of the certificates it saw last. */
#ifndef CN_GRPC_CLIENT_CERTIFICATE_H
#define CN_GRPC_CLIENT_CERTIFICATE_H

#include "core/errors/error.h"

struct cn_certificate;
struct cn_grpc_call;
struct cn_rpc_certificates;

/* For the calls of one loop; used on that loop only. */
struct cn_rpc_certificates *cn_rpc_certificates_create(void);
/* NULL is allowed. */
void cn_rpc_certificates_destroy(struct cn_rpc_certificates *known);
/* The certificate of the call's client; NULL in `*out`: it has none. It stays until the next call
 * of this function. CN_E_CERTIFICATE: it cannot be read, or has expired since the handshake. */
int cn_rpc_certificate_of(struct cn_rpc_certificates *known, struct cn_grpc_call *call,
                          const struct cn_certificate **out, struct cn_error *err);

#endif
