/* grpc/client_certificate.c - the certificates with which gRPC's clients have connected. */
#include "grpc/client_certificate.h"

#include "access/certificate/certificate.h"
#include "core/containers/table.h"
#include "core/memory/mem.h"
#include "grpc/transport/grpc_call.h"

/* Certificates of one loop. When there are more, all are forgotten: reading one again takes some
 * ten microseconds, and a list by time of use would not be worth its code. */
#define KNOWN_MAX 256

struct known {
    struct cn_str pem;
    struct cn_certificate *certificate;
};

struct cn_rpc_certificates {
    struct cn_table *by_pem;
};

static struct cn_str
pem_of(const void *item)
{
    return ((const struct known *)item)->pem;
}

struct cn_rpc_certificates *
cn_rpc_certificates_create(void)
{
    struct cn_rpc_certificates *known = cn_alloc(sizeof *known);

    known->by_pem = cn_table_create(pem_of);
    return known;
}

static void
forget(struct cn_rpc_certificates *known)
{
    struct known *each;
    size_t cursor = 0;

    while ((each = cn_table_next(known->by_pem, &cursor))) {
        cn_certificate_destroy(each->certificate);
        cn_free((char *)(uintptr_t)each->pem.ptr);
        cn_free(each);
    }
    cn_table_destroy(known->by_pem);
    known->by_pem = cn_table_create(pem_of);
}

void
cn_rpc_certificates_destroy(struct cn_rpc_certificates *known)
{
    if (!known)
        return;
    forget(known);
    cn_table_destroy(known->by_pem);
    cn_free(known);
}

/* A certificate that cannot be read is not kept: its client is refused each time. */
static int
learn(struct cn_rpc_certificates *known, struct cn_str pem, struct known **out,
      struct cn_error *err)
{
    struct cn_certificate *certificate;
    struct known *added;
    int rc = cn_certificate_read(pem, true, &certificate, err);

    if (rc)
        return rc;
    if (cn_table_count(known->by_pem) == KNOWN_MAX)
        forget(known);
    added = cn_alloc(sizeof *added);
    added->certificate = certificate;
    added->pem = (struct cn_str){cn_strndup(pem.ptr, pem.len), pem.len};
    cn_table_insert(known->by_pem, added);
    *out = added;
    return 0;
}

int
cn_rpc_certificate_of(struct cn_rpc_certificates *known, struct cn_grpc_call *call,
                      const struct cn_certificate **out, struct cn_error *err)
{
    const struct cn_str pem = cn_grpc_call_certificate(call);
    struct known *found;
    int rc = 0;

    *out = NULL;
    if (!pem.len)
        return 0;
    found = cn_table_find(known->by_pem, pem);
    if (!found)
        rc = learn(known, pem, &found, err);
    if (!rc)
        rc = cn_certificate_check_time(found->certificate, err);
    if (!rc)
        *out = found->certificate;
    return rc;
}
