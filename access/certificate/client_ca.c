/* access/certificate/client_ca.c - the authorities that sign the certificates of clients. */
#include <errno.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <sys/stat.h>

#include "access/certificate/certificate.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define FILE_MAX_BYTES (1u << 20) /* as that of the server's own certificate */
#define CHAIN_MAX 16

struct cn_client_ca {
    gnutls_x509_trust_list_t list;
};

static int
read_file(const char *path, struct cn_buf *out, struct cn_error *err)
{
    FILE *file = fopen(path, "re");
    struct stat st;
    char *room;

    if (!file)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read the client-ca %s", path);
    if (fstat(fileno(file), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
        fclose(file);
        return cn_fail(err, CN_E_CONFIG,
                       "the client-ca %s is not a regular file of at most %u bytes", path,
                       FILE_MAX_BYTES);
    }
    room = cn_buf_reserve(out, FILE_MAX_BYTES);
    out->len = room ? fread(room, 1, FILE_MAX_BYTES, file) : 0;
    fclose(file);
    return 0;
}

int
cn_client_ca_read(const char *path, struct cn_client_ca **out, struct cn_error *err)
{
    gnutls_x509_trust_list_t list;
    gnutls_datum_t datum;
    struct cn_buf bytes;
    int rc, n = 0;

    cn_buf_init(&bytes, 0);
    rc = read_file(path, &bytes, err);
    if (rc) {
        cn_buf_fini(&bytes);
        return rc;
    }
    gnutls_x509_trust_list_init(&list, 0);
    datum = (gnutls_datum_t){(unsigned char *)bytes.data, (unsigned)bytes.len};
    if (bytes.len)
        n = gnutls_x509_trust_list_add_trust_mem(list, &datum, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    cn_buf_fini(&bytes);
    if (n <= 0) {
        gnutls_x509_trust_list_deinit(list, 1);
        return cn_fail(err, CN_E_CONFIG, "the client-ca %s has no PEM certificates%s%s", path,
                       n < 0 ? ": " : "", n < 0 ? gnutls_strerror(n) : "");
    }
    *out = cn_alloc(sizeof **out);
    (*out)->list = list;
    return 0;
}

void
cn_client_ca_destroy(struct cn_client_ca *ca)
{
    if (!ca)
        return;
    gnutls_x509_trust_list_deinit(ca->list, 1);
    cn_free(ca);
}

/* Why the certificate was not accepted, and what to do. */
static const char *
reason(unsigned status)
{
    if (status & GNUTLS_CERT_SIGNER_NOT_FOUND)
        return "none of the authorities in the server's client-ca has signed it; use a "
               "certificate of one of them, and send its intermediate certificates, too";
    if (status & GNUTLS_CERT_EXPIRED)
        return "it has expired; use a new one";
    if (status & GNUTLS_CERT_NOT_ACTIVATED)
        return "it is not valid yet; look at the clocks of both machines";
    if (status & GNUTLS_CERT_PURPOSE_MISMATCH)
        return "it is not for clients of TLS; its extended key usage must have clientAuth";
    if (status & GNUTLS_CERT_INSECURE_ALGORITHM)
        return "it is signed by an algorithm that is not secure; use one with SHA-256";
    return "its signature or its chain is not valid";
}

int
cn_client_ca_verify(const struct cn_client_ca *ca, const struct cn_str *chain, unsigned n,
                    const char *shown, struct cn_error *err)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    gnutls_x509_crt_t all[CHAIN_MAX];
    unsigned status = GNUTLS_CERT_INVALID, read = 0;
    int rc = 0;

    if (n > CHAIN_MAX)
        return cn_fail(err, CN_E_CERTIFICATE,
                       "the certificate (%s) comes with %u others; at most %d may come together",
                       shown, n - 1, CHAIN_MAX);
    while (rc >= 0 && read < n) {
        const gnutls_datum_t der = {(unsigned char *)(uintptr_t)chain[read].ptr,
                                    (unsigned)chain[read].len};

        rc = gnutls_x509_crt_init(&all[read]);
        if (rc >= 0)
            rc = gnutls_x509_crt_import(all[read++], &der, GNUTLS_X509_FMT_DER);
    }
    if (rc >= 0)
        rc = gnutls_x509_trust_list_verify_crt2(ca->list, all, n, &purpose, 1, 0, &status, NULL);
    while (read > 0)
        gnutls_x509_crt_deinit(all[--read]);
    if (rc >= 0 && status == 0)
        return 0;
    return cn_fail(err, CN_E_CERTIFICATE, "the certificate (%s) was not accepted: %s", shown,
                   rc < 0 ? gnutls_strerror(rc) : reason(status));
}
