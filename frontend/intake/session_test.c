/* frontend/intake/session_test.c - tests SageMaker's session headers: how they are read, and what
 * the answer says. */
#include "frontend/intake/session.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEADER(name, value)                                                                        \
    {                                                                                              \
        CN_STR(name), CN_STR(value)                                                                \
    }
#define SESSION "X-Amzn-SageMaker-Session-Id"

struct got {
    struct cn_sequence_headers sequence;
    struct cn_session session;
    struct cn_error err;
};

static int
read_both(const struct cn_header *list, uint32_t n, struct got *got)
{
    assert_int_equal(cn_intake_read_sequence(list, n, &got->sequence, &got->err), 0);
    return cn_session_read(list, n, &got->sequence, &got->session, &got->err);
}
#define READ(list, got) read_both(list, sizeof(list) / sizeof((list)[0]), got)

/* NEW_SESSION is a start flag. The new id fits SageMaker's pattern: letters, digits and single
 * hyphens. */
static void
new_session_gets_an_id(void **state)
{
    const struct cn_header list[] = {HEADER(SESSION, "NEW_SESSION")};
    struct got one, two;

    (void)state;
    assert_int_equal(READ(list, &one), 0);
    assert_int_equal(READ(list, &two), 0);
    assert_true(one.session.used && one.session.is_new && one.sequence.start);
    assert_int_equal(one.sequence.id.len, CN_GENERATED_ID_BYTES - 1);
    assert_int_equal(strspn(one.session.id, "abcdefghijklmnopqrstuvwxyz0123456789-"),
                     CN_GENERATED_ID_BYTES - 1);
    assert_null(strstr(one.session.id, "--"));
    assert_string_not_equal(one.session.id, two.session.id);
    assert_int_equal(one.sequence.id_name.len, 0); /* SageMaker's headers tell the id */
}

/* The header's name may be spelled in any case. Without a header, or with an empty one, a request
 * belongs to no session. */
static void
id_addresses_its_sequence(void **state)
{
    const struct cn_header id[] = {HEADER("x-amzn-sagemaker-session-id", "s1")};
    const struct cn_header none[] = {HEADER(SESSION, ""), HEADER("Accept", "*/*")};
    struct got got;

    (void)state;
    assert_int_equal(READ(id, &got), 0);
    assert_true(got.session.used && !got.session.is_new && !got.sequence.start);
    assert_true(cn_str_eq(got.sequence.id, CN_STR("s1")));
    assert_int_equal(READ(none, &got), 0);
    assert_false(got.session.used);
    assert_true(cn_str_eq(got.sequence.id_name, CN_STR("ts_request_sequence_id")));
}

/* The server does not guess which of two ids was meant. The same id under two names is harmless. */
static void
contradictions_are_refused(void **state)
{
    const struct cn_header two[] = {HEADER(SESSION, "a"), HEADER("ts_request_sequence_id", "b")};
    const struct cn_header both[] = {HEADER("Inference-Session-Id", "a"),
                                     HEADER(SESSION, "NEW_SESSION")};
    const struct cn_header same[] = {HEADER(SESSION, "a"), HEADER("Inference-Session-Id", "a")};
    struct got got;

    (void)state;
    assert_int_equal(READ(two, &got), CN_E_BAD_REQUEST);
    assert_int_equal(READ(both, &got), CN_E_BAD_REQUEST);
    assert_non_null(strstr(got.err.message, "NEW_SESSION"));
    assert_int_equal(READ(same, &got), 0);
}

/* The time at which a session ends is that of the nearer clock, including the time for which the
 * state is kept after it, in whole seconds of UTC. */
static void
value_tells_when_the_session_ends(void **state)
{
    struct cn_session session = {.used = true, .is_new = true, .id = "s"};
    struct cn_model_config config;
    struct cn_arena arena;

    (void)state;
    cn_arena_init(&arena);
    cn_model_config_init(&config);
    assert_int_equal(cn_session_check(&session, &config, "m", NULL), CN_E_BAD_REQUEST);
    config.sequence_batching = true;
    assert_int_equal(cn_session_check(&session, &config, "m", NULL), 0);
    assert_string_equal(cn_session_value(&arena, &session, 0), "s");
    config.sequence_max_idle_ms = 60999;
    assert_int_equal(cn_session_check(&session, &config, "m", NULL), 0);
    assert_string_equal(cn_session_value(&arena, &session, 0), "s; Expires=1970-01-01T00:01:00Z");
    config.state_ttl_ms = 60000;
    assert_int_equal(cn_session_check(&session, &config, "m", NULL), 0);
    assert_int_equal(session.lives_ms, 120999);
    config.sequence_timeout_ms = 5000;
    assert_int_equal(cn_session_check(&session, &config, "m", NULL), 0);
    assert_int_equal(session.lives_ms, 5000);
    cn_arena_fini(&arena);
}

/* A session is reported as closed if it ended with this step or before it. A step that fails closes
 * nothing. */
static void
closed_sessions_are_told(void **state)
{
    (void)state;
    assert_true(cn_session_is_closed(&(struct cn_answer){.flags = CN_ANSWER_ENDED}));
    assert_true(cn_session_is_closed(&(struct cn_answer){.error_code = CN_E_SEQUENCE_EXPIRED}));
    assert_true(cn_session_is_closed(&(struct cn_answer){.error_code = CN_E_SEQUENCE_UNKNOWN}));
    assert_false(cn_session_is_closed(&(struct cn_answer){.flags = CN_ANSWER_FINAL}));
    assert_false(cn_session_is_closed(&(struct cn_answer){.error_code = CN_E_HANDLER_FAILED}));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_session_gets_an_id),
        cmocka_unit_test(id_addresses_its_sequence),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(value_tells_when_the_session_ends),
        cmocka_unit_test(closed_sessions_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
