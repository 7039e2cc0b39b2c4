/* grpc/transport/h2_tls.c - TLS of gRPC's connections, by GnuTLS, with the server's certificate and
 * key (access/certificate/tls.h). */
#include <errno.h>

#include "access/certificate/certificate.h"
#include "access/certificate/tls.h"
#include "core/errors/panic.h"
#include "core/log/log.h"
#include "grpc/transport/transport_priv.h"

void
cn_grpc_tls_start(struct cn_grpc *grpc)
{
    if (gnutls_certificate_allocate_credentials(&grpc->credentials) < 0 ||
        gnutls_priority_init(&grpc->priorities, CN_TLS_PRIORITIES, NULL) < 0)
        cn_panic(__FILE__, __LINE__, "GnuTLS cannot be used");
    gnutls_certificate_set_retrieve_function2(grpc->credentials, cn_tls_retrieve);
}

void
cn_grpc_tls_stop(struct cn_grpc *grpc)
{
    gnutls_certificate_free_credentials(grpc->credentials);
    gnutls_priority_deinit(grpc->priorities);
}

bool
cn_grpc_tls_begin(struct cn_grpc_conn *conn)
{
    static const gnutls_datum_t h2 = {(unsigned char *)(uintptr_t) "h2", 2};
    const struct cn_grpc *grpc = conn->server->grpc;

    if (gnutls_init(&conn->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        conn->tls = NULL;
        return false;
    }
    gnutls_priority_set(conn->tls, grpc->priorities);
    gnutls_credentials_set(conn->tls, GNUTLS_CRD_CERTIFICATE, grpc->credentials);
    /* A client that does not speak HTTP/2 gets an alert that says so. */
    gnutls_alpn_set_protocols(conn->tls, &h2, 1, GNUTLS_ALPN_MANDATORY);
    if (cn_tls_grpc_client_ca())
        gnutls_certificate_server_set_request(
            conn->tls, grpc->limits.needs_certificate ? GNUTLS_CERT_REQUIRE : GNUTLS_CERT_REQUEST);
    gnutls_transport_set_int(conn->tls, conn->fd);
    return true;
}

/* Checks the client's certificate, if it has shown one. */
static bool
take_certificate(struct cn_grpc_conn *conn)
{
    char shown[CN_ERROR_MESSAGE_MAX];
    struct cn_error err;

    if (!cn_tls_take_certificate(conn->tls, cn_tls_grpc_client_ca(), &conn->certificate, &err))
        return true;
    cn_log(CN_LOG_INFO, "event=grpc_certificate_refused reason=%s",
           cn_log_quote(err.message, strlen(err.message), shown, sizeof(shown)));
    return false;
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
