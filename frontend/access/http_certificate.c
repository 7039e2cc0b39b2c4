/* frontend/access/http_certificate.c - the certificate with which a client has connected. */
#include "frontend/access/http_certificate.h"

#include <gnutls/gnutls.h>
#include <string.h>

#include "access/certificate/certificate.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/http/http_request.h"
#include "frontend/http/tls.h"

/* What a connection knows of its client's certificate. */
struct cn_http_certificate {
    struct cn_certificate *certificate; /* NULL: there is none, or it was refused */
    int code;                           /* why it was refused; 0: it was not */
    char *why;
};

/* Reads and verifies the chain of a TLS session. */
static int
take(gnutls_session_t session, struct cn_certificate **out, struct cn_error *err)
{
    const struct cn_client_ca *ca = cn_tls_client_ca();
    struct cn_str chain[CN_TLS_CLIENT_CHAIN_MAX];
    const gnutls_datum_t *sent;
    unsigned n = 0;
    int rc;

    sent = gnutls_certificate_get_peers(session, &n);
    if (!sent || n == 0)
        return 0;
    if (n > CN_TLS_CLIENT_CHAIN_MAX)
        return cn_fail(
            err, CN_E_CERTIFICATE,
            "the client's certificate comes with %u others; at most %d may come together", n - 1,
            CN_TLS_CLIENT_CHAIN_MAX - 1);
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

static struct cn_http_certificate *
certificate_of(struct cn_http_conn *conn)
{
    struct cn_http_certificate *known = conn->certificate;
    struct cn_error err;

    if (known)
        return known;
    conn->certificate = known = cn_alloc(sizeof *known);
    *known = (struct cn_http_certificate){.certificate = NULL};
    known->code = take(conn->reader.tls_session, &known->certificate, &err);
    if (known->code)
        known->why = cn_strdup(err.message);
    return known;
}

int
cn_http_check_certificate(struct cn_http_request *request, const struct cn_certificate **out,
                          struct cn_error *err)
{
    const struct cn_server_config *config = request->listener->shared->config;
    const struct cn_http_certificate *known;

    *out = NULL;
    if (!config->client_ca || !request->listener->is_tls)
        return 0;
    if (!request->conn->reader.tls_session)
        return cn_fail(err, CN_E_CERTIFICATE,
                       "the server cannot see with which certificate this connection was made; "
                       "connect again");
    known = certificate_of(request->conn);
    if (known->code)
        return cn_fail(err, known->code, "%s", known->why);
    *out = known->certificate;
    if (*out)
        return cn_certificate_check_time(*out, err);
    return config->require_client_certificate
               ? cn_fail(err, CN_E_CERTIFICATE,
                         "this server requires a certificate of each client: connect with one that "
                         "an authority in its client-ca has signed (curl: --cert and --key)")
               : 0;
}

const char *
cn_http_allowed_origin(const struct cn_http_request *request)
{
    const char *origin = request->listener->shared->config->cors_allowed_origin;

    return origin && strcmp(origin, "*") == 0 && request->by_certificate ? NULL : origin;
}

bool
cn_http_allows_credentials(const struct cn_server_config *config)
{
    return config->client_ca && config->cors_allowed_origin &&
           strcmp(config->cors_allowed_origin, "*") != 0;
}

uint64_t
cn_http_certificate_ends_ms(const struct cn_http_conn *conn)
{
    const struct cn_http_certificate *known = conn->certificate;

    return known && known->certificate ? known->certificate->ends_wall_ms : CN_NEVER;
}

void
cn_http_certificate_forget(struct cn_http_conn *conn)
{
    if (!conn->certificate)
        return;
    cn_certificate_destroy(conn->certificate->certificate);
    cn_free(conn->certificate->why);
    cn_free(conn->certificate);
    conn->certificate = NULL;
}
