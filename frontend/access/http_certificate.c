/* frontend/access/http_certificate.c - the certificate with which a client has connected. */
#include "frontend/access/http_certificate.h"

#include <string.h>

#include "access/certificate/certificate.h"
#include "access/certificate/tls.h"
#include "core/memory/mem.h"
#include "core/time/clock.h"
#include "frontend/http/http_request.h"

/* What a connection knows of its client's certificate. */
struct cn_http_certificate {
    struct cn_certificate *certificate; /* NULL: there is none, or it was refused */
    int code;                           /* why it was refused; 0: it was not */
    char *why;
};

static struct cn_http_certificate *
certificate_of(struct cn_http_conn *conn)
{
    struct cn_http_certificate *known = conn->certificate;
    struct cn_error err;

    if (known)
        return known;
    conn->certificate = known = cn_alloc(sizeof *known);
    *known = (struct cn_http_certificate){.certificate = NULL};
    known->code = cn_tls_take_certificate(conn->tls, cn_tls_client_ca(), &known->certificate, &err);
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
