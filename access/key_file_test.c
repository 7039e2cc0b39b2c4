/* access/key_file_test.c - tests which files of keys are accepted, and what is said of the others.
 */
#include "access/key_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"

#define HASH(c) "blake2b:" c c c c c c c c c c c c c c c c
#define KEY_A "name: a\n  hash: " HASH("0a1B") "\n  scopes: [infer]\n"

static struct cn_key_file file;
static struct cn_error err;

static int
parse(const char *text)
{
    return cn_key_file_parse("keys.yaml", cn_str_from(text), &file, &err);
}

#define CERTIFIED(name, certificate)                                                               \
    "name: " name "\n  certificates: ['" certificate "']\n  scopes: [infer]\n"

static void
refused(const char *text, const char *message)
{
    assert_int_equal(parse(text), CN_E_CONFIG);
    if (!strstr(err.message, message))
        fail_msg("%s\nhas not: %s", err.message, message);
}

/* Each member arrives as it was written. */
static void
a_key_has_its_members(void **state)
{
    (void)state;
    assert_int_equal(parse("keys:\n- " KEY_A "- name: web.shop-2\n  hash: " HASH(
                         "ff00") "\n  scopes: [observe, manage]\n  models: [counter, 'asr-*']\n"
                                 "  expires: 2027-01-31T12:00:01Z\n  revoked: true\n"),
                     0);
    assert_int_equal(file.n, 2);
    assert_int_equal(file.entries[0].hash[0], 0x0a);
    assert_int_equal(file.entries[0].hash[31], 0x1b);
    assert_int_equal(file.entries[0].scopes, CN_SCOPE_INFER);
    assert_int_equal(file.entries[0].n_models, 0);
    assert_false(file.entries[0].revoked);
    assert_true(file.entries[0].expires_wall_ms == CN_NEVER);
    assert_true(cn_str_eq(file.entries[1].name, CN_STR("web.shop-2")));
    assert_int_equal(file.entries[1].scopes, CN_SCOPE_OBSERVE | CN_SCOPE_MANAGE);
    assert_true(cn_str_eq(file.entries[1].models[1], CN_STR("asr-*")));
    assert_true(file.entries[1].revoked);
    assert_true(file.entries[1].expires_wall_ms == 1801396801000u);
    cn_key_file_fini(&file);
    assert_int_equal(parse("keys:\n- " KEY_A "  rate: 50\n  burst: 100\n  concurrency: 8\n"
                           "  maxNumSequence: 1000\n  storedBytes: 67108864\n"),
                     0);
    assert_memory_equal(&file.entries[0].limits,
                        (&(struct cn_key_limits){50, 100, 8, 1000, 67108864}),
                        sizeof(struct cn_key_limits));
    cn_key_file_fini(&file);
    assert_int_equal(parse("keys:\n- " CERTIFIED("a", "dns:Shop.Example") "- " CERTIFIED(
                         "b", "cn:Zo\xc3\xab from Shop")),
                     0);
    assert_false(file.entries[0].has_hash);
    assert_true(cn_str_eq(file.entries[0].certificates[0], CN_STR("dns:shop.example")));
    assert_true(cn_str_eq(file.entries[1].certificates[0], CN_STR("cn:Zo\xc3\xab from Shop")));
    cn_key_file_fini(&file);
    assert_int_equal(parse("{\"keys\": []}"), 0);
    assert_int_equal(file.n, 0);
    cn_key_file_fini(&file);
}

/* An operator must find the wrong line, and no misspelt member may be taken for a missing one. */
static void
a_wrong_file_is_refused_with_its_place(void **state)
{
    (void)state;
    refused("", "keys.yaml:1:1: the file must be a map whose only member, keys, is a list");
    refused("keys: 3", "the file must be a map");
    refused("keys: []\nother: 1", "the file must be a map");
    refused("keys:\n- 5", "keys.yaml:2:3: keys: expected a map");
    refused("keys:\n- " KEY_A "  revokd: true\n",
            "keys.yaml:5:3: a key has no member \"revokd\" (did you mean revoked?)");
    refused("keys:\n- name: a\n", "keys.yaml:2:3: the key has no hash");
    refused("keys:\n- name: a\n  hash: " HASH("0a1B") "\n", "the key has no scopes");
    refused("keys:\n- name: -a\n", "keys.yaml:2:9: name: expected 1 to 64 letters");
    refused("keys:\n- name: 12\n", "(a number needs quotes)");
    refused("keys:\n- name: a\n  hash: secret\n", "keys.yaml:3:9: hash: expected blake2b:");
    refused("keys:\n- name: a\n  hash: " HASH("0a1G") "\n", "hash: expected blake2b:");
    refused("keys:\n- name: a\n  scopes: [infer, admin]\n", "keys.yaml:3:19: scopes: expected");
    refused("keys:\n- name: a\n  scopes: []\n", "scopes: expected");
    refused("keys:\n- name: a\n  models: []\n", "models: expected");
    refused("keys:\n- name: a\n  models: counter\n", "models: expected");
    refused("keys:\n- name: a\n  expires: 2027-02-30\n", "expires: expected");
    refused("keys:\n- name: a\n  expires: tomorrow\n", "expires: expected");
    refused("keys:\n- name: a\n  certificates: dns:a.example\n", "certificates: expected a list");
    refused("keys:\n- name: a\n  certificates: []\n", "certificates: expected a list");
    refused("keys:\n- name: a\n  certificates: [a.example]\n", "keys.yaml:3:18: certificates: exp");
    refused("keys:\n- name: a\n  certificates: ['dns:*.a.example']\n", "a dns or cn name has no *");
    refused("keys:\n- name: a\n  certificates: ['cn:*.a.example']\n", "a dns or cn name has no *");
    refused("keys:\n- name: a\n  certificates: ['ip:127.0.0.1']\n", "certificates: expected");
    refused("keys:\n- name: a\n  certificates: ['dns:']\n", "certificates: expected");
    refused("keys:\n- name: a\n  certificates: ['dns:a b']\n", "certificates: expected");
    refused("keys:\n- name: a\n  certificates: [\"uri:a\\0b\"]\n", "certificates: expected");
    refused("keys:\n- " CERTIFIED("a", "dns:A.example") "- " CERTIFIED("b", "dns:a.example"),
            "the key b has the certificate dns:a.example, which a key has already");
    refused("keys:\n- name: a\n  revoked: maybe\n", "revoked: expected true or false");
    refused("keys:\n- name: a\n  rate: 0\n", "keys.yaml:3:9: rate: expected a number of requests");
    refused("keys:\n- name: a\n  rate: -5\n", "keys.yaml:3:9: rate: expected");
    refused("keys:\n- name: a\n  rate: 1000001\n", "from 1 to 1000000");
    refused("keys:\n- name: a\n  burst: 1.5\n", "burst: expected");
    refused("keys:\n- name: a\n  concurrency: many\n", "concurrency: expected");
    refused("keys:\n- name: a\n  maxNumSequence: '5'\n", "maxNumSequence: expected");
    refused("keys:\n- name: a\n  storedBytes: 64MiB\n", "storedBytes: expected a number of bytes");
    refused("keys:\n- name: a\n  storedBytes: 99999999999999999999\n", "storedBytes: expected");
    refused("keys:\n- name: a\n  storedBytes: [5]\n", "storedBytes: expected");
    refused("keys:\n- " KEY_A "  burst: 5\n", "keys.yaml:2:3: the key has a burst without a rate");
    refused("keys:\n- " KEY_A "- " KEY_A, "keys.yaml:5:3: the key a has the name or the hash");
    refused("keys:\n- " KEY_A "- name: b\n  hash: " HASH("0a1b") "\n  scopes: [infer]\n",
            "the key b has the name or the hash");
}

static bool
reads(const char *text, uint64_t expected)
{
    uint64_t ms = 0;

    return cn_key_time_read(cn_str_from(text), &ms) && ms == expected;
}

/* Times are UTC, and days that do not exist are no times. */
static void
times_are_read_strictly(void **state)
{
    static const char *const bad[] = {
        "",
        "2027",
        "2027-1-1",
        "2027-13-01",
        "2027-06-31",
        "1969-12-31",
        "2027/01/01",
        "27-01-01",
        "2027-01-00",
        "2027-02-29",
        "2027-01-01T00:00:00",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:60:00Z",
        "2027-01-01T00:00:60Z",
        "2027-01-01T00:00:00.12Z",
        "2027-01-01T00:00:00+01",
        "2027-01-01 00:00:00Z",
        "+027-01-01",
        "2027-01-01T0a:00:00Z",
    };
    uint64_t ms;

    (void)state;
    assert_true(reads("1970-01-01", 0));
    assert_true(reads("2023-11-14T22:13:20Z", 1700000000000u));
    assert_true(reads("2023-11-14T22:13:20.123Z", 1700000000123u));
    assert_true(reads("2028-02-29", 1835395200000u));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cn_key_time_read(cn_str_from(bad[i]), &ms));
}

/* continuo-ctl writes what the server reads. */
static void
a_written_file_is_read_again(void **state)
{
    struct cn_str models[] = {CN_STR("a \"quoted\" \\ name"), CN_STR("*")};
    struct cn_str certificates[] = {CN_STR("uri:spiffe://prod/shop"), CN_STR("cn:a \"b\"")};
    struct cn_key_entry entry = {.name = CN_STR("one"),
                                 .has_hash = true,
                                 .hash = {1, 2, 255},
                                 .scopes = CN_SCOPE_INFER | CN_SCOPE_OBSERVE,
                                 .models = models,
                                 .n_models = 2,
                                 .certificates = certificates,
                                 .n_certificates = 2,
                                 .expires_wall_ms = 1700000000123u,
                                 .revoked = true};
    struct cn_buf text;

    (void)state;
    cn_key_file_init(&file);
    assert_int_equal(cn_key_file_add(&file, &entry, &err), 0);
    assert_int_equal(cn_key_file_add(&file, &entry, &err), CN_E_CONFIG);
    assert_string_equal(err.message, "there is a key one already");
    entry.name = CN_STR("no blanks");
    assert_int_equal(cn_key_file_add(&file, &entry, &err), CN_E_CONFIG);
    entry.name = CN_STR("two");
    entry.hash[0] = 9;
    entry.n_models = 0;
    entry.n_certificates = 0;
    assert_int_equal(cn_key_file_add(&file, &entry, &err), 0);
    cn_buf_init(&text, 0);
    cn_key_file_write(&file, &text);
    cn_key_file_fini(&file);
    assert_int_equal(cn_key_file_parse("again", cn_buf_str(&text), &file, &err), 0);
    assert_int_equal(file.n, 2);
    assert_true(cn_str_eq(file.entries[0].models[0], models[0]));
    assert_int_equal(file.entries[0].hash[2], 255);
    assert_int_equal(file.entries[0].n_certificates, 2);
    assert_true(cn_str_eq(file.entries[0].certificates[1], certificates[1]));
    assert_int_equal(file.entries[0].scopes, entry.scopes);
    assert_true(file.entries[0].expires_wall_ms == entry.expires_wall_ms);
    assert_true(file.entries[0].revoked);
    assert_null(cn_key_file_find(&file, CN_STR("three")));
    assert_ptr_equal(cn_key_file_find(&file, CN_STR("two")), &file.entries[1]);
    cn_buf_fini(&text);
    cn_key_file_fini(&file);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_has_its_members),
        cmocka_unit_test(a_wrong_file_is_refused_with_its_place),
        cmocka_unit_test(times_are_read_strictly),
        cmocka_unit_test(a_written_file_is_read_again),
    };

    return cmocka_run_group_tests_name("access.key_file", tests, NULL, NULL);
}
