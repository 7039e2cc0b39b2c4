/* frontend/intake/step_headers_test.c - tests what the headers say about a sequence and a step. */
#include "frontend/intake/step_headers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HEADER(n, v)                                                                               \
    {                                                                                              \
        CN_STR(n), CN_STR(v)                                                                       \
    }
#define READ(list, out, err) cn_intake_read_sequence(list, sizeof(list) / sizeof(list[0]), out, err)

/* Proxies rewrite the names of headers. The client gets its own spelling back. */
static void
any_spelling_is_read_and_kept(void **state)
{
    static const char *const spellings[] = {"ts_request_sequence_id", "ts-request-sequence-id",
                                            "TS-Request-Sequence-Id", "Ts_Request-sequence_ID",
                                            "Continuo-Sequence",      "continuo_sequence",
                                            "Continuo-Sequence-Id",   "continuo_sequence_id"};
    struct cn_sequence_headers got;
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        const struct cn_header list[] = {HEADER("Host", "a"),
                                         {cn_str_from(spellings[i]), CN_STR("seq_0")}};

        assert_int_equal(READ(list, &got, NULL), 0);
        assert_true(cn_str_eq(got.id, CN_STR("seq_0")));
        assert_true(cn_str_eq(got.id_name, cn_str_from(spellings[i])));
        assert_false(got.start || got.end);
    }
}

/* No id and an empty id mean the same. The answer then uses the server's own spelling. */
static void
empty_id_is_no_id(void **state)
{
    const struct cn_header list[] = {HEADER("TS-REQUEST-SEQUENCE-ID", ""), HEADER("Accept", "*/*")};
    struct cn_sequence_headers got;

    (void)state;
    assert_int_equal(READ(list, &got, NULL), 0);
    assert_int_equal(got.id.len, 0);
    assert_true(cn_str_eq(got.id_name, CN_STR("ts_request_sequence_id")));
    assert_int_equal(cn_intake_read_sequence(list, 0, &got, NULL), 0);
    assert_int_equal(got.id.len, 0);
}

/* A step whose id is not read would run in a new sequence, and its client would never hear why. */
static void
misspelt_names_are_refused_with_the_right_one(void **state)
{
    static const char *const wrong[][2] = {
        {"ts-request-sequenceid", "did you mean ts_request_sequence_id?"},
        {"TS-Request-Seqence-Id", "did you mean ts_request_sequence_id?"},
        {"ts_request_sequence_strat", "did you mean ts_request_sequence_start?"},
        {"ts-request-sequence-ends", "did you mean ts_request_sequence_end?"},
        {"Continuo-Sequense", "did you mean Continuo-Sequence?"},
        {"ts-request-sequence-stepp", "did you mean ts-request-sequence-step?"}};
    static const char *const others[] = {"Continuo-Sequence-Step",
                                         "ts-request-sequence-step",
                                         "Continuo-Sequence-Restarted",
                                         "Content-Encoding",
                                         "tsx",
                                         "ts-request-priority",
                                         ""};
    struct cn_sequence_headers got;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const struct cn_header list[] = {{cn_str_from(wrong[i][0]), CN_STR("true")}};
        struct cn_error err = {0};

        assert_int_equal(READ(list, &got, &err), CN_E_BAD_REQUEST);
        if (!strstr(err.message, wrong[i][1]) || !strstr(err.message, wrong[i][0]))
            fail_msg("%s", err.message);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const struct cn_header list[] = {{cn_str_from(others[i]), CN_STR("1")}};

        assert_int_equal(READ(list, &got, NULL), 0);
    }
}

static void
use_names(const char *id, const char *start, const char *end, const char *wrong)
{
    struct cn_server_config config = {.sequence_id_header = (char *)(uintptr_t)id,
                                      .sequence_start_header = (char *)(uintptr_t)start,
                                      .sequence_end_header = (char *)(uintptr_t)end};
    struct cn_error err = {0};

    assert_int_equal(cn_sequence_names_use(&config, &err), wrong ? CN_E_CONFIG : 0);
    if (wrong)
        assert_non_null(strstr(err.message, wrong));
}

/* TorchServe's keys ts_header_key_sequence_... choose other names. The old names then mean nothing,
 * and an invalid name stops the start. */
static void
headers_may_be_renamed(void **state)
{
    const struct cn_header list[] = {HEADER("ts_request_sequence_id", "old"),
                                     HEADER("x_session", "seq_0"), HEADER("X-Begin", "true"),
                                     HEADER("ts_request_sequence_end", "true")};
    struct cn_sequence_headers got;

    (void)state;
    use_names("X-Session", "X-Begin", "X-Done", NULL);
    assert_int_equal(READ(list, &got, NULL), 0);
    assert_true(cn_str_eq(got.id, CN_STR("seq_0")));
    assert_true(cn_str_eq(got.id_name, CN_STR("x_session")));
    assert_true(got.start);
    assert_false(got.end);
    assert_int_equal(cn_intake_read_sequence(list, 1, &got, NULL), 0);
    assert_int_equal(got.id.len, 0);
    assert_true(cn_str_eq(got.id_name,
                          CN_STR("x-session"))); /* names in gRPC's metadata are in lower case */
    use_names("X-Session", "ts_request_sequence_start", "ts_request_sequence_end", NULL);
    assert_int_equal(cn_intake_read_sequence(list, 2, &got, NULL), 0); /* ..._id is near ..._end */
    assert_true(cn_str_eq(got.id, CN_STR("seq_0")));
    use_names("a b", "s", "e", "--sequence-id-header: \"a b\" is not a valid header name");
    use_names("i", "", "e", "--sequence-start-header: \"\" is not a valid header name");
    use_names("i", "s", "Content-Length",
              "--sequence-end-header: the header Content-Length already has");
    use_names("i", "s", "idempotency_key",
              "--sequence-end-header: the header idempotency_key already has");
    use_names("i", "continuo_sequence", "e",
              "--sequence-start-header: the header continuo_sequence already has");
    use_names("i", "s", "continuo-sequence-id",
              "--sequence-end-header: the header continuo-sequence-id already has");
    use_names("x-a", "s", "X_A",
              "--sequence-id-header and --sequence-end-header both name the header X_A");
    use_names("ts_request_sequence_id", "ts_request_sequence_start", "ts_request_sequence_end",
              NULL);
    assert_int_equal(READ(list, &got, NULL), 0);
    assert_true(cn_str_eq(got.id, CN_STR("old")));
}

/* START and END are written as "true". A misspelt value must not be taken for "false". */
static void
flags_are_true_or_false(void **state)
{
    const struct cn_header good[] = {HEADER("ts_request_sequence_start", "true"),
                                     HEADER("ts-request-sequence-end", "TRUE")};
    const struct cn_header no[] = {HEADER("ts_request_sequence_start", "false"),
                                   HEADER("ts_request_sequence_end", "")};
    const struct cn_header bad[] = {HEADER("ts_request_sequence_end", "yes")};
    const struct cn_header twice[] = {HEADER("ts_request_sequence_start", "true"),
                                      HEADER("ts-request-sequence-start", ""),
                                      HEADER("ts-request-sequence-start", "True")};
    const struct cn_header both[] = {HEADER("ts_request_sequence_start", "false"),
                                     HEADER("ts_request_sequence_end", "true"),
                                     HEADER("ts-request-sequence-start", "true")};
    struct cn_sequence_headers got;
    struct cn_error err;

    (void)state;
    assert_int_equal(READ(good, &got, NULL), 0);
    assert_true(got.start && got.end);
    assert_int_equal(READ(no, &got, NULL), 0);
    assert_false(got.start || got.end);
    assert_int_equal(READ(bad, &got, &err), CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "ts_request_sequence_end"));
    assert_int_equal(READ(twice, &got, NULL), 0);
    assert_true(got.start && !got.end);
    assert_int_equal(READ(both, &got, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message, "header ts_request_sequence_start is \"false\", and header "
                                     "ts-request-sequence-start is \"true\"; send one of them");
}

/* If a key is cut or altered on the way, two steps could become one, or one step two. */
static void
idempotency_key_is_read_strictly(void **state)
{
    static char longest[CN_IDEMPOTENCY_KEY_MAX + 2];
    const struct cn_header one[] = {HEADER("Host", "a"), HEADER("idempotency-KEY", "k 1~")};
    const struct cn_header same[] = {HEADER("Idempotency-Key", "k"),
                                     HEADER("Idempotency-Key", "k")};
    const struct cn_header two[] = {HEADER("Idempotency-Key", "k"), HEADER("Idempotency-Key", "l")};
    const struct cn_header empty[] = {HEADER("Idempotency-Key", "")};
    const struct cn_header bytes[] = {HEADER("Idempotency-Key", "k\xc3\xa4")};
    struct cn_header is_long = {CN_STR("Idempotency-Key"), {longest, CN_IDEMPOTENCY_KEY_MAX}};
    struct cn_error err;
    struct cn_str key;

    (void)state;
    assert_int_equal(cn_intake_read_key(one, 1, &key, NULL), 0);
    assert_int_equal(key.len, 0);
    assert_int_equal(cn_intake_read_key(one, 2, &key, NULL), 0);
    assert_true(cn_str_eq(key, CN_STR("k 1~")));
    assert_int_equal(cn_intake_read_key(same, 2, &key, NULL), 0);
    assert_int_equal(cn_intake_read_key(two, 2, &key, NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_intake_read_key(empty, 1, &key, NULL), CN_E_BAD_REQUEST);
    assert_int_equal(cn_intake_read_key(bytes, 1, &key, NULL), CN_E_BAD_REQUEST);
    memset(longest, 'k', sizeof(longest) - 1);
    assert_int_equal(cn_intake_read_key(&is_long, 1, &key, NULL), 0);
    is_long.value.len++;
    assert_int_equal(cn_intake_read_key(&is_long, 1, &key, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message, "the Idempotency-Key has 257 bytes; it must have 1 to 256");
}

/* Guessing which of two ids was meant would mix two clients' state; the same one twice is
 * harmless. */
static void
two_ids_are_refused(void **state)
{
    const struct cn_header two[] = {HEADER("ts_request_sequence_id", "a"),
                                    HEADER("ts-request-sequence-id", "b")};
    const struct cn_header same[] = {HEADER("ts_request_sequence_id", "a"),
                                     HEADER("ts-request-sequence-id", "a")};
    const struct cn_header by_alias[] = {HEADER("Continuo-Sequence", "a"),
                                         HEADER("ts-request-sequence-id", "b")};
    struct cn_sequence_headers got;
    struct cn_error err;

    (void)state;
    assert_int_equal(READ(two, &got, NULL), CN_E_BAD_REQUEST);
    assert_int_equal(READ(by_alias, &got, &err), CN_E_BAD_REQUEST);
    assert_string_equal(
        err.message, "the request names two different sequences: Continuo-Sequence is \"a\", and "
                     "ts-request-sequence-id is \"b\"; send one of them");
    assert_int_equal(READ(same, &got, NULL), 0);
    assert_true(cn_str_eq(got.id_name, CN_STR("ts_request_sequence_id")));
}

/* The name that articles teach means the same id, and is echoed as it was sent. */
static void
inference_session_id_is_the_sequence_id(void **state)
{
    const struct cn_header one[] = {HEADER("inference-session-id", "a")};
    const struct cn_header two[] = {HEADER("Inference-Session-Id", "a"),
                                    HEADER("ts_request_sequence_id", "b")};
    const struct cn_header same[] = {HEADER("Inference-Session-Id", "a"),
                                     HEADER("ts_request_sequence_id", "a"),
                                     HEADER("ts_request_sequence_end", "true")};
    struct cn_sequence_headers got;
    struct cn_error err;

    (void)state;
    assert_int_equal(READ(one, &got, NULL), 0);
    assert_true(cn_str_eq(got.id, CN_STR("a")));
    assert_true(cn_str_eq(got.id_name, CN_STR("inference-session-id")));
    assert_int_equal(READ(two, &got, &err), CN_E_BAD_REQUEST);
    assert_string_equal(err.message,
                        "the request names two different sequences: Inference-Session-Id is \"a\", "
                        "and ts_request_sequence_id is \"b\"; send one of them");
    assert_int_equal(READ(same, &got, NULL), 0);
    assert_true(got.end);
}

/* An id may have 256 bytes, but not 257, and no characters that cannot be shown. */
static void
ids_are_bounded_and_printable(void **state)
{
    char text[CN_SEQUENCE_ID_MAX + 1];
    struct cn_header list[] = {HEADER("ts_request_sequence_id", "")};
    struct cn_sequence_headers got;
    struct cn_error err;

    (void)state;
    memset(text, 'x', sizeof(text));
    list[0].value = (struct cn_str){text, CN_SEQUENCE_ID_MAX};
    assert_int_equal(READ(list, &got, NULL), 0);
    list[0].value.len++;
    assert_int_equal(READ(list, &got, &err), CN_E_BAD_REQUEST);
    assert_non_null(strstr(err.message, "256"));
    list[0].value = CN_STR("caf\xc3\xa9 ?/%20");
    assert_int_equal(READ(list, &got, NULL), 0);
    list[0].value = CN_STR("caf\xe9");
    assert_int_equal(READ(list, &got, NULL), CN_E_BAD_REQUEST);
    list[0].value = CN_STR("a\tb");
    assert_int_equal(READ(list, &got, NULL), CN_E_BAD_REQUEST);
}

/* Headers with similar names, and headers whose names only begin alike, mean nothing. */
static void
other_headers_are_left_alone(void **state)
{
    const struct cn_header list[] = {HEADER("ts_request_sequence", "x"),
                                     HEADER("ts_request_sequence_index", "x"),
                                     HEADER("x_ts_request_sequence_id", "x"), HEADER("ts", "x")};
    struct cn_sequence_headers got;

    (void)state;
    assert_int_equal(READ(list, &got, NULL), 0);
    assert_int_equal(got.id.len, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_spelling_is_read_and_kept),
        cmocka_unit_test(empty_id_is_no_id),
        cmocka_unit_test(misspelt_names_are_refused_with_the_right_one),
        cmocka_unit_test(headers_may_be_renamed),
        cmocka_unit_test(flags_are_true_or_false),
        cmocka_unit_test(two_ids_are_refused),
        cmocka_unit_test(idempotency_key_is_read_strictly),
        cmocka_unit_test(inference_session_id_is_the_sequence_id),
        cmocka_unit_test(ids_are_bounded_and_printable),
        cmocka_unit_test(other_headers_are_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
