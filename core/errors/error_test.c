/* core/errors/error_test.c - errors: text, codes, table. */
#include "core/errors/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* cn_fail() returns the code, so that callers can write `return cn_fail(...)`. */
static void
fail_fills_and_returns_the_code(void **state)
{
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(cn_fail(&err, CN_E_NOT_FOUND, "model %s", "asr"), CN_E_NOT_FOUND);
    assert_int_equal(err.code, CN_E_NOT_FOUND);
    assert_string_equal(err.message, "model asr");
    assert_int_equal(cn_fail(NULL, CN_E_IO, "nobody looks"), CN_E_IO);
}

/* Codes are negative and 0 is success, everywhere. */
static void
all_codes_are_negative(void **state)
{
    (void)state;
    assert_true(CN_E_FIRST_ < 0 && CN_E_END_ < 0);
}

static void
fail_sys_adds_the_systems_reason(void **state)
{
    struct cn_error err = {0};

    (void)state;
    assert_int_equal(cn_fail_sys(&err, CN_E_IO, ENOENT, "open %s", "x"), CN_E_IO);
    assert_string_equal(err.message, "open x: No such file or directory");
}

/* A caller adds context to the error that it got, in the same struct. */
static void
an_error_may_be_wrapped_in_place(void **state)
{
    struct cn_error err = {0};

    (void)state;
    cn_fail(&err, CN_E_IO, "inner");
    cn_fail(&err, err.code, "outer: %s", err.message);
    assert_string_equal(err.message, "outer: inner");
}

/* Messages go into headers, logs and JSON, with text from outside in them. */
static void
a_message_is_one_line(void **state)
{
    struct cn_error err = {0};

    (void)state;
    cn_fail(&err, CN_E_IO, "a\nb\r\n");
    assert_string_equal(err.message, "a b");
}

/* Half a character would make the JSON body invalid. */
static void
cut_text_ends_with_a_whole_character(void **state)
{
    char text[CN_ERROR_MESSAGE_MAX + 16];
    struct cn_error err = {0};
    size_t shift, len, i;

    (void)state;
    for (shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 3);
        text[i] = '\0';
        cn_fail(&err, CN_E_IO, "%s", text);
        len = strlen(err.message);
        assert_true(len <= CN_ERROR_MESSAGE_MAX - 1 && len > CN_ERROR_MESSAGE_MAX - 5);
        assert_int_equal((len - shift) % 3, 0);
    }
}

/* Bytes from outside, and arguments that were cut, must not make a body that clients cannot read.
 */
static void
a_message_is_utf8(void **state)
{
    struct cn_error err = {0};

    (void)state;
    cn_fail(&err, CN_E_IO, "a\xff'%.3s' \xe2\x82\xac", "x\xe2\x82\xac");
    assert_string_equal(err.message, "a?'x?\x3f' \xe2\x82\xac");
}

/* An unknown code is a bug of ours, and is shown as one. */
static void
the_table_answers_every_code(void **state)
{
    int code;

    (void)state;
    for (code = CN_E_FIRST_ + 1; code < CN_E_END_; code++) {
        const struct cn_error_info *info = cn_error_info(code);

        assert_int_equal(info->code, code);
        assert_in_range(info->http_status, 400, 599);
        assert_in_range(info->grpc_status, 1, 16);
    }
    assert_string_equal(cn_error_info(CN_E_QUEUE_FULL)->word, "queue_full");
    assert_int_equal(cn_error_info(0)->code, CN_E_INTERNAL);
    assert_int_equal(cn_error_info(12345)->code, CN_E_INTERNAL);
    assert_int_equal(cn_error_info(INT32_MIN)->code, CN_E_INTERNAL);
    assert_int_equal(cn_error_info(INT32_MAX)->code, CN_E_INTERNAL);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_and_returns_the_code),
        cmocka_unit_test(all_codes_are_negative),
        cmocka_unit_test(fail_sys_adds_the_systems_reason),
        cmocka_unit_test(an_error_may_be_wrapped_in_place),
        cmocka_unit_test(a_message_is_one_line),
        cmocka_unit_test(cut_text_ends_with_a_whole_character),
        cmocka_unit_test(a_message_is_utf8),
        cmocka_unit_test(the_table_answers_every_code),
    };

    return cmocka_run_group_tests_name("core.error", tests, NULL, NULL);
}
