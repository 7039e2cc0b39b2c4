/* archiver/sign/minisign_test.c - keys and signatures that minisign 0.11 made are read as minisign
 * reads them, and what is altered is refused. */
#include "archiver/test_support.h"

#include <fcntl.h>
#include <sodium.h>

#include "archiver/sign/sign.h"
#include "core/log/log.h"
#include "core/memory/mem.h"

/* Made by "minisign -G -W" and "minisign -S -t 'a trusted comment'" of a file "hello\n". */
static const char minisign_public[] = "untrusted comment: minisign public key FD2E4AC67097C4F4\n"
                                      "RWT0xJdwxkou/cK3jd95rOiSPabwHs0D5bA416Qr9Ty0AknAidyzUrst\n";
static const char minisign_secret[] =
    "untrusted comment: minisign encrypted secret key\n"
    "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA9MSXcMZKLv0L82C5Z2YJ"
    "S43B1o43clsnxlafBSSNBh2qwTR1w1gmtMK3jd95rOiSPabwHs0D5bA416Qr9Ty0AknAidyzUrstAAAAAAAAAAAAAAAAAA"
    "AA"
    "AAAAAAAAAAAAAAAAAAAAAAA=\n";
static const char minisign_signature[] =
    "untrusted comment: signature from minisign secret key\n"
    "RUT0xJdwxkou/"
    "RVJ4ihcXZ7PRvy7rVk4jfhtdFpNHdBpa8vi+O6aV279WpzdYuAQTY3YlVFCyhq2uLpQ4wK278Nb+fiIrBOr"
    "yQ4=\n"
    "trusted comment: a trusted comment\n"
    "AG3X2bg1Lm0d0ls3Otacwo4t9lDkVhxouiNMxmkJXIX0TEXDrMZ2FdNYj3hE2BNrE2syx4o6tDt1n7ztWxPSAA==\n";

/* Verifies scratch/f with scratch/keys; the copy's text, or NULL. */
static int
verify_f(char out[64], struct cn_error *err)
{
    int fd = open(in_scratch("f"), O_RDONLY), copy, rc;
    ssize_t n;

    assert_true(fd >= 0);
    rc = cn_sign_verified_copy(in_scratch("keys"), in_scratch("f"), fd, scratch, 1000, &copy, err);
    close(fd);
    if (rc != 0) {
        assert_int_equal(copy, -1);
        return rc;
    }
    n = pread(copy, out, 63, 0);
    assert_true(n >= 0);
    out[n] = '\0';
    close(copy);
    return 0;
}

static void
write_good(void)
{
    write_text("keys", minisign_public);
    write_text("f", "hello\n");
    write_text("f.minisig", minisign_signature);
}

static void
test_a_signature_of_minisign_is_verified_and_its_bytes_are_copied(void **state)
{
    struct cn_error err = {0};
    char text[64];

    (void)state;
    write_good();
    assert_int_equal(verify_f(text, &err), 0);
    assert_string_equal(text, "hello\n");
}

static void
refused(int code, const char *why)
{
    struct cn_error err = {0};
    char text[64];

    assert_int_equal(verify_f(text, &err), code);
    assert_contains(err.message, why);
}

static void
replace_in_signature(const char *what, char with)
{
    char text[sizeof minisign_signature];
    char *at;

    memcpy(text, minisign_signature, sizeof text);
    at = strstr(text, what);
    assert_non_null(at);
    *at = with;
    write_text("f.minisig", text);
}

static void
test_what_is_not_signed_by_a_trusted_key_is_refused(void **state)
{
    (void)state;
    write_good();
    write_text("f", "hello!");
    refused(CN_E_UNTRUSTED, "was altered");
    write_text("f", "hello\n\n");
    refused(CN_E_UNTRUSTED, "was altered");
    write_good();
    replace_in_signature("a trusted comment", 'b');
    refused(CN_E_UNTRUSTED, "was altered");
    replace_in_signature("AG3X", 'B'); /* the second signature */
    refused(CN_E_UNTRUSTED, "was altered");
    replace_in_signature("VJ4ih", 'W'); /* the first one */
    refused(CN_E_UNTRUSTED, "was altered");
    replace_in_signature("RUT0", 'S');
    refused(CN_E_UNTRUSTED, "is not a signature of minisign");
    write_good();
    assert_int_equal(unlink(in_scratch("f.minisig")), 0);
    refused(CN_E_UNTRUSTED, "f.minisig is missing");
    write_good();
    write_text("keys", "untrusted comment: another key with the same id\n"
                       "RWT0xJdwxkou/QAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n");
    refused(CN_E_UNTRUSTED, "was altered");
    write_text("keys", "RWQAxJdwxkou/cK3jd95rOiSPabwHs0D5bA416Qr9Ty0AknAidyzUrst\n");
    refused(CN_E_UNTRUSTED, "FD2E4AC67097C4F4, which is not among the trusted keys");
    write_text("keys", "# no key\n");
    refused(CN_E_CONFIG, "has no public key");
    write_text("keys", "RWQA\n");
    refused(CN_E_CONFIG, "line 1: this is not a public key");
    assert_int_equal(unlink(in_scratch("keys")), 0);
    refused(CN_E_CONFIG, "trusted-keys: cannot read");
}

static void
test_the_old_form_of_signatures_is_named(void **state)
{
    (void)state;
    write_good();
    replace_in_signature("UT0x", 'W'); /* "Ed", which signs the file and not its hash */
    refused(CN_E_UNTRUSTED, "without minisign's option -l");
}

static void
test_a_file_over_the_limit_is_not_copied(void **state)
{
    char large[2000];

    (void)state;
    write_good();
    memset(large, 'x', sizeof large);
    write_bytes("f", large, sizeof large);
    refused(CN_E_INVALID_MODEL, "larger than 1000 bytes");
}

static void
read_secret(const char *text, const char *password, int rc, struct cn_sign_secret *out)
{
    struct cn_error err = {0};

    assert_int_equal(cn_sign_secret_parse("key", cn_str_from(text), password, out, &err), rc);
}

static void
test_a_secret_key_of_minisign_signs(void **state)
{
    struct cn_sign_secret secret;
    struct cn_error err = {0};
    char text[64];

    (void)state;
    write_good();
    write_text("f", "another text");
    read_secret(minisign_secret, NULL, 0, &secret);
    assert_int_equal(cn_sign_file(&secret, in_scratch("f"), NULL, &err), 0);
    assert_int_equal(verify_f(text, &err), 0);
    assert_string_equal(text, "another text");
}

static void
test_a_key_with_a_password_is_read_with_that_password_only(void **state)
{
    struct cn_sign_secret secret = {.id = {1, 2, 3}, .key = {4, 5, 6}}, again;
    struct cn_error err = {0};
    struct cn_buf text;

    (void)state;
    cn_buf_init(&text, 0);
    assert_int_equal(cn_sign_secret_print(&secret, "swordfish", &text, &err), 0);
    cn_buf_append(&text, "", 1);
    read_secret(text.data, NULL, CN_SIGN_NEEDS_PASSWORD, &again);
    read_secret(text.data, "swordfisH", CN_E_CONFIG, &again);
    read_secret(text.data, "swordfish", 0, &again);
    assert_memory_equal(&secret, &again, sizeof again);
    cn_buf_fini(&text);
}

/* A key file comes from outside, so it must not ask for any amount of memory. */
static void
test_a_key_file_that_asks_for_too_much_is_refused(void **state)
{
    unsigned char raw[158] = {'E', 'd', 'S', 'c', 'B', '2'};
    struct cn_sign_secret secret;
    char text[400], encoded[300];

    (void)state;
    memset(raw + 38, 0xff, 16);
    sodium_bin2base64(encoded, sizeof encoded, raw, sizeof raw, sodium_base64_VARIANT_ORIGINAL);
    snprintf(text, sizeof text, "untrusted comment: x\n%s\n", encoded);
    read_secret(text, "x", CN_E_CONFIG, &secret);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_signature_of_minisign_is_verified_and_its_bytes_are_copied, make_scratch,
            remove_scratch),
        cmocka_unit_test_setup_teardown(test_what_is_not_signed_by_a_trusted_key_is_refused,
                                        make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_the_old_form_of_signatures_is_named, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_a_file_over_the_limit_is_not_copied, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_a_secret_key_of_minisign_signs, make_scratch,
                                        remove_scratch),
        cmocka_unit_test(test_a_key_with_a_password_is_read_with_that_password_only),
        cmocka_unit_test(test_a_key_file_that_asks_for_too_much_is_refused),
    };

    cn_log_set_level(CN_LOG_ERROR);
    return sodium_init() < 0 || cmocka_run_group_tests(tests, NULL, NULL);
}
