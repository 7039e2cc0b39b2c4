/* access/certificate/tls.c - the server's certificate and key. They are read on loop 0 and used by
 * the handshakes of all loops.
 *
 * An identity is a certificate chain with its key, read either from two PEM files or from one
 * PKCS#12 store. It is checked completely before it is used: the key must belong to the first
 * certificate, because clients would otherwise see a failed handshake without a reason. After that
 * it never changes.
 *
 * A reload publishes a new identity by storing one pointer, so handshakes need no lock. Old
 * identities are freed only when the server stops: a handshake takes several turns and may still
 * use one, and counting references would cost each handshake more than the few kB that each renewal
 * of the certificate leaves behind.
 */
#include "access/certificate/tls.h"

#include <errno.h>
#include <gnutls/pkcs12.h>
#include <gnutls/x509.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "access/certificate/certificate.h"
#include "core/log/log.h"
#include "core/memory/buf.h"
#include "core/memory/mem.h"

#define CHAIN_MAX 16              /* most certificates of a chain; the server's own is the first */
#define FILE_MAX_BYTES (1u << 20) /* usual chains have a few kB */
#define KEY_ID_BYTES 64
#define CLIENT_CHAIN_MAX 16 /* most certificates that a client may send together */

struct identity {
    struct identity *older;
    gnutls_x509_crt_t *certs; /* allocated by the import; freed with gnutls_free */
    unsigned n_certs;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned n_chain;
    gnutls_privkey_t key;
    struct cn_client_ca *client_ca;      /* NULL: clients need no certificate */
    struct cn_client_ca *grpc_client_ca; /* NULL: `client_ca` is for gRPC, too */
};

/* The identity in use; its list `older` has those from before. */
static _Atomic(struct identity *) current;

static void
identity_free(struct identity *identity)
{
    unsigned i;

    for (i = 0; i < identity->n_chain; i++)
        gnutls_pcert_deinit(&identity->chain[i]);
    for (i = 0; i < identity->n_certs; i++)
        gnutls_x509_crt_deinit(identity->certs[i]);
    gnutls_free(identity->certs);
    if (identity->key)
        gnutls_privkey_deinit(identity->key);
    cn_client_ca_destroy(identity->client_ca);
    cn_client_ca_destroy(identity->grpc_client_ca);
    cn_free(identity);
}

/* --- files */

/* Reads a file of at most FILE_MAX_BYTES and puts a NUL after it. `what` is the option, for
 * messages. */
static int
read_file(const char *what, const char *path, struct cn_buf *out, struct cn_error *err)
{
    FILE *file = fopen(path, "re");
    struct stat st;
    char *room;

    if (!file)
        return cn_fail_sys(err, CN_E_CONFIG, errno, "cannot read the %s %s", what, path);
    if (fstat(fileno(file), &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES) {
        fclose(file);
        return cn_fail(err, CN_E_CONFIG, "the %s %s is not a regular file of at most %u bytes",
                       what, path, FILE_MAX_BYTES);
    }
    room = cn_buf_reserve(out, FILE_MAX_BYTES + 1);
    out->len = room ? fread(room, 1, FILE_MAX_BYTES, file) : 0;
    fclose(file);
    if (out->len == 0)
        return cn_fail(err, CN_E_CONFIG, "the %s %s is empty", what, path);
    room[out->len] = '\0';
    return 0;
}

static gnutls_datum_t
datum(const struct cn_buf *bytes)
{
    return (gnutls_datum_t){(unsigned char *)bytes->data, (unsigned)bytes->len};
}

static int
read_certificate(struct identity *identity, const char *path, struct cn_error *err)
{
    struct cn_buf bytes;
    gnutls_datum_t data;
    int rc;

    cn_buf_init(&bytes, 0);
    rc = read_file("certificate-file", path, &bytes, err);
    data = datum(&bytes);
    if (!rc) {
        rc = gnutls_x509_crt_list_import2(&identity->certs, &identity->n_certs, &data,
                                          GNUTLS_X509_FMT_PEM, 0);
        if (rc < 0)
            cn_fail(err, CN_E_CONFIG, "the certificate-file %s has no PEM certificates: %s", path,
                    gnutls_strerror(rc));
    }
    cn_buf_fini(&bytes);
    return rc ? CN_E_CONFIG : 0;
}

/* Reads the key. Its text is overwritten in memory afterwards. */
static int
read_key(struct identity *identity, const char *path, struct cn_error *err)
{
    struct cn_buf bytes;
    gnutls_datum_t data;
    int rc;

    cn_buf_init(&bytes, 0);
    rc = read_file("private-key-file", path, &bytes, err);
    data = datum(&bytes);
    if (!rc) {
        gnutls_privkey_init(&identity->key);
        rc = gnutls_privkey_import_x509_raw(identity->key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
        if (rc < 0)
            cn_fail(err, CN_E_CONFIG,
                    "the private-key-file %s has no PEM key without a password: %s%s", path,
                    gnutls_strerror(rc),
                    strstr(bytes.data, "ENCRYPTED")
                        ? "; \"openssl pkey -in FILE -out PLAIN\" removes its password"
                        : "");
    }
    if (bytes.data)
        gnutls_memset(bytes.data, 0, bytes.len);
    cn_buf_fini(&bytes);
    return rc ? CN_E_CONFIG : 0;
}

/* Is it a keystore in Java's own format (JKS), which GnuTLS cannot read? Such a file begins with
 * these bytes. */
static bool
is_jks(const struct cn_buf *bytes)
{
    return bytes->len >= 4 && memcmp(bytes->data, "\xfe\xed\xfe\xed", 4) == 0;
}

static int
parse_keystore(struct identity *identity, const struct cn_buf *bytes, const char *password)
{
    gnutls_datum_t data = datum(bytes);
    gnutls_x509_privkey_t key = NULL;
    gnutls_pkcs12_t store;
    int rc = gnutls_pkcs12_init(&store);

    if (rc < 0)
        return rc;
    rc = gnutls_pkcs12_import(store, &data, GNUTLS_X509_FMT_DER, 0);
    if (rc >= 0)
        rc = gnutls_pkcs12_verify_mac(store, password);
    if (rc >= 0)
        rc = gnutls_pkcs12_simple_parse(store, password, &key, &identity->certs, &identity->n_certs,
                                        NULL, NULL, NULL, GNUTLS_PKCS12_SP_INCLUDE_SELF_SIGNED);
    if (rc >= 0 && (!key || identity->n_certs == 0))
        rc = GNUTLS_E_NO_CERTIFICATE_FOUND;
    if (rc >= 0) {
        gnutls_privkey_init(&identity->key);
        rc = gnutls_privkey_import_x509(identity->key, key, GNUTLS_PRIVKEY_IMPORT_COPY);
    }
    if (key)
        gnutls_x509_privkey_deinit(key);
    gnutls_pkcs12_deinit(store);
    return rc;
}

static int
read_keystore(struct identity *identity, const struct cn_server_config *config,
              struct cn_error *err)
{
    struct cn_buf bytes;
    int rc;

    cn_buf_init(&bytes, 0);
    rc = read_file("keystore", config->keystore, &bytes, err);
    if (!rc && is_jks(&bytes)) {
        rc = cn_fail(
            err, CN_E_CONFIG,
            "the keystore %s has the format JKS, which only Java reads; convert it: \"keytool "
            "-importkeystore -srckeystore %s -destkeystore FILE.p12 -deststoretype PKCS12\"",
            config->keystore, config->keystore);
    } else if (!rc) {
        rc = parse_keystore(identity, &bytes, config->keystore_password);
        if (rc < 0)
            cn_fail(
                err, CN_E_CONFIG,
                "the keystore %s is not a PKCS12 store with a key that keystore-password opens: %s",
                config->keystore, gnutls_strerror(rc));
    }
    if (bytes.data)
        gnutls_memset(bytes.data, 0, bytes.len);
    cn_buf_fini(&bytes);
    return rc < 0 ? CN_E_CONFIG : 0;
}

/* --- together */

/* Checks that the key belongs to the certificate, by comparing the ids of both public keys. */
static int
check_pair(const struct identity *identity, struct cn_error *err)
{
    unsigned char of_cert[KEY_ID_BYTES], of_key[KEY_ID_BYTES];
    size_t cert_len = sizeof of_cert, key_len = sizeof of_key;
    gnutls_pubkey_t public_key;
    int rc;

    gnutls_pubkey_init(&public_key);
    rc = gnutls_pubkey_import_privkey(public_key, identity->key, 0, 0);
    if (rc >= 0)
        rc = gnutls_pubkey_get_key_id(public_key, GNUTLS_KEYID_USE_SHA256, of_key, &key_len);
    gnutls_pubkey_deinit(public_key);
    if (rc >= 0)
        rc = gnutls_x509_crt_get_key_id(identity->certs[0], GNUTLS_KEYID_USE_SHA256, of_cert,
                                        &cert_len);
    if (rc < 0)
        return cn_fail(err, CN_E_CONFIG, "the certificate or its key cannot be used: %s",
                       gnutls_strerror(rc));
    if (key_len != cert_len || memcmp(of_key, of_cert, key_len) != 0)
        return cn_fail(
            err, CN_E_CONFIG,
            "the private key does not belong to the certificate (the first one in its file)");
    return 0;
}

static int
make_chain(struct identity *identity, struct cn_error *err)
{
    unsigned i;
    int rc;

    for (i = 0; i < identity->n_certs && i < CHAIN_MAX; i++) {
        rc = gnutls_pcert_import_x509(&identity->chain[i], identity->certs[i], 0);
        if (rc < 0)
            return cn_fail(err, CN_E_CONFIG, "a certificate cannot be used: %s",
                           gnutls_strerror(rc));
        identity->n_chain++;
    }
    return 0;
}

static void
log_identity(const struct identity *identity)
{
    time_t end = gnutls_x509_crt_get_expiration_time(identity->certs[0]);
    char name[200] = "", shown[300], text[32];
    size_t len = sizeof name;
    struct tm tm;

    gnutls_x509_crt_get_dn(identity->certs[0], name, &len);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &tm));
    cn_log(end < time(NULL) ? CN_LOG_WARN : CN_LOG_INFO,
           "event=certificate_loaded subject=%s valid_until=%s certificates=%u%s",
           cn_log_quote(name, strlen(name), shown, sizeof shown), text, identity->n_chain,
           end < time(NULL) ? " note=\"it has expired\"" : "");
}

static int
identity_load(const struct cn_server_config *config, struct identity **out, struct cn_error *err)
{
    struct identity *identity = cn_alloc(sizeof *identity);
    int rc;

    if (config->certificate_file && config->private_key_file) {
        rc = read_certificate(identity, config->certificate_file, err);
        if (!rc)
            rc = read_key(identity, config->private_key_file, err);
    } else if (config->certificate_file || config->private_key_file) {
        rc = cn_fail(err, CN_E_CONFIG,
                     "certificate-file and private-key-file must be set together; %s is not set",
                     config->certificate_file ? "private-key-file" : "certificate-file");
    } else if (config->keystore) {
        rc = read_keystore(identity, config, err);
    } else {
        rc = cn_fail(err, CN_E_CONFIG,
                     "an https address needs certificate-file and private-key-file (PEM), or "
                     "keystore (PKCS12); for a test: openssl req -x509 -newkey rsa:2048 -nodes "
                     "-keyout key.pem -out cert.pem -subj /CN=localhost");
    }
    if (!rc)
        rc = make_chain(identity, err);
    if (!rc)
        rc = check_pair(identity, err);
    if (!rc && config->client_ca)
        rc = cn_client_ca_read(config->client_ca, &identity->client_ca, err);
    if (!rc && config->grpc_client_ca)
        rc = cn_client_ca_read(config->grpc_client_ca, &identity->grpc_client_ca, err);
    if (rc) {
        identity_free(identity);
        return rc;
    }
    *out = identity;
    return 0;
}

int
cn_tls_start(const struct cn_server_config *config, struct cn_error *err)
{
    return cn_tls_reload(config, err);
}

int
cn_tls_reload(const struct cn_server_config *config, struct cn_error *err)
{
    struct identity *identity;
    int rc = identity_load(config, &identity, err);

    if (rc)
        return rc;
    identity->older = atomic_load_explicit(&current, memory_order_relaxed);
    atomic_store_explicit(&current, identity, memory_order_release);
    log_identity(identity);
    return 0;
}

const struct cn_client_ca *
cn_tls_client_ca(void)
{
    const struct identity *identity = atomic_load_explicit(&current, memory_order_acquire);

    return identity ? identity->client_ca : NULL;
}

const struct cn_client_ca *
cn_tls_grpc_client_ca(void)
{
    const struct identity *identity = atomic_load_explicit(&current, memory_order_acquire);

    if (!identity)
        return NULL;
    return identity->grpc_client_ca ? identity->grpc_client_ca : identity->client_ca;
}

int
cn_tls_take_certificate(gnutls_session_t session, const struct cn_client_ca *ca,
                        struct cn_certificate **out, struct cn_error *err)
{
    struct cn_str chain[CLIENT_CHAIN_MAX];
    const gnutls_datum_t *sent;
    unsigned n = 0;
    int rc;

    *out = NULL;
    sent = gnutls_certificate_get_peers(session, &n);
    if (!ca || !sent || n == 0)
        return 0;
    if (n > CLIENT_CHAIN_MAX)
        return cn_fail(
            err, CN_E_CERTIFICATE,
            "the client's certificate comes with %u others; at most %d may come together", n - 1,
            CLIENT_CHAIN_MAX - 1);
    for (unsigned i = 0; i < n; i++)
        chain[i] = (struct cn_str){(const char *)sent[i].data, sent[i].size};
    rc = cn_certificate_read(chain[0], false, out, err);
    if (!rc)
        rc = cn_client_ca_verify(ca, chain, n, (*out)->shown, err);
    if (rc) {
        cn_certificate_destroy(*out);
        *out = NULL;
    }
    return rc;
}

void
cn_tls_ask_client(gnutls_session_t session)
{
    if (cn_tls_client_ca())
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUEST);
}

uint64_t
cn_tls_ends_s(void)
{
    const struct identity *identity = atomic_load_explicit(&current, memory_order_acquire);
    const time_t end = identity ? gnutls_x509_crt_get_expiration_time(identity->certs[0]) : 0;

    return end > 0 ? (uint64_t)end : 0;
}

void
cn_tls_stop(void)
{
    struct identity *identity = atomic_exchange(&current, NULL), *older;

    for (; identity; identity = older) {
        older = identity->older;
        identity_free(identity);
    }
}

ssize_t
cn_tls_like_socket(ssize_t n)
{
    if (n >= 0)
        return n;
    if (n == GNUTLS_E_AGAIN)
        errno = EAGAIN;
    else if (n == GNUTLS_E_INTERRUPTED)
        errno = EINTR;
    else
        errno = ECONNRESET; /* an alert, a record that is not valid, or the end of the connection */
    return -1;
}

int
cn_tls_retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int n_authorities,
                const gnutls_pk_algorithm_t *algorithms, int n_algorithms, gnutls_pcert_st **chain,
                unsigned int *n_chain, gnutls_privkey_t *key)
{
    struct identity *identity = atomic_load_explicit(&current, memory_order_acquire);

    (void)session, (void)authorities, (void)n_authorities, (void)algorithms, (void)n_algorithms;
    if (!identity)
        return -1;
    *chain = identity->chain;
    *n_chain = identity->n_chain;
    *key = identity->key;
    return 0;
}
