/* access/certificate/certificate.h - the certificate of a client: its names and its end, and
 * whether an authority that the operator trusts has signed it.
 *
 * HTTP and gRPC both give their clients' certificates to these functions, so that the same
 * certificate has the same names on each port. Any thread; what is made here does not change later.
 */
#ifndef CN_ACCESS_CERTIFICATE_CERTIFICATE_H
#define CN_ACCESS_CERTIFICATE_CERTIFICATE_H

#include <stdint.h>

#include "access/keys.h"
#include "core/errors/error.h"
#include "core/memory/arena.h"
#include "core/text/str.h"

#define CN_CERTIFICATE_NAMES 32 /* most names of one certificate; a larger one is refused */

struct cn_certificate {
    struct cn_arena arena;
    struct cn_str *names; /* those that a key can have (access/certificate_name.h) */
    unsigned char (*name_hashes)[CN_KEY_HASH_BYTES]; /* by which keys are found */
    uint32_t n_names;
    const char *shown; /* what messages call it: its first names, or its subject; printable */
    uint64_t ends_wall_ms;
};

/* Reads one certificate, DER or PEM. CN_E_CERTIFICATE: it cannot be read, or has too many names. */
int cn_certificate_read(struct cn_str bytes, bool is_pem, struct cn_certificate **out,
                        struct cn_error *err);
/* NULL is allowed. */
void cn_certificate_destroy(struct cn_certificate *certificate);
/* Has it expired by now? A connection may last longer than its certificate. CN_E_CERTIFICATE. */
int cn_certificate_check_time(const struct cn_certificate *certificate, struct cn_error *err);
/* The same for a stream, which keeps only the end of its connection's certificate; CN_NEVER: the
 * connection has none. */
int cn_certificate_check_end(uint64_t ends_wall_ms, struct cn_error *err);

/* Sets what a client has shown: a key (NULL: it sent none) and a certificate that was accepted
 * (NULL: it has none). Both must stay as long as `out` is used. */
void cn_certificate_credentials(const struct cn_str *authorization,
                                const struct cn_certificate *certificate,
                                struct cn_credentials *out);

/* The authorities whose clients may connect. */
struct cn_client_ca;
/* Reads a PEM file with their certificates. CN_E_CONFIG. */
int cn_client_ca_read(const char *path, struct cn_client_ca **out, struct cn_error *err);
/* NULL is allowed. */
void cn_client_ca_destroy(struct cn_client_ca *ca);
/* Has one of the authorities signed the first certificate of a chain (DER), for a client of TLS,
 * and is it valid now? CN_E_CERTIFICATE says why not, and names the certificate by `shown`. */
int cn_client_ca_verify(const struct cn_client_ca *ca, const struct cn_str *chain, unsigned n,
                        const char *shown, struct cn_error *err);

#endif
