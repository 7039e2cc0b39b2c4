/* access/certificate/certificate_test.c - tests which names a certificate has, with certificates
 * that GnuTLS makes here. */
#include "access/certificate/certificate.h"

#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "access/certificate_name.h"
#include "core/memory/mem.h"
#include "core/test_support.h"
#include "core/time/clock.h"

static gnutls_x509_privkey_t key;
static struct cn_certificate *certificate;
static struct cn_error err;

/* An alternative name, with its number in RFC 5280. GnuTLS itself would not write odd ones. */
struct name {
    unsigned char number;
    const char *text;
    size_t len;
};
#define DNS(text)                                                                                  \
    {                                                                                              \
        2, text, sizeof(text) - 1                                                                  \
    }
#define URI(text)                                                                                  \
    {                                                                                              \
        6, text, sizeof(text) - 1                                                                  \
    }
#define EMAIL(text)                                                                                \
    {                                                                                              \
        1, text, sizeof(text) - 1                                                                  \
    }

/* Writes the extension: a sequence of names, each of less than 128 bytes. */
static void
set_names(gnutls_x509_crt_t crt, const struct name *names, size_t n)
{
    unsigned char der[2048];
    size_t len = 4;

    for (size_t i = 0; i < n; i++) {
        der[len++] = 0x80 | names[i].number;
        der[len++] = (unsigned char)names[i].len;
        memcpy(der + len, names[i].text, names[i].len);
        len += names[i].len;
    }
    der[0] = 0x30;
    der[1] = 0x82;
    der[2] = (unsigned char)((len - 4) >> 8);
    der[3] = (unsigned char)(len - 4);
    assert_int_equal(gnutls_x509_crt_set_extension_by_oid(crt, "2.5.29.17", der, len, 0), 0);
}

/* Makes a certificate that signs itself, valid in the test's present. */
static gnutls_datum_t
make(const char *subject, const struct name *names, size_t n)
{
    gnutls_x509_crt_t crt;
    gnutls_datum_t der;
    const char *wrong;

    assert_int_equal(gnutls_x509_crt_init(&crt), 0);
    assert_int_equal(gnutls_x509_crt_set_version(crt, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_dn(crt, subject, &wrong), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(crt, "\1", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(crt, time(NULL) - 60), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(crt, time(NULL) + 3600), 0);
    assert_int_equal(gnutls_x509_crt_set_key(crt, key), 0);
    assert_int_equal(gnutls_x509_crt_set_basic_constraints(crt, 1, -1), 0);
    if (n)
        set_names(crt, names, n);
    assert_int_equal(gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0), 0);
    assert_int_equal(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_DER, &der), 0);
    gnutls_x509_crt_deinit(crt);
    return der;
}

/* Reads a certificate that make() makes; `certificate` is the last one that could be read. */
static int
read_made(const char *subject, const struct name *names, size_t n)
{
    gnutls_datum_t der = make(subject, names, n);
    int rc;

    cn_certificate_destroy(certificate);
    certificate = NULL;
    rc = cn_certificate_read((struct cn_str){(const char *)der.data, der.size}, false, &certificate,
                             &err);
    gnutls_free(der.data);
    return rc;
}
#define READ(subject, ...)                                                                         \
    read_made(subject, (const struct name[]){__VA_ARGS__},                                         \
              sizeof((const struct name[]){__VA_ARGS__}) / sizeof(struct name))

static void
has_name(uint32_t i, const char *name)
{
    assert_true(i < certificate->n_names);
    if (!cn_str_eq(certificate->names[i], cn_str_from(name)))
        fail_msg("%.*s is not %s", CN_STR_ARG(certificate->names[i]), name);
}

static int
set_up(void **state)
{
    (void)state;
    assert_int_equal(gnutls_x509_privkey_init(&key), 0);
    return gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA,
                                        GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
}

static int
tear_down(void **state)
{
    (void)state;
    cn_certificate_destroy(certificate);
    gnutls_x509_privkey_deinit(key);
    return 0;
}

/* The alternative names count, and the common name only where there are none. */
static void
the_names_are_those_that_an_authority_has_checked(void **state)
{
    (void)state;
    assert_int_equal(READ("CN=shop,O=Example", DNS("Shop.Example"), URI("spiffe://prod/Shop"),
                          EMAIL("Ops@example.com")),
                     0);
    assert_int_equal(certificate->n_names, 3);
    has_name(0, "dns:shop.example");
    has_name(1, "uri:spiffe://prod/Shop");
    has_name(2, "email:Ops@example.com");
    assert_string_equal(certificate->shown,
                        "dns:shop.example, uri:spiffe://prod/Shop, email:Ops@example.com");
    assert_int_equal(read_made("CN=shop,O=Example", NULL, 0), 0);
    assert_int_equal(certificate->n_names, 1);
    has_name(0, "cn:shop");
    assert_int_equal(read_made("O=Example", NULL, 0), 0);
    assert_int_equal(certificate->n_names, 0);
    assert_non_null(strstr(certificate->shown, "O=Example"));
    assert_int_equal(READ("CN=shop", {7, "\x7f\0\0\1", 4}), 0);
    assert_int_equal(certificate->n_names, 0); /* an address is no name, and it hides the CN */
    assert_int_equal(read_made("CN=shop,CN=admin", NULL, 0), 0);
    assert_int_equal(certificate->n_names, 0);
}

/* Odd names are left out: none of them may be taken for the name of somebody else. */
static void
odd_names_stand_for_nobody(void **state)
{
    static const struct name odd[] = {
        DNS("*.example"),          DNS("admin\0.evil.example"), DNS("admin\0"),
        DNS("a b.example"),        DNS("line\nbreak"),          DNS("caf\xc3\xa9.example"),
        URI("spiffe://prod/a\0b"), URI("spiffe://prod/\xff"),   EMAIL("a@b\x7f"),
    };

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        const int rc = READ("CN=shop", odd[i], DNS("good.example"));

        if (rc) /* GnuTLS itself refuses some of them */
            assert_non_null(strstr(err.message, "cannot be read"));
        else if (certificate->n_names != 1)
            fail_msg("the odd name %zu has become %.*s", i, CN_STR_ARG(certificate->names[0]));
        else
            has_name(0, "dns:good.example");
    }
    assert_int_equal(READ("CN=shop", odd[0], DNS("good.example")), 0);
    has_name(0, "dns:good.example");
}

/* GnuTLS writes a common name as in a subject, and a name is compared without these backslashes. */
static void
a_common_name_is_the_text_itself(void **state)
{
    static const struct {
        const char *subject, *name;
    } rows[] = {
        {"CN=Shop\\, Inc", "cn:Shop, Inc"},     {"CN=a\\+b\\;c\\<d\\>", "cn:a+b;c<d>"},
        {"CN=back\\\\slash", "cn:back\\slash"}, {"CN=\\#1", "cn:#1"},
        {"CN=say \\\"hi\\\"", "cn:say \"hi\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(read_made(rows[i].subject, NULL, 0), 0);
        has_name(0, rows[i].name);
    }
    assert_int_equal(read_made("CN=*.example", NULL, 0), 0);
    assert_int_equal(certificate->n_names, 0);
    assert_int_equal(read_made("CN=#04024869", NULL, 0), 0); /* an octet string, and no text */
    assert_int_equal(certificate->n_names, 0);
}

/* Names are hashed once and not with each request. */
static void
names_are_kept_with_their_hashes(void **state)
{
    unsigned char hash[CN_KEY_HASH_BYTES];

    (void)state;
    assert_int_equal(READ("CN=shop", DNS("*.example"), DNS("a.example"), DNS("b.example")), 0);
    assert_int_equal(certificate->n_names, 2);
    for (uint32_t i = 0; i < 2; i++) {
        cn_certificate_name_hash(certificate->names[i], hash);
        assert_memory_equal(certificate->name_hashes[i], hash, sizeof hash);
    }
}

static void
a_certificate_has_a_bounded_number_of_names(void **state)
{
    struct name names[CN_CERTIFICATE_NAMES + 1];
    char texts[CN_CERTIFICATE_NAMES + 1][20];

    (void)state;
    for (size_t i = 0; i <= CN_CERTIFICATE_NAMES; i++) {
        const int len = snprintf(texts[i], sizeof texts[i], "n%zu.example", i);

        names[i] = (struct name){2, texts[i], (size_t)len};
    }
    assert_int_equal(read_made("CN=shop", names, CN_CERTIFICATE_NAMES), 0);
    assert_int_equal(certificate->n_names, CN_CERTIFICATE_NAMES);
    has_name(CN_CERTIFICATE_NAMES - 1, "dns:n31.example");
    assert_int_equal(read_made("CN=shop", names, CN_CERTIFICATE_NAMES + 1), CN_E_CERTIFICATE);
    assert_non_null(strstr(err.message, "more than 32 subject alternative names"));
}

static void
bytes_that_are_no_certificate_are_refused(void **state)
{
    struct cn_certificate *none = NULL;
    gnutls_datum_t der = make("CN=shop", NULL, 0);

    (void)state;
    for (unsigned len = 0; len < der.size; len += 7)
        assert_int_equal(
            cn_certificate_read((struct cn_str){(const char *)der.data, len}, false, &none, &err),
            CN_E_CERTIFICATE);
    assert_null(none);
    gnutls_free(der.data);
}

/* Only the authority's own clients pass, and only until their certificate ends. */
static void
an_authority_decides(void **state)
{
    char dir[TEST_DIR_MAX], path[100];
    gnutls_datum_t der = make("CN=shop", NULL, 0), pem;
    struct cn_str chain = {(const char *)der.data, der.size};
    struct cn_client_ca *ca;
    FILE *file;

    (void)state;
    test_dir_make(dir);
    snprintf(path, sizeof path, "%s/ca.pem", dir);
    assert_int_equal(cn_client_ca_read(path, &ca, &err), CN_E_CONFIG);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("nothing\n", file);
    fclose(file);
    assert_int_equal(cn_client_ca_read(path, &ca, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "has no PEM certificates"));
    assert_int_equal(gnutls_pem_base64_encode2("CERTIFICATE", &der, &pem), 0);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(pem.data, 1, pem.size, file), pem.size);
    fclose(file);
    assert_int_equal(cn_client_ca_read(path, &ca, &err), 0);
    assert_int_equal(cn_client_ca_verify(ca, &chain, 1, "cn:shop", &err), 0);
    gnutls_free(der.data);
    der = make("CN=shop", NULL, 0); /* of the same name and key, but not the same certificate */
    ((unsigned char *)der.data)[der.size - 1] ^= 1;
    chain = (struct cn_str){(const char *)der.data, der.size};
    assert_int_equal(cn_client_ca_verify(ca, &chain, 1, "cn:shop", &err), CN_E_CERTIFICATE);
    assert_non_null(strstr(err.message, "the certificate (cn:shop) was not accepted: "));
    assert_int_equal(cn_client_ca_verify(ca, &chain, 17, "cn:shop", &err), CN_E_CERTIFICATE);
    cn_client_ca_destroy(ca);
    gnutls_free(der.data);
    gnutls_free(pem.data);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

static void
a_certificate_ends(void **state)
{
    (void)state;
    assert_int_equal(read_made("CN=shop", NULL, 0), 0);
    assert_int_equal(cn_certificate_check_time(certificate, &err), 0);
    certificate->ends_wall_ms = cn_wall_ms();
    assert_int_equal(cn_certificate_check_time(certificate, &err), CN_E_CERTIFICATE);
    assert_non_null(strstr(err.message, "the certificate (cn:shop) expired at "));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names_are_those_that_an_authority_has_checked),
        cmocka_unit_test(odd_names_stand_for_nobody),
        cmocka_unit_test(a_common_name_is_the_text_itself),
        cmocka_unit_test(names_are_kept_with_their_hashes),
        cmocka_unit_test(a_certificate_has_a_bounded_number_of_names),
        cmocka_unit_test(bytes_that_are_no_certificate_are_refused),
        cmocka_unit_test(an_authority_decides),
        cmocka_unit_test(a_certificate_ends),
    };

    return cmocka_run_group_tests_name("access.certificate", tests, set_up, tear_down);
}
