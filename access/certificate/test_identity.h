/* access/certificate/test_identity.h - help for tests of TLS: a certificate that has signed itself,
 * and its key. */
#ifndef CN_ACCESS_CERTIFICATE_TEST_IDENTITY_H
#define CN_ACCESS_CERTIFICATE_TEST_IDENTITY_H

#include <gnutls/x509.h>
#include <time.h>

#define TEST_PEM_BYTES 8192

/* Writes both as PEM texts. The certificate holds for an hour. */
static inline void
test_identity_make(char certificate_pem[TEST_PEM_BYTES], char key_pem[TEST_PEM_BYTES])
{
    size_t certificate_len = TEST_PEM_BYTES, key_len = TEST_PEM_BYTES;
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t certificate;

    gnutls_x509_privkey_init(&key);
    gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                 GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    gnutls_x509_crt_init(&certificate);
    gnutls_x509_crt_set_version(certificate, 3);
    gnutls_x509_crt_set_serial(certificate, "\1", 1);
    gnutls_x509_crt_set_activation_time(certificate, time(NULL) - 3600);
    gnutls_x509_crt_set_expiration_time(certificate, time(NULL) + 3600);
    gnutls_x509_crt_set_dn(certificate, "CN=test", NULL);
    gnutls_x509_crt_set_key(certificate, key);
    gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0);
    gnutls_x509_crt_export(certificate, GNUTLS_X509_FMT_PEM, certificate_pem, &certificate_len);
    gnutls_x509_privkey_export(key, GNUTLS_X509_FMT_PEM, key_pem, &key_len);
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

#endif
