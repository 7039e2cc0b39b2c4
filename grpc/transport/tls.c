/* grpc/transport/tls.c - TLS of gRPC's connections, by GnuTLS. An identity is made on loop 0 and used
 * by the loops of its connections; it never changes.
 *
 * A connection keeps the identity with which its handshake began. So old identities are freed only
 * when the server stops; each renewal of the certificate leaves some kB behind, as in
 * frontend/http/tls.c.
 */
#include <errno.h>
#include <gnutls/x509.h>

#include "core/memory/mem.h"
#include "frontend/http/tls.h"
#include "grpc/transport/transport_priv.h"

struct cn_grpc_tls {
    struct cn_grpc_tls *older;
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
    bool asks_client, needs_client;
};

static gnutls_datum_t
datum(struct cn_str text)
{
    return (gnutls_datum_t){(unsigned char *)(uintptr_t)text.ptr, (unsigned)text.len};
}

static void
free_one(struct cn_grpc_tls *tls)
{
    gnutls_certificate_free_credentials(tls->credentials);
    gnutls_priority_deinit(tls->priorities);
    cn_free(tls);
}

void
cn_grpc_tls_free(struct cn_grpc_tls *tls)
{
    struct cn_grpc_tls *older;

    for (; tls; tls = older) {
        older = tls->older;
        free_one(tls);
    }
}

static int
read_identity(struct cn_grpc_tls *tls, const struct cn_grpc_identity *identity,
              struct cn_error *err)
{
    const gnutls_datum_t certificate = datum(identity->certificate), key = datum(identity->key),
                         authorities = datum(identity->client_ca);
    int rc;

    rc = gnutls_certificate_set_x509_key_mem(tls->credentials, &certificate, &key,
                                             GNUTLS_X509_FMT_PEM);
    if (rc < 0)
        return cn_fail(err, CN_E_CONFIG,
                       "the certificate-file and the private-key-file cannot be used for gRPC: %s; "
                       "both must be PEM, and the key must belong to the certificate",
                       gnutls_strerror(rc));
    if (!identity->client_ca.len)
        return 0;
    rc = gnutls_certificate_set_x509_trust_mem(tls->credentials, &authorities, GNUTLS_X509_FMT_PEM);
    if (rc <= 0)
        return cn_fail(err, CN_E_CONFIG, "the file of grpc-client-ca has no PEM certificates: %s",
                       rc < 0 ? gnutls_strerror(rc) : "it is empty");
    tls->asks_client = true;
    tls->needs_client = identity->needs_client;
    return 0;
}

int
cn_grpc_set_identity(struct cn_grpc *grpc, const struct cn_grpc_identity *identity,
                     struct cn_error *err)
{
    struct cn_grpc_tls *tls = cn_alloc(sizeof(*tls));
    int rc;

    if (gnutls_certificate_allocate_credentials(&tls->credentials) < 0 ||
        gnutls_priority_init(&tls->priorities, CN_TLS_PRIORITIES, NULL) < 0)
        rc = cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a certificate");
    else
        rc = read_identity(tls, identity, err);
    if (rc) {
        free_one(tls);
        return rc;
    }
    tls->older = grpc->tls;
    grpc->tls = tls;
    return 0;
}

bool
cn_grpc_tls_begin(struct cn_grpc_conn *conn, struct cn_grpc_tls *tls)
{
    static const gnutls_datum_t h2 = {(unsigned char *)(uintptr_t) "h2", 2};

    if (!tls || gnutls_init(&conn->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        conn->tls = NULL;
        return false;
    }
    gnutls_priority_set(conn->tls, tls->priorities);
    gnutls_credentials_set(conn->tls, GNUTLS_CRD_CERTIFICATE, tls->credentials);
    /* A client that does not speak HTTP/2 gets an alert that says so. */
    gnutls_alpn_set_protocols(conn->tls, &h2, 1, GNUTLS_ALPN_MANDATORY);
    if (tls->asks_client)
        gnutls_certificate_server_set_request(
            conn->tls, tls->needs_client ? GNUTLS_CERT_REQUIRE : GNUTLS_CERT_REQUEST);
    gnutls_transport_set_int(conn->tls, conn->fd);
    return true;
}

/* Checks the client's certificate, if it has shown one, and keeps it as PEM. */
static bool
take_certificate(struct cn_grpc_conn *conn)
{
    unsigned n = 0, status = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(conn->tls, &n);
    gnutls_datum_t pem;

    if (!chain || n == 0)
        return true;
    if (gnutls_certificate_verify_peers2(conn->tls, &status) < 0 || status != 0 ||
        gnutls_pem_base64_encode2("CERTIFICATE", &chain[0], &pem) < 0)
        return false;
    conn->certificate = cn_strndup((const char *)pem.data, pem.size);
    conn->certificate_len = pem.size;
    gnutls_free(pem.data);
    return true;
}

int
cn_grpc_tls_shake(struct cn_grpc_conn *conn)
{
    int rc = gnutls_handshake(conn->tls);

    if (rc < 0 && !gnutls_error_is_fatal(rc))
        return 0;
    if (rc < 0) {
        gnutls_alert_send_appropriate(conn->tls, rc);
        return -1;
    }
    if (!take_certificate(conn)) {
        gnutls_alert_send(conn->tls, GNUTLS_AL_FATAL, GNUTLS_A_BAD_CERTIFICATE);
        return -1;
    }
    return 1;
}

/* Returns what recv() or send() would, for the result of a function of GnuTLS. */
static ptrdiff_t
like_a_socket(ssize_t n)
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

ptrdiff_t
cn_grpc_tls_recv(struct cn_grpc_conn *conn, void *room, size_t len)
{
    return like_a_socket(gnutls_record_recv(conn->tls, room, len));
}

ptrdiff_t
cn_grpc_tls_send(struct cn_grpc_conn *conn, const void *bytes, size_t len)
{
    ssize_t n = conn->tls_sending ? gnutls_record_send(conn->tls, NULL, 0)
                                  : gnutls_record_send(conn->tls, bytes, len);

    conn->tls_sending = n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED;
    return like_a_socket(n);
}
