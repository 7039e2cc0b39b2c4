/* management/api/json/sequence_json_test.c - tests how sequences are shown to an operator, and
 * tokens that come from outside. */
#include "management/api/json/sequence_json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/time/clock.h"
#include "management/api/json/json_text.h"

#define NOW UINT64_C(1700000000000)

static const struct cn_sequence_info stored = {
    .id = {"s1", 2},
    .flags = CN_INFO_HAS_STATE | CN_INFO_HAS_KEY,
    .generation = 7,
    .step = 3,
    .opened_wall_ms = NOW - 5000,
    .last_wall_ms = NOW - 1000,
    .expires_wall_ms = NOW + 2000,
    .state_bytes = 42,
};

static struct cn_model_config
config_with(uint64_t idle, uint64_t total)
{
    struct cn_model_config config;

    cn_model_config_init(&config);
    config.sequence_max_idle_ms = idle;
    config.sequence_timeout_ms = total;
    return config;
}

static const char *
text_of(json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "(none)";
}

static json_int_t
number_of(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* A sequence that is only on disk: its clocks are computed from the stored times. */
static void
a_stored_sequence_shows_what_the_store_has(void **state)
{
    struct cn_model_config config = config_with(3000, 60000);
    json_t *shown = cn_sequence_json(&stored, NULL, &config, NOW);

    (void)state;
    assert_string_equal(text_of(shown, "sequence"), "s1");
    assert_string_equal(text_of(shown, "state"), "stored");
    assert_int_equal(number_of(shown, "step"), 3);
    assert_int_equal(number_of(shown, "stateBytes"), 42);
    assert_int_equal(number_of(shown, "idleMSec"), 1000);
    assert_int_equal(number_of(shown, "idleLeftMSec"), 2000);
    assert_int_equal(number_of(shown, "totalLeftMSec"), 55000);
    assert_string_equal(text_of(shown, "expires"), "2023-11-14T22:13:22.000Z");
    assert_true(json_is_null(json_object_get(shown, "worker")));
    json_decref(shown);
}

/* While a step waits or runs, the idle clock stands still. */
static void
a_busy_sequence_does_not_expire_by_silence(void **state)
{
    struct cn_sequence_live live = {
        .waiting = 2, .in_flight = true, .worker = 4, .lifetime_left_ms = 500};
    struct cn_model_config config = config_with(3000, 60000);
    json_t *shown = cn_sequence_json(&stored, &live, &config, NOW);

    (void)state;
    assert_string_equal(text_of(shown, "state"), "live");
    assert_int_equal(number_of(shown, "backlog"), 2);
    assert_int_equal(number_of(shown, "worker"), 4);
    assert_true(json_is_true(json_object_get(shown, "inFlight")));
    assert_int_equal(number_of(shown, "idleLeftMSec"), 3000);
    assert_int_equal(number_of(shown, "totalLeftMSec"), 500);
    assert_true(json_is_null(json_object_get(shown, "expires")));
    json_decref(shown);
}

static void
a_closed_sequence_shows_its_reason(void **state)
{
    struct cn_sequence_info closed = stored, expired = stored;
    struct cn_model_config config = config_with(0, 0);
    json_t *shown;

    (void)state;
    closed.flags = CN_INFO_CLOSED;
    closed.close_reason = CN_CLOSE_IDLE;
    closed.closed_wall_ms = NOW;
    shown = cn_sequence_json(&closed, NULL, &config, NOW);
    assert_string_equal(text_of(shown, "state"), "closed");
    assert_string_equal(text_of(shown, "reason"), "idle");
    assert_string_equal(text_of(shown, "forgotten"), "2023-11-14T22:13:22.000Z");
    assert_null(json_object_get(shown, "stateBytes"));
    json_decref(shown);
    expired.flags |= CN_INFO_EXPIRED;
    shown = cn_sequence_json(&expired, NULL, &config, NOW);
    assert_string_equal(text_of(shown, "state"), "expired");
    assert_true(json_is_null(json_object_get(shown, "idleLeftMSec")));
    json_decref(shown);
}

/* The token of a page leads to the next sequence, whatever bytes the id has. */
static void
tokens_go_there_and_back(void **state)
{
    static const struct {
        uint32_t worker;
        struct cn_str id;
    } cases[] = {{0, {"a/b c\xc3\xa9", 7}}, {7, {"", 0}}, {1024, {"0-", 2}}};
    char id[CN_SEQUENCE_ID_MAX];
    uint32_t worker;
    size_t len, i;

    (void)state;
    for (i = 0; i < 3; i++) {
        json_t *token = cn_page_token_json(cases[i].worker, cases[i].id);

        assert_int_equal(cn_page_token_parse(json_string_value(token), &worker, id, &len, NULL), 0);
        assert_int_equal(worker, cases[i].worker);
        assert_true(cn_str_eq((struct cn_str){id, len}, cases[i].id));
        json_decref(token);
    }
}

static void
tokens_that_no_page_gave_out_are_refused(void **state)
{
    static const char *const wrong[] = {"",     "-",    "7",     "0-a",  "0-ag",
                                        "x-61", "0-6A", "-1-61", "0 -6", "99999999999999999999-61"};
    char id[CN_SEQUENCE_ID_MAX], large[2 + 2 * CN_SEQUENCE_ID_MAX + 3];
    uint32_t worker;
    size_t len, i;

    (void)state;
    for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(cn_page_token_parse(wrong[i], &worker, id, &len, NULL), CN_E_BAD_REQUEST);
    memset(large, '6', sizeof(large));
    memcpy(large, "0-", 2);
    large[sizeof(large) - 1] = '\0';
    assert_int_equal(cn_page_token_parse(large, &worker, id, &len, NULL), CN_E_BAD_REQUEST);
}

/* Ids obey the rules of the header: text is allowed, control characters and broken UTF-8 are
 * not. */
static void
ids_are_printable_text(void **state)
{
    char large[CN_SEQUENCE_ID_MAX + 2];

    (void)state;
    assert_int_equal(cn_sequence_id_check("seq/0 \xc3\xa9", NULL), 0);
    assert_int_equal(cn_sequence_id_check("", NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_sequence_id_check("a\nb", NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_sequence_id_check("a\x7f", NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_sequence_id_check("\xc2\x85", NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_sequence_id_check("\xff", NULL), CN_E_BAD_REQUEST);
    memset(large, 'x', sizeof(large));
    large[CN_SEQUENCE_ID_MAX + 1] = '\0';
    assert_int_equal(cn_sequence_id_check(large, NULL), CN_E_BAD_REQUEST);
    large[CN_SEQUENCE_ID_MAX] = '\0';
    assert_int_equal(cn_sequence_id_check(large, NULL), 0);
}

/* A mean of 0.1 ms is written so, and not as the nearest double in 17 digits. */
static void
decimal_numbers_are_short(void **state)
{
    struct cn_buf out;

    (void)state;
    cn_buf_init(&out, 0);
    cn_json_print(json_real(0.1), &out);
    cn_json_print(json_real(0.012345), &out);
    assert_true(cn_str_eq(cn_buf_str(&out), CN_STR("0.1\n0.012345\n")));
    cn_buf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stored_sequence_shows_what_the_store_has),
        cmocka_unit_test(a_busy_sequence_does_not_expire_by_silence),
        cmocka_unit_test(a_closed_sequence_shows_its_reason),
        cmocka_unit_test(tokens_go_there_and_back),
        cmocka_unit_test(tokens_that_no_page_gave_out_are_refused),
        cmocka_unit_test(ids_are_printable_text),
        cmocka_unit_test(decimal_numbers_are_short),
    };

    return cmocka_run_group_tests_name("management.sequence_json", tests, NULL, NULL);
}
