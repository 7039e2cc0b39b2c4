/* management/api/tokens_test.c - tests which keys are accepted, for how long, and what the key file
 * contains. */
#include "management/api/tokens.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/test_support.h"
#include "core/time/clock.h"

#define LIFETIME_MS 60000

static char dir[TEST_DIR_MAX], path[100];
static struct cn_tokens *tokens;
static struct cn_loop *loop;
static struct cn_file_thread *files;

static int
set_up(void **state)
{
    struct cn_error err;

    (void)state;
    cn_clock_freeze();
    test_dir_make(dir);
    snprintf(path, sizeof path, "%s/key_file.json", dir);
    assert_int_equal(cn_loop_create(0, &loop, &err), 0);
    assert_int_equal(cn_file_thread_create(loop, 1, &files, &err), 0);
    assert_int_equal(cn_tokens_create(path, LIFETIME_MS, &tokens, &err), 0);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    cn_tokens_destroy(tokens);
    cn_file_thread_destroy(files);
    cn_loop_destroy(loop);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left in it */
    return 0;
}

/* Returns a member of the file as text. */
static const char *
in_file(const char *kind, const char *member)
{
    static char text[64];
    json_t *whole = json_load_file(path, 0, NULL);
    const char *value;

    assert_non_null(whole);
    value = json_string_value(json_object_get(json_object_get(whole, kind), member));
    snprintf(text, sizeof text, "%s", value ? value : "none");
    json_decref(whole);
    return text;
}

static int
check(enum cn_token_kind kind, const char *scheme, const char *key)
{
    char text[100];

    snprintf(text, sizeof text, "%s%s", scheme, key);
    return cn_tokens_check(tokens, kind, cn_str_from(text), NULL);
}

/* Each key is accepted only where it belongs. */
static void
keys_open_their_own_interface(void **state)
{
    static const char *const names[] = {"inference", "management", "API"};
    int door, key;

    (void)state;
    for (door = 0; door < CN_N_TOKENS; door++)
        for (key = 0; key < CN_N_TOKENS; key++)
            assert_int_equal(check((enum cn_token_kind)door, "Bearer ", in_file(names[key], "key")),
                             door == key ? 0 : CN_E_TOKEN);
}

/* The header must match ^Bearer\s+(\S+)$ exactly. The error is TorchServe's. */
static void
only_a_bearers_key_counts(void **state)
{
    char key[64], text[80];
    struct cn_error err;

    (void)state;
    strcpy(key, in_file("inference", "key"));
    assert_int_equal(strlen(key), 8);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer \t ", key), 0);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "", key), CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer", key), CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "bearer ", key), CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Basic ", key), CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", ""), CN_E_TOKEN);
    snprintf(text, sizeof text, "%s x", key);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", text), CN_E_TOKEN);
    snprintf(text, sizeof text, "%sx", key);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", text), CN_E_TOKEN);
    key[7] ^= 1;
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", key), CN_E_TOKEN);
    assert_int_equal(cn_tokens_check(tokens, CN_TOKEN_INFERENCE, (struct cn_str){NULL, 0}, &err),
                     CN_E_TOKEN);
    assert_string_equal(
        err.message,
        "Token Authorization failed. Token either incorrect, expired, or not provided correctly");
}

/* Two of the keys expire at exactly the time that the file says. */
static void
keys_expire_but_the_api_key(void **state)
{
    (void)state;
    assert_string_equal(in_file("management", "expiration time"), "2023-11-14T22:14:20.000Z");
    assert_string_equal(in_file("API", "expiration time"), "none");
    cn_clock_advance(LIFETIME_MS - 1);
    assert_int_equal(check(CN_TOKEN_MANAGEMENT, "Bearer ", in_file("management", "key")), 0);
    cn_clock_advance(1);
    assert_int_equal(check(CN_TOKEN_MANAGEMENT, "Bearer ", in_file("management", "key")),
                     CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_API, "Bearer ", in_file("API", "key")), 0);
}

/* Other users of the machine must not read the file, even if a file existed before. */
static void
the_file_is_the_owners_alone(void **state)
{
    struct cn_tokens *again;
    struct cn_error err;
    struct stat st;

    (void)state;
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(cn_tokens_create(path, LIFETIME_MS, &again, &err), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    cn_tokens_destroy(again);
    assert_int_equal(cn_tokens_create("/nowhere/keys", LIFETIME_MS, &again, &err), CN_E_CONFIG);
    assert_string_equal(err.message, "cannot write the keys to /nowhere/keys (token-file): No such "
                                     "file or directory");
}

static unsigned n_renewed;

static void
on_renewed(struct cn_token_renewal *renewal)
{
    (void)renewal;
    n_renewed++;
}

/* A new key replaces the old one of its kind at once, and the others stay. One key is renewed at a
 * time. */
static void
a_renewed_key_replaces_the_old_one(void **state)
{
    struct cn_token_renewal renewal = {.kind = CN_TOKEN_INFERENCE, .on_done = on_renewed};
    struct cn_token_renewal second = renewal;
    struct cn_error err;
    char before[64], other[64];

    (void)state;
    strcpy(before, in_file("inference", "key"));
    strcpy(other, in_file("management", "key"));
    cn_clock_advance(LIFETIME_MS / 2);
    n_renewed = 0;
    assert_int_equal(cn_tokens_renew(tokens, files, &renewal, &err), 0);
    assert_int_equal(cn_tokens_renew(tokens, files, &second, &err), CN_E_CONFLICT);
    while (n_renewed == 0)
        cn_loop_turn(loop, 5);
    assert_int_equal(renewal.err.code, 0);
    assert_string_not_equal(in_file("inference", "key"), before);
    assert_string_equal(in_file("management", "key"), other);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", before), CN_E_TOKEN);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", in_file("inference", "key")), 0);
    cn_clock_advance(LIFETIME_MS - 1);
    assert_int_equal(check(CN_TOKEN_INFERENCE, "Bearer ", in_file("inference", "key")), 0);
    assert_int_equal(check(CN_TOKEN_MANAGEMENT, "Bearer ", other), CN_E_TOKEN);
}

int
main(void)
{
#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(keys_open_their_own_interface),      CASE(only_a_bearers_key_counts),
        CASE(keys_expire_but_the_api_key),        CASE(the_file_is_the_owners_alone),
        CASE(a_renewed_key_replaces_the_old_one),
    };

    return cmocka_run_group_tests_name("management.tokens", tests, NULL, NULL);
}
