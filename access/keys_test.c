/* access/keys_test.c - tests which requests a key admits, for how long, and after the file has
 * changed. */
#include "access/keys.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "access/certificate_name.h"
#include "access/key_text.h"
#include "core/system/write_file.h"
#include "core/test_support.h"
#include "core/time/clock.h"

static char dir[TEST_DIR_MAX], path[100], beside[110];
static char shop[CN_KEY_TEXT_MAX], admin[CN_KEY_TEXT_MAX];
static struct cn_keys *keys;
static struct cn_error err;

#define RULES                                                                                      \
    (struct cn_keys_rules)                                                                         \
    {                                                                                              \
        .owners = true, .certificates = true                                                       \
    }

static void
write_text(struct cn_str text)
{
    assert_int_equal(cn_write_file_atomically(path, beside, 0600, text.ptr, text.len), 0);
}

static void
write_entries(const struct cn_key_entry *one, const struct cn_key_entry *two)
{
    struct cn_key_file file;
    struct cn_buf text;

    cn_key_file_init(&file);
    assert_int_equal(cn_key_file_add(&file, one, &err), 0);
    assert_int_equal(cn_key_file_add(&file, two, &err), 0);
    cn_buf_init(&text, 0);
    cn_key_file_write(&file, &text);
    write_text(cn_buf_str(&text));
    cn_buf_fini(&text);
    cn_key_file_fini(&file);
}

/* Writes a file with the two keys. */
static void
write_keys(bool shop_is_revoked, const char *shop_name)
{
    struct cn_str models[] = {CN_STR("counter"), CN_STR("asr-*")};
    struct cn_key_entry one = {.name = cn_str_from(shop_name),
                               .scopes = CN_SCOPE_INFER,
                               .models = models,
                               .n_models = 2,
                               .expires_wall_ms = 1700000060000u, /* in a minute */
                               .revoked = shop_is_revoked};
    struct cn_key_entry two = {.name = CN_STR("admin"),
                               .scopes = CN_SCOPE_MANAGE | CN_SCOPE_OBSERVE,
                               .expires_wall_ms = CN_NEVER};

    one.has_hash = cn_key_text_hash(cn_str_from(shop), one.hash);
    two.has_hash = cn_key_text_hash(cn_str_from(admin), two.hash);
    write_entries(&one, &two);
}

static int
set_up(void **state)
{
    (void)state;
    cn_clock_freeze();
    test_dir_make(dir);
    snprintf(path, sizeof path, "%s/keys.json", dir);
    snprintf(beside, sizeof beside, "%s.new", path);
    cn_key_text_make(shop);
    cn_key_text_make(admin);
    write_keys(false, "shop");
    assert_int_equal(cn_keys_open(path, RULES, &keys, &err), 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_keys_destroy(keys);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    return 0;
}

static int
identify(const char *scheme, const char *key, unsigned scopes, const struct cn_key **out)
{
    char text[200];

    snprintf(text, sizeof text, "%s%s", scheme, key);
    return cn_keys_identify(
        keys, &(struct cn_credentials){.sent = true, .authorization = cn_str_from(text)}, scopes,
        out, &err);
}

/* The form of a key lets leaked ones be found, and two keys are never alike. */
static void
a_made_key_is_random(void **state)
{
    unsigned char hash[CN_KEY_HASH_BYTES];

    (void)state;
    assert_int_equal(strlen(shop), CN_KEY_TEXT_LEN);
    assert_int_equal(strncmp(shop, "continuo-", 9), 0);
    assert_string_not_equal(shop, admin);
    assert_false(cn_key_text_hash(CN_STR("password"), hash));
    assert_false(cn_key_text_hash((struct cn_str){shop, CN_KEY_TEXT_LEN - 1}, hash));
}

/* Without a valid key the answer is 401, with the wrong one 403; only 403 names the key. */
static void
only_a_known_key_with_the_scope_is_admitted(void **state)
{
    const struct cn_key *key = NULL;
    char wrong[CN_KEY_TEXT_MAX];

    (void)state;
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    assert_string_equal(cn_key_name(key), "shop");
    assert_int_equal(identify("bearer \t", admin, CN_SCOPE_OBSERVE, &key), 0);
    assert_string_equal(cn_key_name(key), "admin");
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_MANAGE, &key), CN_E_KEY_FORBIDDEN);
    assert_string_equal(err.message,
                        "the key shop lacks the scope that this request needs: manage");
    assert_string_equal(cn_key_name(key), "shop"); /* for the log */
    key = NULL;
    assert_int_equal(
        cn_keys_identify(keys, &(struct cn_credentials){.n_names = 0}, CN_SCOPE_ANY, &key, &err),
        CN_E_KEY_REQUIRED);
    assert_int_equal(identify("Basic ", shop, CN_SCOPE_ANY, &key), CN_E_KEY_REQUIRED);
    assert_int_equal(identify("Bearer", shop, CN_SCOPE_ANY, &key), CN_E_KEY_REQUIRED);
    assert_int_equal(identify("Bearer", "", CN_SCOPE_ANY, &key), CN_E_KEY_REQUIRED);
    assert_int_equal(identify("", shop, CN_SCOPE_ANY, &key), CN_E_KEY_REQUIRED);
    memcpy(wrong, shop, sizeof wrong);
    wrong[30] = wrong[30] == 'A' ? 'B' : 'A';
    assert_int_equal(identify("Bearer ", wrong, CN_SCOPE_ANY, &key), CN_E_KEY_REQUIRED);
    assert_null(strstr(err.message, "shop"));
    assert_null(key);
}

/* A limited key opens the models that its patterns name, and nothing that concerns all models. */
static void
a_key_opens_the_models_of_its_patterns(void **state)
{
    const struct cn_key *key, *all;

    (void)state;
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    assert_int_equal(identify("Bearer ", admin, CN_SCOPE_MANAGE, &all), 0);
    assert_int_equal(cn_keys_check_model(keys, key, CN_STR("counter"), &err), 0);
    assert_int_equal(cn_keys_check_model(keys, key, CN_STR("asr-large"), &err), 0);
    assert_int_equal(cn_keys_check_model(keys, key, CN_STR("counter2"), &err), CN_E_KEY_FORBIDDEN);
    assert_string_equal(err.message, "the key shop may not use the model counter2");
    assert_int_equal(cn_keys_check_model(keys, key, CN_STR(""), &err), CN_E_KEY_FORBIDDEN);
    assert_int_equal(cn_keys_check_model(keys, all, CN_STR("counter2"), &err), 0);
    assert_int_equal(cn_keys_check_model(keys, all, CN_STR(""), &err), 0);
}

/* A key ends at the millisecond that the file says, also for who has shown it before. */
static void
a_key_expires(void **state)
{
    const struct cn_key *key;

    (void)state;
    cn_clock_advance(59999);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    cn_clock_advance(1);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), CN_E_KEY_REQUIRED);
    assert_string_equal(err.message,
                        "the key shop expired at 2023-11-14T22:14:20.000Z; ask for a new one");
    assert_int_equal(cn_keys_check(keys, key, CN_SCOPE_INFER, &err), CN_E_KEY_REQUIRED);
    assert_int_equal(cn_keys_check_model(keys, key, CN_STR("counter"), &err), CN_E_KEY_REQUIRED);
}

/* After a reload a stream that is open with a revoked key gets no further step. */
static void
a_reload_takes_effect_for_keys_in_use(void **state)
{
    const struct cn_key *key, *again;

    (void)state;
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    write_keys(true, "shop");
    assert_int_equal(cn_keys_check(keys, key, CN_SCOPE_INFER, &err), 0); /* not yet */
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(cn_keys_check(keys, key, CN_SCOPE_INFER, &err), CN_E_KEY_REQUIRED);
    assert_string_equal(err.message, "the key shop is revoked; ask for a new one");
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &again), CN_E_KEY_REQUIRED);
    write_keys(false, "shop");
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &again), 0);
    assert_ptr_equal(again, key);
    write_keys(false, "store"); /* the same secret under another name is another key */
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_string_equal(cn_key_name(key), "shop");
    assert_int_equal(cn_keys_check(keys, key, CN_SCOPE_INFER, &err), CN_E_KEY_REQUIRED);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &again), 0);
    assert_string_equal(cn_key_name(again), "store");
}

/* A typing error in the file must not lock everybody out. */
static void
a_damaged_file_changes_nothing(void **state)
{
    const struct cn_key *key;

    (void)state;
    write_text(CN_STR("keys:\n- name: shop\n"));
    assert_int_equal(cn_keys_reload(keys, &err), CN_E_CONFIG);
    assert_non_null(strstr(err.message, "keys.json:2:3: the key has no hash"));
    assert_int_equal(cn_keys_count(keys), 2);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(cn_keys_reload(keys, &err), CN_E_CONFIG);
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
}

/* A client with a certificate that has these names. */
static int
connect_with(struct cn_str first, struct cn_str second, const struct cn_key **out)
{
    unsigned char hashes[2][CN_KEY_HASH_BYTES];
    const struct cn_credentials shown = {
        .certificate = "the one of the test", .name_hashes = hashes, .n_names = second.len ? 2 : 1};

    cn_certificate_name_hash(first, hashes[0]);
    cn_certificate_name_hash(second, hashes[1]);
    return cn_keys_identify(keys, &shown, CN_SCOPE_INFER, out, &err);
}

#define WITH_CERTIFICATES                                                                          \
    "keys:\n- {name: shop, certificates: ['dns:Shop.Example', 'cn:shop'], scopes: [infer]}\n"      \
    "- {name: ops, certificates: ['uri:spiffe://prod/ops'], scopes: [manage]}\n"
#define NOBODY CN_STR("")

/* A name of a certificate stands for one key, whichever other names the certificate has. */
static void
a_certificate_stands_for_its_key(void **state)
{
    const struct cn_key *key = NULL, *other;

    (void)state;
    write_text(CN_STR(WITH_CERTIFICATES));
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(connect_with(CN_STR("dns:shop.example"), NOBODY, &key), 0);
    assert_string_equal(cn_key_name(key), "shop");
    assert_int_equal(connect_with(CN_STR("dns:unknown"), CN_STR("cn:shop"), &other), 0);
    assert_ptr_equal(cn_key_account(other), cn_key_account(key));
    assert_int_equal(cn_key_number(other), cn_key_number(key));
    assert_int_equal(connect_with(CN_STR("uri:spiffe://prod/ops"), NOBODY, &other),
                     CN_E_KEY_FORBIDDEN);
    assert_string_equal(cn_key_name(other), "ops");
    assert_int_not_equal(cn_key_number(other), cn_key_number(key));
    other = NULL;
    assert_int_equal(connect_with(CN_STR("cn:shop.example"), NOBODY, &other), CN_E_KEY_REQUIRED);
    assert_non_null(strstr(err.message, "the certificate (the one of the test) belongs to no key"));
    assert_int_equal(
        connect_with(CN_STR("dns:shop.example"), CN_STR("uri:spiffe://prod/ops"), &other),
        CN_E_KEY_REQUIRED);
    assert_non_null(strstr(err.message, "belong to two keys, shop and ops"));
    assert_null(other);
}

/* Taking a name off a key ends what was opened with it, and nothing else of the key. */
static void
a_certificate_that_is_taken_away_ends(void **state)
{
    const struct cn_key *by_dns, *by_cn;

    (void)state;
    write_text(CN_STR(WITH_CERTIFICATES));
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(connect_with(CN_STR("dns:shop.example"), NOBODY, &by_dns), 0);
    assert_int_equal(connect_with(CN_STR("cn:shop"), NOBODY, &by_cn), 0);
    write_text(CN_STR("keys:\n- {name: shop, certificates: ['cn:shop'], scopes: [infer]}\n"));
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(cn_keys_check(keys, by_cn, CN_SCOPE_INFER, &err), 0);
    assert_int_equal(cn_keys_check(keys, by_dns, CN_SCOPE_INFER, &err), CN_E_KEY_REQUIRED);
    assert_non_null(strstr(err.message, "the certificate belongs to no key any more"));
    assert_int_equal(connect_with(CN_STR("dns:shop.example"), NOBODY, &by_dns), CN_E_KEY_REQUIRED);
}

/* A client that sends a key is that key's, or nobody: a wrong key must not become another one. */
static void
a_key_counts_more_than_a_certificate(void **state)
{
    struct cn_str name = CN_STR("cn:other");
    struct cn_key_entry one = {.name = CN_STR("shop"), .expires_wall_ms = CN_NEVER};
    struct cn_key_entry two = {.name = CN_STR("other"), .expires_wall_ms = CN_NEVER};
    unsigned char hash[1][CN_KEY_HASH_BYTES];
    struct cn_credentials shown = {.certificate = "cn:other", .name_hashes = hash, .n_names = 1};
    const struct cn_key *key = NULL;
    char text[CN_KEY_TEXT_MAX + 7];

    (void)state;
    cn_certificate_name_hash(name, hash[0]);
    one.scopes = two.scopes = CN_SCOPE_INFER;
    one.has_hash = cn_key_text_hash(cn_str_from(shop), one.hash);
    two.certificates = &name;
    two.n_certificates = 1;
    write_entries(&one, &two);
    assert_int_equal(cn_keys_reload(keys, &err), 0);
    assert_int_equal(cn_keys_identify(keys, &shown, CN_SCOPE_INFER, &key, &err), 0);
    assert_string_equal(cn_key_name(key), "other");
    snprintf(text, sizeof text, "Bearer %s", shop);
    shown.authorization = cn_str_from(text);
    shown.sent = true;
    assert_int_equal(cn_keys_identify(keys, &shown, CN_SCOPE_INFER, &key, &err), 0);
    assert_string_equal(cn_key_name(key), "shop");
    shown.authorization = CN_STR("Bearer nonsense");
    key = NULL;
    assert_int_equal(cn_keys_identify(keys, &shown, CN_SCOPE_INFER, &key, &err), CN_E_KEY_REQUIRED);
    shown.authorization = CN_STR("");
    assert_int_equal(cn_keys_identify(keys, &shown, CN_SCOPE_INFER, &key, &err), CN_E_KEY_REQUIRED);
    assert_non_null(strstr(err.message, "the key that was sent is empty"));
    assert_null(key);
}

/* Without an authority nobody would ask for certificates, and the key would be of no use. */
static void
certificates_need_an_authority(void **state)
{
    struct cn_keys *other;

    (void)state;
    write_text(CN_STR(WITH_CERTIFICATES));
    assert_int_equal(cn_keys_open(path, (struct cn_keys_rules){.owners = true}, &other, &err),
                     CN_E_CONFIG);
    assert_non_null(strstr(err.message, "the key shop has certificates, but the server asks no"));
}

static atomic_bool ends;

/* Checks a key until the test ends. Returns how often it was refused. */
static void *
check_again_and_again(void *arg)
{
    const struct cn_key *key = arg;
    uintptr_t refused = 0;
    struct cn_credentials shown;
    struct cn_error mine;
    char text[CN_KEY_TEXT_MAX + 7];

    snprintf(text, sizeof text, "Bearer %s", shop);
    shown = (struct cn_credentials){.sent = true, .authorization = cn_str_from(text)};
    while (!atomic_load(&ends)) {
        refused += cn_keys_check(keys, key, CN_SCOPE_INFER, &mine) != 0;
        refused += cn_keys_check_model(keys, key, CN_STR("asr-1"), &mine) != 0;
        refused += cn_keys_identify(keys, &shown, CN_SCOPE_INFER, &key, &mine) != 0;
    }
    return (void *)refused;
}

/* Requests go on while the file is read anew; ThreadSanitizer watches this test. */
static void
a_reload_disturbs_no_request(void **state)
{
    const struct cn_key *key;
    pthread_t threads[2];
    void *refused;

    (void)state;
    assert_int_equal(identify("Bearer ", shop, CN_SCOPE_INFER, &key), 0);
    atomic_store(&ends, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, check_again_and_again, (void *)(uintptr_t)key), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(cn_keys_reload(keys, &err), 0);
    atomic_store(&ends, true);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], &refused), 0);
        assert_null(refused);
    }
}

int
main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_made_key_is_random),
        CASE(only_a_known_key_with_the_scope_is_admitted),
        CASE(a_key_opens_the_models_of_its_patterns),
        CASE(a_key_expires),
        CASE(a_reload_takes_effect_for_keys_in_use),
        CASE(a_damaged_file_changes_nothing),
        CASE(a_certificate_stands_for_its_key),
        CASE(a_certificate_that_is_taken_away_ends),
        CASE(a_key_counts_more_than_a_certificate),
        CASE(certificates_need_an_authority),
        CASE(a_reload_disturbs_no_request),
    };

    return cmocka_run_group_tests_name("access.keys", tests, NULL, NULL);
}
