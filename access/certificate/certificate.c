/* access/certificate/certificate.c - the names and the end of a client's certificate.
 *
 * The names are the subject alternative names of the kinds URI, DNS and email. Only a certificate
 * without that extension is called by the common name of its subject, if it has exactly one: where
 * both are there, an authority has checked the alternative names (RFC 6125).
 *
 * GnuTLS gives each name with its length, so one with a NUL inside does not become a shorter one:
 * cn_certificate_name_make() refuses it. A name that no key can have is left out, and the others
 * count. */
#include "access/certificate/certificate.h"

#include <gnutls/x509-ext.h>
#include <gnutls/x509.h>
#include <string.h>

#include "access/certificate_name.h"
#include "core/log/log.h"
#include "core/memory/mem.h"
#include "core/text/utf8.h"
#include "core/time/clock.h"

#define SAN_OID "2.5.29.17"
#define SHOWN_NAMES 3   /* how many names a message has */
#define SHOWN_BYTES 200 /* how many bytes of one of them */

static const struct {
    gnutls_x509_subject_alt_name_t type;
    const char *kind;
} kinds[] = {
    {GNUTLS_SAN_URI, "uri"},
    {GNUTLS_SAN_DNSNAME, "dns"},
    {GNUTLS_SAN_RFC822NAME, "email"},
};

static void
add_name(struct cn_certificate *out, const char *kind, struct cn_str text)
{
    struct cn_str *name = &out->names[out->n_names];

    if (cn_certificate_name_make(cn_str_from(kind), text, &out->arena, name))
        cn_certificate_name_hash(*name, out->name_hashes[out->n_names++]);
}

/* Takes the names of the extension. */
static int
take_alternatives(const gnutls_datum_t *extension, struct cn_certificate *out, struct cn_error *err)
{
    gnutls_subject_alt_names_t all;
    gnutls_datum_t name;
    unsigned type, n = 0;
    int rc;

    if (gnutls_subject_alt_names_init(&all) < 0)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a certificate");
    rc = gnutls_x509_ext_import_subject_alt_names(extension, all, 0);
    while (rc >= 0 && n < CN_CERTIFICATE_NAMES) {
        rc = gnutls_subject_alt_names_get(all, n, &type, &name, NULL);
        for (size_t i = 0; rc >= 0 && i < sizeof kinds / sizeof *kinds; i++)
            if (kinds[i].type == type)
                add_name(out, kinds[i].kind, (struct cn_str){(const char *)name.data, name.size});
        n += rc >= 0;
    }
    if (n == CN_CERTIFICATE_NAMES)
        rc = gnutls_subject_alt_names_get(all, n, &type, &name, NULL);
    gnutls_subject_alt_names_deinit(all);
    if (rc == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return 0;
    return rc < 0 ? cn_fail(err, CN_E_CERTIFICATE,
                            "the subject alternative names of the certificate cannot be read: %s",
                            gnutls_strerror(rc))
                  : cn_fail(err, CN_E_CERTIFICATE,
                            "the certificate has more than %d subject alternative names; give "
                            "the client a certificate of its own",
                            CN_CERTIFICATE_NAMES);
}

/* Takes the backslashes away with which GnuTLS writes a text as in a subject (RFC 4514). A value
 * that is no text becomes "#" and its bytes in hexadecimal, which must not look like a text with
 * these characters. False: it is no text. */
static bool
unescape(char *text, size_t *len)
{
    size_t n = 0;

    if (*len && text[0] == '#')
        return false;
    for (size_t i = 0; i < *len; i++) {
        if (text[i] == '\\' && (++i == *len || !strchr(",+\"\\<>;=# ", text[i]) || !text[i]))
            return false;
        text[n++] = text[i];
    }
    *len = n;
    return true;
}

/* Takes the common name, if there is one and no second one. */
static void
take_common_name(gnutls_x509_crt_t crt, struct cn_certificate *out)
{
    char name[2 * CN_CERTIFICATE_NAME_MAX], second[1]; /* each character may have a backslash */
    size_t len = sizeof name, second_len = sizeof second;

    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &len) >= 0 &&
        gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 1, 0, second,
                                      &second_len) == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE &&
        unescape(name, &len))
        add_name(out, "cn", (struct cn_str){name, len});
}

static int
take_names(gnutls_x509_crt_t crt, struct cn_certificate *out, struct cn_error *err)
{
    gnutls_datum_t extension = {NULL, 0}, again = {NULL, 0};
    int rc;

    out->names = cn_arena_alloc(&out->arena, CN_CERTIFICATE_NAMES * sizeof *out->names);
    out->name_hashes = cn_arena_alloc(&out->arena, CN_CERTIFICATE_NAMES * sizeof *out->name_hashes);
    rc = gnutls_x509_crt_get_extension_by_oid2(crt, SAN_OID, 0, &extension, NULL);
    if (rc == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) {
        take_common_name(crt, out);
        return 0;
    }
    if (rc < 0 || gnutls_x509_crt_get_extension_by_oid2(crt, SAN_OID, 1, &again, NULL) >= 0)
        rc = cn_fail(err, CN_E_CERTIFICATE,
                     "the certificate has damaged or several lists of subject alternative names");
    else
        rc = take_alternatives(&extension, out, err);
    gnutls_free(extension.data);
    gnutls_free(again.data);
    return rc;
}

/* Writes what messages call the certificate. */
static void
describe(gnutls_x509_crt_t crt, struct cn_certificate *out)
{
    char subject[SHOWN_BYTES], shown[SHOWN_BYTES * 4 + 3];
    size_t len = sizeof subject;
    struct cn_buf text;

    cn_buf_init(&text, 0);
    for (uint32_t i = 0; i < out->n_names && i < SHOWN_NAMES; i++) {
        const size_t cut = cn_utf8_cut(out->names[i], SHOWN_BYTES);

        cn_buf_printf(&text, "%s%.*s%s", i ? ", " : "", (int)cut, out->names[i].ptr,
                      cut < out->names[i].len ? "..." : "");
    }
    if (out->n_names > SHOWN_NAMES)
        cn_buf_printf(&text, " and %u more", out->n_names - SHOWN_NAMES);
    if (!out->n_names) {
        if (gnutls_x509_crt_get_dn(crt, subject, &len) < 0)
            len = 0;
        cn_buf_printf(&text, "subject %s, which has no name that a key can have",
                      len ? cn_log_quote(subject, strlen(subject), shown, sizeof shown)
                          : "unknown");
    }
    out->shown = cn_arena_strndup(&out->arena, text.data, text.len);
    cn_buf_fini(&text);
}

int
cn_certificate_read(struct cn_str bytes, bool is_pem, struct cn_certificate **out,
                    struct cn_error *err)
{
    const gnutls_datum_t datum = {(unsigned char *)(uintptr_t)bytes.ptr, (unsigned)bytes.len};
    struct cn_certificate *certificate;
    gnutls_x509_crt_t crt;
    time_t end;
    int rc;

    if (gnutls_x509_crt_init(&crt) < 0)
        return cn_fail(err, CN_E_OUT_OF_MEMORY, "not enough memory for a certificate");
    rc = gnutls_x509_crt_import(crt, &datum, is_pem ? GNUTLS_X509_FMT_PEM : GNUTLS_X509_FMT_DER);
    if (rc < 0) {
        gnutls_x509_crt_deinit(crt);
        return cn_fail(err, CN_E_CERTIFICATE, "the client's certificate cannot be read: %s",
                       gnutls_strerror(rc));
    }
    certificate = cn_alloc(sizeof *certificate);
    cn_arena_init(&certificate->arena);
    end = gnutls_x509_crt_get_expiration_time(crt);
    certificate->ends_wall_ms = end > 0 ? (uint64_t)end * 1000 : 0;
    certificate->n_names = 0;
    rc = take_names(crt, certificate, err);
    if (!rc)
        describe(crt, certificate);
    gnutls_x509_crt_deinit(crt);
    if (rc)
        cn_certificate_destroy(certificate);
    else
        *out = certificate;
    return rc;
}

void
cn_certificate_destroy(struct cn_certificate *certificate)
{
    if (!certificate)
        return;
    cn_arena_fini(&certificate->arena);
    cn_free(certificate);
}

int
cn_certificate_check_time(const struct cn_certificate *certificate, struct cn_error *err)
{
    char time[25];

    if (cn_wall_ms() < certificate->ends_wall_ms)
        return 0;
    cn_wall_format(certificate->ends_wall_ms, time);
    return cn_fail(err, CN_E_CERTIFICATE,
                   "the certificate (%s) expired at %s; connect again with a new one",
                   certificate->shown, time);
}

int
cn_certificate_check_end(uint64_t ends_wall_ms, struct cn_error *err)
{
    char time[25];

    if (ends_wall_ms == CN_NEVER || cn_wall_ms() < ends_wall_ms)
        return 0;
    cn_wall_format(ends_wall_ms, time);
    return cn_fail(err, CN_E_CERTIFICATE,
                   "the certificate of this connection expired at %s; connect again with a new one",
                   time);
}

void
cn_certificate_credentials(const struct cn_str *authorization,
                           const struct cn_certificate *certificate, struct cn_credentials *out)
{
    *out = (struct cn_credentials){.sent = authorization != NULL};
    if (authorization)
        out->authorization = *authorization;
    if (!certificate)
        return;
    out->certificate = certificate->shown;
    out->name_hashes = certificate->name_hashes;
    out->n_names = certificate->n_names;
}
