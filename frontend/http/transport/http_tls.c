/* frontend/http/transport/http_tls.c - TLS of HTTP's connections, by GnuTLS: how they begin. Owned
 * by the loop thread.
 *
 * Plain HTTP on a TLS port. Before the handshake the first byte is looked at: a TLS handshake
 * begins with byte 22, and an HTTP request with a letter. A client that speaks HTTP gets an HTTP
 * answer with the reason; the alert of a failed handshake would tell it nothing.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <sys/socket.h>

#include "access/certificate/tls.h"
#include "core/errors/error.h"
#include "frontend/http/http_listener.h"
#include "frontend/http/transport/http_transport_priv.h"

#define PLAIN_READS 16 /* reads of what an HTTP client sends to a TLS port */

int
cn_http_tls_start(struct cn_http_listener *listener, struct cn_error *err)
{
    int rc = gnutls_certificate_allocate_credentials(&listener->credentials);

    if (rc == 0)
        rc = gnutls_priority_init(&listener->priorities, CN_TLS_PRIORITIES, NULL);
    if (rc < 0)
        return cn_fail(err, CN_E_UNAVAILABLE, "GnuTLS cannot be used: %s", gnutls_strerror(rc));
    gnutls_certificate_set_retrieve_function2(listener->credentials, cn_tls_retrieve);
    return 0;
}

void
cn_http_tls_stop(struct cn_http_listener *listener)
{
    if (listener->credentials)
        gnutls_certificate_free_credentials(listener->credentials);
    if (listener->priorities)
        gnutls_priority_deinit(listener->priorities);
}

/* Gives GnuTLS what the socket has, and notes when that is nothing. */
static ssize_t
pull(gnutls_transport_ptr_t from, void *room, size_t len)
{
    struct cn_http_conn *conn = from;
    const ssize_t n = recv(conn->fd, room, len, MSG_DONTWAIT);

    conn->is_drained = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    return n;
}

bool
cn_http_tls_begin(struct cn_http_conn *conn)
{
    static const gnutls_datum_t http_1_1 = {(unsigned char *)(uintptr_t) "http/1.1", 8};
    const struct cn_http_listener *listener = conn->listener;

    if (gnutls_init(&conn->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        conn->tls = NULL;
        return false;
    }
    gnutls_priority_set(conn->tls, listener->priorities);
    gnutls_credentials_set(conn->tls, GNUTLS_CRD_CERTIFICATE, listener->credentials);
    gnutls_alpn_set_protocols(conn->tls, &http_1_1, 1, 0); /* a client may offer others, too */
    cn_tls_ask_client(conn->tls);
    gnutls_transport_set_ptr2(conn->tls, conn, (gnutls_transport_ptr_t)(intptr_t)conn->fd);
    gnutls_transport_set_pull_function(conn->tls, pull);
    conn->shaking_hands = true;
    return true;
}

/* Refuses a client that speaks HTTP to a TLS port, with an HTTP answer that says why. */
static void
refuse_plain(struct cn_http_conn *conn)
{
    char dropped[4096];
    int reads = 0;

    /* Bytes that are left unread would make the kernel reset the connection, and the answer would
     * be lost. */
    while (reads++ < PLAIN_READS && recv(conn->fd, dropped, sizeof(dropped), MSG_DONTWAIT) > 0)
        continue;
    gnutls_deinit(conn->tls);
    conn->tls = NULL;
    cn_http_out_refuse(conn, CN_E_TLS_REQUIRED, 0,
                       "this port requires TLS: begin the URL with https://");
}

/* Does the client speak HTTP? Its first byte may not be there yet. */
static bool
is_plain(struct cn_http_conn *conn)
{
    char first = 0;

    if (!conn->was_heard)
        conn->was_heard = recv(conn->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    return first >= 'A' && first <= 'z';
}

void
cn_http_tls_shake(struct cn_http_conn *conn)
{
    unsigned tries = 0;
    int rc;

    if (is_plain(conn)) {
        refuse_plain(conn);
        return;
    }
    do
        rc = gnutls_handshake(conn->tls);
    while ((cn_http_conn_must_go_on(conn, rc) || rc == GNUTLS_E_WARNING_ALERT_RECEIVED) &&
           ++tries < CN_HTTP_TLS_TRIES);
    if (rc == 0) {
        conn->shaking_hands = false;
    } else if (gnutls_error_is_fatal(rc) || tries == CN_HTTP_TLS_TRIES) {
        gnutls_alert_send_appropriate(conn->tls, rc);
        conn->discards = conn->failed = true; /* or the alert could be lost */
    } else if (gnutls_record_get_direction(conn->tls)) {
        cn_http_out_watch(conn, true);
    }
}
