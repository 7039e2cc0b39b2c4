/* grpc/transport/h2_tls.c - TLS of gRPC's connections, by GnuTLS, with the server's certificate and
 * key (access/certificate/tls.h).
 *
 * GnuTLS reads from the socket, but what it wants to send goes to the site's `sealed` buffer, and
 * connection.c sends that as it sends everything. If GnuTLS met a socket that takes nothing, it
 * could not answer a client that asks for new keys before the rest of a record is sent.
 */
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

static ssize_t
keep_sealed(gnutls_transport_ptr_t to, const void *bytes, size_t len)
{
    struct cn_grpc_conn *conn = to;

    if (cn_buf_append(&conn->site->sealed, bytes, len)) {
        gnutls_transport_set_errno(conn->tls, ENOMEM);
        return -1;
    }
    return (ssize_t)len;
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
    gnutls_transport_set_ptr2(conn->tls, (gnutls_transport_ptr_t)(intptr_t)conn->fd, conn);
    gnutls_transport_set_push_function(conn->tls, keep_sealed);
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

ptrdiff_t
cn_grpc_tls_recv(struct cn_grpc_conn *conn, void *room, size_t len)
{
    return cn_tls_like_socket(gnutls_record_recv(conn->tls, room, len));
}

bool
cn_grpc_tls_seal(struct cn_grpc_conn *conn, const void *bytes, size_t len)
{
    const char *at = bytes;

    while (len > 0) {
        ssize_t n = gnutls_record_send(conn->tls, at, len); /* a record of at most 16 KiB */

        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}
